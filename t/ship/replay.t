#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# docs/replay.md: each command of it, on a capture of the module, and each that
# it says does not work.

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '../lib'))
from llmcapture import (TOP, Nginx, Upstream, case, diag, is_,  # noqa: E402
                        like, ok, records, request, wait_for)
from replay import make_tokenizer               # noqa: E402

COUNT = 13                                      # not 10: AIPerf's own number
GAP = 0.1

# how AIPerf is quick, and quiet
SHELL = '''
aiperf() {
    case $1 in
        profile) shift
            command aiperf profile --ui none --no-gpu-telemetry \\
                --no-server-metrics --workers-max 1 --artifact-dir "$OUT" "$@" ;;
        *) command aiperf "$@" ;;
    esac
}
'''

BASE = '''aiperf profile -m MODEL --tokenizer TOKENIZER \\
    --url http://SERVER:8000 --endpoint-type chat --streaming'''
TRACE = BASE + ' --custom-dataset-type mooncake_trace --input-file %s'
CHAT = 'requests.chat.jsonl'

with open(TOP + '/docs/replay.md', encoding='utf-8') as f:
    DOC = f.read()


def body(endpoint, n):
    asked = b'"messages":[{"role":"user","content":"number %d"}]' % n \
        if endpoint == 'chat' else b'"prompt":"number %d"' % n
    return b'{"model":"m",%s,"max_tokens":4,"stream":true}' % asked


def capture(work):
    """A file of each endpoint, and one of raw_payload; the times of chat."""
    paths = {'chat': '/v1/chat/completions', 'completions': '/v1/completions'}
    for format, names in ('mooncake_payload', paths), ('raw_payload', ['chat']):
        with Upstream() as up, Nginx(
                up, location=f'llm_capture on; llm_capture_format {format};'
                             'proxy_buffering off;') as ng:
            for n in range(COUNT):
                for name in names:
                    request(ng.port, paths[name], body(name, n))
                time.sleep(GAP)
            for name in names:
                wait_for(lambda: count(ng.path(name)) == COUNT, 'the rows')
                shutil.copy(ng.path(name), work + '/' + (
                    'raw.jsonl' if format == 'raw_payload'
                    else f'requests.{name}.jsonl'))
    return [row.timestamp for row in records(f'{work}/{CHAT}')]


def count(path):
    try:
        with open(path, 'rb') as f:
            return f.read().count(b'\n')
    except FileNotFoundError:
        return 0


def perform(work, script, **env):
    """(exit code, what it said, the requests at the server with their times)"""
    with Upstream() as up:
        script = script.replace('SERVER:8000', f'127.0.0.1:{up.port}') \
            .replace('MODEL', 'm').replace('TOKENIZER', work + '/tok')
        out = tempfile.mkdtemp(dir=work)
        done = subprocess.run(
            ['sh', '-c', SHELL + script], cwd=work, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=400, env={
                **{k: v for k, v in os.environ.items() if 'OFFLINE' not in k},
                'HOME': work, 'TMPDIR': work, 'OUT': out, 'COLUMNS': '200',
                'AIPERF_DATASET_MMAP_CACHE_ENABLED': 'false', **env})
        text = done.stdout
        for path, _, names in os.walk(out):
            for name in names:
                if name.endswith('.log'):
                    with open(f'{path}/{name}', errors='replace') as f:
                        text += f.read()
        return done.returncode, text, [r for r in up.requests
                                       if r.method == 'POST']


def span(seen):
    times = [r.time for r in seen]
    return max(times) - min(times)


def works(work, times):
    took = (times[-1] - times[0]) / 1000
    window = sum(300 <= t <= 900 for t in times)

    def speed(seen):
        diag(f'in {span(seen) / took:.2f} of the time')

    counts = {'window': window, 'sweep': 2 * COUNT, 'validate': 0}
    more = {'speedup': speed}

    for script in re.findall(r'```sh\n(.*?)```', DOC, re.S):
        name = ' '.join(re.sub(r'\\\n|--streaming', ' ', script)
                        .split('SERVER:8000')[-1].split())
        kind = 'window' if 'start-offset' in script else \
            'sweep' if '1,2' in script else \
            'speedup' if 'speedup' in script else \
            'validate' if 'validate' in script else ''
        with case(name):
            code, text, seen = perform(work, script)
            if not ok(code == 0, f'{name}: exit code 0'):
                diag(text[-3000:])
            is_(len(seen), counts.get(kind, COUNT), f'{name}: requests')
            ok('schedule degraded' not in text, f'{name}: kept to it')
            more.get(kind, lambda seen: None)(seen)
            if 'goodput' in script:
                like(text, '(?i)goodput', 'goodput is told')


def fails(work):
    """The table's rows: what AIPerf said, and sent."""
    trace = TRACE % CHAT

    def refused(name, script, says, **env):
        ok(name in DOC, f'{name}: documented')
        code, text, seen = perform(work, script, **env)
        is_((code != 0, len(seen)), (True, 0), f'{name}: an error') \
            or diag(text[-2000:])
        like(re.sub(r'\s+', ' ', text), says, f'{name}: what it says')

    refused('--input-file payload:FILE', TRACE % ('payload:' + CHAT),
            'not a valid file or directory')
    refused('--session-delay-ratio 0.5', trace + ' --session-delay-ratio 0.5',
            'session-delay-ratio|input-file')
    refused('--tokenizer builtin', trace.replace('TOKENIZER', 'builtin'),
            '(?i)tokenizer')
    refused('HF_HUB_OFFLINE=1', 'HF_HUB_OFFLINE=1; export HF_HUB_OFFLINE; '
            + trace, 'Repo id must be')
    refused('`raw_payload` of a file from', BASE + ' --custom-dataset-type '
            'raw_payload --input-file prompts.jsonl --request-count 2',
            'messages')

    code, text, seen = perform(work, f'{BASE} --input-file {CHAT}')
    is_((code, len(seen)), (0, 10), 'no --custom-dataset-type: 10 requests')

    code, text, seen = perform(work, trace + ' --extra-inputs temperature:0')
    is_((code, len(seen), [r for r in seen if b'temperature' in r.body]),
        (0, COUNT, []), '--extra-inputs: not in a request')

    code, text, seen = perform(work, TRACE % 'requests.completions.jsonl')
    is_({(r.path, b'"prompt"' in r.body) for r in seen},
        {('/v1/chat/completions', True)}, 'completions to chat: sent as it is')


with tempfile.TemporaryDirectory(prefix='llm-capture-replay-') as work:
    make_tokenizer(work + '/tok')
    with case('the capture'):
        times = capture(work)
        is_(len(times), COUNT, 'rows')
        with open(work + '/prompts.jsonl', 'wb') as f:
            f.write(b'{"model":"m","prompt":"x"}\n' * 2)
    works(work, times)
    with case('what does not work'):
        fails(work)
