#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# client_body_early_read, where nginx has it: the body is read before there is
# a location, so that the server's settings count, a request that is refused
# later is recorded, and nothing is seen twice.

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from llmcapture import *                    # noqa: E402,F403
from traffic import *                       # noqa: E402,F403

with Nginx(start=False) as probe:
    if 'unknown directive' in probe.test(
            http='client_body_early_read 1;')[1]:
        skip_all('this nginx has no client_body_early_read')
    is_(probe.test(http='client_body_early_read 1;')[0], 0, 'it has it')

SIZES = (60, 8191, 8192, 8193, 16384, 100000, 1000000)
EARLY = 'client_body_early_read $http_early;client_body_buffer_size 8k;' \
        'client_max_body_size 2m;'
PASS = 'location / { proxy_pass http://llm; %s }'

h2 = free_port()


def both(name, conf, **kw):
    return ''.join(server(f'{name}-{v}', f'proxy_request_buffering {v};'
                          + EARLY + conf, **kw) for v in ('on', 'off'))


def post(ng, name, data, early, sizes=None):
    return ask(ng.port, whole(data, PATH, f'Early: {early}', host=name,
                              sizes=sizes)).status


with Upstream() as upstream, Nginx(
        upstream, path='', http=WHAT
        + both('body', PASS % '')
        + both('streams', PASS % '', listen=f'127.0.0.1:{h2} http2')
        + both('inner', 'llm_capture off;' + PASS % 'llm_capture on;')
        + both('outer', PASS % 'llm_capture off;')
        + both('refused', 'location / { return 403; }')
        + both('again', 'location / { error_page 403 = @x; return 403; }'
                        'location @x { proxy_pass http://llm; }')
        + both('cut', PASS % '')) as ng:

    for v in ('on', 'off'):

        with case(f'bodies, buffering {v}'):
            upstream.clear()
            name = f'body-{v}'
            some = [body(n, f'{early}{bool(sizes)}') for n in SIZES
                    for early in (0, 1) for sizes in (None, (3000,))]
            is_([post(ng, name, b, i >> 1 & 1, i & 1 and (3000,))
                 for i, b in enumerate(some)], [200] * len(some), 'answered')
            is_(post(ng, name, b'', 1), 200, 'an empty one')
            is_(sorted(s.sha256 for s in upstream.requests if s.body),
                sorted(map(sha, some)), 'the upstream has the same bytes')

        with case(f'streams, buffering {v}'), H2(h2) as c:
            name = f'streams-{v}'
            is_([c.request(PATH, b, host=name, length=told,
                           headers={'early': '1'}).status
                 for b in some[:12] for told in (True, False)], [200] * 24,
                'answered')

        with case(f'a location of its own, buffering {v}'):
            b = body(30000, 'place')
            for name in ('inner', 'outer', 'refused', 'again'):
                want = 403 if name == 'refused' else 200
                for early in (0, 1):
                    is_(post(ng, f'{name}-{v}', b, early), want,
                        f'{name}, early {early}')

        with case(f'it does not end, or is too large, buffering {v}'):
            name = f'cut-{v}'
            wire = whole(body(50000, 'cut'), PATH, 'Early: 1', host=name)
            with Client(ng.port) as c:
                c.say(wire[:20000])
                c.taken()
                c.reset()
            wait_for(lambda: log_lines(ng, name), 'its log')
            is_(post(ng, name, b'{}' * (1500 << 10), 1), 413, 'too large')

    ng.quit()
    for v in ('on', 'off'):
        one = [body(30000, 'place')]
        check(ng, f'body-{v}', some)
        check(ng, f'streams-{v}', [b for b in some[:12] for _ in (0, 1)])
        check(ng, f'inner-{v}', one)
        check(ng, f'outer-{v}', one)
        check(ng, f'refused-{v}', one)
        check(ng, f'again-{v}', one * 2)
        check(ng, f'cut-{v}', [], aborted=1)
