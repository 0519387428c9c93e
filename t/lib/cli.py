"""The command llm-capture.

    code, out, err = cli('validate', '--text', path)
    reports('validate', path, path)     the JSON objects that it printed
"""

import hashlib
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


def beside(path):
    """The manifest's name of a file."""
    for end in '.gz', '.zst', '.plain', '.jsonl':
        path = path.removesuffix(end)
    return path + '.manifest.json'


def manifest(path, plain=None, **other):
    """Writes the one that a sealed file has; members may be others."""
    with open(path, 'rb') as f:
        data = f.read()
    packed = None if plain is None else \
        'gzip' if data[:2] == b'\x1f\x8b' else 'zstd'
    plain = data if plain is None else plain
    rows = [json.loads(line) for line in plain.splitlines()]
    times = [row['timestamp'] for row in rows if 'timestamp' in row]
    n = len(rows)
    said = {
        'manifest': 1, 'file': os.path.basename(path), 'sealed': True,
        'format': 'mooncake_payload', 't0': 1764483300000 if times else None,
        'first_timestamp': min(times, default=None),
        'last_timestamp': max(times, default=None), 'rows': n,
        'bytes': len(data), 'sha256': hashlib.sha256(data).hexdigest(),
        'compression': packed, 'plain_bytes': len(plain), 'seen': n,
        'recorded': n, 'pending': 0, 'carried': 0, 'reasons': {},
        'found': {'rows': 0, 'bytes': 0}, 'gaps': [], 'endpoints': ['chat'],
        'models': ['m'], 'module': '0.1.0', 'nginx': '1.22.1',
        'aiperf': '0.13.0', 'begun': 1764483300000, 'updated': 1764483390000,
        'inode': os.stat(path).st_ino, 'device': os.stat(path).st_dev, **other}
    sums = {k: said[k] for k in ('seen', 'recorded', 'pending', 'reasons')}
    said.setdefault('destination', {'path': path, **sums, 'outcomes': {}})
    said.setdefault('writers', [{'id': '00000000000000ab', **sums}])
    write(beside(path), said)
    return said
