#!/usr/bin/env python3
"""split, window, sample, scale, merge, join: rows stay as they are."""

import json
import os
import resource
import stat
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))
from tap import case, is_, like, ok                         # noqa: E402
from cli import cli, write                                  # noqa: E402


def row(i, ts, session=None, body=None):
    """Spelled as no program would spell it again."""
    more = f'"session_id":"{session}",' if session else ''
    body = body or '{ "model":"m\\u0041", "messages":[ ],"n":1.0e0 }'
    return (f'{{"timestamp":{ts},"id":"{i + 1:016x}",{more}'
            f'"payload":{body}}}').encode()


def outcome(i, ts, n=5):
    return {'id': f'{i + 1:016x}', 'timestamp': ts, 'status': 200,
            'completion_tokens': n}


def read(path):
    with open(path, 'rb') as f:
        return f.read().splitlines()


def ids(path):
    return [int(json.loads(line)['id'], 16) - 1 for line in read(path)]


with tempfile.TemporaryDirectory(prefix='llm-capture-cli-') as work:
    times = [0, 100, 4000, 4100, 4200, 4900, 5000, 9000, 61000]
    rows = [row(i, ts, 'ab'[i % 2] * 16) for i, ts in enumerate(times)]
    path = write(work + '/w.jsonl', *rows)
    write(work + '/w.outcomes', *[outcome(i, ts)
                                  for i, ts in enumerate(times)][::-1])

    with case('window'):
        out = work + '/window.jsonl'
        code, _, err = cli('window', '--from', '4s', '--to', '5000ms',
                           '--out', out, path)
        is_((code, read(out)), (0, rows[2:6]), 'from .. to, byte for byte')
        like(err, '4 of 9 rows', 'how many')
        is_(ids(work + '/window.outcomes'), [2, 3, 4, 5],
            'with their outcomes')
        is_(stat.S_IMODE(os.stat(out).st_mode), 0o600, 'mode 0600')
        is_(cli('window', '--from', '5s', '--out', out, path)[0], 2,
            'nothing is overwritten')
        code, out, _ = cli('window', '--busiest', '2s', path)
        is_(out.encode().splitlines(), rows[2:7], '--busiest')
        code, out, _ = cli('window', '--busiest', '1s', '--rebase', path)
        is_(out.encode().splitlines(),
            [row(i, times[i] - 4000, 'ab'[i % 2] * 16) for i in range(2, 6)],
            '--rebase')
        is_(cli('window', path)[0], 2, 'of nothing')
        is_(cli('window', '--from', '1x', path)[0], 2, 'no duration')

    with case('sample'):
        many = write(work + '/many.jsonl', *[
            row(i, i, f'{i % 500:016x}') for i in range(2000)])
        code, out, _ = cli('sample', '--sessions', '0.2', many)
        kept = [json.loads(line) for line in out.splitlines()]
        some = {r['session_id'] for r in kept}
        ok(70 < len(some) < 130, 'a fifth of the sessions', len(some))
        is_(len(kept), 4 * len(some), 'all rows of each')
        is_(cli('sample', '--sessions', '0.2', many)[1], out,
            'the same ones again')
        ok(cli('sample', '--sessions', '0.2', '--seed', '1', many)[1] != out,
           'others by another seed')
        is_(len(cli('sample', '--sessions', '1', many)[1].splitlines()), 2000,
            'all')
        n = len(cli('sample', '--requests', '0.5', many)[1].splitlines())
        ok(900 < n < 1100, 'half of the rows', n)
        is_(cli('sample', '--sessions', '2', many)[0], 2, 'more than all')

    with case('scale'):
        out = work + '/scale.jsonl'
        delay = b'{"delay":9,"payload":{"a":1},"session_id":"x"}'
        odd = write(work + '/odd.jsonl', row(0, '1e3'), row(1, 2001), delay)
        write(work + '/odd.outcomes', outcome(1, 2001))
        is_(cli('scale', '--speed', '2', '--out', out, odd)[0], 0, 'twice')
        is_(read(out), [row(0, 500), row(1, 1000.5),
                        delay.replace(b'9', b'4.5')], 'the times alone')
        is_(json.loads(read(work + '/scale.outcomes')[0])['timestamp'],
            1000.5, 'and of outcomes')
        is_(cli('scale', '--speed', '0', odd)[0], 2, 'not at all')
        is_(cli('scale', '--speed', '1', path)[1].encode().splitlines(), rows,
            'as fast: as they were')

    with case('split'):
        bodies = ['{"messages":[],"model":"a/b"}', '{"prompt":"x"}',
                  '{"messages":[],"model":"c"}', '{"input":["x"]}']
        mixed = write(work + '/mixed.jsonl',
                      *[row(i, i, None, b) for i, b in enumerate(bodies)])
        write(work + '/mixed.outcomes', outcome(2, 2), outcome(0, 0))
        is_(cli('split', mixed)[0], 0, 'by endpoint type')
        found = {n[6:-6]: ids(f'{work}/{n}') for n in os.listdir(work)
                 if n.startswith('mixed.') and n.count('.') == 2
                 and n.endswith('.jsonl')}
        is_(found, {'chat': [0, 2], 'completions': [1], 'embeddings': [3]},
            'a file of each')
        is_(ids(work + '/mixed.chat.outcomes'), [0, 2],
            'with outcomes, in the order of the rows')
        is_(cli('split', mixed)[0], 2, 'nothing is overwritten')
        is_(cli('split', '--by', 'model', '--out', work + '/model',
                mixed)[0], 0, 'by a path in the payload')
        names = sorted(n for n in os.listdir(work) if n.startswith('model.')
                       and n.endswith('.jsonl'))
        is_([n[:9] for n in names], ['model.a_b', 'model.c.j', 'model.non'],
            'values as names of files')
        is_(cli('split', '--by', 'session', '--out', work + '/s', many,
                preexec_fn=lambda: resource.setrlimit(
                    resource.RLIMIT_NOFILE, (256, 256)))[0], 0,
            'more files than may be open')
        found = [n for n in os.listdir(work) if n.startswith('s.')]
        is_((len(found), sorted(i for n in found for i in ids(f'{work}/{n}'))),
            (500, list(range(2000))), 'each row once')
        ok(all(ids(f'{work}/{n}') == sorted(ids(f'{work}/{n}'))
               for n in found), 'in its order')

    with case('merge'):
        def epoch(path, wall):
            write(path + '.epoch', b'llm_capture_epoch=1', b'wall=%d' % wall,
                  b'mono=5', b'boot=x', b'dev=1', b'ino=2')

        a = write(work + '/a.jsonl', row(0, 0, 'a' * 16), row(1, 3000),
                  row(2, 2500, 'b' * 16))
        b = write(work + '/b.jsonl', row(3, 0, 'b' * 16), row(4, 1000))
        write(work + '/b.outcomes', outcome(4, 1000))
        out = work + '/merged.jsonl'
        code, _, err = cli('merge', '--out', out, a, b)
        is_(code, 2, 'without a common clock')
        like(err, r'a\.jsonl: nothing says what its timestamps count from',
             'which is told')
        epoch(a, 1700000000000)
        epoch(b, 1700000001500)
        code, _, err = cli('merge', '--out', out, a, b)
        is_(code, 0, 'by the clocks of their .epoch')
        is_(read(out), [row(0, 0, 'a' * 16), row(3, 1500, 'b' * 16),
                        row(4, 2500), row(1, 3000), row(2, 2500, 'b' * 16)],
            'by time, each file in its order')
        is_([json.loads(x)['timestamp'] for x in read(work
                                                      + '/merged.outcomes')],
            [2500], 'outcomes by the same clock')
        like(err, r'b\.jsonl: 2 rows, \+1500 ms', 'the skew is told')
        like(err, '1 sessions are in files of more than one pod',
             'and sessions')
        code, out, _ = cli('merge', '--one-clock', b, a)
        is_([json.loads(x)['timestamp'] for x in out.splitlines()],
            [0, 0, 1000, 3000, 2500], '--one-clock')

    with case('join'):
        code, out, err = cli('join', '--output-length', a.replace('a.', 'b.'))
        is_(code, 3, 'not all have one')
        like(err, '2 rows, 1 with an outcome, 0 outcomes without', 'counts')
        made = json.dumps(outcome(4, 1000), separators=(',', ':')).encode()
        is_(out.encode().splitlines(),
            [row(3, 0, 'b' * 16), row(4, 1000)[:-1]
             + b',"output_length":5,"outcome":' + made + b'}'],
            'the row, and behind it its outcome')
        is_(len(cli('join', '--both', b)[1].splitlines()), 1, '--both')
        is_(cli('join', a)[0], 2, 'there are none')
