#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# HTTP/3, where nginx has it: bodies around the buffer's borders, with the
# length told and not, and a stream that is reset.  Not 0-RTT: nginx has no
# early data over OpenSSL before 3.5.1, whose QUIC it replaces by its own.

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from llmcapture import *                    # noqa: E402,F403
from traffic import *                       # noqa: E402,F403

if '--with-http_v3_module' not in subprocess.run(
        [NGINX, '-V'], stderr=subprocess.PIPE, text=True).stderr:
    skip_all('this nginx has no HTTP/3')

import http3                                # noqa: E402

SIZES = (60, 8191, 8192, 8193, 16384, 100000, 1000000)

port = free_port()
sent = {v: [body(n, f'{v}{told}') for n in SIZES for told in (True, False)]
        for v in ('on', 'off')}


def posts(v):
    async def talk(client):
        return [await client.post(PATH, f'h3-{v}', b, i % 2 == 0,
                                  (1000, 7777)[i % 2])
                for i, b in enumerate(sent[v])]
    return talk


def half(v):
    b = body(400, 'other')
    sent[v].append(b)

    async def talk(client):
        return await client.cut(
            PATH, f'h3-{v}', body(5000, 'cut'),
            lambda: client.post(PATH, f'h3-{v}', b, True, 1000))
    return talk


with tempfile.TemporaryDirectory() as tmp:
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048',
                    '-nodes', '-days', '2', '-subj', '/CN=localhost',
                    '-keyout', tmp + '/key.pem', '-out', tmp + '/cert.pem'],
                   check=True, stderr=subprocess.DEVNULL)

    tls = (f'ssl_certificate {tmp}/cert.pem;'
           f'ssl_certificate_key {tmp}/key.pem;'
           'location / { proxy_pass http://llm; }')
    conf = ''.join(server(f'h3-{v}', f'proxy_request_buffering {v};' + tls,
                          listen=f'127.0.0.1:{port} quic')
                   for v in sent)

    with Upstream() as upstream, \
            Nginx(upstream, path='', http=WHAT + conf) as ng:

        for v in sent:
            with case(f'buffering {v}'):
                upstream.clear()
                is_(http3.run(port, posts(v)), [200] * len(sent[v]),
                    'answered')
                is_(sorted(s.sha256 for s in upstream.requests),
                    sorted(map(sha, sent[v])), 'upstream has the same bytes')

            with case(f'a stream that is reset, buffering {v}'):
                is_(http3.run(port, half(v)), 200, 'another one is answered')

        ng.quit()

        for v in sent:
            is_(counted(ng, ng.path(f'h3-{v}.jsonl')),
                {'seen': len(sent[v]) + 1, 'recorded': len(sent[v]),
                 'aborted': 1}, f'counted, buffering {v}')
            is_(sorted(map(sha, payloads(ng, f'h3-{v}'))),
                sorted(map(sha, sent[v])), f'recorded as sent, buffering {v}')
