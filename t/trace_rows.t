#!/usr/bin/env python3
"""Real AIPerf loads the trace rows that the product writes, and replays them.

The rows are made by build/unit/trace_rows: two conversations that begin alike
and grow, turn by turn.  What AIPerf then sends must have the lengths that the
rows say, and two requests the same beginning as far as their hash_ids agree.
"""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from tap import case, diag, is_, ok                         # noqa: E402
from replay import make_tokenizer, replay                   # noqa: E402
from upstream import Upstream                               # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BLOCK = 512


def rows_of(kind, path):
    out = subprocess.run([TOP + '/build/unit/trace_rows', kind], check=True,
                         stdout=subprocess.PIPE).stdout
    with open(path, 'wb') as f:
        f.write(out)
    return [json.loads(line) for line in out.splitlines()]


def run(work, path, endpoint, kind, *more):
    """What AIPerf sent, in the order of the times in the trace."""
    with Upstream() as up:
        code, text = replay(work, endpoint, up.port, path, kind, more)
        if not ok(code == 0, f'{os.path.basename(path)}: AIPerf replays it'):
            diag(text[-4000:])
        return [(json.loads(seen.body), seen.headers)
                for seen in up.requests if seen.method == 'POST']


def content(body):
    return ''.join(m['content'] for m in body['messages'])


def alike(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


with tempfile.TemporaryDirectory(prefix='llm-capture-trace-') as work:
    make_tokenizer(work + '/tok')

    from aiperf.dataset.loader.models import MooncakeTrace

    for kind in 'mooncake', 'hashes', 'sessions':
        with case(kind):
            path = f'{work}/{kind}'
            rows = rows_of(kind, path)
            for row in rows:
                MooncakeTrace.model_validate(row)

            is_(['hash_ids' in row for row in rows],
                [kind != 'mooncake'] * len(rows), f'{kind}: has ids or none')
            ok(all(len(row.get('hash_ids', [])) * BLOCK <= row['input_length']
                   for row in rows), f'{kind}: each id is a full block')

            sent = run(work, path, 'chat', 'mooncake_trace')
            is_(sorted(body['max_completion_tokens'] for body, _ in sent),
                [row['output_length'] for row in rows],
                f'{kind}: each row was sent, with its output length')

            # the mock sees them by their output lengths, which are distinct
            text = {body['max_completion_tokens']: content(body)
                    for body, _ in sent}

            if kind == 'mooncake':
                continue

            if kind == 'sessions':
                names = {}
                for body, headers in sent:
                    row = rows[body['max_completion_tokens'] - 1]
                    names.setdefault(row['session_id'], set()).add(
                        headers.get('x-correlation-id'))
                is_(len(names), 2, 'sessions: two conversations')
                ok(all(len(n) == 1 for n in names.values())
                   and len(set.union(*names.values())) == 2,
                   'sessions: each row went with its session', names)
                continue

            wrong = []
            for i, a in enumerate(rows):
                for b in rows[:i]:
                    shared = alike(a['hash_ids'], b['hash_ids'])
                    same = alike(text[a['output_length']],
                                 text[b['output_length']])
                    if same < shared * BLOCK or (
                            shared < min(len(a['hash_ids']),
                                         len(b['hash_ids']))
                            and same >= (shared + 1) * BLOCK):
                        wrong.append((shared, same))
            is_(wrong, [], 'hashes: requests agree as far as their ids do')
            ok(len({tuple(row['hash_ids'][:2]) for row in rows}) == 1
               and len({row['hash_ids'][2] for row in rows}) == 2,
               'hashes: one beginning, then two conversations')

    with case('baseten'):
        from pyarrow import json as arrow, parquet

        path = f'{work}/baseten'
        rows = rows_of('baseten', path)
        parquet.write_table(arrow.read_json(path), path + '.parquet')

        sent = run(work, path + '.parquet', 'completions', 'baseten_trace')
        is_(sorted((body['max_tokens'], body['prompt'],
                    tuple(body['hash_ids']), body['block_size'])
                   for body, _ in sent),
            [(row['output_tokens'], row['prompt'],
              tuple(row['total_hashes']), BLOCK) for row in rows],
            'baseten: each row was sent with its prompt, length and ids')
