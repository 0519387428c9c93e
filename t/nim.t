#!/usr/bin/env python3

# Copyright (C) the llm-capture authors

"""NIM's object of six keys: its values, its fallbacks, its rules.

Nothing in it is an error or turns capture on, and directives win over it.
"""

import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                'lib'))

from llmcapture import (Nginx, Upstream, case, diag, is_, like, ok,
                        request)                            # noqa: E402

CHAT = '/v1/chat/completions'
BODY = b'{"messages":[{"role":"user","content":"hi"}]}'

# a place for all, so that the default path of NIM is not made on this machine
HERE = {'path': '%%DIR%%/capture/nim.jsonl'}


def args(**keys):
    """The directive; the parser of nginx halves backslashes in quotes."""
    text = json.dumps(keys).replace('\\', '\\\\')
    return f"llm_capture_args '{text}';"


def said(ng, words):
    """-t must be content: what it said."""
    code, text = ng.test(**{'main': '', 'server': '', 'location': '', **words})
    is_(code, 0, f'{words.get("http", "")[:70]} is no error') or diag(text)
    return text


def template(ng, path='nim.jsonl'):
    return f'{ng.dir}/capture/{path}'


def nginx(up, http, location='llm_capture on;', **more):
    return Nginx(up, path='', http=http, location=location, **more)


def test_bad_values(ng):
    for key, value, must, instead in (
            ('format', 'jsonl', '"mooncake_payload" or "raw_payload"',
             '"mooncake_payload" is used'),
            ('max_request_bytes', 0, 'a whole number from 1', '1048576'),
            ('max_request_bytes', '1m', 'a whole number from 1', '1048576'),
            ('sample_rate', 2, 'a number from 0 to 1', '1.0 is used'),
            ('sample_rate', '0.5', 'a number from 0 to 1', '1.0 is used'),
            ('endpoint_pattern', '', 'a regular expression',
             r'^/v1/(chat/completions|completions)$'),
            ('endpoint_pattern', '(', 'a regular expression',
             r'^/v1/(chat/completions|completions)$'),
            ('endpoint_pattern', None, 'a regular expression',
             r'^/v1/(chat/completions|completions)$'),
            ('max_queue_bytes', -1, 'a whole number from 1', '1073741824')):
        text = said(ng, {'http': args(**{**HERE, key: value}),
                         'location': 'llm_capture on;'})
        ok(re.search(rf'\[warn\] "llm_capture_args": .*"{key}", it must .*'
                     + re.escape(must), text)
           and instead in text and re.search(r'nginx\.conf:\d+\n', text),
           f'{key}: {value!r} has a warning with name, rule and line', text)

    text = said(ng, {'http': args(**HERE, pth=1, Format='raw_payload')})
    for key in 'pth', 'Format':
        ok(re.search(rf'\[warn\].*unknown key "{key}" is ignored', text),
           f'the unknown key {key} has a warning', text)

    text = said(ng, {'http': args(
        path='/a/r.jsonl', format='raw_payload', max_request_bytes=65536,
        sample_rate=0.5, endpoint_pattern='^/v1/', max_queue_bytes=2 << 30)})
    ok('[warn]' not in text, 'six good values have none', text)

    for text in '{', '[]', '1', '', '{"a":1} x':
        found = said(ng, {'http': f"llm_capture_args '{text}';"})
        like(found, r'\[warn\] "llm_capture_args": .*nothing is captured',
             f'{text!r} has a warning')

    for value in '', 'r.jsonl', '/a/', 7, None:
        found = said(ng, {'http': args(path=value)})
        like(found, r'\[warn\] "llm_capture_args": invalid value .* of "path",'
             ' it must be the absolute path of a file.*not captured',
             f'the path {value!r} has a warning')

    # what does not fit the workers is no error here either
    found = said(ng, {'http': args(**HERE, max_queue_bytes=1 << 20),
                      'location': 'llm_capture on;'})
    like(found, r'\[warn\].*"max_queue_bytes" of 1048576 bytes cannot hold',
         'a queue that is too small has a warning')

    with open(ng.dir + '/args.json', 'w') as f:
        f.write('{"sample_rate": 3}')
    found = said(ng, {'http': 'llm_capture_args_file args.json;'})
    like(found, r'\[warn\] "llm_capture_args_file": .*"sample_rate"',
         'a file is beside nginx.conf, and its name is said')


def test_off():
    """Not turned on by it, whatever it says."""
    for name, http, location in (
            ('args alone', args(**HERE), ''),
            ('invalid JSON', "llm_capture_args '{';", 'llm_capture on;'),
            ('an array', "llm_capture_args '[]';", 'llm_capture on;'),
            ('invalid JSON, even with a path',
             "llm_capture_args '{';", 'llm_capture on;'
             ' llm_capture_path %%DIR%%/capture/own.jsonl;'),
            ('a bad path', args(path='nim.jsonl'), 'llm_capture on;'),
            ('off', args(**HERE), 'llm_capture off;')):
        with Upstream() as up, nginx(
                up, http + 'log_format s "$llm_capture_status";',
                location + 'access_log %%DIR%%/status s;') as ng:
            is_(request(ng.port, CHAT, BODY).status, 200, f'{name}: served')
            ng.quit()
            with open(ng.dir + '/status') as f:
                is_(f.read(), 'off\n', f'{name}: off')
            is_(os.listdir(ng.dir + '/capture'), [], f'{name}: no file')
            ok('seen' not in ng.log(), f'{name}: nothing seen')


def test_own_path():
    """A bad path is that of nobody who has his own."""
    with Upstream() as up, nginx(
            up, args(path=1), 'llm_capture on;'
            ' llm_capture_path %%DIR%%/capture/own.jsonl;') as ng:
        request(ng.port, CHAT, BODY)
        is_(ng.wait_records('own.jsonl', 1)[0].payload, BODY, 'recorded')


def test_values():
    """Each of the six holds."""
    with Upstream() as up, nginx(up, args(
            **HERE, format='raw_payload', max_request_bytes=100,
            endpoint_pattern=r'^/v\d/chat', max_queue_bytes=64 << 20)) as ng:
        request(ng.port, '/v7/chat/x', BODY)
        request(ng.port, '/v1/completions', BODY)
        request(ng.port, '/v1/chat', b'{"messages":["' + b'x' * 100 + b'"]}')
        rows = ng.wait_records('nim.jsonl', 1)
        is_([row.line for row in rows], [BODY], 'raw, by its own pattern')
        ng.quit()
        row = ng.counters(template(ng))
        is_((row['seen'], row['unmatched'], row['too_large'], row['recorded']),
            (3, 1, 1, 1), 'and counted')

    with Upstream() as up, nginx(up, args(**HERE, sample_rate=0)) as ng:
        request(ng.port, CHAT, BODY)
        ng.quit()
        row = ng.counters(template(ng))
        is_((row['seen'], row['sampled_out']), (1, 1), 'a rate of 0')


def test_defaults():
    """One bad value leaves NIM's default, and the others as they are."""
    with Upstream() as up, nginx(up, args(
            path='%%DIR%%/capture/a$b.jsonl', format=1, sample_rate='x',
            max_request_bytes=[], endpoint_pattern='(',
            max_queue_bytes={})) as ng:
        request(ng.port, CHAT, BODY)
        request(ng.port, '/v1/completions/x', BODY)
        big = b'{"a":"' + b'x' * (1048576 - 8) + b'"}'
        request(ng.port, '/v1/completions', big)
        request(ng.port, '/v1/completions', big[:-2] + b'x"}')
        rows = ng.wait_records('a$b.jsonl', 2)
        is_([row.payload for row in rows], [BODY, big],
            'recorded up to 1 MiB, in a file with a dollar in its name')
        like(rows[0].line.decode(), r'^\{"timestamp":0,"payload":\{',
             'as mooncake_payload')
        ng.quit()
        row = ng.counters(template(ng, 'a$b.jsonl'))
        is_((row['seen'], row['unmatched'], row['too_large'], row['recorded']),
            (4, 1, 1, 2), 'and counted')


def test_directives_win():
    with Upstream() as up, nginx(
            up, args(**HERE, format='raw_payload', sample_rate=0,
                     max_request_bytes=1, endpoint_pattern='^/never$')
            + 'llm_capture_format mooncake_payload; llm_capture_sample_rate 1;',
            'llm_capture on; llm_capture_max_request_bytes 1k;'
            ' llm_capture_endpoint_pattern ^/own$;'
            ' llm_capture_path %%DIR%%/capture/own.jsonl;') as ng:
        request(ng.port, '/own', BODY)
        row = ng.wait_records('own.jsonl', 1)[0]
        is_((row.timestamp, row.payload), (0, BODY),
            'each directive wins over its key')
        is_([n for n in os.listdir(ng.dir + '/capture') if 'nim' in n], [],
            'the path of the object is not used')


def test_file():
    """A file, read again by a reload."""
    with Upstream() as up, Nginx(
            up, path='', http='llm_capture_args_file %%DIR%%/args.json;',
            location='llm_capture on;', start=False) as ng:
        def write(name):
            with open(ng.dir + '/args.json', 'w') as f:
                json.dump({'path': f'{ng.dir}/capture/{name}'}, f)
        write('one.jsonl')
        ng.start()
        request(ng.port, CHAT, BODY)
        is_(len(ng.wait_records('one.jsonl', 1)), 1, 'recorded by the file')
        write('two.jsonl')
        ng.reload()
        request(ng.port, CHAT, BODY)
        is_(len(ng.wait_records('two.jsonl', 1)), 1, 'and after a reload')


with case('test_bad_values'):
    ng = Nginx(path='', start=False)
    try:
        test_bad_values(ng)
    finally:
        ng.finish()

for test in (test_off, test_own_path, test_values, test_defaults,
             test_directives_win, test_file):
    with case(test.__name__):
        test()
