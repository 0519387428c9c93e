#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# How a request comes and goes: HTTP/1.0, pipelines, single bytes, streams side
# by side, answers and ends that come too early.

import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from llmcapture import *                    # noqa: E402,F403
from traffic import *                       # noqa: E402,F403

PASS = 'location / { proxy_pass http://llm; }'


def both(name, conf=PASS, **kw):
    """The same server twice: with and without buffering of requests."""
    return ''.join(server(f'{name}-{v}', f'proxy_request_buffering {v};'
                          + conf, **kw) for v in ('on', 'off'))


h2 = free_port()
SENT = {}


def sends(name, v, *bodies):
    SENT.setdefault(f'{name}-{v}', []).extend(bodies)
    return f'{name}-{v}'


with Upstream() as upstream, Nginx(
        upstream, path='', http=WHAT + both('http10') + both('pipeline')
        + both('bytes') + both('packets') + both('keep')
        + both('streams', listen=f'127.0.0.1:{h2} http2')
        + both('frames', listen=f'127.0.0.1:{h2} http2')) as ng:

    for v in ('on', 'off'):

        with case(f'HTTP/1.0, buffering {v}'):
            b = body(5000, 'ten')
            host = sends('http10', v, b, b, b)
            is_(ask(ng.port, whole(b, version='1.0', host=host)).status, 200,
                'with a length')
            with Client(ng.port) as c:
                for _ in range(2):
                    is_(c.ask(whole(b, PATH, 'Connection: keep-alive',
                                    version='1.0', host=host)).status, 200,
                        'kept alive')

        with case(f'pipelines, buffering {v}'):
            some = [body(n, str(n)) for n in (300, 0, 301, 20000, 302, 303)]
            host = sends('pipeline', v, *[b for b in some if b] * 4)
            for sizes in (None, (700,), (333, 1)):
                with Client(ng.port) as c:
                    # one packet, or packets that end in the next request
                    c.say(b''.join(whole(b, host=host, sizes=s)
                                   for b, s in zip(some, [None, None, (9,),
                                                          (500,), None, (1,)])
                                   ), sizes)
                    is_([c.response().status for _ in some], [200] * 6,
                        f'all are answered: {sizes}')
            with Client(ng.port) as c:
                for b in some:
                    c.say(whole(b, host=host))
                    c.say(head(method='GET', host=host))
                is_([c.response().status for _ in some * 2], [200] * 12,
                    'with other requests in between')

        with case(f'a byte at a time, buffering {v}'):
            b = body(1500, 'bytes')
            host = sends('bytes', v, b, b)
            for sizes in (None, (1,)):
                with Client(ng.port) as c:
                    is_(c.ask(whole(b, host=host, sizes=sizes), (1,)).status,
                        200, 'each in a packet')

        with case(f'head and body, buffering {v}'):
            b = body(900, 'packets')
            wire = whole(b, host=f'packets-{v}')
            start = len(wire) - len(b)
            cuts = [start - 3, start - 1, start, start + 1, len(wire) - 1]
            host = sends('packets', v, *[b] * len(cuts))
            for n in cuts:
                with Client(ng.port) as c:
                    c.say(wire[:n])
                    c.taken()
                    is_(c.ask(wire[n:]).status, 200, f'cut at {n - start}')

        with case(f'a connection that is kept, buffering {v}'), \
                Client(ng.port) as c:
            some = [body(200 + i * 37, f'keep{i}') for i in range(200)]
            host = sends('keep', v, *some)
            is_({c.ask(whole(b, host=host, sizes=i % 3 and (61, 1000))).status
                 for i, b in enumerate(some)}, {200}, 'serves all')

        with case(f'streams side by side, buffering {v}'), H2(h2) as c:
            some = [body(3000 + 11 * i, f'stream{i}') for i in range(20)]
            host = sends('streams', v, *some)
            streams = [c.start(PATH, len(b) if i & 1 else None, host=host)
                       for i, b in enumerate(some)]
            parts = [list(pieces(b, (997,))) for b in some]
            while any(parts):
                for stream, left in zip(streams, parts):
                    if left:
                        c.data(stream, left.pop(0))
            for stream in reversed(streams):
                c.data(stream, b'', end=True)
            is_([c.response(s).status for s in streams], [200] * 20,
                'all are answered')

        with case(f'frames, buffering {v}'), H2(h2) as c:
            b = body(600, 'frames')
            host = sends('frames', v, b)
            is_(c.request(PATH, pieces=[b[i:i + 1] for i in range(len(b))],
                          host=host).status, 200, 'of one byte')
            stream = c.start(PATH, None, host=host, end=True)
            is_(c.response(stream).status, 200, 'none')

    ng.quit()
    for name, bodies in SENT.items():
        check(ng, name, bodies)


with case('all bytes of a stream, but no end'), \
        Upstream() as upstream, Nginx(
            upstream, path='', http=WHAT
            + both('endless', 'client_body_buffer_size 1k;' + PASS,
                   listen=f'127.0.0.1:{h2} http2')) as ng:
    # unbuffered, the upstream knows the length and answers; buffered, nginx
    # shows nobody what has room in its buffer
    b = body(40000, 'endless')
    for v in ('on', 'off'):
        with H2(h2) as c:
            stream = c.start(PATH, len(b), host=f'endless-{v}')
            c.data(stream, b)
            c.taken()
            if v == 'off':
                is_(c.response(stream).status, 200, 'is answered')
    wait_for(lambda: log_lines(ng, 'endless-on'), 'the log')
    ng.quit()
    check(ng, 'endless-on', [], aborted=1)
    check(ng, 'endless-off', [b])


ANSWER = threading.Event()


with case('the client leaves after its body'), \
        Upstream(actions={PATH: mock.until(ANSWER)}) as upstream, \
        Nginx(upstream, path='', http=WHAT + both('left')) as ng:
    b = body(30000, 'left')
    for v in ('on', 'off'):
        upstream.clear()
        c = Client(ng.port)
        c.say(whole(b, host=f'left-{v}'))
        wait_for(lambda: ng.records(f'left-{v}.jsonl'), 'the record')
        c.close()
        is_(wait_for(lambda: log_lines(ng, f'left-{v}'), 'its log'),
            ['queued chat 499'], f'buffering {v}: it is a request')
    ANSWER.set()
    ng.quit()
    for v in ('on', 'off'):
        check(ng, f'left-{v}', [b])


with case('the answer comes before the body has'), \
        Upstream(actions={PATH: mock.early()}) as upstream, \
        Nginx(upstream, path='', http=WHAT + 'lingering_timeout 1s;'
              + server('early', 'proxy_request_buffering off;' + PASS)
              + server('early-h2', 'proxy_request_buffering off;' + PASS,
                       listen=f'127.0.0.1:{h2} http2')) as ng:
    b = body(1000000, 'early')
    for sizes in (None, (10000,)):
        for rest in (False, True):
            with Client(ng.port) as c:
                wire = whole(b, host='early', sizes=sizes)
                c.say(wire[:50000])
                is_(c.response().status, 200, 'it is passed on')
                if rest:
                    try:
                        c.say(wire[50000:])
                    except ConnectionError:
                        pass
                c.gone()
    with H2(h2) as c:
        stream = c.start(PATH, len(b), host='early-h2')
        c.data(stream, b[:20000])
        is_(c.response(stream).status, 200, 'over HTTP/2 too')
    wait_for(lambda: len(log_lines(ng, 'early')) == 4, 'the log')
    ng.quit()
    row = counted(ng, ng.path('early.jsonl'))
    is_(payloads(ng, 'early') + payloads(ng, 'early-h2'), [], 'no record')
    is_(row, {'seen': 4, 'aborted': 4}, 'counted')


def resident(pid):
    """Bytes of a process in memory: (its own, shared)."""
    with open(f'/proc/{pid}/status') as f:
        words = dict(line.split(':', 1) for line in f)
    return [int(words[w].split()[0]) << 10 for w in ('RssAnon', 'RssShmem')]


with case('10 000 bodies that never end'), Upstream() as upstream, \
        Nginx(upstream, path='', http=WHAT + 'llm_capture_max_queue_bytes '
              '64m;' + server('ends', PASS) + server('good', PASS)) as ng:

    b = body(40000, 'ends')
    wires = [whole(b, host='ends')[:10000],
             whole(b, host='ends', sizes=(3000,))[:10000]]

    def abort(n):
        for i in range(n):
            c = Client(ng.port)
            c.say(wires[i & 1])
            if i % 100 == 0:
                c.taken()
            c.reset()

    abort(1000)
    worker = ng.workers()
    before = [resident(pid) for pid in worker + ng.helpers()]
    abort(9000)
    is_(ask(ng.port, whole(b, host='good')).status, 200, 'it serves on')
    ng.wait_records('good.jsonl', 1)
    after = [resident(pid) for pid in worker + ng.helpers()]
    is_(ng.workers(), worker, 'the worker lives')
    grown = [y - x for a, z in zip(before, after) for x, y in zip(a, z)]
    if '-fsanitize' in ng.run('-V')[1]:
        skip('memory stays flat', 'a sanitizer keeps what is freed')
    else:
        ok(max(grown) < 4 << 20, 'memory stays flat', grown)
    ng.quit()
    row = counted(ng, ng.path('ends.jsonl'))
    diag(f'{row.get("aborted")} of them were looked at by nginx')
    is_(row, {'seen': row['aborted'], 'aborted': row['aborted']},
        'each is counted as aborted')
    ok(row['aborted'] > 5000, 'most of them were', row)
    check(ng, 'good', [b])
