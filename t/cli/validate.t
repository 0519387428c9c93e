#!/usr/bin/env python3
"""validate: reasons, exit codes, --repair, and files that are none."""

import gzip
import json
import os
import pty
import select
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))
from tap import case, is_, like, ok                         # noqa: E402
from cli import PROGRAM, cli, reports, write                # noqa: E402

CHAT = {'model': 'm', 'messages': [{'role': 'user', 'content': 'Hi'}]}
TEXT = {'model': 'm', 'prompt': 'Hi'}


def row(payload, ts=0, **more):
    return {'timestamp': ts, **more, 'payload': payload}


def read(path):
    with open(path, 'rb') as f:
        return f.read()


def spoken(*args):
    """What is said on a terminal."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(PROGRAM, [PROGRAM, *args])
    said = b''
    try:
        while chunk := os.read(fd, 4096):
            said += chunk
    except OSError:                 # it has ended
        pass
    os.waitpid(pid, 0)
    os.close(fd)
    return said.decode()


def validate(*args):
    return cli('validate', '--text', *args)


with tempfile.TemporaryDirectory(prefix='llm-capture-cli-') as work:
    good = write(work + '/good.jsonl', row(CHAT), row(CHAT, 5))

    with case('exit codes'):
        is_(validate(good)[0], 0, 'a good file: 0')
        bad = write(work + '/bad.jsonl', row(CHAT), row({}), row(TEXT)[
            'payload'], b'{"timestamp":3,"payload":{"a":NaN}}')
        code, out, err = validate(bad)
        is_((code, err), (1, ''), 'a bad one: 1')
        like(out, r'bad\.jsonl:2: payload is empty\n', 'with line and reason')
        like(out, r'bad\.jsonl:3: it has no payload, messages', 'of a model')
        like(out, r'bad\.jsonl:4: it is no JSON\n', 'of the parser')
        is_(validate(work + '/none')[0], 2, 'no file: 2')
        is_(validate('--wrong', good)[0], 2, 'no such option: 2')
        is_(cli('validate')[0], 2, 'nothing to do: 2')
        code, out, _ = validate(write(work + '/mixed', row(CHAT), row(TEXT)))
        is_(code, 3, 'more than one endpoint type: 3')
        like(out, 'more than one endpoint type.*\n.*1 chat, 1 completions',
             'and says so')
        is_(validate(write(work + '/late', row(CHAT), {'payload': CHAT}))[0],
            3, 'a row without timestamp behind one that has one: 3')
        is_(validate(good, work + '/mixed')[0], 3, 'the worst of files')
        is_(validate(work + '/mixed', bad, good)[0], 1, 'in any order')

    with case('files that are none'):
        path = write(work + '/lfs', b'version https://git-lfs.github.com/spec/'
                     b'v1', b'oid sha256:00', b'size 5')
        code, out, _ = validate(path)
        is_(code, 1, 'a Git-LFS pointer')
        like(out, 'Git-LFS pointer, not the file', 'is told')
        with open(work + '/cut', 'wb') as f:
            f.write(read(good)[:-9])
        code, out, _ = validate(work + '/cut')
        is_(code, 1, 'a last line that is cut off')
        like(out, 'cut:2: the last line is cut off', 'is told')
        is_(validate(write(work + '/empty'))[0], 1, 'an empty file')
        with open(work + '/bom', 'wb') as f:
            f.write(b'\xef\xbb\xbf' + read(good))
        like(validate(work + '/bom')[1], 'bom:1: a byte order mark',
             'a byte order mark')

    with case('gzip'):
        with open(work + '/good.gz', 'wb') as f:
            f.write(gzip.compress(read(good)))
        is_(reports('validate', work + '/good.gz')[0]['rows'], 2,
            'a gzip is read')
        odd = bytearray(read(work + '/good.gz') * 2)
        odd[3] = odd[len(odd) // 2 + 3] = 0xe0
        with open(work + '/odd.gz', 'wb') as f:
            f.write(odd)
        is_(reports('validate', work + '/odd.gz')[0]['rows'], 4,
            'and flags that mean nothing, as Python does')
        with open(work + '/cut.gz', 'wb') as f:
            f.write(read(work + '/good.gz')[:-4])
        code, out, _ = validate(work + '/cut.gz')
        is_(code, 1, 'one that is cut off')
        like(out, 'the gzip is cut off', 'is told')
        with open(work + '/raw.gz', 'wb') as f:
            f.write(gzip.compress(json.dumps(CHAT).encode()))
        code, out, _ = validate(work + '/raw.gz')
        is_(code, 1, 'a raw_payload in a gzip')
        like(out, 'AIPerf unpacks a mooncake_trace, no raw_payload', 'is told')

    with case('--repair'):
        odd = (b' {"payload": {"b":1e2,  "a":"\\u0041"} ,"timestamp":0}\r\n'
               b'\n{"timestamp":1,"payload":{}}\r\n'
               b'{"timestamp":2,"payload":{"c":[ ]}}')
        with open(work + '/odd', 'wb') as f:
            f.write(odd)
        out = work + '/repaired'
        code, said, _ = validate('--repair', out, work + '/odd')
        is_(code, 1, 'a bad line is still told')
        like(said, 'odd:3: payload is empty', 'which')
        is_(read(out), odd[:odd.index(b'\n') + 1]
            + odd[odd.rindex(b'\n') + 1:] + b'\n',
            'the good ones are there byte for byte')
        is_(stat.S_IMODE(os.stat(out).st_mode), 0o600, 'mode 0600')
        is_(validate(out)[0], 0, 'and it is good')
        code, _, err = validate('--repair', out, good)
        is_(code, 2, 'nothing is overwritten')
        like(err, 'exists; --force overwrites it', 'and why')
        is_(validate('--force', '--repair', out, good)[0], 0, '--force')
        is_(read(out), read(good), 'overwrites')
        is_(validate('--force', '--repair', good, good)[0], 0, 'itself, too')
        is_(sorted(n for n in os.listdir(work) if n.endswith('.tmp')), [],
            'nothing else is left')

    with case('raw_payload'):
        raw = write(work + '/raw', CHAT, b'{"messages":\r[ ]}')
        is_(reports('validate', raw)[0]['format'], 'raw_payload', 'detected')
        out = work + '/raw.out'
        is_(validate('--repair', out, raw)[0], 0, 'a CR between tokens')
        is_(read(out), read(raw), 'stays as it is')
        is_(validate('--format', 'mooncake_trace', raw)[0], 1,
            'as another format it is refused')

    with case('progress'):
        data = read(good) * 5000
        master, slave = pty.openpty()
        with subprocess.Popen([PROGRAM, 'validate', '-'],
                              stdin=subprocess.PIPE, stderr=slave,
                              stdout=subprocess.DEVNULL) as run:
            os.close(slave)
            said = b''
            while b'GB/s' not in said:
                run.stdin.write(data)
                if select.select([master], [], [], 0)[0]:
                    said += os.read(master, 4096)
            run.stdin.close()
            is_(run.wait(), 0, 'on a terminal, in a while')
        like(said.decode(), r'\d\.\d GB, \d+\.\d\d GB/s', 'with its rate')
        os.close(master)
        is_(cli('validate', '-', input=data * 500)[2], '', 'none in a pipe')
        # until it takes long enough to be told
        for times in 300, 1000, 3000, 10000:
            with open(work + '/long.gz', 'wb') as f:
                f.write(gzip.compress(data * 2) * times)
            said = spoken('validate', work + '/long.gz')
            if 'left' in said:
                break
        like(said, r', \d+%, \d+:\d\d left', 'of a file: and the time left')

    with case('to whom it speaks'):
        is_(reports('validate', good)[0], {
            'errors': [], 'file': good, 'ok': True,
            'format': 'mooncake_trace', 'compression': None, 'rows': 2,
            'bad': 0,
            'timestamps': 2, 'endpoints': {'chat': 2}, 'why': None,
            'warnings': [], 'manifest': None}, 'JSON to a program')
        code, out, _ = cli('validate', '-', input=read(good))
        is_((code, json.loads(out)['rows']), (0, 2), 'from a pipe')
        said = spoken('validate', good)
        like(said, r'good\.jsonl: mooncake_trace: 2 rows, 0 bad',
             'text to a terminal')
