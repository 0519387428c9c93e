"""The command llm-capture.

    code, out, err = cli('validate', '--text', path)
    reports('validate', path, path)     the JSON objects that it printed
"""

import json
import os
import subprocess

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
PROGRAM = os.environ.get('LLM_CAPTURE_CLI', TOP + '/build/llm-capture')


def run(*args, input=None, **more):
    return subprocess.run(
        [PROGRAM, *map(str, args)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, timeout=600,
        **({'input': input} if input is not None
           else {'stdin': subprocess.DEVNULL}), **more)


def cli(*args, **more):
    done = run(*args, **more)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def reports(*args):
    text = run(*args).stdout.decode()
    found, at, read = [], 0, json.JSONDecoder().raw_decode
    while text[at:].strip():
        value, end = read(text[at:].lstrip())
        at = len(text) - len(text[at:].lstrip()) + end
        found.append(value)
    return found


def secret(path, text):
    """A file that its owner alone can read, as a key must be."""
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), 'w') as f:
        f.write(text)
    return path


def write(path, *rows):
    """Rows as lines: bytes as they are, else as compact JSON."""
    with open(path, 'wb') as f:
        for row in rows:
            f.write(row if isinstance(row, bytes) else
                    json.dumps(row, separators=(',', ':')).encode())
            f.write(b'\n')
    return path
