#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Each configuration of conf-examples, with nothing changed but ports and
# places: started, used, stopped.  (logrotate: neighbours.t.)

import glob
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '../lib'))
from llmcapture import (CAPTURE_PATH, TOP, Connection,       # noqa: E402
                        Nginx, Upstream, case, free_port, is_, ok, request)

CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
PROMPT = b'{"model":"m","prompt":"hi"}'
OTHER = free_port()

MAIN = '''%%LOAD%%
daemon off;
pid %%DIR%%/nginx.pid;
error_log %%DIR%%/error.log notice;
%%MAIN%%
'''

# no temporary directory of the machine's nginx
TEMP = ''.join(f'{name}_temp_path %%DIR%%/{name};' for name in (
    'client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'))


def here(text, up):
    text = re.sub(r'load_module [^;]*;', '', text)
    text = re.sub(r'127\.0\.0\.1:800\d', f'127.0.0.1:{up.port}', text)
    text = text.replace('127.0.0.1:8081', f'127.0.0.1:{OTHER}')
    text = text.replace('listen 8080', 'listen 127.0.0.1:%%PORT%%')
    text = text.replace('worker_processes auto', 'worker_processes 1')
    text = text.replace('/var/log/nginx/llm_capture', '%%DIR%%/capture')
    text = text.replace('"/captures/', '"%%DIR%%/capture/')
    text = text.replace('/var/log/nginx', '%%DIR%%')
    if 'llm_capture_path' not in text and 'llm_capture_args' not in text:
        # beside the machine's own logs otherwise
        text = text.replace('http {', 'http { ' + CAPTURE_PATH, 1)
    return MAIN + text.replace('http {', 'http { ' + TEMP, 1)


def minimal(ng):
    is_(request(ng.port, '/v1/chat/completions', CHAT).status, 200, 'chat')
    is_(request(ng.port, '/v1/completions', PROMPT).status, 200, 'prompt')
    is_([r.payload for r in ng.wait_records('chat', 1)], [CHAT], 'recorded')
    is_([r.payload for r in ng.wait_records('completions', 1)], [PROMPT],
        'recorded in a file of its own')


def nim(ng):
    request(ng.port, '/v1/chat/completions', CHAT)
    request(ng.port, '/v1/completions', PROMPT)
    is_(sorted(r.payload for r in ng.wait_records('requests.jsonl', 2)),
        sorted([CHAT, PROMPT]), 'one file, as with NIM')


def vllm(ng):
    for n in range(300):
        request(ng.port, '/v1/chat/completions', CHAT,
                headers={'X-Model': 'm/7b'})
        request(ng.port, '/v1/chat/completions', CHAT,
                headers={'X-Model': 'private', 'X-No-Capture': '1'})
    ng.quit()
    names = [n for n in os.listdir(ng.dir + '/capture')
             if n.endswith('.jsonl')]
    ok(len(names) == 1 and re.match(r'm_7b.*\.chat\.jsonl', names[0]),
       'a file per model, and none for what is private', names)
    n = len(ng.records(names[0]))
    ok(0 < n < 300, 'a sample', n)
    with open(ng.dir + '/llm.log') as f:
        words = {line.split()[-1] for line in f}
    is_(words, {'queued', 'sampled_out', 'skipped'},
        "the access log's last word")


def traces(ng):
    for n in range(2):
        request(ng.port, '/v1/chat/completions', CHAT,
                headers={'X-Session-Id': 'a secret'})
    rows = ng.wait_records('chat', 2)
    is_([sorted(r.value) for r in rows],
        [sorted(('timestamp', 'session_id', 'input_length',
                 'output_length', 'hash_ids'))] * 2, 'lengths alone')
    is_(len({r.value['session_id'] for r in rows}), 1, 'one session')
    ok(not any(b'"hi"' in r.line or b'secret' in r.line for r in rows),
       'and no text')


def status(ng):
    request(ng.port, '/v1/chat/completions', CHAT)
    ng.wait_records('chat', 1)
    answer = request(OTHER, '/status', method='GET')
    is_(json.loads(answer.body)['total']['requests']['recorded'], 1,
        'tells of it')
    answer = request(OTHER, '/status', method='GET',
                     headers={'Accept': 'text/plain;version=0.0.4'})
    ok(b'\nllm_capture_helper_up 1\n' in answer.body, 'and Prometheus',
       answer.body)
    ok(b'"id": "mock-1"' in request(ng.port, '/status', method='GET').body,
       "the other port's goes to the server")


def control(ng):
    def two():
        for _ in range(2):
            request(ng.port, '/v1/chat/completions', CHAT)

    two()
    with Connection(OTHER) as c:
        c.send(b'POST /control?capture=on HTTP/1.1\r\nHost: evil.example\r\n'
               b'Content-Length: 0\r\n\r\n')
        is_(c.response().status, 403, 'by another name')
    two()
    is_(request(OTHER, '/control?capture=on&records=1').status, 200, 'on')
    two()
    ng.wait_records('chat', 1)
    got = json.loads(request(OTHER, '/status', method='GET').body)
    is_((got['total']['requests']['seen'], got['total']['requests']['paused'],
         got['control']['all']['ended']), (6, 5, 'records'), 'one, when told')


USES = {'control.conf': control, 'minimal.conf': minimal, 'nim-migration.conf': nim, 'traces.conf': traces,
        'status.conf': status, 'vllm.conf': vllm}

for path in sorted(glob.glob(TOP + '/conf-examples/*.conf')):
    name = os.path.basename(path)
    with case(name), open(path, encoding='utf-8') as f, Upstream() as up:
        with Nginx(conf=here(f.read(), up), path='') as ng:
            USES[name](ng)
