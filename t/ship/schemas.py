"""kubernetes-validate, with its schemas of the API, in a venv of its own."""

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
from roots import must                      # noqa: E402
from sources import DIR                     # noqa: E402

VALIDATE = 'kubernetes-validate==1.37.0'


def validator():
    venv = DIR + '/kubernetes-validate'
    if not os.path.exists(venv + '/done'):
        must('/usr/bin/python3', '-m', 'venv', venv)
        must(venv + '/bin/pip', '-q', '--disable-pip-version-check',
             'install', VALIDATE)
        open(venv + '/done', 'w').close()
    return venv + '/bin/kubernetes-validate'
