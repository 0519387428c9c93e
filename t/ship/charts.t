#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The values of conf-examples/kubernetes, by helm, with the real chart of
# ingress-nginx: what it makes of them.  Other charts, such as a newer one or
# F5's nginx-ingress: LLM_CAPTURE_CHARTS=DIR:DIR.

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from apiserver import go                        # noqa: E402
from roots import must, run                     # noqa: E402
from llmcapture import TOP, case, is_, ok, skip_all     # noqa: E402
from schemas import validator                   # noqa: E402
from sources import DIR, Unavailable            # noqa: E402

import yaml                                     # noqa: E402

HELM = 'helm.sh/helm/v3/cmd/helm@v3.22.0'
CHART = 'k8s.io/ingress-nginx@v0.0.0-20240708192948-52c50467d67d'
EXAMPLES = TOP + '/conf-examples/kubernetes/'
SO = 'ngx_http_llm_capture_module.so'


def helm():
    """Built once: it takes minutes."""
    path = DIR + '/bin/helm'
    if not os.path.exists(path):
        go('install', '-p', '2', HELM, GOBIN=DIR + '/bin')
    return path


def chart():
    said = json.loads(go('mod', 'download', '-json', CHART))
    return said['Dir'] + '/charts/ingress-nginx'


def rendered(path, *values):
    """What is applied, valid all of it."""
    # a schema of the chart's own may refer to the network
    text = must(helm(), 'template', 'x', path, '--kube-version', '1.33.0',
                '--skip-crds', '--skip-schema-validation',
                *sum((['-f', EXAMPLES + v] for v in values), []))
    text = text[text.index('---\n'):]          # behind its warnings
    with tempfile.NamedTemporaryFile('w', suffix='.yaml') as f:
        f.write(text)
        f.flush()
        code, said = run(validator(), '--strict', f.name)
        ok(code == 0, 'what helm makes of it is valid', said)
    return [r for r in yaml.safe_load_all(text) if r]


def pod(made):
    return next(r for r in made
                if r['kind'] == 'Deployment')['spec']['template']['spec']


def config(made, word):
    """The data of the ConfigMap that has it."""
    return next(r['data'] for r in made if r['kind'] == 'ConfigMap'
                and word in r.get('data', {}))


def mounted(spec, container):
    """path -> what is mounted there."""
    volumes = {v['name']: v for v in spec['volumes']}
    return {m['mountPath']: volumes[m['name']]
            for m in container['volumeMounts']}


def ingress_nginx(path):
    made = rendered(path, 'ingress-nginx/values.yaml')
    spec = pod(made)
    data = config(made, 'main-snippet')
    init, controller = spec['initContainers'][0], spec['containers'][0]

    is_(init['command'], ['/init_module'], 'the init container runs it')
    is_(init['securityContext']['readOnlyRootFilesystem'], True,
        'with its security context')
    is_(mounted(spec, init)['/modules_mount'],
        mounted(spec, controller)['/modules_mount'],
        'into a volume that the controller has too')
    is_(data['main-snippet'].strip(), f'load_module /modules_mount/{SO};',
        'and loads it from')
    is_((data['allow-snippet-annotations'], data['annotations-risk-level']),
        ('true', 'Critical'), 'annotations may have snippets')
    is_(mounted(spec, controller)['/captures']['persistentVolumeClaim'],
        {'claimName': 'captures'}, 'the captures have their volume')
    is_(spec['securityContext']['fsGroup'], 82, "of the controller's group")

    made = rendered(path, 'ingress-nginx/values.yaml',
                    'ingress-nginx/values-all.yaml')
    data = config(made, 'main-snippet')
    is_((data.get('allow-snippet-annotations', 'false'),
         data['annotations-risk-level']), ('false', 'High'),
        'for all: not in annotations')
    ok('llm_capture $llm_capture_this;' in data['location-snippet']
       and 'map $host $llm_capture_this' in data['http-snippet'],
       "but in the administrator's own")


def nginx_ingress(path):
    made = rendered(path, 'nginx-ingress/values.yaml')
    spec = pod(made)
    controller = spec['containers'][0]
    is_(config(made, 'main-snippets')['main-snippets'].strip(),
        f'load_module /opt/llm-capture/{SO};', 'it loads the module')
    ok('-enable-snippets=true' in controller['args'],
       'annotations may have snippets')
    is_(mounted(spec, controller)['/captures']['persistentVolumeClaim'],
        {'claimName': 'captures'}, 'the captures have their volume')


KNOWN = {'ingress-nginx': ingress_nginx, 'nginx-ingress': nginx_ingress}

try:
    charts = [chart()]
    helm()
except Unavailable as e:
    skip_all(str(e).strip().splitlines()[-1])

charts += filter(None, os.environ.get('LLM_CAPTURE_CHARTS', '').split(':'))

for path in charts:
    with open(path + '/Chart.yaml') as f:
        about = yaml.safe_load(f)
    with case(f'{about["name"]} {about["version"]}'):
        KNOWN[about['name']](path)
