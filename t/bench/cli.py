#!/usr/bin/env python3
"""How fast llm-capture reads, beside tools that do the same.

    t/bench/cli.py [MEGABYTES] > docs/command-speed.md

One file, from the page cache, on one core, best of three, by the time that the
processor worked; so the ratios within a run mean most.  Then the most memory
that it takes, from 1 MB to 10 GB.  jq, DuckDB and AIPerf's loader are left out
where they are missing.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))
from cli import manifest                                    # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
PROGRAM = TOP + '/build/llm-capture'
PYTHON = TOP + '/build/venv/bin/python'
SIZE = float(sys.argv[1]) if len(sys.argv) > 1 else 500
CORE = max(os.sched_getaffinity(0))
with open('/proc/cpuinfo') as cpu:
    MODEL = next((line.split(': ')[1].strip() for line in cpu
                  if line.startswith('model name')), 'this machine')
# a row has one, so that no two pieces of a pipe need be alike
MARK = '@@@@@@@@'
LETTERS = 'abcdefghijklmnopqrstuvwxyz'

HEAD = f'''# How fast llm-capture reads

One run of `make bench-llm-capture`, which writes this page; on one core
({MODEL}), seconds that the processor worked, best of 3.
'''

# each reads every row, says whether it is one, and counts
LOADER = '''
import sys, orjson
from aiperf.dataset.loader.models import MooncakeTrace
n = 0
with open(sys.argv[1], encoding='utf-8') as f:
    for line in f:
        if line := line.strip():
            MooncakeTrace.model_validate(orjson.loads(line))
            n += 1
print(n)
'''
ORJSON = '''
import sys, orjson
n = 0
with open(sys.argv[1], 'rb') as f:
    for line in f:
        n += bool(orjson.loads(line)['payload'])
print(n)
'''
DUCKDB = '''
import sys, duckdb
duckdb.sql('set threads to 1')
print(duckdb.sql(f"""select count(*), count(distinct payload->>'$.model'),
    sum(length(payload->>'$.messages')) from read_json('{sys.argv[1]}',
    format='newline_delimited', maximum_object_size=100000000,
    columns={{timestamp: 'BIGINT', id: 'VARCHAR', payload: 'JSON'}})"""
    ).fetchall())
'''


def rows(megabytes):
    """Conversations as chat clients send them, 3 KB in the middle."""
    pick = random.Random(1)
    words = [''.join(pick.choices(LETTERS, k=pick.randrange(2, 10)))
             for _ in range(3000)]
    texts = [' '.join(pick.choices(words, k=pick.choice(
        [40, 150, 400, 1000, 4000]))) for _ in range(300)]
    size, ts = 0, 0
    while size < megabytes * 1e6:
        ts += pick.randrange(40)
        line = json.dumps({
            'timestamp': ts, 'id': f'{pick.getrandbits(64):016x}',
            'payload': {
                'model': f'm{pick.randrange(3)}',
                'messages': [{'role': ['user', 'assistant'][i % 2],
                              'content': MARK + pick.choice(texts)}
                             for i in range(pick.choice([1, 1, 3, 5]))],
                'max_tokens': pick.randrange(1, 500),
                'stream': pick.random() < .8}}, separators=(',', ':')) + '\n'
        size += len(line)
        yield line.encode()


def once(command, feed=None):
    """(seconds, most resident memory in MB); time(1) is small, this is not"""
    with tempfile.NamedTemporaryFile('r') as said:
        run = subprocess.Popen(
            ['/usr/bin/time', '-o', said.name, '-f', '%U %S %M', 'taskset', '-c',
             str(CORE), *command],
            stdin=subprocess.PIPE if feed else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL)
        if feed:
            feed(run.stdin)
            run.stdin.close()
        if run.wait():
            sys.exit(f'{command[0]}: exit code {run.returncode}')
        user, system, memory = map(float, said.read().split())
        return user + system, memory / 1024


def has(python, module):
    return os.path.exists(python) and subprocess.run(
        [python, '-c', f'import {module}'],
        stderr=subprocess.DEVNULL).returncode == 0


def tools(path):
    yield 'llm-capture validate', [PROGRAM, 'validate', '--no-manifest', path]
    yield 'and its manifest\'s sha256', [PROGRAM, 'validate', path]
    yield 'llm-capture inspect', [PROGRAM, 'inspect', path]
    if has(PYTHON, 'orjson'):
        yield 'Python, orjson alone', [PYTHON, '-c', ORJSON, path]
    if has(PYTHON, 'aiperf'):
        yield "Python, AIPerf's parser and model", [PYTHON, '-c', LOADER, path]
    if has(PYTHON, 'duckdb'):
        yield 'DuckDB', [PYTHON, '-c', DUCKDB, path]
    if shutil.which('jq'):
        yield 'jq', ['jq', '-n', 'reduce (inputs | .payload) as $p (0; . + '
                     '($p | length))', path]


def speed(path):
    size = os.path.getsize(path)
    found = [(name, min(once(command) for _ in range(3)))
             for name, command in tools(path)]
    first = found[0][1][0]
    print(f'{size / 1e9:.2f} GB from the page cache:\n')
    print('| | seconds | GB/s | times validate | MB |\n|---|---|---|---|---|')
    for name, (seconds, memory) in found:
        print(f'| {name} | {seconds:.2f} | {size / 1e9 / seconds:.2f} '
              f'| {seconds / first:.1f} | {memory:.0f} |')


def memory(piece):
    """Pieces of 1 MB, each with texts of its own, through a pipe."""
    print('\nThe most memory that it takes has a bound:\n')
    print('| MB through a pipe | validate, MB | inspect, MB |\n|---|---|---|')
    for megabytes in 1, 100, 1000, 10000:
        def feed(to):
            for i in range(megabytes):
                to.write(piece.replace(MARK.encode(), b'%08d' % i))
        print(f'| {megabytes} | '
              + ' | '.join(f"{once([PROGRAM, name, '-'], feed)[1]:.1f}"
                           for name in ('validate', 'inspect')) + ' |',
              flush=True)


with tempfile.TemporaryDirectory(prefix='llm-capture-bench-') as work:
    path = work + '/rows.jsonl'
    with open(path, 'wb') as f:
        f.writelines(rows(SIZE))
    with open(path, 'rb') as f:
        while f.read(1 << 24):          # into the page cache
            pass
    print(HEAD)
    manifest(path)
    speed(path)
    with open(path, 'rb') as f:
        piece = f.read(1_000_000)
    memory(piece[:piece.rindex(b'\n') + 1])
