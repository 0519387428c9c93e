#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Bodies in buffers as nginx rarely makes them, by the filter in odd/: without
# memory, the end alone, a byte each, in files only.  For a build with it.

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '../lib'))
from llmcapture import *                    # noqa: E402,F403
from traffic import *                       # noqa: E402,F403

KINDS = ('off', 'null', 'last', 'split', 'file')

CONF = 'proxy_request_buffering %s; odd %s;' \
       'location / { proxy_pass http://llm; }'


def some(kind, v):
    """In a file only: no more than nginx keeps in memory, as its own writing
    to files takes nothing else."""
    sizes = (60, 3000) if kind == 'file' else (60, 3000, 8193, 100000)
    return [body(n, f'{kind}{v}{i}') for n in sizes for i in range(2)]


sent = {(kind, v): some(kind, v) for kind in KINDS for v in ('on', 'off')}

conf = ''.join(server(f'{kind}-{v}', CONF % (v, kind)) for kind, v in sent)

# nginx itself passes buffers without memory on, and then wonders
with Upstream() as upstream, Nginx(upstream, path='', http=WHAT + conf,
                                   allow='zero size buf in output') as ng:

    for kind, v in sent:
        is_([ask(ng.port, whole(b, host=f'{kind}-{v}',
                                sizes=i & 1 and (700,))).status
             for i, b in enumerate(sent[kind, v])],
            [200] * len(sent[kind, v]), f'{kind}, buffering {v}: answered')

    is_(sorted(s.sha256 for s in upstream.requests),
        sorted(sha(b) for some in sent.values() for b in some),
        'the upstream has the same bytes')
    ng.quit()

    for (kind, v), some in sent.items():
        end, n = ('unreadable', 0) if kind == 'file' \
            else ('recorded', len(some))
        is_(counted(ng, ng.path(f'{kind}-{v}.jsonl')),
            {'seen': len(some), end: len(some)},
            f'{kind}, buffering {v}: {end}')
        is_(sorted(map(sha, payloads(ng, f'{kind}-{v}'))),
            sorted(map(sha, some[:n])),
            f'{kind}, buffering {v}: recorded as sent')
