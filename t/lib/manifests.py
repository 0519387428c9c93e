#
# Copyright (C) the llm-capture authors
#
# Manifests and segments, as the tests read them.

import glob
import gzip
import hashlib
import json
import os
import re

import zstandard                                            # noqa: F401

from cli import beside as manifest_of
from llmcapture import TOP, wait_for

UTC = r'\.\d{8}T\d{6}\.\d{3}Z'
SEGMENT = re.compile(r'^(.*)' + UTC + r'\.jsonl(\.gz|\.zst)?$')


def manifest(path):
    """What it says; None without one."""
    try:
        with open(manifest_of(path)) as f:
            return json.load(f)
    except FileNotFoundError:
        return None


def segments(live):
    """The sealed files of a live one, oldest first."""
    stem = re.sub(r'\.jsonl$', '', live)
    return sorted(p for p in glob.glob(glob.escape(stem) + '.*')
                  if SEGMENT.match(p) and SEGMENT.match(p).group(1) == stem)


def content(path):
    data = open(path, 'rb').read()
    if path.endswith('.gz'):
        return gzip.decompress(data)
    if path.endswith('.zst'):
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data


def total(sum_):
    return sum_['recorded'] + sum(sum_['reasons'].values()) + sum_['pending']


def schema():
    import jsonschema
    with open(TOP + '/docs/manifest.schema.json') as f:
        return jsonschema.Draft202012Validator(json.load(f))


def wrong(path):
    """What a manifest says that is not so; [] if all of it is true."""
    m = manifest(path)
    if m is None:
        return ['no manifest']
    data = content(path)
    rows = [json.loads(line) for line in data.splitlines()]
    said = {
        'manifest': 1, 'file': os.path.basename(path), 'rows': len(rows),
        'bytes': os.path.getsize(path), 'plain_bytes': len(data),
        'inode': os.stat(path).st_ino, 'device': os.stat(path).st_dev,
        'aiperf': '0.13.0', 'module': '0.1.0'}
    if m['sha256']:
        said['sha256'] = hashlib.sha256(open(path, 'rb').read()).hexdigest()
    times = [r['timestamp'] for r in rows if 'timestamp' in r]
    if times:
        said['first_timestamp'] = min(times)
        said['last_timestamp'] = max(times)
    bad = [f'{k}: {m.get(k)!r}, not {v!r}' for k, v in said.items()
           if m.get(k) != v]
    for name, s in (('file', m), ('destination', m['destination'])):
        if s['seen'] != total(s):
            bad.append(f'{name}: seen {s["seen"]} is not {total(s)}')
    if m['rows'] != m['recorded'] + m['found']['rows']:
        bad.append(f'rows {m["rows"]}, recorded {m["recorded"]}, '
                   f'found {m["found"]}')
    return bad + [f'{e.json_path}: {e.message}'
                  for e in schema().iter_errors(m)]


def read(path):
    """Once its digest is made."""
    return wait_for(lambda: (manifest(path) or {}).get('sha256'),
                    f'the digest of {os.path.basename(path)}')
