#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# What came back: a row for each answer, whatever becomes of it, and answers
# that pass as if nobody looked.

import gzip
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                'lib'))
from life import KILLED                                 # noqa: E402
from llmcapture import *                                # noqa: E402,F403
from outcomes import *                                  # noqa: E402,F403


with case('plain answers and streams'), mock.Upstream() as up, \
        Outcomes(up) as ng:
    for stream in (False, True):
        for usage in (False, True):
            more = {'stream_options': {'include_usage': True}} if usage else {}
            is_(request(ng.port, CHAT, body(stream=stream, **more)).status,
                200, 'answered')
    is_(request(ng.port, CHAT, b'{"not": json}').status, 200,
        'one that is not recorded')
    rows = ng.wait_rows(4)
    records = ng.requests()
    is_([r['id'] for r in rows], [r['id'] for r in records], 'ids of both')
    is_(len({r['id'] for r in rows}), 4, 'each its own')
    is_([r['timestamp'] for r in rows], [r['timestamp'] for r in records],
        'timestamps of both')
    is_({r['status'] for r in rows} | {r['upstream_status'] for r in rows},
        {200}, 'statuses')
    is_([r.get('prompt_tokens') for r in rows], [5, 5, None, 5], 'prompts')
    is_([r['completion_tokens'] for r in rows], [8] * 4, 'completions')
    is_([r.get('estimated') for r in rows], [None, None, True, None],
        'an estimate is called one')
    is_({r['finish_reason'] for r in rows}, {'stop'}, 'the reason')
    is_([r.get('stream') for r in rows], [None, None, True, True], 'streams')
    ok(all(0 <= r['first_byte_ms'] <= r['last_byte_ms'] for r in rows),
       'times')
    ok(all(r['first_byte_ms'] <= r['first_content_ms'] <= r['last_byte_ms']
           for r in rows[2:]), 'times of content')
    ng.quit()
    is_(ng.answers(), {'outcomes': 4}, 'four answers')


for buffering in ('on', 'off'):
    with case(f'pieces pass at once, proxy_buffering {buffering}'), \
            mock.Upstream() as up, \
            Outcomes(up, ON + f'proxy_buffering {buffering};') as ng:
        s = up.actions[CHAT] = Stream(THINKS, EVENT % 1, EVENT % 2, LAST)
        c = ng.begin(body())
        for piece in s.pieces:
            s.go()
            if c.file.peek(1)[:1] == b'H':
                while c.file.readline().strip():
                    pass
            size = int(c.file.readline(), 16)
            is_(c.file.read(size), piece, 'the same piece, before the next')
            c.file.readline()
        time.sleep(0.05)                # a last byte that comes later
        s.go()
        is_(c.file.readline() + c.file.readline(), b'0\r\n\r\n', 'the end')
        row, = ng.wait_rows(1)
        is_((row['events'], row['prompt_tokens'], row['completion_tokens']),
            (4, 7, 9), 'what it said')
        ok(row['first_byte_ms'] <= row['first_reasoning_ms']
           <= row['first_content_ms'] < row['last_byte_ms'], 'times')
        is_(row['bytes'], sum(map(len, s.pieces)), 'bytes')


with case('answers that break off'), mock.Upstream() as up, \
        Outcomes(up, allow='upstream prematurely closed') as ng:
    s = up.actions[CHAT] = Stream(EVENT % 1, LAST)
    c = ng.begin(body(1))
    s.go()
    c.file.peek(1)
    c.close()
    up.wait(0)
    row, = ng.wait_rows(1)
    is_((row.get('aborted'), row.get('upstream_failed')), (True, None),
        'by the client')
    s.go(2)
    s = up.actions[CHAT] = Stream(EVENT % 1, cut=True)
    s.go(2)
    is_(request(ng.port, CHAT, body(2)).complete, False, 'cut')
    row = ng.wait_rows(2)[1]
    is_((row.get('aborted'), row.get('upstream_failed')), (None, True),
        'by the upstream')
    is_((row['completion_tokens'], row['estimated']), (1, True),
        'what had come')
    up.actions[CHAT] = mock.drop
    is_(request(ng.port, CHAT, body(3)).status, 502, 'no answer')
    row = ng.wait_rows(3)[2]
    is_((row['status'], row.get('upstream_failed')), (502, True), 'is told')
    up.actions[CHAT] = mock.status(429)
    is_(request(ng.port, CHAT, body(4)).status, 429, 'refused')
    row = ng.wait_rows(4)[3]
    is_((row['status'], row['upstream_status'], row.get('upstream_failed')),
        (429, 429, None), 'a refusal is an answer')
    ng.quit()
    is_(ng.answers(), {'outcomes': 4}, 'four answers')


with case('a subrequest that is logged'), mock.Upstream() as up, \
        Outcomes(up, ON + 'mirror /mirror;', http='log_subrequest on;',
                 server='location = /mirror { internal; return 204; }') as ng:
    s = up.actions[CHAT] = Stream(LAST)
    c = ng.begin(body())
    wait_for(lambda: s.begun, 'it upstream')    # the mirror is done by then
    s.go(2)
    is_(c.response().complete, True, 'answered')
    c.close()
    row, = ng.wait_rows(1)
    is_((row['status'], row.get('completion_tokens')), (200, 9),
        'the answer of the request itself')


with case('HEAD with a body'), mock.Upstream() as up, Outcomes(up) as ng:
    is_(request(ng.port, CHAT, body(), method='HEAD').status, 200, 'answered')
    row, = ng.wait_rows(1)
    is_((row['status'], row['bytes'], row.get('upstream_failed')),
        (200, 0, None), 'no body is no failure')


with case('an encoded answer'), mock.Upstream() as up, Outcomes(up) as ng:
    for coding in ('gzip', 'br', 'zstd', 'deflate, gzip'):
        up.actions[CHAT] = lambda handler, seen: (
            handler.read_body(seen),
            handler.reply(200, gzip.compress(b'{"usage":{}}'),
                          headers=[('Content-Encoding', coding)]))
        is_(request(ng.port, CHAT, body()).status, 200, 'passes')
    ng.quit()
    is_(ng.answers(), {'outcome_encoded': 4}, 'is counted')
    is_(ng.rows(), [], 'and has no row')


with case('nginx compresses it'), mock.Upstream() as up, \
        Outcomes(up, ON + 'gzip on; gzip_types *; gzip_min_length 1;') as ng:
    r = request(ng.port, CHAT, body(), headers={'Accept-Encoding': 'gzip'})
    is_(r.headers.get('content-encoding'), 'gzip', 'on the way out')
    is_(ng.wait_rows(1)[0]['completion_tokens'], 8, 'is read before')


with case('a large answer'), mock.Upstream() as up, Outcomes(up) as ng:
    big = json.dumps({'choices': [{'index': 0, 'message': {
        'role': 'assistant', 'content': '"usage":{"prompt_tokens":1}' * 4000000},
        'finish_reason': 'length'}], 'usage': {
            'prompt_tokens': 11, 'completion_tokens': 13}}).encode()
    up.actions[CHAT] = lambda handler, seen: (handler.read_body(seen),
                                              handler.reply(200, big))
    r = request(ng.port, CHAT, body(1))
    is_(r.body == big, True, 'passes')
    row, = ng.wait_rows(1)
    is_((row['bytes'], row['prompt_tokens'], row['completion_tokens'],
         row['finish_reason']), (len(big), 11, 13, 'length'), 'its end is read')
    # a client that does not read: nginx takes to its temporary file
    c = ng.begin(body(2))
    wait_for(lambda: 'is buffered to a temporary file' in ng.log(),
             'a temporary file')
    is_(c.response().body == big, True, 'passes through a file')
    row = ng.wait_rows(2)[1]
    is_((row['bytes'], row['prompt_tokens'], row['completion_tokens'],
         row['finish_reason']), (len(big), 11, 13, 'length'), 'is read there')
    c.close()


with case('the helper killed'), mock.Upstream() as up, \
        Outcomes(up, allow=KILLED) as ng:
    s = up.actions[CHAT] = Stream(EVENT % 1, LAST)
    held = [ng.begin(body(n)) for n in range(20)]
    wait_for(lambda: len(ng.requests()) == 20, 'the requests')
    ng.kill_helpers(s, held)
    rows = ng.wait_rows(20)
    is_(sorted(r['id'] for r in rows), sorted(r['id'] for r in ng.requests()),
        'each outcome once')
    ng.quit()
    is_(ng.answers(), {'outcomes': 20}, 'the sum')


with case('workers killed'), mock.Upstream() as up, \
        Outcomes(up, workers=2, allow=KILLED) as ng:
    s = up.actions[CHAT] = Stream(LAST)
    held = [ng.begin(body(n)) for n in range(10)]
    wait_for(lambda: len(ng.requests()) == 10, 'the requests')
    # one that comes late would take the place of the one below
    wait_for(lambda: len(s.begun) == 10, 'them upstream')
    ng.kill_workers(s, held)
    s = up.actions[CHAT] = Stream(LAST)
    s.go(2)
    is_(request(ng.port, CHAT, body(11)).status, 200, 'served')
    is_(len(ng.wait_rows(1)), 1, 'an outcome')
    ng.quit()
    is_(ng.answers(), {'outcomes': 1, 'outcome_aborted': 10}, 'the sum')


with case('reloads under a long answer'), mock.Upstream() as up, \
        Outcomes(up) as ng:
    s = up.actions[CHAT] = Stream(EVENT % 1, LAST)
    c = ng.begin(body(1))
    s.go()
    c.file.peek(1)
    ng.reload_resized()
    is_(len(ng.requests()), 1, 'the request')
    s.go(2)
    is_(c.response().complete, True, 'answered by the old worker')
    is_(ng.wait_rows(1)[0]['id'], ng.requests()[0]['id'], 'the outcome')
    c.close()


with case('no room for an outcome'), mock.Upstream() as up, \
        Outcomes(up, ON + 'llm_capture_max_request_bytes 60k;'
                 'add_header X-Capture $llm_capture_status;', workers=1,
                 http='llm_capture_max_queue_bytes 2m;') as ng:
    s = up.actions[CHAT] = Stream(LAST)
    held = [ng.begin(body(n)) for n in range(3)]
    wait_for(lambda: len(ng.requests()) == 3, 'the requests')
    wait_for(lambda: len(s.begun) == 3, 'them upstream')
    pid = ng.freeze()
    up.actions[CHAT] = mock.status(200)
    for size in (50000, 2000, 10):
        verdict = 'queued'
        while verdict == 'queued':
            verdict = request(ng.port, CHAT, body(text='x' * size)).headers[
                'x-capture']
        is_(verdict, 'queue_full', f'the queue is full for {size} bytes')
    s.go(6)
    for c in held:
        is_(c.response().complete, True, 'answered')
        c.close()
    ng.thaw(pid)
    wait_for(lambda: request(ng.port, CHAT, body()).headers['x-capture']
             == 'queued', 'room again')
    ng.quit()
    terms = ng.answers()
    ok(terms.get('outcome_queue_full', 0) >= 3, 'each is told of', terms)
    is_(set(terms), {'outcomes', 'outcome_queue_full'}, 'before the end')


with case('a file that fails'), mock.Upstream() as up, \
        Outcomes(up, allow='is not a regular file|write|Is a directory') as ng:
    name = ng.dir + '/capture/requests.chat.outcomes'
    os.makedirs(name)
    is_(request(ng.port, CHAT, body(1)).status, 200, 'served')
    wait_for(lambda: len(ng.requests()) == 1, 'the request')
    wait_for(lambda: 'requests.chat.outcomes' in ng.log(), 'the error')
    os.rmdir(name)
    is_(request(ng.port, CHAT, body(2)).status, 200, 'served')
    is_(ng.wait_rows(1)[0]['id'], ng.requests()[1]['id'], 'the next one')
    ng.quit()
    is_(ng.answers(), {'outcomes': 1, 'outcome_failed': 1}, 'the sum')


with case('what nginx -t says'):
    for location, what in (
            (ON + 'llm_capture_format raw_payload;',
             'cannot be on with "raw_payload"'),
            ('llm_capture_outcome maybe;', 'it must be "on" or "off"')):
        with Outcomes(None, location, start=False, allow='emerg') as ng:
            like(ng.test()[1], what, what)
