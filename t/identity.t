#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The bytes of a body are the same at the client, at the upstream and in the
# file: sizes around every border of a buffer, in pieces that fit none of
# them, over HTTP/1.1 with a length and chunked, and over HTTP/2, while nginx
# buffers requests and while it does not.

import os
import random
import sys
from collections import Counter

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from llmcapture import *                    # noqa: E402,F403
from traffic import *                       # noqa: E402,F403

SIZES = sorted(
    [0, 1, 2, 8, 9, 100, 700]               # with the head in one buffer
    + [n + d for n in (1024, 2048, 4096, 8192, 16384, 32768, 65536)
       for d in (-1, 0, 1)]
    + [(1 << 17) - 1, (1 << 17) + 1, 300001]
    + [(1 << 20) + d for d in (-1, 0, 1)]   # the default of a record
    + [5 * 65521, 1 << 21, 3000000]
    + [16384 * 3 - 9, 16384 * 4 + 9, 3 << 20])
BUFFERS = ['1k', '8k', '16k']
SMALL, ODD = (1, 2, 3, 5, 7), (1, 1021, 16384, 8193, 4099, 40009, 13, 65521)

random.seed(7)


def hashed(handler, seen):
    handler.read_body(seen)
    handler.reply(200, seen.sha256.encode())


def cut(data):
    """Pieces that are other ones each time."""
    sizes = list(SMALL if len(data) < 500 else ODD)
    random.shuffle(sizes)
    if len(data) > 200000:
        sizes = [n for n in sizes if n > 1000]
    return sizes


def length(ng, name, b):
    with Client(ng.port) as c:
        return c.ask(whole(b, host=name), cut(b))


def chunks(ng, name, b):
    with Client(ng.port) as c:
        return c.ask(whole(b, host=name, sizes=cut(b)), cut(b))


def http2(ng, name, b):
    with H2(ng.h2) as c:
        return c.request(PATH, pieces=list(pieces(b, cut(b))),
                         length=len(b) & 1, host=name)


WAYS = [(way, buffering, size) for way in (length, chunks, http2)
        for buffering in ('on', 'off') for size in BUFFERS]

port = free_port()
http = WHAT + 'llm_capture_max_queue_bytes 1g;'
for way, buffering, size in WAYS:
    http += server(
        f'{way.__name__}-{buffering}-{size}',
        f'proxy_request_buffering {buffering}; client_body_buffer_size {size};'
        'llm_capture_max_request_bytes 4m;'
        'location / { proxy_pass http://llm; }',
        '127.0.0.1:%%PORT%%' if way is not http2
        else f'127.0.0.1:{port} http2')

is_(len(set(SIZES)), 40, '40 sizes')
is_((SIZES[0], SIZES[-1]), (0, 3 << 20), 'from none to 3 MB')

with Upstream(actions={PATH: hashed}) as upstream, \
        Nginx(upstream, path='', http=http) as ng:

    ng.h2 = port
    sent = {}

    for way, buffering, size in WAYS:
        name = f'{way.__name__}-{buffering}-{size}'
        upstream.clear()
        sent[name] = [body(n, name) if n != 1 else b'7' for n in SIZES]
        bad = []
        for b in sent[name]:
            got = way(ng, name, b)
            if (got.status, got.body) != (200, sha(b).encode()):
                bad.append((len(b), got))
        is_(bad, [], f'{name}: as sent at the upstream')

    ng.quit()

    for name, bodies in sent.items():
        # nothing; no object; an empty one
        kept = [b for b in bodies if len(b) > 2]
        is_(counted(ng, ng.path(name + '.jsonl')),
            {'seen': 39, 'invalid_not_object': 1, 'invalid_empty': 1,
             'recorded': 37}, f'{name}: counted')
        got = payloads(ng, name)
        missing = Counter(map(sha, kept)) - Counter(map(sha, got))
        is_([len(b) for b in kept if sha(b) in missing], [],
            f'{name}: as sent in the file')
        is_(len(got), len(kept), f'{name}: nothing else is there')
