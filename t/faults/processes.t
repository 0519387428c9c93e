#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Faults of processes: the helper, the workers, the master.

import os
import re
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from driver import *                        # noqa: E402,F403

BOTH = (False, True)
EACH = (BUFFERED, UNBUFFERED, OUTCOMES)

# 18 rings of 512k: full after some 50 requests each
SMALL = 'llm_capture_max_request_bytes 400k;' \
        'llm_capture_max_queue_bytes 9m;'


# where nothing is written for seconds: the queue must hold it
SLOW = {'pause': 0.02}


def kill(s, pids, sig='KILL'):
    for pid in pids:
        try:
            s.signal(sig, pid)
        except ProcessLookupError:
            pass


def replaced(s, old):
    wait_for(lambda: len(s.workers()) == len(old)
             and not set(old) & set(s.workers()), 'new workers')


# the helper

@row('helper: kill -9', 'once', daemons=BOTH, allow=KILLED, modes=EACH)
def helper_killed(s):
    pid = s.helper()
    s.signal('KILL', pid)
    s.new_helper(pid)
    s.load.more(100)


@row('helper: kill -9 in a storm',
     '40 times, at work or as it came up, with a reload before each',
     allow=KILLED, load=SLOW, modes=EACH)
def helper_storm(s, times=40):
    killed = re.compile(r'helper process \d+ exited on signal 9')
    while len(killed.findall(s.log())) < times:
        # a new generation comes at once: the same one would wait for a second
        old = set(s.helpers())
        s.signal('HUP')
        kill(s, wait_for(lambda: set(s.helpers()) - old, 'the next helper'))
        size = os.path.getsize(s.path('completions'))
        s.signal('HUP')
        wait_for(lambda: os.path.getsize(s.path('completions')) > size,
                 'records')
        kill(s, s.helpers())
    s.helper()
    s.load.more(50)


@row('helper: kill -9 in a long storm', 'the same 300 times', allow=KILLED,
     load=SLOW, long=True)
def helper_long_storm(s):
    helper_storm(s, 300)


@row('helper: kill -9 as it writes',
     '5 times, at the first bytes of a queue of 300 requests', allow=KILLED,
     modes=EACH)
def helper_writing(s):
    path = s.path('completions')
    for _ in range(5):
        pid = s.freeze()
        s.load.more(300)
        size = os.path.getsize(path)
        s.thaw(pid)
        wait_for(lambda: os.path.getsize(path) > size, 'bytes', step=0)
        s.signal('KILL', pid)
        again = s.new_helper(pid)
        s.signal('HUP')                 # or the next one waits for a second
        s.new_helper(again)
    s.load.more(50)


@row('helper: stopped', 'SIGSTOP for 600 requests, then SIGCONT')
def helper_stopped(s):
    pid = s.freeze()
    s.load.more(600)
    s.thaw(pid)
    s.wait_drained()
    is_(s.helpers(), [pid], 'the same helper')
    s.load.more(50)


@row('helper: stopped, and the queue is full',
     'SIGSTOP until 200 were not recorded, then SIGCONT',
     drops=('queue_full',), http=SMALL, modes=EACH)
def helper_stopped_full(s):
    pid = s.freeze()
    s.ledger.wait_verdict('queue_full', 200)
    s.due['queue_full'] = 200
    s.thaw(pid)
    s.ledger.wait_verdict('queued', 50)


@row('helper: crash loop', 'killed 5 times as soon as it was ready',
     allow=KILLED, load=SLOW, modes=EACH)
def helper_crash_loop(s):
    s.crash_loop(5)
    s.load.more(50)


# the workers

@row('worker: kill -9', 'with a queue that the helper has not read',
     cuts=True, drops=('aborted',), allow=KILLED, modes=EACH)
def worker_killed(s):
    pid = s.freeze()
    s.load.more(200)
    s.signal('KILL', s.workers()[0])
    s.load.more(200)
    s.thaw(pid)
    s.load.more(100)


@row('workers: kill -9 with full rings', 'all, while the helper is stopped',
     cuts=True, drops=('aborted', 'queue_full'), allow=KILLED, http=SMALL,
     modes=EACH)
def worker_killed_full(s):
    pid, old = s.freeze(), s.workers()
    s.ledger.wait_verdict('queue_full', 50)
    s.due['queue_full'] = 50
    kill(s, old)
    replaced(s, old)
    s.load.more(50)
    s.thaw(pid)
    s.ledger.wait_verdict('queued', 50)
    is_(s.helpers(), [pid], 'the same helper')


@row('workers: crash in mid-upload', 'SIGSEGV to all, with 20 uploads begun',
     cuts=True, drops=('aborted',), allow=r'exited on signal 11')
def worker_crashed(s):
    held, old = [s.hold() for _ in range(20)], s.workers()
    s.due['aborted'] = len(held)
    kill(s, old, 'SEGV')
    replaced(s, old)
    s.load.more(100)
    for c in held:
        s.cut(c)


@row('all children: kill -9', 'at once, with a queue and 5 uploads begun',
     daemons=BOTH, cuts=True, drops=('aborted',), allow=KILLED, modes=EACH)
def children_killed(s):
    held, pid = [s.hold() for _ in range(5)], s.freeze()
    s.due['aborted'] = len(held)
    s.load.more(100)
    old = s.workers()
    kill(s, old + [pid])
    replaced(s, old)
    s.new_helper(pid)
    s.load.more(100)
    for c in held:
        s.cut(c)


# the master

def end(s, sig, group):
    """With a queue and an upload that has begun."""
    held, pid = s.hold(), s.freeze()
    s.load.more(100)
    family = s.family()
    if group:
        os.killpg(s.master, getattr(signal, 'SIG' + sig))
    else:
        s.signal(sig)
    if sig == 'QUIT':
        wait_for(lambda: not s.workers(), 'the workers to shut down')
        s.let_go(held)
    else:
        s.cut(held)
        s.due['aborted'] = 1
    s.thaw(pid)
    s.wait_end(family)


@row('master: QUIT', 'to all processes, with a queue and an upload that ends',
     daemons=BOTH, cuts=True, modes=EACH)
def master_quit(s):
    end(s, 'QUIT', True)


@row('master: TERM', 'to all processes, with a queue and an upload begun',
     daemons=BOTH, cuts=True, drops=('aborted',))
def master_term(s):
    end(s, 'TERM', True)


@row('master: INT', 'to all processes, with a queue and an upload begun',
     daemons=BOTH, cuts=True, drops=('aborted',))
def master_int(s):
    end(s, 'INT', True)


@row('master: QUIT, and the helper dies',
     'kill -9 of the helper with a queue, while a worker has an upload',
     daemons=BOTH, cuts=True, allow=KILLED, modes=EACH)
def master_quit_alone(s):
    held, pid = s.hold(), s.freeze()
    s.load.more(100)
    family = s.family()
    s.signal('QUIT')
    wait_for(lambda: not s.workers(), 'the workers to shut down')
    kill(s, [pid])
    wait_gone(pid)
    s.let_go(held)
    s.wait_end(family)


@row('master: QUIT, and the helper dies later',
     'kill -9 with all written, while a worker waits for an answer: its last '
     'report is still to come', allow=KILLED)
def master_quit_later(s):
    s.load.stop()
    backend, = s.backend.workers()
    s.signal('STOP', backend)
    s.ends.append(lambda: s.thaw(backend))
    c = s.hold()
    c.send(c.rest)
    wait_for(lambda: c.n in s.account().lines, 'its record')
    pid, family = s.helper(), s.family()
    s.signal('QUIT')
    wait_for(lambda: title(pid).endswith('shutting down'),
             'the helper to hear it')
    wait_for(lambda: state(pid) == 'S', 'it to have nothing to do')
    kill(s, [pid])
    wait_gone(pid)
    s.thaw(backend)
    s.ledger.answer(c.n, c.response())
    c.close()
    s.wait_end(family)


@row('master: TERM, and the helper hangs',
     'stopped with a queue, until nginx kills it', daemons=BOTH, cuts=True,
     drops=('aborted',), allow=KILLED, long=True)
def master_term_alone(s):
    s.freeze()
    s.load.more(100)
    family = s.family()
    s.signal('TERM')
    s.wait_end(family)
    ok(re.search(KILLED, s.log()), 'the helper was killed')


@row('process 1: QUIT', 'in a pid namespace, to the master alone',
     cuts=True, container=True)
def container_quit(s):
    end(s, 'QUIT', False)


@row('process 1: TERM', 'in a pid namespace, to the master alone',
     cuts=True, drops=('aborted',), container=True)
def container_term(s):
    end(s, 'TERM', False)


@row('master: kill -9', 'then of a worker, with a queue; then QUIT to the last',
     daemons=BOTH, cuts=True, drops=('aborted',))
def master_killed(s):
    pid, workers, family = s.helper(), s.workers(), s.family()
    s.signal('KILL')
    wait_for(lambda: 'the master process is gone' in s.log(),
             'the helper to see it')
    s.load.more(100)
    s.freeze(pid)
    s.load.more(100)
    s.signal('KILL', workers[0])
    s.load.more(100)
    s.signal('QUIT', workers[1])
    s.thaw(pid)
    s.wait_end(family)


# a new binary: without "daemon" nginx takes no such signal

@row('upgrade: USR2, WINCH, QUIT', 'with a queue and an upload begun before',
     daemons=(True,), modes=EACH)
def upgrade(s):
    held, pid = s.hold(), s.freeze()
    s.load.more(50)
    old = s.new_binary()
    s.helper()
    s.load.more(100)                    # to workers of both
    s.signal('WINCH', old)
    s.load.more(50)
    s.let_go(held)
    s.no_child(old, WORKER)
    s.load.more(50)
    s.thaw(pid)
    s.no_child(old, HELPER)
    s.signal('QUIT', old)
    wait_gone(old)
    s.load.more(50)


@row('upgrade: USR2', 'with "daemon off", where nginx ignores it')
def upgrade_ignored(s):
    family = s.family()
    s.signal('USR2')
    wait_for(lambda: 'the changing binary signal is ignored' in s.log(),
             'nginx to say so')
    s.load.more(50)
    is_(s.family(), family, 'the same processes')


@row('upgrade: rolled back by HUP',
     'USR2, WINCH and HUP to the old, QUIT to the new', daemons=(True,))
def roll_back_hup(s):
    held, pid = s.hold(), s.helper()
    old = s.new_binary()
    s.helper()
    new = s.master
    s.load.more(50)
    s.signal('WINCH', old)
    # nginx takes HUP first if it finds both, and then stops what that started
    wait_for(lambda: title(pid).endswith('shutting down'), 'WINCH to come')
    s.load.more(50)
    s.signal('HUP', old)
    s.master = old
    wait_for(lambda: len(s.workers()) == 2, 'workers of the old one')
    s.load.more(50)
    s.signal('QUIT', new)
    wait_gone(new)
    s.let_go(held)
    s.helper()
    s.load.more(50)


@row('upgrade: rolled back by QUIT',
     'USR2, WINCH to the old, QUIT to the new alone', daemons=(True,))
def roll_back_quit(s):
    old = s.new_binary()
    s.helper()
    new = s.master
    s.signal('WINCH', old)
    s.no_child(old, WORKER)
    s.no_child(old, HELPER)
    s.load.more(50)
    pid = s.freeze()
    s.load.more(50)
    s.signal('QUIT', new)
    s.thaw(pid)
    s.master = old
    wait_for(lambda: len(s.workers()) == 2, 'workers of the old one')
    wait_gone(new)
    s.helper()
    s.load.more(50)


run()
