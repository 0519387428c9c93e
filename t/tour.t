#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# What docs/tour.md shows is what happens.

import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                'lib'))
from llmcapture import (MODULE, NGINX, TOP, Upstream, case,  # noqa: E402
                        free_port, skip_all, wait_gone)
from tour import Tour                                       # noqa: E402

if os.geteuid() != 0:
    skip_all('needs root')

here = tempfile.mkdtemp(prefix='llm-capture-tour-')
os.chmod(here, 0o755)
os.mkdir(here + '/bin')
os.mkdir(here + '/modules')
os.symlink(MODULE, here + '/modules/ngx_http_llm_capture_module.so')
os.symlink(NGINX, here + '/bin/nginx')
os.symlink(TOP + '/build/llm-capture', here + '/bin/llm-capture')

try:
    with case('the tour'), Upstream() as up:
        words = {'8080': free_port(), '8081': free_port(), '8000': up.port,
                 '/srv/tour': here}
        Tour('tour', here, words,
             {'PATH': here + '/bin:' + os.environ['PATH'],
              'COLUMNS': '80'}).run()
finally:
    try:
        pid = int(open(here + '/nginx.pid').read())
        subprocess.run(['kill', '-QUIT', str(pid)])
        wait_gone(pid, 30)
    except FileNotFoundError:
        pass
    shutil.rmtree(here)
