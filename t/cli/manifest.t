#!/usr/bin/env python3
"""What stands beside a file: its manifest, and the segments of a rotation."""

import gzip
import itertools
import json
import os
import sys
import tempfile

import zstandard

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))
from tap import case, is_, like, ok                         # noqa: E402
from cli import beside, cli, manifest, reports, write       # noqa: E402
from manifests import schema                                # noqa: E402

BODY = {'model': 'm', 'messages': [{'role': 'user', 'content': 'Hi'}]}
SCHEMA = schema()
TIMES = ['20261130T061500.123Z', '20261130T071500.000Z']


def rows(n, ids=0):
    return [{'timestamp': 10 * i, 'id': f'{ids + i + 1:016x}', 'payload': BODY}
            for i in range(n)]


def outcome(i):
    return {'id': f'{i + 1:016x}', 'timestamp': 0, 'status': 200,
            'completion_tokens': i + 1}


def validate(*args):
    return cli('validate', '--text', *args)


def packed(path, kind):
    """The file as a segment that was compressed; its plain bytes."""
    with open(path, 'rb') as f:
        plain = f.read()
    out, data = (path + '.gz', gzip.compress(plain)) if kind == 'gzip' else (
        path + '.zst', zstandard.compress(plain))
    with open(out, 'wb') as f:
        f.write(data)
    return out, plain


def refused(path, why, name, **other):
    manifest(path, **other)
    code, out, _ = validate(path)
    is_(code, 1, f'{name}: 1')
    like(out, why, f'{name}: and why')
    is_(reports('validate', path)[0]['ok'], False, f'{name}: in JSON')


with tempfile.TemporaryDirectory(prefix='llm-capture-cli-') as work:
    path = write(work + '/w.jsonl', *rows(4))

    with case('validate: a manifest that is right'):
        like(validate(path)[1], 'there is no manifest beside it',
             'none: a remark')
        is_(validate(path)[0], 0, 'and no more')
        said = manifest(path, seen=9, pending=1,
                        reasons={'aborted': 1, 'invalid_json': 3})
        is_([e.message for e in SCHEMA.iter_errors(said)], [],
            'it is by the schema')
        ok(list(SCHEMA.iter_errors({**said, 'rows': -1})), 'which can refuse')
        code, out, err = validate(path)
        is_((code, err), (0, ''), 'the file is as it says')
        like(out, '9 seen = 4 recorded . 4 left out . 1 pending, of a sealed',
             'the sum is told')
        found = reports('validate', path)[0]['manifest']
        is_((found['ok'], found['sealed'], found['seen'], found['why'],
             found['file']), (True, True, 9, [], beside(path)), 'as JSON')
        manifest(path, found={'rows': 1, 'bytes': 9}, recorded=3, seen=3,
                 first_timestamp=10)
        is_(validate(path)[0], 0, 'rows that were there before')
        said = manifest(path, rows=None, sha256=None, recorded=2, seen=2,
                        found={'rows': None, 'bytes': 9}, first_timestamp=20)
        is_([e.message for e in SCHEMA.iter_errors(said)], [],
            'or nobody knows how many: by the schema')
        code, out, _ = validate(path)
        is_(code, 0, 'no reason to refuse it')
        like(out, 'does not know how many', 'it is told')
        manifest(path, sha256=None)
        code, out, _ = validate(path)
        is_(code, 0, 'sealed, and not yet read')
        like(out, 'has no sha256 yet', 'is told')

    with case('validate: one that is wrong'):
        refused(path, r'sha256 [0-9a-f]{64}, the manifest says 0{64}',
                'sha256', sha256='0' * 64)
        refused(path, 'rows: 4, the manifest says 5', 'rows', rows=5)
        refused(path, r'bytes: \d+, the manifest says 7', 'bytes', bytes=7)
        refused(path, 'does not add up: 7 seen, but 4 recorded, 2 left out,'
                ' 0 pending', 'the sum', seen=7, reasons={'aborted': 2})
        refused(path, 'not the sum of those that wrote: 3 seen', 'writers',
                writers=[{'id': '0' * 16, 'seen': 3, 'recorded': 3,
                          'pending': 0}])
        refused(path, "destination does not add up", 'the destination',
                destination={'path': 'x', 'seen': 9, 'recorded': 4,
                             'pending': 0, 'reasons': {}})
        refused(path, 'rows are missing: 4 are there, 5 were recorded',
                'rows that went', recorded=5, seen=5)
        refused(path, 'first_timestamp 0, the manifest says 5',
                'first_timestamp', first_timestamp=5)
        refused(path, 'last_timestamp 30, the manifest says 20',
                'last_timestamp', last_timestamp=20)
        refused(path, 'it is mooncake_trace, the manifest says raw_payload',
                'format', format='raw_payload')
        refused(path, 'of a version that is not known', 'version', manifest=2)
        is_(validate('--no-manifest', path)[0], 0, '--no-manifest')
        write(beside(path), b'{"manifest":1')
        code, out, _ = validate(path)
        is_(code, 1, 'half of one')
        like(out, 'the manifest is broken: .*', 'is told')
        manifest(path)
        with open(path, 'r+b') as f:
            f.seek(-7, 2)
            f.write(b'j')
        is_(validate('--no-manifest', path)[0], 0, 'one byte of a text')
        like(validate(path)[1], 'sha256', 'is seen by the sha256 alone')

    with case('validate: members of other types'):
        said = manifest(path)
        codes = set()
        for name, value in itertools.product(said, [
                None, -1, 1.5, 10 ** 30, 2 ** 63 - 1, 'x', [], [1], {'a': 'b'},
                [{'from': 'x'}]]):
            write(beside(path), {**said, name: value})
            codes |= {validate(path)[0], cli('inspect', path)[0]}
        is_(codes, {0, 1}, 'are told or not, and nothing worse')

    with case('validate: a live file'):
        live = write(work + '/live.jsonl', *rows(4))
        manifest(live, sealed=False, sha256=None, rows=3, bytes=9, recorded=3,
                 seen=3, last_timestamp=20)
        code, out, _ = validate(live)
        is_(code, 0, 'a manifest that is behind')
        like(out, 'its manifest is 1 rows behind', 'is told')
        refused(live, 'rows: 4, the manifest says 5', 'rows that are not there',
                sealed=False, sha256=None, rows=5)
        refused(live, 'last_timestamp 30, the manifest says 40',
                'a time that is not there', sealed=False, sha256=None,
                last_timestamp=40)

    for kind in 'gzip', 'zstd':
        with case(f'validate: {kind}'):
            path = write(f'{work}/{kind}.{TIMES[0]}.jsonl', *rows(3000))
            out, plain = packed(path, kind)
            manifest(out, plain)
            said, = reports('validate', out)
            is_((said['rows'], said['compression'], said['manifest']['why']),
                (3000, kind, []), 'the file as it stands')
            is_((said['ok'], said['why'] is None),
                (kind == 'gzip', kind == 'gzip'), 'does AIPerf unpack it')
            said, = reports('validate', path)
            is_(said['manifest']['why'], [], 'what is unpacked again')
            like(said['manifest']['remarks'][0], f'when it was {kind}',
                 'is told from it')
            with open(path, 'rb') as f:
                other = f.read().replace(b'"id"', b'"ID"', 1) + plain[:90]
            write(path, other)
            ok(reports('validate', path)[0]['manifest']['why'],
               'and is to be of the same size')
            manifest(out, plain, sha256='1' * 64)
            like(reports('validate', out)[0]['manifest']['why'][0], 'sha256',
                 'another sha256')
            is_(len(cli('window', '--from', '0', out)[1].splitlines()), 3000,
                'all commands read it')
            with open(out, 'r+b') as f:
                f.truncate(os.path.getsize(out) - 9)
            like(validate(out)[1], f'the {kind} is cut off', 'cut off')
            is_(cli('scale', '--speed', '1', out)[0], 2, 'of no use')
            is_(cli('replay-cmd', packed(write(work + '/x.jsonl', *rows(1)),
                                         kind)[0])[0], int(kind == 'zstd'),
                'replay-cmd')

    with case('inspect: what is missing'):
        path = write(work + '/holes.jsonl', *rows(90))
        is_(reports('inspect', path)[0]['manifest'], None, 'not known')
        gap = {'from': 1764483300500, 'to': 1764483302500, 'requests': 10}
        total = {'path': 'x', 'seen': 110, 'recorded': 90, 'pending': 0,
                 'reasons': {'queue_full': 10, 'sampled_out': 7,
                             'aborted': 2, 'invalid_json': 1}}
        manifest(path, destination=total, gaps=[gap])
        said = reports('inspect', path)[0]['manifest']
        is_((said['dropped'], said['missing'], said['gaps']), (10, 0.1, [gap]),
            'requests that a server would have served')
        code, out, _ = cli('inspect', '--text', path)
        like(out, r'(?m)^missing +10 %: 10 of 100 requests were dropped$',
             'as text')
        like(out, r'(?m)^left out +0 pending, 10 queue_full, 7 sampled_out',
             'and why')
        like(out, r'(?m)^gaps +10 requests, 0 s - 2 s', 'and when')
        is_(cli('inspect', '--plot', work + '/p.svg', path)[0], 0, 'a picture')
        with open(work + '/p.svg') as f:
            ok('when requests were dropped' in f.read(), 'and when in it')
        other = write(work + '/other.jsonl', *rows(9))
        is_(reports('inspect', '--manifest', beside(path), other)[0][
            'manifest']['dropped'], 10, '--manifest')
        like(cli('replay-cmd', path)[1], '# 10 requests .10%. were dropped',
             'replay-cmd has a note')

    names = [f'{work}/s.{t}.jsonl' for t in TIMES] + [work + '/s.jsonl']
    for i, name in enumerate(names):
        write(name, *rows(3, 3 * i))
        manifest(name, t0=1764483300000 + 1000 * i)
    # the last of each file was answered after the rotation
    write(names[0][:-6] + '.outcomes', outcome(0), outcome(1))
    write(names[1][:-6] + '.outcomes', outcome(2), outcome(3), outcome(4))
    write(names[2][:-6] + '.outcomes', outcome(5), outcome(6))

    with case('outcomes of a rotated file'):
        for i, name in enumerate(names[:2]):
            code, out, err = cli('join', name)
            is_([json.loads(line)['outcome']['completion_tokens']
                 for line in out.splitlines()],
                [3 * i + k for k in (1, 2, 3)],
                f'segment {i}: those of the next file, too')
            is_(code, 0, f'segment {i}: all have one')
        is_(len(cli('join', '--both', names[2])[1].splitlines()), 1,
            'the live file: its own')
        said = [reports('inspect', name)[0]['outcomes']['rows']
                for name in names]
        is_(said, [3, 3, 1], 'inspect: of requests of the file alone')
        other = work + '/alone.jsonl'
        os.link(names[0], other)
        named = [a for n in names[:2]
                 for a in ('--outcomes', n[:-6] + '.outcomes')]
        is_(cli('join', *named, other)[0], 0, '--outcomes, more than once')
        is_(cli('join', *named[:2], other)[0], 3, 'once')
        is_(reports('inspect', *named, other)[0]['outcomes']['rows'], 3,
            'inspect, likewise')
        os.rename(names[0], names[0] + '.plain')
        is_(cli('join', names[0] + '.plain')[0], 0, 'while it is compressed')
        os.rename(names[0] + '.plain', names[0])

    with case('merge by manifests'):
        out = work + '/merged.jsonl'
        pod = write(work + '/pod.jsonl', *rows(2, 50))
        manifest(pod, t0=1764483300500)
        code, _, err = cli('merge', '--out', out, names[2], pod, names[1],
                           names[0])
        is_(code, 0, 'by their t0')
        with open(out) as f:
            found = [json.loads(line) for line in f]
        is_([int(r['id'], 16) - 1 for r in found],
            [0, 1, 2, 50, 51, 3, 4, 5, 6, 7, 8], 'by time')
        is_([r['timestamp'] for r in found],
            [0, 10, 20, 500, 510, 1000, 1010, 1020, 2000, 2010, 2020],
            'by one clock')
        like(err, r'pod\.jsonl: 2 rows, \+500 ms', 'the skew is told')
        with open(out[:-6] + '.outcomes') as f:
            is_([json.loads(line)['completion_tokens'] for line in f],
                [1, 2, 3, 4, 5, 6, 7], 'with outcomes')
        manifest(names[1], t0=1764483300005)
        code, out, _ = cli('merge', names[1], names[0])
        is_([int(json.loads(x)['id'], 16) - 1 for x in out.splitlines()],
            [0, 1, 2, 3, 4, 5], 'segments follow each other, whatever the'
            ' clock')
        again = write(work + '/again.jsonl', {**rows(1)[0],
                                              'session_id': 'a'})
        for i, name in enumerate(names[:2]):
            write(name, {**rows(1)[0], 'session_id': 'a'})
            manifest(name)
        manifest(again)
        ok('more than one pod' not in cli('merge', *names[:2])[2],
           'segments are of one pod')
        like(cli('merge', again, *names[:2])[2], '1 sessions are in files of'
             ' more than one pod', 'and others are not')
        twice, _ = packed(names[0], 'gzip')
        is_(cli('merge', names[0], twice)[0], 2, 'the same rows twice')
        manifest(pod, t0=None)
        code, _, err = cli('merge', pod, names[0])
        is_(code, 2, 'no t0')
        like(err, 'it has no manifest', 'is told')
