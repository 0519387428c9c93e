#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Faults of the configuration: reloads of all kinds, under load and over
# uploads that began before.

import os
import shutil
import sys
import time
from random import Random

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from driver import *                        # noqa: E402,F403

ON = 'llm_capture on;'
PATHS = 'llm_capture_path %%DIR%%/capture/{}.$llm_capture_endpoint.jsonl;'
QUEUE = 'llm_capture_max_queue_bytes {};'


def reload(s, **words):
    """Until a new helper serves, and it alone."""
    old = s.helpers()
    s.reload(**words)
    wait_for(lambda: set(s.helpers()) - set(old), 'the next helper')
    return s.helper()


def reconfigured(s, n):
    """HUP n times, each once the one before has been heard."""
    for _ in range(n):
        seen = s.log().count(' reconfiguring\n')
        s.signal('HUP')
        wait_for(lambda: s.log().count(' reconfiguring\n') > seen, 'the reload')


def kill(s, pid):
    try:
        s.signal('KILL', pid)
    except ProcessLookupError:
        pass


def module_row(name, did, **kw):
    """Where the module is a file: a static one has no such fault."""
    if MODULE:
        return row(name, did, **kw)
    return lambda function: skip(name, 'the module is part of nginx')


# the process table of nginx has 1024 entries

@row('reload: 18 times with 60 workers', 'more than the process table holds',
     workers=60, modes=(BUFFERED,))
def reload_many(s):
    for _ in range(18):
        reload(s)
    wait_for(lambda: len(s.workers()) == 60, '60 workers')
    s.load.more(50)


@row('reload: 250 times', 'with 2 workers, likewise', load={'pause': 0.02},
     long=True)
def reload_more(s):
    for _ in range(250):
        reload(s)
    s.load.more(50)


@row('reload: 50 times', 'over an upload that began before the first')
def reload_fifty(s):
    held = s.hold()
    reconfigured(s, 50)
    s.let_go(held)
    s.load.more(50)


@row('reload: the zone resized', '6 times, over an upload of each size')
def reload_zone(s):
    http, held = s.words['HTTP'], []
    for n in range(6):
        held.append(s.hold())
        resize(s, http, 300 + n)
        s.load.more(20)
    for c in held:
        s.let_go(c)
    s.load.more(20)
    reload(s, http=http)
    back(s)


def resize(s, http, size):
    reload(s, http=http + QUEUE.format(f'{size}m'))


def back(s):
    """A reload more: the master then forgets what it kept of old zones."""
    s.wait_drained()
    wait_for(lambda: s.children(WORKER) == s.workers(), 'old workers to leave')
    s.old_zones_over()
    reload(s)
    s.load.more(20)


@row('reload: resized, and the helper killed',
     'kill -9 over uploads of three zones, 3 times', allow=KILLED)
def resized_killed(s):
    http, held = s.words['HTTP'], []
    for n in range(3):
        held.append(s.hold())
        resize(s, http, 300 + n)
        kill(s, s.helper())
    s.helper()
    for c in held:
        s.let_go(c)
    s.load.more(20)
    reload(s, http=http)
    back(s)


@row('reload: resized, and the helper killed later',
     'with a backlog, once the workers of the old zone are gone',
     allow=KILLED)
def resized_killed_late(s):
    http, held, old = s.words['HTTP'], s.hold(), s.workers()
    resize(s, http, 300)
    pid = s.freeze()
    s.let_go(held)
    for worker in old:
        wait_gone(worker)
    s.load.more(20)
    kill(s, pid)
    s.new_helper(pid)
    s.load.more(20)
    reload(s, http=http)
    back(s)


@row('reload: resized, and the helper killed last',
     'with all written, after the worker that waited for an answer: the last '
     'report of the old zone is still to come', allow=KILLED)
def resized_killed_last(s):
    s.load.stop()
    http, held, old = s.words['HTTP'], s.hold(), s.workers()
    resize(s, http, 300)
    backend, = s.backend.workers()
    s.signal('STOP', backend)
    s.ends.append(lambda: s.thaw(backend))
    held.send(held.rest)
    wait_for(lambda: held.n in s.account().lines, 'its record')
    pid = s.helper()
    wait_for(lambda: state(pid) == 'S', 'the helper to have nothing to do')
    s.freeze(pid)
    s.thaw(backend)
    s.ledger.answer(held.n, held.response())
    held.close()
    for worker in old:
        wait_gone(worker)
    kill(s, pid)
    s.new_helper(pid)
    s.start_load()
    reload(s, http=http)
    back(s)


@row('reload: resized, a helper that hangs, and TERM',
     'nginx kills both helpers, each with a backlog', cuts=True,
     drops=('aborted',), allow=KILLED)
def resized_term(s):
    s.freeze()
    s.load.more(20)
    old = s.helpers()
    s.reload(http=s.words['HTTP'] + QUEUE.format('300m'))
    new, = wait_for(lambda: set(s.helpers()) - set(old), 'the next helper')
    wait_for(lambda: len(s.workers()) == 2, 'the old workers to leave')
    s.freeze(new)
    s.load.more(20)
    family = s.family()
    s.signal('TERM')
    s.wait_end(family)


@row('reload: another number of workers', '1, 3, 4, 2, over uploads of each')
def reload_workers(s):
    held = []
    for n in (1, 3, 4, 2):
        held.append(s.hold())
        reload(s, workers=n)
        wait_for(lambda: len(s.workers()) == n, 'the workers')
        s.load.more(20)
    for c in held:
        s.let_go(c)
    back(s)


@row('reload: another path', '4 times, over uploads of each')
def reload_path(s):
    http, held = s.words['HTTP'], []
    for name in ('a', 'b', 'a', 'c'):
        held.append(s.hold())
        reload(s, http=PATHS.format(name))
        s.load.more(20)
    for c in held:
        s.let_go(c)
    s.wait_drained()
    is_(sorted(n for n in os.listdir(s.dir + '/capture')
               if n.endswith('.jsonl')),
        [f'{n}.completions.jsonl' for n in ('a', 'b', 'c', 'requests')],
        'each path has its file')
    # a helper keeps the files open that it has written
    s.load.stop()
    s.wait_drained()
    reload(s, http=http)


@row('reload: the directive removed', 'and back, twice, over an upload')
def reload_directive(s):
    for _ in range(2):
        held = s.hold()
        reload(s, location='')
        s.load.more(50)
        s.let_go(held)
        wait_for(lambda: not s.helpers(), 'the helper to leave')
        reload(s, location=ON)
        s.ledger.wait_verdict('queued', 50)


@row('reload: the directive removed, and the helper killed',
     'kill -9 over an upload, 3 times, and it leaves after it', allow=KILLED)
def reload_directive_killed(s):
    held = s.hold()
    reload(s, location='')
    for _ in range(3):
        pid = s.helper()
        kill(s, pid)
        s.new_helper(pid)
    s.let_go(held)
    wait_for(lambda: not s.helpers(), 'the helper to leave')
    reload(s, location=ON)
    s.load.more(20)


@row('reload: the directive removed, and TERM',
     'a helper that hangs, with a backlog of what was captured before',
     cuts=True, drops=('aborted',), allow=KILLED)
def reload_directive_term(s):
    old = s.freeze()
    s.load.more(20)
    s.reload(location='')
    new, = wait_for(lambda: set(s.helpers()) - {old}, 'the next helper')
    wait_for(lambda: len(s.workers()) == 2, 'the old workers to leave')
    family = s.family()
    s.signal('TERM')
    s.wait_end(family)


LIMIT = 'llm_capture_drain_timeout 500ms;'


@row('reload: an upload of the removed directive, and QUIT',
     'longer than the drain limit, which runs from the last worker\'s end',
     http=LIMIT)
def reload_longer(s):
    held, family = s.hold(), s.family()
    pid = reload(s, location='')
    s.load.more(20)
    s.load.stop()
    s.signal('QUIT')
    wait_for(lambda: title(pid).endswith('shutting down'),
             'the helper to hear it')
    time.sleep(1)
    s.let_go(held)
    s.wait_end(family)


@module_row('reload: load_module removed', 'and back, twice, over an upload')
def reload_module(s):
    load, http = s.words['LOAD'], s.words['HTTP']
    for _ in range(2):
        held, pid = s.hold(), s.freeze()
        s.load.more(20)
        s.reload(location='', load='', http='')
        s.load.more(50)
        s.thaw(pid)
        s.let_go(held)
        wait_gone(pid)
        reload(s, location=ON, load=load, http=http)
        s.ledger.wait_verdict('queued', 50)


@row('reload: refused', 'five broken configurations, over an upload',
     allow=r'\[emerg\]')
def reload_refused(s):
    held, pid = s.hold(), s.helper()
    for location in ('no_such_directive;', 'llm_capture maybe so;',
                     ON + 'llm_capture_sample_rate 2;',
                     ON + 'llm_capture_max_request_bytes 900m;'
                          'llm_capture_path /nowhere/$uri/x;', '}'):
        s.reload_fails(location=location)
        s.load.more(20)
    is_(s.helpers(), [pid], 'the same helper')
    s.configure(location=ON)
    s.let_go(held)


def replace_module(s, change=b''):
    """As a package manager does: a new file in the place of the old one."""
    path = s.dir + '/module.so'
    shutil.copy(MODULE, path + '.new')
    with open(path + '.new', 'ab') as f:
        f.write(change)
    os.rename(path + '.new', path)
    return os.stat(path).st_ino


def mapped(s, inode):
    """The helper runs this file."""
    with open(f'/proc/{s.helper()}/maps') as f:
        return any(line.split()[4] == str(inode) for line in f)


def from_copy(s):
    inode = replace_module(s)
    reload(s, load=f'load_module {s.dir}/module.so;')
    return inode


@module_row('module: replaced', 'by the same build, 3 times with a reload each')
def module_replaced(s):
    from_copy(s)
    held = s.hold()
    for _ in range(3):
        replace_module(s)
        reload(s)
        s.load.more(50)
    s.let_go(held)


@module_row('module: replaced, and an upgrade', 'by another file, and USR2',
     daemons=(True,))
def module_upgraded(s):
    from_copy(s)
    held = s.hold()
    inode = replace_module(s, b'newer')
    old = s.new_binary()
    is_(mapped(s, inode), True, 'the new helper runs the new file')
    s.load.more(50)
    s.signal('QUIT', old)
    s.let_go(held)
    wait_gone(old)
    s.load.more(50)


@row('reload: everything', 'the zone, the workers, the path, off and on, a '
     'binary, at random, over uploads, each with a helper killed',
     workers=2, daemons=(True,), allow=KILLED)
def reload_everything(s):
    seed = int(os.environ.get('LLM_CAPTURE_SEED') or time.time())
    diag('LLM_CAPTURE_SEED', seed)
    random = Random(seed)
    http, held, s.old = s.words['HTTP'], [], 0
    for _ in range(200 if LONG else 10):
        change(s, random, http)
        if random.random() < 0.5:
            for pid in s.helpers():
                kill(s, pid)
        s.load.more(5)
        held.append(s.hold())
        while len(held) > random.randrange(4):
            s.let_go(held.pop(random.randrange(len(held))))
    for c in held:
        s.let_go(c)
    reload(s, location=ON, http=http, workers=2)
    back(s)


def change(s, random, http):
    """One reload or upgrade: what comes after is not waited for."""
    what = random.choice(('zone', 'workers', 'path', 'off', 'on', 'binary'))
    if what == 'zone':
        s.reload(http=http + QUEUE.format(f'{random.randrange(300, 310)}m'))
    elif what == 'workers':
        s.reload(workers=random.randrange(1, 4))
    elif what == 'path':
        s.reload(http=PATHS.format(random.choice('abc')))
    elif what == 'binary':
        # nginx hears of no other one before the last old master has gone
        if not alive(s.old):
            s.old = s.new_binary()
            s.signal('QUIT', s.old)
    else:
        s.reload(location=ON if what == 'on' else '')


@row('reload: a worker killed', '10 reloads, the old workers with uploads, '
     'half of which are killed', cuts=True, drops=('aborted',), allow=KILLED)
def reload_killed(s):
    held = []
    for n in range(10):
        old, c = s.workers(), s.hold()
        reconfigured(s, 1)
        wait_for(lambda: not set(old) & set(s.workers()), 'new workers')
        s.load.more(20)
        if n % 2:
            s.due['aborted'] = s.due.get('aborted', 0) + 1
            for pid in old:
                kill(s, pid)
            s.cut(c)
        else:
            held.append(c)
    for c in held:
        s.let_go(c)
    s.helper()
    s.load.more(20)


run()
