#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The life of one build in a few seconds: bodies of all kinds, a reload with
# an upload in flight, a killed helper, a quit, the sums.

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '../lib'))
from life import Lives                      # noqa: E402
from llmcapture import *                    # noqa: E402,F403
from traffic import *                       # noqa: E402,F403

os.environ['LD_BIND_NOW'] = '1'             # an open end shows at once

PASS = 'location / { proxy_pass http://llm; }'
SIZES = (60, 8191, 8192, 8193, 300000)

h2 = free_port()
sent = {v: [] for v in ('on', 'off')}
conf = ''.join(server(f'body-{v}', f'proxy_request_buffering {v};' + PASS)
               + server(f'body-{v}', f'proxy_request_buffering {v};' + PASS,
                        listen=f'127.0.0.1:{h2} http2')
               for v in sent)


def push(ng, v):
    """A body of each size, with the length and in chunks: the statuses."""
    some = [body(n, f'{v}{len(sent[v])}') for n in SIZES]
    sent[v] += some + some
    return [ask(ng.port, whole(b, host=f'body-{v}', sizes=sizes)).status
            for b in some for sizes in (None, (5000,))]


def hold(ng, v):
    """An upload that keeps its worker, and the rest of it."""
    b = body(50000, 'held' + v)
    sent[v].append(b)
    c = Client(ng.port)
    wire = whole(b, host=f'body-{v}')
    c.say(wire[:20000])
    c.taken()
    return c, wire[20000:]


with Upstream() as upstream, Lives(upstream, path='', workers=2,
                                   http=WHAT + conf) as ng:

    code, text = ng.test()
    ok(code == 0, 'nginx -t', text)
    ok(not re.search(r'\[warn\].*llm[ _]capture', text),
       'nginx -t: no warning of ours', text)

    for v in sent:
        is_(push(ng, v), [200] * 10, f'answered, buffering {v}')
        b = body(40000, 'h2' + v)
        sent[v].append(b)
        with H2(h2) as c:
            is_(c.request(PATH, b, host=f'body-{v}').status, 200,
                f'over HTTP/2, buffering {v}')

    held = [hold(ng, v) for v in sent]
    old = ng.helper()
    ng.reload()
    for v in sent:
        is_(push(ng, v), [200] * 10, f'after a reload, buffering {v}')
    for c, rest in held:
        is_(c.ask(rest).status, 200, 'an upload older than the reload')
        c.close()
    wait_gone(old)

    pid = ng.freeze()
    for v in sent:
        is_(push(ng, v), [200] * 10, f'while the helper stands, buffering {v}')
    ng.signal('KILL', pid)
    ng.new_helper(pid)
    ng.allow = r'exited on signal 9'
    ng.quit()

    for v in sent:
        is_(counted(ng, ng.path(f'body-{v}.jsonl')),
            {'seen': len(sent[v]), 'recorded': len(sent[v])},
            f'counted, buffering {v}')
        is_(sorted(map(sha, payloads(ng, f'body-{v}'))),
            sorted(map(sha, sent[v])), f'recorded as sent, buffering {v}')
    is_(sorted(s.sha256 for s in upstream.requests),
        sorted(sha(b) for v in sent for b in sent[v]),
        'the upstream has the same bytes')
