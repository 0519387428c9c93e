#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Exactly once holds wherever the helper is killed: it kills itself at each
# point that is named in src/, under load, and a successor goes on.

import json
import glob
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from driver import *                        # noqa: E402,F403
from limit import FSIZE, limited             # noqa: E402
from manifests import manifest, wrong       # noqa: E402
from points import MODULE, PASS, Points, names, spoil    # noqa: E402
from status import CONTROL as PLACE, STATUS         # noqa: E402
import llmcapture                           # noqa: E402

SHIPPED = llmcapture.MODULE

BATCH = ('before intent', 'after intent', 'before writev', 'after writev',
         'before commit', 'commit', 'marking', 'marked', 'counted',
         'committed')
SPILL = ('spill', 'spill more', 'spill ended')
KEY = ('key made',)
TORN = ('before cut', 'after cut', 'recover before cut')
# the matrix reads payloads, which a trace has not: t/unit/trace_crash.c
TRACE = ('held',)
RING = ('ring repaired', 'ring reset', 'ring freed')
SEAL = ('manifest', 'sealing', 'before rename', 'after rename', 'after seal',
        'compressed')
RENAMED = ('before reset',)
CONTROL = ('control: read', 'control: budget', 'control: said',
           'control: changed')

LIMIT = 1500000
CALM = dict(clients=2, pause=0.02)      # no full queue while there is no helper

# the least of one worker for requests of 512k: half of a ring is soon pinned
SMALL = 'llm_capture_max_request_bytes 512k;' \
        'llm_capture_max_queue_bytes 9216k;'


def dies(s, name, do=None, times=1):
    """The helper dies at a point, and there is another."""
    pid = s.helper()
    points.arm(name, times)
    if do:
        do()
    points.wait(name)
    s.new_helper(pid)


@row('helper: kill -9 in a batch', f'at each of {len(BATCH)} points',
     load=CALM, allow=KILLED)
def batch(s):
    for i, name in enumerate(BATCH):
        dies(s, name, times=1 + i % 3)
        s.load.more(20)


@row('helper: kill -9, slow uploads', 'while it moves one out of the queue',
     drops=('queue_full',), allow=KILLED, workers=1, http=SMALL, length=40000,
     location='llm_capture on; client_body_buffer_size 1k;')
def spill(s):
    s.load.stop()
    c = s.hold()
    dies(s, 'spill', s.start_load)
    s.load.stop()                       # or a full queue ends the upload
    s.wait_drained()
    s.wait_room()
    points.arm('spill ended', slot=1)   # by the one after it
    dies(s, 'spill more', lambda: s.let_go(c))
    points.wait('spill ended', slot=1)
    s.start_load()


@row('helper: kill -9, sessions', 'while it makes their key', load=CALM,
     allow=KILLED,
     location='llm_capture on; llm_capture_session_id $connection;')
def key(s):
    s.load.stop()
    s.wait_drained()
    pid = s.helper()
    os.unlink(s.path('completions') + '.key')
    s.signal('KILL', pid)
    s.new_helper(pid)
    dies(s, 'key made', s.start_load)


@row('helper: kill -9 over a torn line', 'before the cut, after it, and in '
     'the recovery', load=CALM, drops=('failed',), allow=KILLED,
     spawn=limited(FSIZE, LIMIT))
def torn(s):
    for kills in (('before cut',), ('after cut',),
                  ('before cut', 'recover before cut')):
        pid = s.helper()
        for slot, name in enumerate(kills):
            points.arm(name, slot=slot)
        while any(points.armed(slot) for slot in range(len(kills))):
            # a line that ends at the limit is not torn: another file then
            rotate(s)
            wait_for(lambda: not points.armed(len(kills) - 1)
                     or os.path.getsize(s.path('completions')) == LIMIT,
                     'a torn line', 60)
        s.new_helper(pid)
        rotate(s)
        s.load.more(20)


def rotate(s):
    path = s.path('completions')
    os.rename(path, f'{path}.{len(os.listdir(s.dir + "/capture"))}')
    s.reopen()
    wait_for(lambda: os.path.exists(path), 'a new file', 60)


@row('helper: kill -9 in rotation', f'at each of {len(SEAL)} points',
     load=CALM, allow=KILLED, location='llm_capture on;'
     'llm_capture_rotate size=100k compress=gzip;')
def seal(s):
    for name in SEAL:
        dies(s, name)
        s.load.more(20)
    told(s)


@row('helper: kill -9, a renamed file', 'before it begins the next manifest',
     load=CALM, allow=KILLED)
def renamed(s):
    path = s.path('completions')
    wait_for(lambda: manifest(path), 'the manifest')
    os.rename(path, path + '.1')
    dies(s, *RENAMED, s.reopen)
    wait_for(lambda: manifest(path), 'the next')
    told(s)


def told(s):
    """Every row stands in a manifest, and all of them say what is so."""
    s.load.stop()
    s.wait_drained()
    s.quit()
    files = [p for p in glob.glob(s.dir + '/capture/*.jsonl*')
             if not p.endswith(('.epoch', '.manifest.json'))]
    is_([(p, wrong(p)) for p in files if wrong(p)], [],
        'the manifests say what is so')
    ok(all(manifest(p)['sealed'] for p in files), 'sealed')
    is_(sum(manifest(p)['recorded'] for p in files),
        s.counters()['recorded'], 'of all that is recorded')


@row('helper: kill -9, a dead worker', 'while it takes its queue back',
     load=CALM, cuts=True, drops=('aborted',), allow=KILLED, workers=1)
def ring(s):
    for name in ('ring repaired', 'ring freed'):
        dies(s, name, lambda: s.signal('KILL', s.workers()[0]))
        s.load.more(20)


@row('worker: kill -9, control', 'in the middle of a change, and behind it',
     load=CALM, cuts=True, drops=('aborted',), allow=KILLED,
     main=PASS, server=STATUS + PLACE)
def control(s):
    for records, name in enumerate(CONTROL, 10 ** 9):
        pids = s.all_workers()
        before = said(s, 'capture=on&records=%d' % (10 ** 9 - 1))
        points.arm(name, 7 if name == 'control: said' else 1)
        request(s.port, f'/control?capture=on&records={records}')
        points.wait(name)
        wait_for(lambda: (now := s.all_workers()) and now != pids,
                 'another worker')
        s.load.more(20)
        now = said(s, 'capture=bad')
        # one who reads may be another than the one who changes it
        want = {'control: changed': (records,),
                'control: read': (before, records)}.get(name, (before,))
        ok(now in want, f'{name}: all of it, or nothing', (now, want))


def said(s, args):
    """How many records were allowed last, after this."""
    request(s.port, '/control?' + args)
    got = json.loads(request(s.port, '/status', method='GET').body)
    return got['control']['all']['records']['limit']


@row('helper: kill -9, a spoiled queue', 'of a dead worker, while it resets '
     'it', cuts=True, drops=('aborted', 'lost'), workers=1,
     allow=f'{KILLED}|holds what no worker writes',
     http='llm_capture_max_queue_bytes 17m;')
def spoiled(s):
    s.load.stop()
    s.wait_drained()
    pid, worker = s.freeze(), s.workers()[0]
    with Connection(s.port) as c:
        sent = [s.ledger.next() for _ in range(5)]
        for n in sent:
            send(c, n)
            s.ledger.answer(n, c.response())
    n = next(n for n in sent if n % 5)
    spoil(pid, s.path('completions').encode() + body(n)[:10])
    s.signal('KILL', worker)
    wait_gone(worker)
    points.arm('ring reset')
    s.thaw(pid)
    points.wait('ring reset')
    s.new_helper(pid)
    wait_for(lambda: worker not in s.workers() and s.workers(), 'a worker')
    s.start_load()


with Points() as points:
    with case('the build with points'):
        used = BATCH + SPILL + KEY + TORN + TRACE + RING + CONTROL + SEAL \
            + RENAMED
        is_(sorted(names('POINT')), sorted(used), 'each point has its row')
        # short ones are no strings in the code
        texts = ['LLM_CAPTURE_POINT', 'LLM_CAPTURE_BROKEN',
                 *(name for name in names('POINT') if ' ' in name)]
        for path, want in ((MODULE, texts), (SHIPPED, [])):
            if not path:
                skip('the shipped build', 'it is static')
                continue
            with open(path, 'rb') as f:
                data = f.read()
            is_([t for t in texts if t.encode() in data], want,
                f'{os.path.relpath(path, TOP)}: {len(want)} of its names')
    run()
