#
# Copyright (C) the llm-capture authors
#
# Many clients that send a body in drops, and one that goes its normal way.

from llmcapture import CONF, Nginx, Upstream, is_, ok
from traffic import (PATH, Client, WHAT, ask, body, counted, payloads, pieces,
                     server, whole)

PASS = 'location / { proxy_pass http://llm; }'
MANY = CONF.replace('worker_connections 512', 'worker_connections 4096')


def run(clients, size, turns, queue='auto', workers=1):
    """That many uploads of size bytes in so many turns; after each turn the
    others' requests are there, and in the file."""
    name = f'{clients} uploads of {size} bytes that trickle'
    http = WHAT + f'llm_capture_max_request_bytes 64k; ' \
        f'llm_capture_max_queue_bytes {queue};' \
        + server('slow', PASS) + server('good', PASS)

    with Upstream() as up, Nginx(up, path='', conf=MANY, http=http,
                                 workers=workers) as ng:
        slow = [body(size, f's{i}') for i in range(clients)]
        wires = [whole(b, host='slow', sizes=i & 1 and (700,))
                 for i, b in enumerate(slow)]
        parts = [list(pieces(w, (len(w) // turns + 1,))) for w in wires]
        crew = [Client(ng.port) for _ in slow]
        good = []

        while any(parts):
            for c, left in zip(crew, parts):
                if left:
                    c.say(left.pop(0))
            if any(parts):
                for c in crew:
                    c.taken()
            for _ in range(20):
                good.append(body(7000, f'good{len(good)}'))
                ask(ng.port, whole(good[-1], host='good'))
            ng.wait_records('good.jsonl', len(good))

        is_({c.response().status for c in crew}, {200}, f'{name}: served')
        for c in crew:
            c.close()
        ng.quit()

        row = counted(ng, ng.path('good.jsonl'))
        is_(row, {'seen': len(good), 'recorded': len(good)},
            f'{name}: others lose nothing')
        is_(sorted(payloads(ng, 'good')), sorted(good),
            f'{name}: and are recorded as sent')
        row = counted(ng, ng.path('slow.jsonl'))
        got = payloads(ng, 'slow')
        is_((row['seen'], len(got)), (clients, row.get('recorded', 0)),
            f'{name}: the slow ones are counted')
        ok(set(got) <= set(slow) and len(set(got)) == len(got),
           f'{name}: whole and once')
        return row
