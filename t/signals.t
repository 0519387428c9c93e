#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The end, in all its ways: what was taken is written before the master goes,
# within a limit; and USR1.

import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from life import *                          # noqa: E402,F403
from llmcapture import *                    # noqa: E402,F403


for sig in ('QUIT', 'TERM', 'INT'):
    for group in (False, True):
        name = f"{sig} to {'all processes' if group else 'the master'}"
        with case(name), Life() as ng:
            pid = ng.backlog(3000)
            family = ng.family()
            if group:
                os.killpg(ng.master, getattr(signal, 'SIG' + sig))
            else:
                ng.signal(sig)
            ng.thaw(pid)
            ng.wait_end(family)
            ng.whole(name)
            ng.counted(name)


# nginx kills what has not left 3 seconds after TERM: the master's last child
# finishes the work of the helper

with case('TERM and a helper that hangs'), Life(allow=KILLED) as ng:
    ng.backlog(3000)
    ng.stop('TERM')
    ng.whole('a hanging helper')
    ng.counted('a hanging helper')
    is_(len(re.findall(KILLED, ng.log())), 1, 'the helper was killed')


with case('QUIT, and the helper dies while a worker is busy'), \
        Life(allow=KILLED) as ng:
    ng.push(10)
    held = ng.hold()
    ng.push(1)
    pid = ng.backlog(300)
    family = ng.family()
    ng.signal('QUIT')
    wait_for(lambda: len(ng.children('nginx: worker process is shutting')) > 0
             and not ng.workers(), 'the workers to shut down')
    ng.signal('KILL', pid)
    wait_gone(pid)
    # 502: the upstream of these tests is nginx itself, which listens no more
    ng.let_go(held, 502)
    ng.wait_end(family)
    ng.whole('a helper that died at the end')
    ng.counted('a helper that died at the end')


with case('QUIT and a late upload of a worker without a ring'), Life() as ng:
    # the helper must not leave before the last worker that may claim one
    c = Connection(ng.port)
    ng.sent += 1
    data = body(ng.sent)
    c.send(b'POST %s HTTP/1.1\r\nHost: x\r\n' % PATH.encode())
    family = ng.family()
    pid = ng.helper()
    wait_for(lambda: accepted(c), 'the connection to be accepted')
    ng.signal('QUIT')
    wait_for(lambda: not ng.workers(), 'the workers to shut down')
    wait_for(lambda: title(pid).endswith('shutting down'),
             'the helper to hear it')
    c.send(b'Content-Length: %d\r\n\r\n' % len(data) + data)
    is_(c.response().status, 502, 'the late upload was taken')
    is_(alive(pid), True, 'the helper waits for the worker')
    c.close()
    ng.wait_end(family)
    ng.whole('a late upload')
    ng.counted('a late upload')


for sig in ('QUIT', 'TERM'):
    name = f'{sig} with a directory that cannot be written'
    with case(name), Life(http='llm_capture_drain_timeout 700ms;',
                          allow='lost: not written') as ng:
        os.chmod(ng.dir + '/capture', 0)
        shutil.chown(ng.dir + '/capture', 0)
        ng.push(50)
        ng.stop(sig)
        like(ng.log(), r'\[alert\].*llm capture: 50 requests lost',
             f'{name}: the number of lost ones is told')
        row = ng.counters()
        is_((row['lost'], row['recorded'], row['pending']), (50, 0, 0),
            f'{name}: and counted')


with case('kill -9 of the master'), Life() as ng:
    ng.push(10)
    pid = ng.helper()
    workers = ng.workers()
    family = ng.family()
    ng.signal('KILL')
    wait_for(lambda: 'the master process is gone' in ng.log(),
             'the helper to see it')
    ng.push(200)
    ng.settled('served on without a master')
    ng.freeze(pid)
    ng.push(500)
    for worker in workers:
        ng.signal('KILL', worker)
    ng.thaw(pid)
    ng.wait_end(family)
    ng.whole('nobody left')


with case('USR1'), Life() as ng:
    pid = ng.helper()
    ng.push(100)
    ng.settled('before USR1')
    for name in (ng.path('completions'), ng.error_file):
        os.rename(name, name + '.1')
    ng.push(50)
    name = 'requests.completions.jsonl.1'
    wait_for(lambda: len(ng.records(name)) == 150, 'the renamed file')

    ng.signal('USR1')
    wait_for(lambda: all(fds(p)[2] == ng.error_file
                         for p in [pid] + ng.workers()), 'all to reopen')
    ng.push(70)
    wait_for(lambda: len(ng.records('completions')) == 70, 'the new file')
    is_(ng.numbers(name), list(range(1, 151)),
        'USR1: what came before is in the old file')
    is_(ng.numbers(), list(range(151, 221)),
        'USR1: what came after in the new one')
    is_([v for v in fds(pid).values() if v.endswith('.1')], [],
        'USR1: the helper has left both old files')
    is_(ng.helpers(), [pid], 'the same helper')


# a container: nginx is process 1, and all are killed when it leaves

for sig in ('QUIT', 'TERM'):
    name = f'{sig} to nginx as process 1'
    if os.geteuid() != 0:
        skip(name, 'needs root')
        continue

    with case(name), Life(start=False) as ng:
        command = ng.command
        ng.command = lambda *args: ['unshare', '-p', '-f', '--mount-proc',
                                    '--kill-child', *command(*args)]
        # the pid file comes after the sockets listen
        ng.wait_pid = lambda: wait_for(
            lambda: Nginx.wait_pid(ng) and
            ([p[0] for p in processes()
              if p[1] == ng.process.pid] + [0])[0], 'the container')
        ng.start()
        is_(open(ng.dir + '/nginx.pid').read().strip(), '1', f'{name}: it is')
        pid = ng.backlog(3000)
        family = ng.family()
        ng.signal(sig)
        ng.thaw(pid)
        ng.wait_end(family)
        ng.whole(name)
        ng.counted(name)


with case('an end soon after the start'), Life(start=False) as ng:
    for n in range(20):
        sig = ('QUIT', 'TERM')[n % 2]
        with open(ng.dir + '/stderr', 'ab') as err:
            ng.process = subprocess.Popen(ng.command(), stdout=err, stderr=err)
        ng.master = ng.wait_pid()
        # 0 to 6 ms: the master forks, plants, respawns meanwhile
        end = time.monotonic() + n * 0.0003
        while time.monotonic() < end:
            pass
        ng.signal(sig)
        ng.process.wait(20)
        ng.process = None
        os.path.exists(ng.dir + '/nginx.pid') and os.remove(
            ng.dir + '/nginx.pid')
    ng.master = None
    is_([p for p in processes() if ng.dir in p[2]], [],
        'started and stopped 20 times')
