#!/usr/bin/env python3
"""rewrite: what is asked for changes, and no other byte."""

import json
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))
from tap import case, is_, like, ok                         # noqa: E402
from cli import cli, write                                  # noqa: E402

# spelled in ways that a parser would not give back
ROWS = [
    b'{"timestamp":0,"id":"00000000000000a1","payload":{"model":"m",'
    b'"messages":[{"role":"user","content":"a \\"model\\":\\u0041 '
    b'\\ud83d\\ude00"}],"temperature":1e0,"seed":18446744073709551616}}',
    b'{"timestamp":1,"id":"00000000000000a2","payload":{ "stream" : true , '
    b'"mod\\u0065l":"m", "max_completion_tokens":9,"prompt":"x" ,'
    b'"stream_options":{ "a":[{}] } }}',
    b'{"timestamp":2,"id":"00000000000000a3","payload":{"model":"old",'
    b'"input":"x","stream":false,"model":"m","max_output_tokens":5}}',
    b'{"timestamp":3,"id":"00000000000000a4","payload":{"a":"\\\\\\"",'
    b'"user":"\\\\","model":"m","input":["x"],"encoding_format":"float"}}',
]
RECORDED = [7, None, 0, 9]


def rewrite(path, *args):
    code, out, err = cli('rewrite', *args, path)
    return code, out.encode().splitlines(), err


def payloads(lines):
    return [json.loads(line)['payload'] for line in lines]


with tempfile.TemporaryDirectory(prefix='llm-capture-cli-') as work:
    path = write(work + '/w.jsonl', *ROWS)

    with case('nothing is asked for'):
        is_(rewrite(path)[:2], (0, ROWS), 'nothing changes')

    with case('--model'):
        code, lines, _ = rewrite(path, '--model', 'a "new" one')
        is_([p['model'] for p in payloads(lines)], ['a "new" one'] * 4,
            'the one that counts')
        is_(lines, [re.sub(rb'("mod(?:el|\\u0065l)"):"m"',
                           rb'\1:"a \\"new\\" one"', row) for row in ROWS],
            'and no other byte')
        back = write(work + '/back', *lines)
        is_(rewrite(back, '--model', 'm')[1], ROWS, 'there and back')

    with case('what is not there yet'):
        code, lines, _ = rewrite(path, '--ignore-eos', '--cache-salt', 'ab12')
        is_(lines[0], ROWS[0][:-2] + b',"ignore_eos":true,"cache_salt":"ab12"'
            b'}}', 'comes last')
        is_(lines[3], ROWS[3][:-2] + b',"cache_salt":"ab12"}}',
            'embeddings have no end of sequence')

    with case('--stream and --include-usage'):
        code, lines, _ = rewrite(path, '--include-usage')
        is_(lines, [ROWS[0], ROWS[1].replace(
            b'[{}] }', b'[{}] ,"include_usage":true}'), *ROWS[2:]],
            'usage is asked for where there is a stream')
        code, lines, _ = rewrite(path, '--stream', 'on', '--include-usage')
        is_([(p.get('stream'), p.get('stream_options'))
             for p in payloads(lines)],
            [(True, {'include_usage': True}),
             (True, {'a': [{}], 'include_usage': True}), (True, None),
             (None, None)], 'which --stream on makes of chat')
        code, lines, _ = rewrite(path, '--stream', 'off')
        is_([p.get('stream') for p in payloads(lines)],
            [None, False, False, None], '--stream off')

    with case('tokens'):
        code, lines, _ = rewrite(path, '--max-tokens', '3', '--min-tokens',
                                 '2')
        is_([{k: v for k, v in p.items() if 'tokens' in k}
             for p in payloads(lines)],
            [{'max_tokens': 3, 'min_tokens': 2},
             {'max_completion_tokens': 3, 'min_tokens': 2},
             {'max_output_tokens': 3, 'min_tokens': 2}, {}],
            'under the name that the request has for it')
        write(work + '/w.outcomes',
              *[{'id': f'00000000000000a{i + 1}', 'status': 200,
                 'completion_tokens': n}
                for i, n in reversed(list(enumerate(RECORDED)))
                if n is not None])
        code, lines, err = rewrite(path, '--max-tokens', 'recorded',
                                   '--min-tokens', 'recorded')
        is_(code, 3, 'recorded, and not all are')
        like(err, '2 of 4 rows have no recorded', 'which is said')
        is_(lines, [ROWS[0][:-2] + b',"max_tokens":7,"min_tokens":7}}',
                    *ROWS[1:]], 'the others stay as they are')

    with case('refusals'):
        for args in (['--max-tokens', '0'], ['--min-tokens', 'x'],
                     ['--cache-salt', 'xyz'], ['--stream', 'maybe']):
            is_(rewrite(path, *args)[0], 2, ' '.join(args))
        out = write(work + '/there', b'x')
        is_(rewrite(path, '--out', out)[0], 2, 'a file that is there')
        with open(out, 'rb') as f:
            is_(f.read(), b'x\n', 'stays')
        is_(rewrite(write(work + '/bad', ROWS[0], b'{'))[:2], (3, ROWS[:1]),
            'bad lines are left out')
