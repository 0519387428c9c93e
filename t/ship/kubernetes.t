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
from apiserver import ApiServer, built, module  # noqa: E402
from roots import run                           # noqa: E402
from llmcapture import (MODULE, TOP, Nginx, Upstream, case, is_,  # noqa: E402
                        ok, skip, wait_for)
from replay import make_tokenizer               # noqa: E402
from schemas import validator                   # noqa: E402
from sources import Unavailable                 # noqa: E402
from tour import Tour                           # noqa: E402
from traffic import ask, whole                  # noqa: E402

import yaml                                     # noqa: E402

EXAMPLES = TOP + '/conf-examples/kubernetes'
BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'

ANNOTATION = 'nginx.ingress.kubernetes.io/configuration-snippet'


def load(name):
    with open(f'{EXAMPLES}/{name}') as f:
        return list(yaml.safe_load_all(f))


def manifests():
    return sorted(p for p in glob.glob(EXAMPLES + '/**/*.yaml', recursive=True)
                  if not os.path.basename(p).startswith('values'))


# against schemas

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


# by an API server

def crds(api, path):
    """Definitions of a module's kinds; waits until they are served."""
    for name in sorted(glob.glob(path + '/*.yaml')):
        with open(name) as f:
            for crd in yaml.safe_load_all(f):
                if crd and crd['kind'] == 'CustomResourceDefinition':
                    code, said = api.create(crd)
                    if code != 201:
                        raise RuntimeError(said)


def served(api, what, namespace):
    """Kinds that were just defined take a moment."""
    return wait_for(lambda: (lambda got: got if got[0] != 404 else None)(
        api.create(what, namespace, dry=True)), f'{what["kind"]} to be served')


def pod(workload, *names):
    """A Pod of its template, with these containers."""
    template = workload['spec']['template']
    spec = dict(template['spec'])
    spec['containers'] = [c for c in spec['containers'] if c['name'] in names]
    return {'apiVersion': 'v1', 'kind': 'Pod', 'spec': spec,
            'metadata': {'name': 'p', **template['metadata']}}


def by_the_api(api):
    restricted = {'pod-security.kubernetes.io/enforce': 'restricted'}
    for name, labels in ('open', {}), ('hard', restricted), \
            ('nginx-ingress', {}):
        api.create({'apiVersion': 'v1', 'kind': 'Namespace',
                    'metadata': {'name': name, 'labels': labels}})

    crds(api, module('sigs.k8s.io/gateway-api') + '/config/crd/standard')
    crds(api, os.environ.get('LLM_CAPTURE_CRDS', '/none'))

    for path in manifests():
        for what in load(os.path.relpath(path, EXAMPLES)):
            space = what['metadata'].get('namespace', 'open')
            name = f'{what["kind"]} {what["metadata"]["name"]}'
            if what['apiVersion'].startswith('gateway.nginx.org') \
                    and 'LLM_CAPTURE_CRDS' not in os.environ:
                skip(name, "its definition is in no package: say where it is, "
                     "LLM_CAPTURE_CRDS=DIR")
                continue
            code, said = served(api, what, space)
            is_(code, 201, f'{name}: taken') or print('#', said)

    job = next(r for r in load('replay.yaml') if r['kind'] == 'Job')
    vllm = load('sidecar.yaml')[0]
    for what, want, name in (
            (pod(job, 'aiperf'), 201, 'the replay'),
            (pod(vllm, 'llm-capture'), 201, 'the sidecar'),
            (pod(vllm, 'llm-capture', 'vllm'), 403, 'beside vLLM it')):
        code, said = api.create(what, 'hard', dry=True)
        is_(code, want, f'{name} {"is" if want == 201 else "is not"} '
            '"restricted"') or print('#', said)

    vllm['spec']['template']['spec']['containers'][1]['volumeMounts'][0][
        'name'] = 'capture'
    code, said = api.create(vllm, 'open', dry=True)
    ok(code == 422 and 'volumeMounts' in said,
       'a volume that is not there is refused', said)


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
    tool = validator()
    schemas(tool)
    Tour('kubernetes', EXAMPLES, env={
        'PATH': f'{os.path.dirname(tool)}:{os.environ["PATH"]}'}).run()

with case('the API'):
    if built() or os.environ.get('LLM_CAPTURE_LONG'):
        try:
            with ApiServer() as api:
                by_the_api(api)
        except Unavailable as e:
            skip('the API', e)
    else:
        skip('the API', 'LLM_CAPTURE_LONG=1 builds its server')

if MODULE:
    snippets()

with case('replay'):
    with tempfile.TemporaryDirectory(prefix='llm-capture-replay-') as work:
        replay(work)
