#!/usr/bin/env python3
"""The verdicts of validate are those of AIPerf's own loaders.

The bodies of t/data, and 10 000 files that were good and then spoiled in one
way or another, each given to llm-capture and to the loaders in this process.
LLM_CAPTURE_SEED and LLM_CAPTURE_COUNT make it another one, or longer.
"""

import glob
import gzip
import json
import os
import random
import sys
import tempfile

import zstandard

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))
from tap import case, diag, is_, ok                         # noqa: E402
from aiperf_loader import Loaders                           # noqa: E402
from cli import TOP, reports                                # noqa: E402

SEED = int(os.environ.get('LLM_CAPTURE_SEED') or 102)
COUNT = int(os.environ.get('LLM_CAPTURE_COUNT', 10000))
BATCH = 250
pick = random.Random(SEED)

BODIES = [
    b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}',
    b'{ "messages" : [ { "role" : "user" , "content" : "a\\u00e9\\ud83d\\ude00"'
    b' } ] , "stream" : true }',
    '{"prompt":"為什麼 é","max_tokens":5}'.encode(),
    b'{"model":"m","input":["a","b"],"seed":18446744073709551616}',
    b'{"messages":[],"tools":[{"type":"function","function":{}}]}',
    b'{"prompt":[1,2,3],"x":{"y":[{},[],1e2,-0.5,null,false]}}',
]

# values that a field of a trace may be given
VALUES = [
    '0', '1', '-1', '7', '7.0', '7.5', '512', '1024', '1500', '1e2', '1e400',
    '1e30', '18446744073709551615', '18446744073709551616',
    '-9223372036854775808', '-9223372036854775809', 'true', 'false', 'null',
    '""', '"x"', '"5"', '" 5 "', '"5.0"', '"5.5"', '"1_0"', '"1__0"', '"nan"',
    '"-inf"', '"1e3"', '"-3"', '".5"', '"5."', '"5_"', '"\\u00a05"',
    '"\\u001c5"', '"5\\u0000"', '[]', '{}', '[1]', '[1,2]', '[1,2.0,"3"]',
    '[1.5]', '[null]', '[true,"1"]', '["x"]', '[{}]', '[{"role":"user"}]',
    '[{"role":null,"content":"x"}]', '{"a":1}', '"mooncake_trace"',
    '"MOONCAKE_TRACE"', '"a"', '"b"', '"\\u0061"', '-0.0', '0.1', '"+1_0.00"',
]
FIELDS = ['timestamp', 'session_id', 'payload', 'input_length', 'delay',
          'output_length', 'hash_ids', 'messages', 'text_input', 'tools',
          'extra', 'type', 'id', 'payl\\u006fad', 'other']
PIECES = [b'\r', b'\n', b'\r\n', b'\t', b'\0', b' ', b'\xc2\xa0', b'\xc2\x85',
          b'\xe2\x80\xa8', b'\x1c', b'\x0b', b'\xff', b'\xed\xa0\x80', b'"',
          b'\\', b'\\ud83d', b'{', b'}', b'[', b']', b',', b':', b'NaN', b'0',
          b'e', b'.', b'-', b'1e999', b'//', b'\xef\xbb\xbf', b'\xf0\x9f\x98',
          b'[' * 1020, b'\xe3\x80\x80', b'{}', b'null']


def known():
    """Fields that make a row, most of the time."""
    how = pick.randrange(8)
    session = pick.choice(['', ',"session_id":"a"', ',"session_id":"b"'])
    timestamp = pick.choice(['"timestamp":%d' % pick.randrange(9999),
                             '"timestamp":1.5', '"delay":3'])
    if how < 4:
        found = '"payload":' + pick.choice(BODIES).decode()
    elif how == 4:
        found = '"messages":[{"role":"user","content":"x"}]'
    elif how == 5:
        found = '"text_input":"x","output_length":4'
    else:
        n = pick.randrange(1, 4)
        length = pick.choice([512 * n, 512 * n - 100, 512 * n + 9, 600, 1024])
        ids = [pick.randrange(n * 3 + 2) for _ in range(n)]
        found = f'"input_length":{length},"output_length":2,"hash_ids":{ids}'
    return timestamp + session, found


def row(kind):
    if kind == 'raw_payload':
        return pick.choice(BODIES[:2] + BODIES[4:5]) if pick.random() < .9 \
            else pick.choice(BODIES)
    head, found = known()
    return ('{%s,%s}' % (head, found)).encode()


def field(line):
    """A field more, in front or behind."""
    name, value = pick.choice(FIELDS), pick.choice(VALUES)
    member = f'"{name}":{value}'.encode()
    if pick.random() < .5:
        return b'{' + member + b',' + line[1:]
    return line[:-1] + b',' + member + b'}'


def spoil(line):
    how = pick.randrange(6)
    at = pick.randrange(len(line) + 1)
    if how == 0:
        return line[:at] + pick.choice(PIECES) + line[at:]
    if how == 1:
        return line[:at] + line[at + pick.randrange(1, 4):]
    if how == 2 and at < len(line):
        return line[:at] + bytes([line[at] ^ 1 << pick.randrange(8)]) \
            + line[at + 1:]
    if how == 3:
        return pick.choice(PIECES) + line
    if how == 4:
        return line + pick.choice(PIECES)
    return field(line)


def packed(data):
    data = gzip.compress(data, 1)
    how = pick.randrange(6)
    if how == 0:
        return data[:pick.randrange(2, len(data))]
    if how == 1:
        at = pick.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << pick.randrange(8)]) \
            + data[at + 1:]
    if how == 2:
        return data + pick.choice([b'\0' * 9, b'x', b'\0\0x', data])
    return data


def spoiled(kind):
    lines = [row(kind) for _ in range(pick.randrange(1, 5))]
    for _ in range(pick.choice([0, 1, 1, 1, 2])):
        i = pick.randrange(len(lines))
        lines[i] = spoil(lines[i])
    end = pick.choice([b'\n'] * 8 + [b'\r\n', b'\r'])
    data = end.join(lines)
    how = pick.randrange(12)
    if how == 0:
        return data[:pick.randrange(len(data) + 1)]
    if how == 1:
        return packed(data)
    return data + pick.choice([end, end, b'', b'\n \n'])


def compare(work, kind, files, judge):
    """Those that the two do not agree on."""
    paths = []
    for i, data in enumerate(files):
        paths.append(f'{work}/{i}')
        with open(paths[-1], 'wb') as f:
            f.write(data)
    found = reports('validate', '--format', kind, *paths)
    wrong, refused = [], 0
    for path, data, said in zip(paths, files, found, strict=True):
        why = judge(kind, path)
        refused += why is not None
        if said['ok'] != (why is None):
            wrong.append((data[:300], said['errors'] or said['why'], why))
    return wrong, refused


with tempfile.TemporaryDirectory(prefix='llm-capture-cli-') as work:
    judge = Loaders(work)

    with case('the bodies of t/data'):
        bodies = []
        for path in sorted(glob.glob(TOP + '/t/data/*valid/*')):
            with open(path, 'rb') as f:
                bodies.append(f.read())
        ok(len(bodies) > 60, f'{len(bodies)} bodies')
        for kind, files in [
                ('raw_payload', bodies),
                ('mooncake_trace', bodies),
                ('mooncake_trace', [b'{"timestamp":5,"payload":%s}\n' % b
                                    for b in bodies]),
                ('mooncake_trace',
                 [b'{"timestamp":5,"payload":%s}\n'
                  % b.strip().replace(b'\n', b' ').replace(b'\r', b' ')
                  for b in bodies])]:
            wrong, refused = compare(work, kind, files, judge)
            is_(wrong, [], f'{kind}: the same verdicts, {refused} refused')

    with case('a zstd'):
        for kind, line in [('raw_payload', BODIES[0]),
                           ('mooncake_trace', b'{"payload":%s}' % BODIES[0])]:
            is_(compare(work, kind, [zstandard.compress(line + b'\n')], judge),
                ([], 1), f'{kind}: neither takes it')

    with case('spoiled files'):
        diag(f'LLM_CAPTURE_SEED={SEED} LLM_CAPTURE_COUNT={COUNT}')
        wrong, refused = [], 0
        for i in range(0, COUNT, BATCH):
            kind = 'raw_payload' if i // BATCH % 4 == 3 else 'mooncake_trace'
            some, n = compare(work, kind, [
                spoiled(kind) for _ in range(min(BATCH, COUNT - i))], judge)
            wrong += some
            refused += n
        is_([(data, json.dumps(said), why or 'AIPerf takes it')
             for data, said, why in wrong[:10]], [],
            f'{COUNT} files of seed {SEED}: the same verdicts')
        ok(COUNT / 5 < refused < COUNT * 4 / 5, 'both verdicts are met often',
           refused)
        diag(f'{refused} refused')
