#!/usr/bin/env python3
"""convert: real AIPerf loads each format, and has what was captured."""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))
from tap import case, is_, like, ok                         # noqa: E402
from aiperf_loader import Loaders                           # noqa: E402
from cli import cli, secret, write                          # noqa: E402

T0 = 1754000000000
KEY = '00112233445566778899aabbccddeeff'
TEXT = 'a "prompt" \\ \n\t 為什麼 😀'


def chat(i):
    return {'model': 'm', 'max_tokens': 50 + i,
            'messages': [{'role': 'user', 'content': f'{i} {TEXT}'}],
            **({'tools': [{'type': 'function', 'function': {'name': 'f'}}]}
               if i == 1 else {})}


def files(work, name, bodies, sessions=None):
    """A capture of six requests, with outcomes and the moment it began."""
    path = write(f'{work}/{name}.jsonl', *[
        {'timestamp': i * 250, 'id': f'{i + 1:016x}',
         **({'session_id': sessions[i]} if sessions else {}),
         'payload': body} for i, body in enumerate(bodies)])
    write(f'{work}/{name}.outcomes', *[
        {'id': f'{i + 1:016x}', 'timestamp': i * 250, 'status': 200,
         'stream': True, 'first_content_ms': 40 + i, 'last_byte_ms': 900 + i,
         'prompt_tokens': 600 + i, 'completion_tokens': 20 + i}
        for i in range(len(bodies))])
    write(path + '.epoch', b'llm_capture_epoch=1', b'wall=%d' % T0, b'mono=5',
          b'boot=x', b'dev=1', b'ino=2')
    return path


def convert(to, path, out, *more):
    code, said, err = cli('convert', '--to', to, '--out', out, *more, path)
    is_((code, err), (0, ''), f'{to}: made')
    return out


with tempfile.TemporaryDirectory(prefix='llm-capture-cli-') as work:
    from aiperf.dataset.loader import (baseten_trace, burst_gpt,
                                       sagemaker_data_capture)

    judge = Loaders(work)
    judge.add('burst_gpt', burst_gpt.BurstGPTTraceDatasetLoader)
    judge.add('sagemaker', sagemaker_data_capture.SageMakerDataCaptureLoader)
    judge.add('baseten', baseten_trace.BasetenTraceDatasetLoader)
    chats = [chat(i) for i in range(6)]
    path = files(work, 'chat', chats, ['a', 'b', 'a', 'c', 'a', 'b'])

    with case('mooncake_trace'):
        out = convert('mooncake_trace', path, work + '/m.jsonl')
        turns = [t for c in judge.load('mooncake_trace', out) for t in c.turns]
        is_(sorted((t.timestamp, t.max_tokens, json.dumps(t.raw_payload))
                   for t in turns),
            [(i * 250, 20 + i, json.dumps(body))
             for i, body in enumerate(chats)],
            'payloads, times, and recorded lengths')
        raw = write(work + '/raw.jsonl', *chats)
        out = convert('mooncake_trace', raw, work + '/r.jsonl')
        is_([t.raw_payload for c in judge.load('mooncake_trace', out)
             for t in c.turns], chats, 'of raw_payload')

    with case('inputs_json'):
        out = convert('inputs_json', path, work + '/inputs.json')
        is_([(c.session_id, [t.raw_payload for t in c.turns])
             for c in judge.load('inputs_json', out)],
            [('a', chats[0::2]), ('b', [chats[1], chats[5]]),
             ('c', [chats[3]])], 'sessions with their turns')
        raw = convert('inputs_json', raw, work + '/raw.json')
        is_(len(judge.load('inputs_json', raw)), 6, 'of raw_payload: alone')

    with case('sagemaker'):
        out = convert('sagemaker', path, work + '/sm.jsonl')
        with open(out) as f:
            first = json.loads(f.readline())
        is_(first['eventMetadata']['inferenceTime'],
            '2025-07-31T22:13:20.000Z', 'the time of day')
        is_([(t.timestamp, t.max_tokens, t.raw_messages, t.raw_tools)
             for c in judge.load('sagemaker', out) for t in c.turns],
            [(i * 250, 50 + i, body['messages'], body.get('tools'))
             for i, body in enumerate(chats)], 'messages, tools, times')

    with case('burst_gpt'):
        out = convert('burst_gpt', path, work + '/burst.csv')
        is_([(t.timestamp, t.max_tokens)
             for c in judge.load('burst_gpt', out) for t in c.turns],
            [(i * 250, 20 + i) for i in range(6)], 'times and lengths')
        with open(out) as f:
            is_(f.read().splitlines()[1], '0.000,m,600,20,620,'
                'Conversation log', 'its columns')
        bare = write(work + '/bare.jsonl', *[
            {'timestamp': 0, 'payload': body} for body in chats])
        code, _, err = cli('convert', '--to', 'burst_gpt', bare)
        is_(code, 3, 'without outcomes')
        like(err, '6 of 6 rows have no lengths', 'nothing is invented')
        is_(len(cli('convert', '--to', 'burst_gpt', '--estimate', bare)[1]
                .splitlines()), 7, 'unless it is asked for')

    with case('baseten_trace'):
        prompts = [f'{i} {TEXT} ' + 'x' * 2200 for i in range(6)]
        path = files(work, 'text', [{'model': 'm', 'prompt': p}
                                    for p in prompts], ['a', 'b'] * 3)
        secret(work + '/key', KEY)
        for name in 'b.parquet', 'b.arrow':
            out = convert('baseten_trace', path, f'{work}/{name}',
                          '--key-file', work + '/key')
            found = [t for c in judge.load('baseten', out) for t in c.turns]
            is_(sorted((t.texts[0].contents[0], t.max_tokens) for t in found),
                [(p, 20 + i) for i, p in enumerate(prompts)],
                f'{name}: prompts and lengths')
            ok(all(len(t.extra_body['hash_ids']) == 1 for t in found),
               f'{name}: hash ids', found[0].extra_body)
        out = convert('baseten_trace', path, work + '/b.jsonl')
        with open(out) as f:
            rows = [json.loads(line) for line in f]
        is_([(r['timestamp_start_unix_ms'], r['provided_session_id'],
              r['duration_ttft_ms'], r['duration_e2e_ms']) for r in rows],
            [(T0 + i * 250, 'ab'[i % 2], 40 + i, 900 + i) for i in range(6)],
            'as rows: times, sessions, durations')
        code, _, err = cli('convert', '--to', 'baseten_trace', '--out',
                           work + '/c.parquet', path,
                           env=dict(os.environ, PATH='/nowhere'))
        is_(code, 2, 'without python3')
        like(err, 'needs python3 with pyarrow', 'it says what is needed')
        is_([n for n in os.listdir(work) if n.startswith('c.parquet')], [],
            'and leaves nothing')

    with case('refusals'):
        is_(cli('convert', '--to', 'x', path)[0], 2, 'another format')
        is_(cli('convert', path)[0], 2, 'none')
        is_(cli('convert', '--to', 'burst_gpt', '--out', work + '/burst.csv',
                path)[0], 2, 'nothing is overwritten')
