#!/usr/bin/env python3
"""inspect: what it says of a workload is what Python finds in it."""

import json
import math
import os
import random
import stat
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))
from tap import case, is_, like, ok                         # noqa: E402
from cli import cli, reports, write                         # noqa: E402

pick = random.Random(7)
LETTERS = 'abcdefghij'


def text(n):
    return ''.join(pick.choices(LETTERS, k=n))


def workload(count):
    """Rows with their outcomes: conversations that grow."""
    rows, outcomes, open_ = [], [], {}
    ts = 0
    for i in range(count):
        ts += int(pick.expovariate(1 / 200))
        session = '%016x' % pick.randrange(1, count // 4)
        turns = open_.setdefault(session, [])
        turns.append({'role': 'user', 'content': text(pick.randrange(9000))})
        rows.append({
            'timestamp': ts, 'id': '%016x' % (i + 1), 'session_id': session,
            'payload': {'model': pick.choice(['m', 'n']),
                        'messages': list(turns), 'max_tokens': 9,
                        'stream': i % 3 != 0}})
        outcomes.append({
            'id': '%016x' % (i + 1), 'timestamp': ts, 'status': 200,
            'first_content_ms': pick.randrange(1, 3000), 'stream': i % 3 != 0,
            'last_byte_ms': pick.randrange(3000, 90000),
            'prompt_tokens': pick.randrange(1, 40000),
            'completion_tokens': pick.randrange(1, 2000)})
    outcomes[3].update(status=503, aborted=True)
    return rows, outcomes


def quantile(values, q):
    return sorted(values)[math.ceil(q * len(values)) - 1]


def near(got, want):
    return abs(got - want) <= max(0.5, 0.01 * want)


def numbers(got, values, name):
    ok(got['n'] == len(values) and got['max'] == max(values)
       and near(got['mean'], sum(values) / len(values))
       and all(near(got[f'p{q}'], quantile(values, q / 100))
               for q in (50, 90, 99)),
       f'{name}: mean, p50, p90, p99, max', got)


def reuse(rows):
    """Blocks of 2048 bytes of text, with all before them, seen before."""
    seen, n, again = set(), 0, 0
    for row in rows:
        spelled = json.dumps(row['payload']['messages'],
                             separators=(',', ':'))
        for i in range(2048, len(spelled) + 1, 2048):
            n += 1
            again += spelled[:i] in seen
            seen.add(spelled[:i])
    return n, again / n


with tempfile.TemporaryDirectory(prefix='llm-capture-cli-') as work:
    rows, outcomes = workload(400)
    path = write(work + '/w.jsonl', *rows)

    with case('rows alone'):
        said, = reports('inspect', path)
        is_((said['requests'], said['bad'], said['endpoints']),
            (400, 0, {'chat': 400}), 'requests')
        is_(said['stream'], sum(r['payload']['stream'] for r in rows),
            'streams')
        is_(said['models'], {m: sum(r['payload']['model'] == m for r in rows)
                             for m in ('m', 'n')} if rows[0]['payload'][
                                 'model'] == 'm' else said['models'], 'models')
        times = [r['timestamp'] for r in rows]
        is_(said['duration_s'], (max(times) - min(times)) / 1000, 'duration')
        seconds = [0] * (max(times) // 1000 + 1)
        for t in times:
            seconds[t // 1000] += 1
        is_(said['peak_second']['requests'], max(seconds), 'peak second')
        is_(said['peak_minute']['requests'],
            max(sum(seconds[i:i + 60]) for i in range(len(seconds))),
            'peak minute')
        mean = sum(seconds) / len(seconds)
        ok(abs(said['burstiness'] - sum((n - mean) ** 2 for n in seconds)
               / len(seconds) / mean) < 1e-3, 'burstiness', said['burstiness'])
        ids = [r['session_id'] for r in rows]
        is_((said['sessions'], said['session_requests']),
            (len(set(ids)), len(ids)), 'sessions')
        numbers(said['turns'], [ids.count(i) for i in set(ids)], 'turns')
        n, share = reuse(rows)
        is_(said['prefix']['blocks'], n, 'blocks')
        ok(abs(said['prefix']['reused'] - share) < 1e-5 and 0.1 < share,
           'of them seen before', (said['prefix'], share))
        is_((said['input']['from'], said['output']['from']),
            ('estimate', 'asked'), 'lengths are called estimates')
        is_(said['ttft_ms'], None, 'no times')

    with case('with outcomes'):
        write(work + '/w.outcomes', *outcomes)
        said, = reports('inspect', path)
        is_((said['input']['from'], said['output']['from']),
            ('outcomes', 'outcomes'), 'lengths are the real ones')
        numbers(said['input'], [o['prompt_tokens'] for o in outcomes],
                'input')
        numbers(said['output'], [o['completion_tokens'] for o in outcomes],
                'output')
        numbers(said['ttft_ms'], [o['first_content_ms'] for o in outcomes
                                  if o['stream']], 'TTFT, of streams')
        numbers(said['e2e_ms'], [o['last_byte_ms'] for o in outcomes
                                 if 'aborted' not in o], 'end to end')
        is_((said['outcomes']['rows'], said['outcomes']['failed'],
             said['outcomes']['status']['5xx']), (400, 1, 1), 'failures')

    with case('as text'):
        code, out, err = cli('inspect', '--text', path)
        is_((code, err), (0, ''), 'it is said')
        like(out, r'(?m)^requests +400$', 'requests')
        like(out, r'(?m)^prefix reuse +[\d.]+ % of [\d,]+ blocks', 'reuse')
        like(out, r'(?m)^arrivals +[ ▁▂▃▄▅▆▇█]{60}$', 'a plot')
        like(out, r'(?m)^input .*from outcomes', 'where lengths are from')

    with case('a trace without text'):
        trace = write(work + '/t.jsonl',
                      *[{'timestamp': i * 10, 'input_length': 1024,
                         'output_length': i + 1, 'hash_ids': [1, i]}
                        for i in range(10)])
        said, = reports('inspect', trace)
        is_((said['input']['mean'], said['input']['from'],
             said['output']['max']), (1024, 'rows', 10), 'lengths of rows')
        is_(said['prefix'], {'blocks': 20, 'reused': 0.5, 'sampled': 1},
            'reuse of hash_ids')

    with case('what is a prefix'):
        same = write(work + '/same.jsonl',
                     *[{'timestamp': 0, 'payload': {'prompt': c + 'a' * 8000}}
                       for c in 'ab'])
        said, = reports('inspect', same)
        is_((said['prefix']['blocks'], said['prefix']['reused']), (6, 0),
            'not the same text behind another beginning')

    with case('bad lines'):
        bad = write(work + '/bad.jsonl', rows[0], b'{"a":', rows[1])
        code, out, err = cli('inspect', bad)
        is_((code, json.loads(out)['bad']), (0, 1), 'are counted')
        like(err, r'bad\.jsonl:2: left out: it is no JSON', 'and told')

    with case('--plot'):
        for name in 'p.svg', 'p.png':
            out = f'{work}/{name}'
            code, _, err = cli('inspect', '--plot', out, path)
            is_((code, err), (0, ''), name)
            with open(out, 'rb') as f:
                data = f.read()
            ok(data.startswith(b'\x89PNG') if name.endswith('png')
               else b'Time to first token' in data, f'{name}: a picture')
            is_(stat.S_IMODE(os.stat(out).st_mode), 0o600, f'{name}: 0600')
            is_(cli('inspect', '--plot', out, path)[0], 2,
                f'{name}: is not overwritten')
        code, _, err = cli('inspect', '--plot', work + '/q.svg', path,
                           env=dict(os.environ, PATH='/nowhere'))
        is_(code, 2, 'without python3')
        like(err, 'needs python3 with matplotlib', 'it says what is needed')
        is_([n for n in os.listdir(work) if '.svg' in n and n != 'p.svg'], [],
            'and leaves nothing')
