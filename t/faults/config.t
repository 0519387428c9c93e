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

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from driver import *                        # noqa: E402,F403

ON = 'llm_capture on;'
PATHS = 'llm_capture_path %%DIR%%/capture/{}.$llm_capture_endpoint.jsonl;'
QUEUE = 'llm_capture_max_queue_bytes {};'


def reload(s, **words):
    """Until a new helper serves and no other one of its zone."""
    old = s.helpers()
    s.reload(**words)
    return wait_for(lambda: noted(s, set(s.helpers()) - set(old)),
                    'the next helper')


def noted(s, pids):
    for pid in pids:
        s.zones[pid] = zone_of(pid)
    return pids


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
     workers=60)
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
    http, held, old = s.words['HTTP'], [], s.helpers()
    for n in range(6):
        held.append(s.hold())
        reload(s, http=http + QUEUE.format(f'{300 + n}m'))
        s.load.more(20)
    is_(len(s.helpers()), 7, 'a helper for each zone')
    for c in held:
        s.let_go(c)
    for pid in old:
        wait_gone(pid)
    s.load.more(20)
    reload(s, http=http)
    s.load.more(20)


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
    s.load.more(20)


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
        held, pid = s.hold(), s.helper()
        s.reload(location='')
        s.load.more(50)
        is_(s.helpers(), [pid], 'the helper stays for the upload')
        s.let_go(held)
        wait_gone(pid)
        reload(s, location=ON)
        s.ledger.wait_verdict('queued', 50)


LIMIT = 'llm_capture_drain_timeout 500ms;'


@row('reload: an upload of the removed directive',
     'longer than the drain limit, which runs from the last worker\'s end',
     http=LIMIT)
def reload_longer(s):
    held, pid = s.hold(), s.helper()
    s.reload(location='')
    wait_for(lambda: title(pid).endswith('shutting down'),
             'the helper to hear it')
    time.sleep(1)
    s.let_go(held)
    wait_gone(pid)
    reload(s, location=ON)
    s.load.more(20)


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
