#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Real AIPerf on traces that were captured: it sees the lengths that the server
# told, sends the turns of a session in order and under one name, and replays
# what DuckDB makes of the rows of completions.

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                'lib'))
from llmcapture import *                                # noqa: E402,F403
from outcomes import *                                  # noqa: E402,F403
from replay import make_tokenizer, replay               # noqa: E402

USER = 'mallory@example.com'
TURNS = 4

# as the README says it
TO_PARQUET = """COPY (FROM read_json('%s', format = 'newline_delimited',
    columns = {timestamp_start_unix_ms: 'BIGINT', prompt: 'VARCHAR',
               input_tokens: 'BIGINT', output_tokens: 'BIGINT',
               provided_session_id: 'VARCHAR', total_hashes: 'BIGINT[]',
               block_size: 'BIGINT', request_canceled: 'BOOLEAN',
               duration_e2e_ms: 'BIGINT', duration_ttft_ms: 'BIGINT'}))
    TO '%s' (FORMAT parquet)"""


def sent(work, path, endpoint, kind, *more):
    """What AIPerf sent of a trace, in the order it came."""
    with mock.Upstream() as up:
        code, text = replay(work, endpoint, up.port, path, kind, more)
        if not ok(code == 0, f'{os.path.basename(path)}: AIPerf replays it'):
            diag(text[-4000:])
        return [(json.loads(seen.body), seen.headers, seen.time)
                for seen in up.requests if seen.method == 'POST']


def stats(values):
    return min(values), max(values), sum(values) / len(values)


def analyse(work, path):
    out = f'{path}.report'
    run = subprocess.run(
        ['aiperf', 'analyze-trace', path, '--output-file', out], cwd=work,
        env=dict(os.environ, HOME=work), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT)
    if not ok(run.returncode == 0, 'AIPerf analyses it'):
        diag(run.stdout[-2000:])
    with open(out) as f:
        return json.load(f)


def conversations(ng, up):
    """Two that grow in turns; what the server said of each: the ledger."""
    ledger, said = [], {0: [], 1: []}
    for turn in range(TURNS):
        for who in range(2):
            said[who].append(f'{who}{turn}' * (700 + 100 * who))
            data = talk(*said[who])
            # a token is four bytes, in this server
            lengths = len(data) // 4, 10 * turn + who + 1
            up.actions[CHAT] = usage(*lengths)
            is_(request(ng.port, CHAT, data, headers={
                'X-Session-Id': f'{USER}-{who}'}).status, 200, 'answered')
            said[who].append('yes')
            ledger.append((who, *lengths))
    return ledger


def test_mooncake(work):
    with mock.Upstream() as up, Traces(up, HASHES) as ng:
        ledger = conversations(ng, up)
        rows = ng.wait_traces(len(ledger))
        path = f'{work}/chat.jsonl'
        os.rename(f'{ng.dir}/capture/requests.chat.jsonl', path)
        is_(ng.sums(), {'recorded': len(ledger)}, 'the sum')
        ok(USER not in ng.log(), 'no user in the log')

    is_([(r['input_length'], r['output_length']) for r in rows],
        [(i, o) for _, i, o in ledger], 'the lengths are the server\'s')
    ok(USER not in json.dumps(rows), 'no user in the file')
    names = {who: {r['session_id'] for r, (w, *_) in zip(rows, ledger)
                   if w == who} for who in (0, 1)}
    is_([len(n) for n in names.values()], [1, 1], 'a name for each session')
    ok(names[0] != names[1], 'of its own')

    report = analyse(work, path)
    for which, values in (('isl', [r[1] for r in ledger]),
                          ('osl', [r[2] for r in ledger])):
        is_(tuple(report[f'{k}_{which}'] for k in ('min', 'max', 'avg')),
            stats(values), f'analyze-trace shows the {which} of the ledger')

    got = sent(work, path, 'chat', 'mooncake_trace')
    by_output = {o: who for who, _, o in ledger}
    wires = {0: set(), 1: set()}
    turns = {0: [], 1: []}
    for body, headers, _ in got:
        o = body['max_completion_tokens']
        wires[by_output[o]].add((headers.get('x-correlation-id'),
                                 headers.get('x-session-affinity')))
        turns[by_output[o]].append(o)
    is_([turns[w] == sorted(turns[w]) and len(turns[w]) for w in (0, 1)],
        [TURNS, TURNS], 'each turn, in its order')
    is_([len(w) for w in wires.values()], [1, 1], 'under one name')
    name, = names[0]
    ok(any(name in (h or '') for pair in wires[0] for h in pair),
       'the session\'s', wires[0])

    with mock.Upstream() as up, Traces(up, TRACE + 'llm_capture_session_id '
                                           'off;') as ng:
        ledger = conversations(ng, up)
        ng.wait_traces(len(ledger))
        plain = f'{work}/plain.jsonl'
        os.rename(f'{ng.dir}/capture/requests.chat.jsonl', plain)
    is_(sorted(body['max_completion_tokens'] for body, *_ in
               sent(work, plain, 'chat', 'mooncake_trace')),
        sorted(o for *_, o in ledger), 'without ids and sessions')


def test_baseten(work):
    import duckdb

    with mock.Upstream() as up, Traces(up, BASETEN) as ng:
        for i in range(6):
            up.actions[PROMPT] = usage(900 + i, 2 + i)
            is_(request(ng.port, PROMPT, json.dumps(
                {'model': 'm', 'prompt': f'{i} "說" ' + 'x' * 900}).encode(),
                headers={'X-Session-Id': f'{USER}-{i % 2}'}).status, 200,
                'answered')
        rows = ng.wait_traces(6, 'completions')
        path = f'{ng.dir}/capture/requests.completions.jsonl'
        parquet = f'{work}/trace.parquet'
        duckdb.sql(TO_PARQUET % (path, parquet))

    for more in (), ('--no-open-loop-replay',), ('--open-loop-strict',):
        got = sent(work, parquet, 'completions', 'baseten_trace', *more)
        is_(sorted((body['prompt'], body['max_tokens']) for body, *_ in got),
            sorted((r['prompt'], r['output_tokens']) for r in rows),
            f'each prompt with its length {more}')


with tempfile.TemporaryDirectory(prefix='llm-capture-trace-') as work:
    make_tokenizer(work + '/tok')
    for test in test_mooncake, test_baseten:
        with case(test.__name__):
            test(work)
