#!/usr/bin/env python3
"""From a capture to a replay, and whether it measured what was recorded.

module -> capture -> validate -> rewrite -> the command of replay-cmd, run by
AIPerf -> the module again: check says yes.  Then runs that are wrong in one
way each: validate or check says no, and why.
"""

import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))
from llmcapture import (Nginx, Upstream, case, diag, is_, ok,
                        request)                            # noqa: E402
from tap import like                                        # noqa: E402
from cli import beside, cli, manifest, reports, write       # noqa: E402
from replay import aiperf, make_tokenizer                   # noqa: E402

COUNT = 16
QUICK = ('--ui none --no-gpu-telemetry --no-server-metrics --workers-max 1 '
         '--export-level records')
LOCATION = 'llm_capture on; llm_capture_outcome on; proxy_buffering off;' \
           'llm_capture_skip_replay off;'


def body(i):
    return json.dumps({
        'model': 'm', 'stream': True, 'temperature': 0.5, 'max_tokens': 99,
        'messages': [{'role': 'user', 'content': f'{i}: ' + 'é word ' * i}],
        'stream_options': {'include_usage': True}}).encode()


def capture(ng, work, name):
    """The file of chat requests with what stands beside it, as a copy."""
    rows = ng.wait_records('chat', COUNT)
    ng.quit()
    path = f'{work}/{name}.jsonl'
    source = ng.path('chat')
    for a, b in [(source, path), (beside(source), beside(path)),
                 (source[:-6] + '.outcomes', f'{work}/{name}.outcomes')]:
        with open(a, 'rb') as f, open(b, 'wb') as to:
            to.write(f.read())
    return path, rows


def measure(work, name, path, url, *more, asked=(), swap=()):
    """Runs what replay-cmd prints, and more; (exit code, text, directory)."""
    out = f'{work}/run.{name}'
    code, command, err = cli(
        'replay-cmd', '--url', url, '--tokenizer', work + '/tok',
        '--artifact-dir', out, *asked, path)
    is_((code, err), (0, ''), f'{name}: replay-cmd has a command')
    for old, new in swap:
        ok(old in command, f'{name}: it has {old}')
        command = command.replace(old, new)
    command = ' '.join([command.strip(), QUICK, *more])
    code, text = aiperf(work, ['sh', '-c', command], out)
    return code, text, out


def check(out, path, *more):
    code, said, err = cli('check', '--json', *more, out, path)
    if not said:
        diag(err)
        return code, {}
    said = json.loads(said)
    return code, {c['check']: c for c in said['checks']}


def wrong(checks):
    return sorted(name for name, c in checks.items() if c['ok'] is False)


with tempfile.TemporaryDirectory(prefix='llm-capture-cli-') as work, \
        Upstream(pause=0.002) as up:

    make_tokenizer(work + '/tok')
    url = f'http://127.0.0.1:{up.port}'

    with case('the round trip'):
        with Nginx(up, location=LOCATION, workers=2) as ng:
            for i in range(COUNT):
                time.sleep(0.03)        # it is a schedule to be kept
                request(ng.port, '/v1/chat/completions', body(i))
            first, _ = capture(ng, work, 'first')
        code, said, _ = cli('validate', '--text', first)
        is_(code, 0, 'validate: what the module wrote is good')
        said, = reports('validate', first)
        is_((said['manifest']['why'], said['manifest']['sealed'],
             said['manifest']['recorded']), ([], True, COUNT),
            'and as its manifest says')

        ready = work + '/ready.jsonl'
        code, _, err = cli('rewrite', '--max-tokens', 'recorded',
                           '--ignore-eos', '--out', ready, first)
        is_((code, err), (0, ''), 'rewrite: the recorded lengths')

        with Nginx(up, location=LOCATION, workers=2) as ng:
            code, text, out = measure(work, 'right', ready,
                                      f'http://127.0.0.1:{ng.port}')
            if not ok(code == 0, 'AIPerf runs it'):
                diag(text[-4000:])
            second, again = capture(ng, work, 'second')
        with open(ready, 'rb') as f:
            sent = [json.loads(line)['payload'] for line in f]
        is_(sorted(map(json.dumps, sent)),
            sorted(json.dumps(json.loads(row.line)['payload'])
                   for row in again),
            'the second capture has the payloads of the file')
        is_(cli('validate', second)[0], 0, 'and is good')

        outcomes = ['--outcomes', work + '/first.outcomes']
        code, checks = check(out, ready, *outcomes)
        is_((code, [c for c in checks.values() if not c['ok']]), (0, []),
            'check: yes')
        code, checks = check(out, ready, *outcomes, '--goodput',
                             'request_latency:100000 time_to_first_token:99')
        like(checks['goodput']['said'], rf'{COUNT} of {COUNT} requests',
             'goodput')
        like(check(out, ready, *outcomes, '--goodput', 'request_latency:0')[
            1]['goodput']['said'], rf'^0 of {COUNT}', 'of a goal that is not')

        for drops, want in (0, (0, True)), (5, (3, None)):
            manifest(first, destination={
                'path': 'x', 'seen': COUNT + drops, 'recorded': COUNT,
                'pending': 0, 'reasons': {'queue_full': drops}})
            code, checks = check(out, ready, *outcomes, '--manifest',
                                 beside(first))
            is_((code, checks['capture']['ok']), want,
                f'a capture that lacks {drops} requests')
        like(checks['capture']['said'], f'5 of {COUNT + 5} requests .*dropped',
             'which is said')

    with case('a Git-LFS pointer'):
        path = write(work + '/lfs.jsonl', b'version https://git-lfs.github.'
                     b'com/spec/v1', b'oid sha256:00', b'size 5')
        code, said, _ = cli('validate', '--text', path)
        is_(code, 1, 'validate: no')
        like(said, 'Git-LFS pointer', 'and why')
        is_(cli('check', out, path)[0], 2, 'check does not take it')

    with case('a truncated file'):
        with open(ready, 'rb') as f, open(work + '/cut.jsonl', 'wb') as to:
            to.write(f.read()[:-20])
        code, said, _ = cli('validate', '--text', work + '/cut.jsonl')
        is_(code, 1, 'validate: no')
        like(said, rf':{COUNT}: the last line is cut off', 'and why')
        code, checks = check(out, work + '/cut.jsonl', *outcomes)
        is_((code, wrong(checks)), (1, ['requests']), 'check: no')

    with case('the wrong endpoint type'):
        _, _, out = measure(work, 'endpoint', ready, url,
                            swap=[('--endpoint-type chat',
                                   '--endpoint-type completions')])
        code, checks = check(out, ready, *outcomes)
        ok(code == 1 and 'endpoint' in wrong(checks), 'check: no', checks)
        like(checks['endpoint']['said'],
             '--endpoint-type completions, the payloads are chat', 'and why')

    with case('the dataset type left out'):
        _, text, out = measure(work, 'type', ready, url,
                               swap=[('--custom-dataset-type '
                                      'mooncake_trace', ''),
                                     ('--fixed-schedule', '')])
        code, checks = check(out, ready, *outcomes)
        ok(code == 1 and {'dataset', 'requests', 'schedule'}
           <= set(wrong(checks)), 'check: no', (wrong(checks), text[-500:]))
        like(checks['requests']['said'], f'10 were sent, of {COUNT} rows',
             'ten requests were sent')

    with case('another model'):
        _, _, out = measure(work, 'model', ready, url,
                            asked=['--model', 'other'])
        code, checks = check(out, ready, *outcomes)
        is_((code, wrong(checks)), (1, ['model']), 'check: no')
        like(checks['model']['said'], '--model other, the payloads ask for m',
             'and why')

    with case('a client that is too slow'):
        with Upstream(pause=0.08) as slow:
            _, text, out = measure(
                work, 'slow', ready, f'http://127.0.0.1:{slow.port}',
                '--concurrency', '1')
        code, checks = check(out, ready, *outcomes)
        ok(code == 1 and wrong(checks) == ['schedule'], 'check: no',
           (checks, text[-500:]))
        like(checks['schedule']['said'], r'\d{3,} ms late', 'and why')
