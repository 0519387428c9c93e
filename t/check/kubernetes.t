#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The examples for Kubernetes: each manifest against the schemas of its API,
# and, where Go can build it, by a real API server with the policy "restricted";
# each snippet in an nginx, at the place where its controller puts it, used
# once; the replay's command run by AIPerf.

import glob
import json
import os
import re
import socket
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from roots import must, run                     # noqa: E402
from llmcapture import (MODULE, TOP, Nginx, Upstream, case, is_,  # noqa: E402
                        like, ok, request, skip)
from replay import make_tokenizer               # noqa: E402
from sources import DIR                         # noqa: E402
from traffic import ask, whole                  # noqa: E402

import yaml                                     # noqa: E402

EXAMPLES = TOP + '/conf-examples/kubernetes'
VALIDATE = 'kubernetes-validate==1.37.0'
BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'

ANNOTATION = 'nginx.ingress.kubernetes.io/configuration-snippet'


def load(name):
    with open(f'{EXAMPLES}/{name}') as f:
        return list(yaml.safe_load_all(f))


def manifests():
    return sorted(p for p in glob.glob(EXAMPLES + '/**/*.yaml', recursive=True)
                  if not os.path.basename(p).startswith('values'))


# against schemas

def validator():
    venv = DIR + '/kubernetes-validate'
    if not os.path.exists(venv + '/done'):
        must('/usr/bin/python3', '-m', 'venv', venv)
        must(venv + '/bin/pip', '-q', '--disable-pip-version-check',
             'install', VALIDATE)
        open(venv + '/done', 'w').close()
    return venv + '/bin/kubernetes-validate'


def schemas(tool):
    for path in manifests():
        code, text = run(tool, '--strict', path)
        text = text.replace(path + ' ', '')
        unknown = set(re.findall(r'for kind (\w+)', text))
        name = os.path.relpath(path, EXAMPLES)
        if unknown:
            is_(unknown, {r['kind'] for r in load(name)},
                f'{name}: all of it has schemas of its own')
        ok(code == 0, f'{name}: valid', text)

    with tempfile.NamedTemporaryFile('w', suffix='.yaml') as f:
        with open(EXAMPLES + '/sidecar.yaml') as good:
            f.write(good.read().replace('readOnlyRootFilesystem',
                                        'readOnlyRootFileSystem'))
        f.flush()
        code, text = run(tool, '--strict', f.name)
        ok(code and 'readOnlyRootFileSystem' in text,
           'a word that is no field is refused', text)


# in an nginx

def place(main='', http='', location=''):
    """As a controller writes its nginx.conf, in a directory of the test's."""
    main = re.sub(r'^load_module \S+/ngx_http_llm_capture_module.so;', '',
                  main.strip())
    location = location.replace('/captures/', '%%DIR%%/capture/')
    location = location.replace('client_max_body_size', '# ')
    with Upstream() as up, Nginx(up, main=main, http=http, path='',
                                 location=location) as ng:
        is_(ask(ng.port, whole(BODY, host='llm.example.com')).status, 200,
            'served')
        rows = ng.wait_records(f'{socket.gethostname()}.chat.jsonl', 1)
        is_([row.payload for row in rows], [BODY], 'recorded')
        if http:
            ask(ng.port, whole(BODY, host='other.example.com'))
        ng.quit()
        is_(ng.counters()['seen'], 1, 'and nothing else')


def snippets():
    with case('ingress-nginx: annotation'):
        main = load('ingress-nginx/values.yaml')[0]['controller']['config']
        note = load('ingress-nginx/ingress.yaml')[0]['metadata']['annotations']
        ok(not re.search(r'["\'{}]', note[ANNOTATION]),
           'without quotes and braces, which its check may refuse')
        place(main['main-snippet'], location=note[ANNOTATION])

    with case('ingress-nginx: for all'):
        other = load('ingress-nginx/values-all.yaml')[0]['controller']['config']
        place(main['main-snippet'], other['http-snippet'],
              other['location-snippet'])

    with case('F5 NGINX Ingress Controller'):
        main = load('nginx-ingress/values.yaml')[0]['controller']['config']
        note = load('nginx-ingress/ingress.yaml')[0]['metadata']['annotations']
        place(main['entries']['main-snippets'],
              location=note['nginx.org/location-snippets'])
        data = load('nginx-ingress/configmap.yaml')[0]['data']
        place(data['main-snippets'], data['http-snippets'],
              data['location-snippets'])

    with case('NGINX Gateway Fabric'):
        kinds = {r['kind']: r for r in load('gateway-fabric/gateway.yaml')}
        found = {s['context']: s['value']
                 for s in kinds['SnippetsFilter']['spec']['snippets']}
        place(found['main'], location=found['http.server.location'])
        used = kinds['HTTPRoute']['spec']['rules'][0]['filters'][0]
        is_(used['extensionRef']['name'],
            kinds['SnippetsFilter']['metadata']['name'],
            'the route names the filter')


# the replay's own command

def replay(work):
    make_tokenizer(work + '/tok')
    job = next(r for r in load('replay.yaml') if r['kind'] == 'Job')
    c = job['spec']['template']['spec']['containers'][0]
    with open(work + '/smoke.jsonl', 'w') as f:
        f.write(load('traces.yaml')[0]['data']['smoke.jsonl'])
    args = dict(zip(c['args'], c['args'][1:]))
    with Upstream() as up:
        mine = {args['--url']: f'http://127.0.0.1:{up.port}',
                args['--tokenizer']: work + '/tok',
                args['--input-file']: work + '/smoke.jsonl',
                args['--artifact-dir']: work + '/results'}
        # the model has the tokenizer's name: that stays
        words = [mine.get(w, w) if before != '-m' else w
                 for before, w in zip([''] + c['args'], c['args'])]
        env = {e['name']: e['value'].replace('/tmp', work) for e in c['env']}
        code, text = run('aiperf', *words, cwd=work, timeout=300,
                         env={**os.environ, **env, 'TMPDIR': work})
        ok(code == 0, 'AIPerf runs it', text[-2000:])
        is_(sorted(json.loads(s.body)['messages'][0]['content']
                   for s in up.requests if s.method == 'POST'),
            ['Count to five.', 'Say hello.'], 'each row was sent')
    is_(glob.glob(work + '/**/dataset.dat', recursive=True,
                  include_hidden=True), [], 'no copy of the payloads is left')


with case('schemas'):
    schemas(validator())

if MODULE:
    snippets()

with case('replay'):
    with tempfile.TemporaryDirectory(prefix='llm-capture-replay-') as work:
        replay(work)
