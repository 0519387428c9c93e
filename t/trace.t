#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Rows that need the answer: written when it has ended, of its own lengths, and
# of the request no more than they are to hold.

import gzip
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                'lib'))
from life import KILLED                                 # noqa: E402
from llmcapture import *                                # noqa: E402,F403
from outcomes import *                                  # noqa: E402,F403

SECRET = 'the word nobody may read'
COLUMNS = ['timestamp_start_unix_ms', 'prompt', 'input_tokens',
           'output_tokens', 'provided_session_id', 'total_hashes',
           'block_size', 'request_canceled', 'duration_e2e_ms',
           'duration_ttft_ms']


with case('lengths'), mock.Upstream() as up, Traces(up, TRACE) as ng:
    for stream in (False, True):
        for more in ({}, {'stream_options': {'include_usage': True}}):
            is_(request(ng.port, CHAT, body(text=SECRET, stream=stream,
                                            **more)).status, 200, 'answered')
    is_(request(ng.port, CHAT, b'{"not": json}').status, 200, 'invalid')
    rows = ng.wait_traces(3)
    ok(all(list(r) == ['timestamp', 'input_length', 'output_length']
           for r in rows), 'the keys of a row', rows)
    is_([(r['input_length'], r['output_length']) for r in rows], [(5, 8)] * 3,
        'real usage')
    is_(rows[0]['timestamp'], 0, 'the time begins with the first one')
    up.actions[CHAT] = lambda handler, seen: (
        handler.read_body(seen),
        handler.reply(200, gzip.compress(b'{"usage":{}}'),
                      headers=[('Content-Encoding', 'gzip')]))
    is_(request(ng.port, CHAT, body()).status, 200, 'one that is encoded')
    for tokens in ((0, 3), (3, 0), (-1, 3), (2.5, 3), ('7', 3), (1 << 40, 3)):
        up.actions[CHAT] = usage(*tokens)
        is_(request(ng.port, CHAT, body()).status, 200, 'lengths: %s' % (
            tokens,))
    up.actions[CHAT] = mock.status(503)
    is_(request(ng.port, CHAT, body()).status, 503, 'refused')
    is_(ng.sums(), {'recorded': 3, 'no_outcome': 9, 'invalid_json': 1},
        'the sum')
    ok(SECRET.encode() not in ng.files(), 'no prompt on the disk')
    ok(SECRET not in ng.log(), 'nor in the log')


with case('numbers of blocks'), mock.Upstream() as up, \
        Traces(up, HASHES) as ng:
    first, second = 'a' * 5000 + SECRET, 'b' * 3000
    asked = ((5000, talk(first)), (5000, talk(first, 'yes', second)),
             (5000, talk('c' + first)), (1100, talk(first)), (3, talk('x')))
    for tokens, data in asked:
        up.actions[CHAT] = usage(tokens, 4)
        is_(request(ng.port, CHAT, data).status, 200, 'answered')
    rows = ng.wait_traces(5)
    ids = [r['hash_ids'] for r in rows]
    is_([len(i) for i in ids], [2, 3, 2, 2, 0], 'full blocks')
    is_((ids[1][:2], ids[3]), (ids[0], ids[0]), 'a prefix in common')
    ok(not set(ids[2]) & set(ids[0]), 'and none')
    ok(all(0 <= n < 1 << 48 for i in ids for n in i), 'of 48 bits')
    ok(SECRET.encode() not in ng.files(), 'no prompt on the disk')
    is_(ng.sums(), {'recorded': 5}, 'the sum')


with case('columns'), mock.Upstream() as up, Traces(up, BASETEN) as ng:
    ask = [json.dumps({'prompt': p, 'model': 'm'}).encode() for p in
           ('one "prompt"\n', ['a', 'list'], [1, 2], 7, None,
            'z' * 3000 + SECRET)]
    up.actions[PROMPT] = usage(3000, 4)
    for data in ask + [talk('no prompt')]:
        is_(request(ng.port, PROMPT, data).status, 200, 'answered')
    rows = ng.wait_traces(2, 'completions')
    ok(all(list(r) == COLUMNS for r in rows), 'the columns', rows)
    is_([r['prompt'] for r in rows], ['one "prompt"\n', 'z' * 3000 + SECRET],
        'prompts')
    is_([(r['input_tokens'], r['output_tokens'], len(r['total_hashes']),
          r['block_size'], r['request_canceled']) for r in rows],
        [(3000, 4, 0, 512, False), (3000, 4, 1, 512, False)], 'what is known')
    ok(all(r['timestamp_start_unix_ms'] > 1.7e12
           and r['duration_e2e_ms'] >= r['duration_ttft_ms'] >= 0
           for r in rows), 'times')
    is_(ng.sums(), {'recorded': 2, 'invalid_no_prompt': 5}, 'the sum')


with case('the text of an answer'), mock.Upstream() as up, \
        Traces(up, BASETEN + 'llm_capture_output_text on;') as ng:
    up.actions[PROMPT] = usage(3, 4)
    data = json.dumps({'prompt': 'p'}).encode()
    is_(request(ng.port, PROMPT, data).status, 200, 'answered')
    s = up.actions[PROMPT] = Stream(
        b'data: {"choices":[{"index":0,"text":"O\\u00df, "}]}\n\n',
        b'data: {"choices":[{"index":0,"text":"so."}],"usage":{'
        b'"prompt_tokens":3,"completion_tokens":2}}\n\ndata: [DONE]\n\n')
    s.go(3)
    is_(request(ng.port, PROMPT, data).status, 200, 'streamed')
    rows = ng.wait_traces(2, 'completions')
    is_([r['output_text'] for r in rows], ['So.', 'O\u00df, so.'], 'texts')


with case('answers that break off'), mock.Upstream() as up, \
        Traces(up, BASETEN, allow='upstream prematurely closed') as ng:
    begun = (b'data: {"choices":[{"index":0,"text":"O"}],"usage":{'
             b'"prompt_tokens":3,"completion_tokens":1}}\n\n')
    s = up.actions[PROMPT] = Stream(begun, begun)
    data = json.dumps({'prompt': 'p'}).encode()
    c = Connection(ng.port)
    c.head(PROMPT, len(data))
    c.send(data)
    s.go()
    c.file.peek(1)
    c.close()
    row, = ng.wait_traces(1, 'completions')
    is_((row['request_canceled'], row['output_tokens']), (True, 1),
        'by the client')
    s.go(2)
    up.actions[PROMPT] = mock.drop
    is_(request(ng.port, PROMPT, data).status, 502, 'by the upstream')
    is_(ng.sums(), {'recorded': 1, 'no_outcome': 1}, 'the sum')


with case('an answer before the end of its request'), \
        mock.Upstream() as up, \
        Traces(up, TRACE + 'proxy_request_buffering off;') as ng:
    data = talk('h' * 20000)

    made = (b'{"usage":{"prompt_tokens":6,"completion_tokens":7}}')
    up.actions[CHAT] = lambda handler, seen: (
        handler.reply(200, made), handler.read_body(seen))
    c = Connection(ng.port)
    c.head(CHAT, len(data))
    c.send(data[:100])
    c.file.peek(1)
    c.send(data[100:])
    is_(c.response().status, 200, 'answered')
    c.close()
    is_(ng.sums(), {'aborted': 1}, 'a part of a request is none')


with case('the helper killed'), mock.Upstream() as up, \
        Traces(up, HASHES, allow=KILLED) as ng:
    s = up.actions[CHAT] = Stream(EVENT % 1, LAST.replace(b':7', b':5000'))
    held = [ng.begin(talk('h' * (5000 + n))) for n in range(20)]
    wait_for(lambda: len(s.begun) == 20, 'them upstream')
    ng.kill_helpers(s, held)
    rows = ng.wait_traces(20)
    ok(all(len(r['hash_ids']) == 2 and r['input_length'] == 5000
           for r in rows), 'whole rows', rows[:2])
    is_(ng.sums(), {'recorded': 20}, 'each once')


with case('workers killed'), mock.Upstream() as up, \
        Traces(up, TRACE, workers=2, allow=KILLED) as ng:
    s = up.actions[CHAT] = Stream(LAST)
    held = [ng.begin(body(n)) for n in range(10)]
    wait_for(lambda: len(s.begun) == 10, 'them upstream')
    ng.kill_workers(s, held)
    up.actions[CHAT] = usage(1, 1)
    is_(request(ng.port, CHAT, body(11)).status, 200, 'served')
    is_(len(ng.wait_traces(1)), 1, 'a row')
    is_(ng.sums(), {'recorded': 1, 'aborted': 10}, 'the sum')


with case('reloads under a long answer'), mock.Upstream() as up, \
        Traces(up, TRACE) as ng:
    s = up.actions[CHAT] = Stream(EVENT % 1, LAST)
    c = ng.begin(body(1))
    s.go()
    c.file.peek(1)
    ng.reload_resized()
    s.go(2)
    is_(c.response().complete, True, 'answered by the old worker')
    is_(ng.wait_traces(1)[0]['output_length'], 9, 'its row')
    c.close()


with case('TERM under a long answer'), mock.Upstream() as up, \
        Traces(up, TRACE, http='llm_capture_drain_timeout 1s;') as ng:
    s = up.actions[CHAT] = Stream(LAST)
    held = [ng.begin(body(n)) for n in range(3)]
    wait_for(lambda: len(s.begun) == 3, 'them upstream')
    ng.stop('TERM')
    for c in held:
        c.close()
    s.go(9)
    is_(ng.terms(), {'aborted': 3}, 'counted')


with case('no room for many answers'), mock.Upstream() as up, \
        Traces(up, TRACE + 'llm_capture_max_request_bytes 60k;'
               'add_header X-Capture $llm_capture_status;',
               http='llm_capture_max_queue_bytes 12m;') as ng:
    s = up.actions[CHAT] = Stream(LAST)
    held = [ng.begin(body(n)) for n in range(200)]
    wait_for(lambda: len(s.begun) == 200, 'them upstream')
    up.actions[CHAT] = mock.status(200)
    is_(request(ng.port, CHAT, b'[]').status, 200, 'the last one in')
    wait_for(lambda: 'invalid_not_object' in ng.log(), 'all of them read')
    pid = ng.freeze()
    for size in (50000, 2000, 10):
        verdict = 'queued'
        while verdict == 'queued':
            verdict = request(ng.port, CHAT, talk('x' * size)).headers[
                'x-capture']
    is_(verdict, 'queue_full', 'the queue is full')
    s.go(400)
    for c in held:
        c.response()
        c.close()
    ng.thaw(pid)
    up.actions[CHAT] = usage(1, 1)
    for n in range(4):          # some are told of with each answer
        wait_for(lambda: request(ng.port, CHAT, talk('x')).headers[
            'x-capture'] == 'queued', 'room again')
    ok(len(ng.wait_traces(4)) >= 4, 'rows again')
    is_({k for k in ng.sums()},
        {'recorded', 'no_outcome', 'queue_full', 'invalid_not_object'},
        'each is told of before the end')


with case('a file that fails'), mock.Upstream() as up, \
        Traces(up, TRACE, allow='is not a regular file|Is a directory') as ng:
    name = ng.dir + '/capture/requests.chat.jsonl'
    os.makedirs(name)
    is_(request(ng.port, CHAT, body(1)).status, 200, 'served')
    wait_for(lambda: 'requests.chat.jsonl' in ng.log(), 'the error')
    os.rmdir(name)
    is_(request(ng.port, CHAT, body(2)).status, 200, 'served')
    is_(len(ng.wait_traces(1)), 1, 'the next one')
    is_(ng.sums(), {'recorded': 1, 'failed': 1}, 'the sum')


with case('a file of another format'), mock.Upstream() as up, \
        Traces(up, ON, allow='another format') as ng:
    is_(request(ng.port, CHAT, body(1)).status, 200, 'a payload')
    ng.wait_traces(1)
    for location in (TRACE, BASETEN,
                     'llm_capture on; llm_capture_format raw_payload;'):
        ng.reload(location=location)
        is_(request(ng.port, CHAT, body(2)).status, 200, 'served')
    wait_for(lambda: 'holds rows of another format' in ng.log(), 'is told')
    ng.quit()
    is_(len(ng.records('requests.chat.jsonl')), 1, 'and stays what it is')


with case('what nginx -t says'):
    for location, what in (
            ('llm_capture on; llm_capture_hash_ids on;',
             '"llm_capture_hash_ids" cannot be on with "mooncake_payload"'),
            ('llm_capture on; llm_capture_format raw_payload; '
             'llm_capture_hash_ids on;', 'cannot be on with "raw_payload"'),
            (TRACE + 'llm_capture_output_text on;',
             'its rows hold no text'),
            ('llm_capture on; llm_capture_format trace;',
             'it must be "mooncake_payload", "raw_payload", '
             '"mooncake_trace" or "baseten_trace"')):
        with Traces(None, location, start=False, allow='emerg') as ng:
            like(ng.test()[1], what, what)
