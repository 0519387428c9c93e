#!/usr/bin/env python3
"""Real AIPerf replays what was captured, through the module again.

A chat file and a completions file, by the recorded schedule: the second
capture must have the same payloads, as multisets and as AIPerf's parser reads
them (it writes them anew), and the same gaps between arrivals.
"""

import glob
import os
import re
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from llmcapture import (Nginx, Upstream, case, diag, is_, ok,
                        request)                             # noqa: E402
from replay import make_tokenizer, replay                    # noqa: E402

import orjson                                                # noqa: E402

COUNT = 24

# gaps, ms; the replay's clock is the client's, so it must not be hurried
GAPS = [0, 90, 170, 40, 260, 120]

TEXTS = ['plain', 'Warum? 為什麼？ 😀', 'a "quote", a \\ and\n\ta tab',
         '\u2028\u2029\x7f é', 'x' * 9000, '𝒳' * 500]

SPELLINGS = [b'"temperature":0.10', b'"temperature":1e0', b'"seed":0',
             b'"seed":18446744073709551615', b'"top_p":1.0E-1',
             b'"stop":["\\n\\n","\\ud83d\\ude00\\u0000"]', b'"user":null']


def bodies(chat):
    """Bodies that differ, as clients write them: order, escapes, spaces."""
    found = []
    for i in range(COUNT):
        text = f'{i}: {TEXTS[i % len(TEXTS)]}'
        quoted = orjson.dumps(text)
        if i % 3 == 1:                  # as Python's json writes it
            quoted = re.sub(
                r'[^\x00-\x7f]', lambda m: ''.join(
                    '\\u%04x' % int.from_bytes(m[0].encode('utf-16-be')[k:k+2],
                                               'big')
                    for k in range(0, len(m[0].encode('utf-16-be')), 2)),
                quoted.decode()).encode()
        asked = b'"messages":[{"role":"user","content":%s}]' % quoted \
            if chat else b'"prompt":%s' % quoted
        fields = [b'"model":"m"', asked, SPELLINGS[i % len(SPELLINGS)],
                  b'"max_tokens":8', b'"stream":true']
        if i % 2:
            fields.reverse()
        joint = b',\r\n  ' if i % 4 == 2 else b','
        found.append(b'{' + joint.join(fields) + b'}')
    return found


def meaning(rows):
    """Payloads as AIPerf's parser reads them, with every value's type."""
    return sorted(repr(row.value['payload']) for row in rows)


def gaps(rows):
    times = sorted(row.timestamp for row in rows)
    return [b - a for a, b in zip(times, times[1:])]


with tempfile.TemporaryDirectory(prefix='llm-capture-aiperf-') as work, \
        Upstream(pause=0.005) as up:

    make_tokenizer(work + '/tok')

    for endpoint, path in [('chat', '/v1/chat/completions'),
                           ('completions', '/v1/completions')]:
        with case(endpoint):
            first = f'{work}/{endpoint}.jsonl'
            sent = bodies(endpoint == 'chat')

            with Nginx(up, location='llm_capture on; proxy_buffering off;',
                       workers=2) as ng:
                for i, body in enumerate(sent):
                    time.sleep(GAPS[i % len(GAPS)] / 1000)
                    request(ng.port, path, body)
                rows = ng.wait_records(endpoint, COUNT)
                is_(len(rows), COUNT, f'{endpoint}: captured')
                with open(first, 'wb') as f:
                    f.write(b''.join(row.line + b'\n' for row in rows))

            with Nginx(up, location='llm_capture on; proxy_buffering off;'
                       'llm_capture_skip_replay off;',
                       workers=2) as ng:
                code, text = replay(work, endpoint, ng.port, first)
                if not ok(code == 0, f'{endpoint}: AIPerf replays it'):
                    diag(text[-4000:])
                ok('schedule degraded' not in text,
                   f'{endpoint}: AIPerf kept to the schedule')
                is_(glob.glob(work + '/**/dataset.dat', recursive=True,
                              include_hidden=True), [],
                    f'{endpoint}: AIPerf left no copy of the payloads')
                again = ng.wait_records(endpoint, COUNT)
                ng.quit()
                is_(ng.counters()['seen'], COUNT,
                    f'{endpoint}: each was sent once')

            is_(meaning(again), meaning(rows),
                f'{endpoint}: the second capture has the same payloads')

            off = [abs(a - b) for a, b in zip(gaps(rows), gaps(again))]
            diag(f'gaps differ by {statistics.median(off)} ms at the median,'
                 f' {max(off)} at most')
            ok(statistics.median(off) <= 25,
               f'{endpoint}: gaps within 25 ms at the median', off)
