#!/usr/bin/env python3
"""hash: the ids of the module; redact: the text out, the shape kept."""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))
from llmcapture import Nginx, Upstream, request             # noqa: E402
from tap import case, is_, like, ok                         # noqa: E402
from aiperf_loader import Loaders                           # noqa: E402
from cli import cli, reports, secret, write                         # noqa: E402

KEY = '00112233445566778899aabbccddeeff'
CHAT = '/v1/chat/completions'


def talk(*texts, **more):
    return {'model': 'm', 'messages': [
        {'role': 'assistant' if i % 2 else 'user', 'content': text}
        for i, text in enumerate(texts)], **more}


def lines(*args):
    code, out, err = cli(*args)
    return code, [json.loads(line) for line in out.splitlines()], err


ASKED = [talk('a' * 5000), talk('a' * 5000, 'yes', 'é"\\\n' * 900),
         talk([{'type': 'text', 'text': 'b' * 3000},
               {'type': 'image_url', 'image_url': {'url': 'data:x'}}],
              tools=[{'type': 'function', 'function': {'name': 'f'}}]),
         talk('c' * 9000, seed=18446744073709551616, temperature=1.0)]


def tokens(n):
    """An answer of that many tokens; the mock's own has 5."""
    def act(handler, seen):
        handler.read_body(seen)
        handler.reply(200, json.dumps({
            'choices': [{'index': 0, 'message': {'content': 'So.'},
                         'finish_reason': 'stop'}],
            'usage': {'prompt_tokens': n, 'completion_tokens': 7}}).encode())
    return act


with tempfile.TemporaryDirectory(prefix='llm-capture-cli-') as work:

    with case('hash: the ids that the module writes'), Upstream() as up:
        secret(work + '/key', KEY + '\n')
        common = 'llm_capture on; llm_capture_session_id prefix; '
        with Nginx(up, http=f'llm_capture_key_file {work}/key;',
                   location=common + 'llm_capture_outcome on;') as ng, \
                Nginx(up, http=f'llm_capture_key_file {work}/key;',
                      location=common + 'llm_capture_format mooncake_trace; '
                      'llm_capture_hash_ids on;') as traced:
            for i, body in enumerate(ASKED):
                up.actions[CHAT] = tokens(1100 + 512 * i)
                for server in ng, traced:
                    is_(request(server.port, CHAT,
                                json.dumps(body).encode()).status, 200,
                        'a request')
            ng.wait_records('chat', len(ASKED))
            ng.quit()
            traced.wait_records('chat', len(ASKED))
            traced.quit()
            code, made, err = lines('hash', '--key-file', work + '/key',
                                    ng.path('chat'))
            is_((code, err), (0, ''), 'hash')
            with open(traced.path('chat')) as f:
                want = [json.loads(line) for line in f]
            is_([(r['input_length'], r['output_length'], r['hash_ids'],
                  r['session_id']) for r in made],
                [(r['input_length'], r['output_length'], r['hash_ids'],
                  r['session_id']) for r in want],
                'lengths, hash_ids, session: the same as the module')
            is_([len(r['hash_ids']) for r in made], [2, 3, 1, 4], 'full ones')
            code, other, _ = lines('hash', '--key-file', work + '/key',
                                   '--sessions', ng.path('chat'))
            is_(other, made, 'with --sessions too')
            path = write(work + '/hashed.jsonl', *made)
        judge = Loaders(work)
        is_(judge('mooncake_trace', path), None, 'AIPerf loads it')
        is_(reports('validate', path)[0]['ok'], True, 'and validate')

    with case('hash: without outcomes'):
        path = write(work + '/w.jsonl', *[
            {'timestamp': i, 'payload': body} for i, body in enumerate(ASKED)])
        code, _, err = cli('hash', path)
        is_(code, 2, 'a key is needed')
        like(err, r'--key-file is needed: there is no .*w\.jsonl\.key', 'why')
        secret(path + '.key', KEY)
        code, made, err = lines('hash', path)
        is_((code, made), (3, []), 'nothing without lengths')
        like(err, '4 of 4 rows have no lengths', 'which is told')
        code, made, _ = lines('hash', '--estimate', path)
        is_((code, len(made)), (0, 4), '--estimate')
        ok(all(2 <= len(r['hash_ids']) * 512 / 512 <= 5 for r in made[:2]),
           'has full blocks', made[:2])
        secret(work + '/short', KEY[:-1])
        is_(cli('hash', '--key-file', work + '/short', path)[0], 2,
            'a key of another length')
        with open(work + '/open', 'w') as f:
            f.write(KEY)
        like(cli('hash', '--key-file', work + '/open', path)[2],
             'a key that others can read', 'or one that is none')

    with case('redact'):
        told = [dict(talk('my name is Ann é "x" ' * 9, 'hello Ann'),
                     user='ann@example'),
                dict(talk('my name is Ann é "x" ' * 9, 'hello Bob', 'more'),
                     user='bob@example'),
                {'model': 'm', 'prompt': 'Ann', 'max_tokens': 3}, ASKED[2]]
        path = write(work + '/s.jsonl', *[
            {'timestamp': i, 'payload': body}
            for i, body in enumerate(told)])
        code, rows, err = lines('redact', '--path', 'messages[*].content',
                                path)
        is_((code, err), (0, ''), 'at a path')
        bodies = [r['payload'] for r in rows]
        is_([m['content'] for m in bodies[0]['messages']],
            ['[redacted]'] * 2, 'it is out')
        is_(bodies[0]['user'], 'ann@example', 'at others it stays')
        is_(bodies[3]['messages'][0]['content'],
            [{'type': 'text', 'text': '[redacted]'},
             {'type': 'image_url', 'image_url': {'url': '[redacted]'}}],
            'the shape of parts is kept')
        code, rows, _ = lines('redact', path)
        ok('Ann' not in json.dumps(rows) and 'ann@' not in json.dumps(rows)
           and 'Bob' not in json.dumps(rows), 'by default all text goes', rows)

        # by chance two short texts may come out the same
        secret(work + '/fixed', KEY)
        code, rows, _ = lines('redact', '--keep-length', '--key-file',
                              work + '/fixed', path)
        bodies = [r['payload'] for r in rows]
        ok('Ann' not in json.dumps(rows), '--keep-length: it is out')
        is_([len(m['content']) for m in bodies[1]['messages']],
            [len(m['content'].encode()) for m in told[1]['messages']],
            'as many bytes')
        is_(bodies[0]['messages'][0], bodies[1]['messages'][0],
            'what was the same is the same')
        ok(bodies[0]['messages'][1] != bodies[1]['messages'][1],
           'and what was not is not')
        long = write(work + '/l.jsonl', *[
            {'timestamp': 0, 'payload': {'prompt': 'x' * 100 + c + 'y' * 99}}
            for c in 'ab'])
        a, b = (r['payload']['prompt'] for r in lines(
            'redact', '--keep-length', long)[1])
        ok(a[:64] == b[:64] and a[64:100] != b[64:100],
           'no place within a piece of 64 bytes is told', (a, b))
        again = lines('redact', '--keep-length', path)[1]
        ok(again != rows, 'another run has other words')
        keyed = ['redact', '--keep-length', '--key-file', path[:-7]
                 + 'w.jsonl.key', path]
        is_(lines(*keyed)[1], lines(*keyed)[1], 'but not under a key')
        code, out, err = cli('redact', '--path', 'mesages[*].content', path)
        is_(code, 3, 'a path that is nowhere')
        like(err, 'nothing was redacted', 'is told')
        for bad in 'messages[x].content', '.a', 'a..b', 'a.':
            is_(cli('redact', '--path', bad, path)[0], 2, f'{bad} is none')
