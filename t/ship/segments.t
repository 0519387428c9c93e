#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# conf-examples/ship: segments are taken to another place, each as it was
# sealed and with its manifest; the live file and what is not done stay.
# rclone is run, and Fluent Bit where there is one.

import fnmatch
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '../lib'))
from life import Life                                       # noqa: E402
from llmcapture import TOP, case, is_, ok, skip, wait_for   # noqa: E402
from manifests import content, manifest, manifest_of, segments  # noqa: E402
from roots import run                                       # noqa: E402

import yaml                                                 # noqa: E402

SHIP = TOP + '/conf-examples/ship/'
DIR = '/var/log/nginx/llm_capture'
ROTATE = 'llm_capture on; llm_capture_rotate size=1k %s;'
SEALED = 'a.b.20261130T061500.123Z.jsonl'


class Place:
    """A directory to ship to."""

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix='llm-capture-ship-')
        return self

    def __exit__(self, *error):
        shutil.rmtree(self.dir)

    def take(self, path):
        return run(SHIP + 'rclone.sh', path, self.dir,
                   env={**os.environ, 'RCLONE_CONFIG': '/dev/null'})

    def ship(self, ng):
        return self.take(ng.dir + '/capture')

    def live(self, ng):
        """What the path of a live file would be here."""
        return f'{self.dir}/{os.path.basename(ng.path("completions"))}'


def names(ng):
    """What is there of segments."""
    return [n for n in os.listdir(ng.dir + '/capture')
            if re.search(r'\.\d{8}T', n)]


def seal(ng, n):
    """n segments or more; a batch may be more than one has room for."""
    for _ in range(n):
        before = len(names(ng))
        ng.push(20)
        wait_for(lambda: len(names(ng)) > before, 'a segment')


def done(ng):
    """The segments, when each has its digest."""
    live = ng.path('completions')

    def all_of_them():
        found = segments(live)
        return not any(n.endswith('.plain') for n in names(ng)) and all(
            (manifest(p) or {}).get('sha256') for p in found) and found
    return wait_for(all_of_them, 'digests', 60)


def sha(path):
    with open(path, 'rb') as f:
        return hashlib.sha256(f.read()).hexdigest()


def moved(compress):
    with Life(location=ROTATE % compress) as ng, Place() as there:
        seal(ng, 3)
        before = {os.path.basename(p): content(p) for p in done(ng)}
        code, text = there.ship(ng)
        is_((code, text), (0, ''), 'shipped')

        arrived = segments(there.live(ng))
        is_({os.path.basename(p): content(p) for p in arrived}, before,
            f'{len(arrived)} segments, as they were')
        is_([p for p in arrived if manifest(p)['sha256'] != sha(p)], [],
            'each is what its manifest says')
        is_({oct(os.stat(p).st_mode & 0o777) for p in arrived}, {'0o600'},
            'and private')
        is_(names(ng), [], 'nothing of them is left')

        seal(ng, 1)
        done(ng)
        there.ship(ng)
        ng.quit()
        rows = sum((content(p).splitlines()
                    for p in segments(there.live(ng))), [])
        live = ng.path('completions')
        if os.path.exists(live):
            rows += content(live).splitlines()
        is_(len(rows), 80, 'no row is lost')


def waits():
    """What has no digest yet, or is being compressed."""
    with Place() as here, Place() as there:
        for n, digest, end in ((1, 'null', ''), (2, '"ab"', '.plain'),
                               (3, '"ab"', '')):
            name = f'{here.dir}/a.{SEALED[4:-8]}{n}Z'
            with open(name + '.jsonl' + end, 'w') as f:
                f.write('{}\n')
            with open(name + '.manifest.json', 'w') as f:
                f.write('{\n  "label": "\\n  \\"sha256\\": \\"",\n'
                        f'  "sha256": {digest}\n}}')
        is_(there.take(here.dir), (0, ''), 'shipped')
        is_(sorted(os.listdir(there.dir)),
            [os.path.basename(name) + end
             for end in ('.jsonl', '.manifest.json')], 'only what is done')


def fails():
    """The manifest comes last, or not at all."""
    with Life(location=ROTATE % '') as ng, Place() as there:
        seal(ng, 1)
        path = done(ng)[0]
        name = os.path.basename(path)
        os.makedirs(f'{there.dir}/{name}/in-the-way')
        code, text = there.ship(ng)
        ok(code and text, 'a failure is told', (code, text))
        ok(os.path.exists(path) and os.path.exists(manifest_of(path)),
           'what did not go stays, with its manifest')
        ok(not os.path.exists(manifest_of(f'{there.dir}/{name}')),
           'none came')
        shutil.rmtree(f'{there.dir}/{name}')
        is_(there.ship(ng), (0, ''), 'the next time')
        is_(sha(f'{there.dir}/{name}'),
            manifest(f'{there.dir}/{name}')['sha256'], 'it goes')


def patterns():
    """Those of programs that are not run here."""
    with open(SHIP + 'vector.yaml') as f:
        vector = yaml.safe_load(f)
    with open(SHIP + 'fluent-bit.conf') as f:
        fluent = re.findall(r'^ +Path +(\S+)$', f.read(), re.M)[:1]
    source = vector['sources']['segments']
    is_([s['inputs'] for s in vector['sinks'].values()], [['segments']],
        'vector: the sink has the source')
    for name, globs, also in (('vector', source['include'], '.gz'),
                              ('fluent-bit', fluent, '')):
        taken = [n for n in (
            SEALED, SEALED + '.gz', SEALED + '.zst', SEALED + '.plain',
            'a.b.jsonl', 'a.b.jsonl.1', 'a.b.manifest.json', 'a.b.outcomes',
            'a.b.20261130T061500.123Z.outcomes',
            'a.b.20261130T061500.123Z.manifest.json')
            if any(fnmatch.fnmatchcase(f'{DIR}/{n}', g) for g in globs)]
        is_(taken, [SEALED] + [SEALED + '.gz'] * bool(also),
            f'{name}: takes segments alone')


def fluent_bit():
    with open(SHIP + 'fluent-bit.conf') as f:
        conf = f.read()
    with Life(location=ROTATE % '') as ng, Place() as there:
        for old, new in ((DIR, ng.dir + '/capture'),
                         ('/var/lib/fluent-bit', there.dir),
                         ('/var/spool/captures', there.dir)):
            ok(old in conf, f'{old} is in it')
            conf = conf.replace(old, new)
        with open(there.dir + '/fluent-bit.conf', 'w') as f:
            f.write(conf)
        seal(ng, 2)
        rows = sorted(b''.join(map(content, done(ng))).splitlines())
        for again in range(2):
            p = subprocess.Popen(
                ['fluent-bit', '-c', there.dir + '/fluent-bit.conf'],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                wait_for(lambda: sorted(read_rows(there)) == rows,
                         'the rows', 30)
                if not again:
                    seal(ng, 1)
                    rows = sorted(b''.join(map(content,
                                               done(ng))).splitlines())
                    wait_for(lambda: sorted(read_rows(there)) == rows,
                             'those of new segments', 60)
            finally:
                p.terminate()
                p.wait(30)
        is_(sorted(read_rows(there)), rows,
            'each row as it was written, and once, over a restart')


def read_rows(there):
    path = there.dir + '/captures.jsonl'
    if not os.path.exists(path):
        return []
    with open(path, 'rb') as f:
        return f.read().splitlines()


with case('patterns'):
    patterns()

for how in '', 'compress=gzip':
    with case(f'rclone {how}'):
        moved(how)

with case('what is not done'):
    waits()

with case('a failure'):
    fails()

with case('Fluent Bit'):
    if shutil.which('fluent-bit'):
        fluent_bit()
    else:
        skip('Fluent Bit', 'no package has it')
