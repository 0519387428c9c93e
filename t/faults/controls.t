#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Negative controls: a rule of the module is broken, and a row that is good
# with the rule must then be found bad, for the right reason.

import errno
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import driver                               # noqa: E402
from disk import Disk                       # noqa: E402
from driver import *                        # noqa: E402,F403
from limit import FSIZE, limited             # noqa: E402
from points import PASS, Points, names      # noqa: E402

LIMIT = 1500000
CALM = dict(clients=2, pause=0.02)


def control(rule, finds, name, **kw):
    """A row, the rule in src/ it rests on, and the check that fails then."""
    def add(function):
        row(name, f'without: {rule}', **kw)(function)
        ROWS[-1].rule, ROWS[-1].finds = rule, finds
        return function
    return add


def dies(s, name):
    pid = s.helper()
    points.arm(name)
    points.wait(name)
    s.new_helper(pid)
    s.load.more(20)


@control('intent', 'none twice', 'killed after a write',
         modes=(BUFFERED,), load=CALM, allow=KILLED)
def after_write(s):
    dies(s, 'after writev')


@control('mark', 'none twice', 'killed after a commit',
         modes=(UNBUFFERED,), load=CALM, allow=KILLED)
def after_commit(s):
    dies(s, 'committed')


@control('cut', 'no line torn', 'a write that stops in a line',
         modes=(BUFFERED,), drops=('failed',),
         spawn=limited(FSIZE, LIMIT))
def short_write(s):
    path = s.path('completions')
    points.arm('before cut', sig='CONT')    # nothing but a sign
    while points.armed():
        # a line that ends at the limit is not torn: another file then
        os.rename(path, f'{path}.{len(os.listdir(s.dir + "/capture"))}')
        s.reopen()
        wait_for(lambda: not points.armed() or os.path.exists(path)
                 and os.path.getsize(path) == LIMIT,
                 'a torn line', 60)
    s.load.more(20)


@control('abort', 'nothing counted but what is due', 'uploads that end early',
         modes=(UNBUFFERED,), workers=1, load=CALM, cuts=True,
         drops=('aborted',), length=20000, main=PASS,
         http='llm_capture_max_request_bytes 512k;'
              'llm_capture_max_queue_bytes 9216k;')
def early_end(s):
    """More than the queue holds, if nothing of it came back."""
    for _ in range(500):
        s.cut(s.hold())
    s.load.more(20)


@control('lock', 'the terms make up what was seen|the counter agrees',
         'a reload while the helper is stopped in a commit',
         modes=(BUFFERED,), load=CALM)
def two_helpers(s):
    pid = s.helper()
    points.arm('before commit', sig='STOP')
    points.wait('before commit')
    points.arm('committed', sig='CONT')
    s.reload()
    wait_for(lambda: len(s.helpers()) == 2, 'the next helper')
    if points.rule:
        points.wait('committed')            # by the next one
    s.thaw(pid)
    wait_gone(pid)
    s.load.more(20)


@control('owner', 'nothing counted but what is due', 'the helper is killed '
         'while a worker has an upload', modes=(UNBUFFERED,), load=CALM,
         allow=KILLED)
def owner_lives(s):
    c, pid = s.hold(), s.helper()
    s.signal('KILL', pid)
    s.new_helper(pid)
    s.load.more(20)
    s.wait_drained()
    s.let_go(c)


@control('flock', 'none of .* lost', 'two instances, of which one is stopped '
         'between a short write and the cut', modes=(BUFFERED,), load=CALM,
         prepare=Disk)
def two_instances(s):
    path, pid = s.path('completions'), s.helper()
    with s.another() as other:
        other.helper()
        points.arm('before cut', sig='STOP')
        s.disk.set(error=errno.EIO, every=2, most=40)
        points.wait('before cut')
        wait_for(lambda: state(pid) == 'T', 'it to stop')
        s.disk.set()
        size = os.path.getsize(path)
        load = other.start_load(**CALM)
        wait_for(lambda: os.path.getsize(path) > size if points.rule
                 else 'cannot lock' in other.log(), 'the other one')
        s.thaw(pid)
        load.stop()
        other.quit()
        s.add(other)
    s.due = {'write_errors': 1}


@control('reclaim', 'nothing counted but what is due', 'worker after worker is '
         'killed, more than there are queues', modes=(BUFFERED,), workers=1,
         allow=f'{KILLED}|requests lost')
def many_dead(s):
    s.load.stop()
    for _ in range(20):
        s.queued()
        worker = s.workers()[0]
        s.signal('KILL', worker)
        wait_for(lambda: set(s.workers()) - {worker}, 'another worker')


def proven(r, backend, control, mode, daemon):
    """Good with the rule; and bad without it."""
    driver.play(r, backend, control, mode, daemon)
    with points.broken(r.rule), trial() as found:
        driver.play(r, backend, control, mode, daemon)
    why = [line for line in found if not line.startswith('#')]
    ok(any(re.search(r.finds, line) for line in why),
       f'{r.name}, {r.did}: found out', '\n'.join(found[-40:]))
    diag(*why)


with Points() as points:
    is_(sorted(r.rule for r in ROWS), sorted(names('BROKEN')),
        'each rule has its control')
    run(proven)
