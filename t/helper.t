#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The helper process: what it is, and that its death, or a worker's, loses
# nothing and repeats nothing.

import os
import pwd
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from life import *                          # noqa: E402,F403
from llmcapture import *                    # noqa: E402,F403


for daemon in (True, False):
    name = 'daemon on' if daemon else 'daemon off'
    with case(name), Life(daemon=daemon) as ng:
        pid = ng.helper()
        is_(len(ng.workers()), 2, f'{name}: two workers')
        is_(len(ng.children()), 3, f'{name}: the helper is the third child')
        if ROOT:
            # it has its title while it still gets ready
            wait_for(lambda: status(pid, 'Uid')[0] != '0', 'another user')
        is_(status(pid, 'Uid')[:3], [str(pwd.getpwnam(USER).pw_uid)] * 3,
            f'{name}: it runs as the user of the workers')
        is_(status(pid, 'Groups'), status(ng.workers()[0], 'Groups'),
            f'{name}: in the groups of the workers')

        open_fds = fds(pid)
        ports = listening()
        is_([ports[v[8:-1]] for v in open_fds.values()
             if v.startswith('socket:[') and v[8:-1] in ports], [],
            f'{name}: it holds no listening socket')
        is_(sum(v.startswith('socket:') for v in open_fds.values()), 1,
            f'{name}: and one channel')
        if ROOT:
            is_(os.stat(f'/proc/{pid}/fd').st_uid, 0,
                f'{name}: its memory is nobody\'s to read or dump')

        ng.push(20)
        ng.settled(name)

        for args in (('-t',), ('-T',), ('-V',), ('-s', 'reopen')):
            is_(ng.run(*args)[0], 0, f'{name}: nginx {args[0]} is content')
        ng.push(20)
        ng.settled(f'{name}, after other commands')
        is_(ng.helpers(), [pid], f'{name}: the same helper')
        ng.quit()
        ng.counted(name)


# nginx leaves the sockets of QUIC open in its children: a port that the helper
# held would swallow its share of the packets

QUIC = """
    server {
        listen 127.0.0.1:%%PORT%% quic;
        ssl_certificate %%DIR%%/cert.pem;
        ssl_certificate_key %%DIR%%/key.pem;
    }
"""

with case('QUIC'), Life(start=False) as ng:
    if '--with-http_v3_module' not in ng.run('-V')[1]:
        skip('no socket of QUIC', 'this nginx has no HTTP/3')
    elif not shutil.which('openssl'):
        skip('no socket of QUIC', 'no openssl to make a certificate')
    else:
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048',
                        '-nodes', '-subj', '/CN=localhost', '-keyout',
                        ng.dir + '/key.pem', '-out', ng.dir + '/cert.pem'],
                       check=True, stderr=subprocess.DEVNULL)
        ng.configure(http=ng.words['HTTP'] + QUIC)
        ng.start()
        with open('/proc/net/udp') as f:
            inodes = [line.split()[9] for line in f
                      if line.split()[1].endswith(':%04X' % ng.port)]
        is_(len(inodes), 1, 'nginx listens for QUIC')
        is_([v for v in fds(ng.helper()).values()
             if v[8:-1] in inodes], [], 'no socket of QUIC')


with case('captured output'), Life(daemon=True, start=False) as ng:
    done = subprocess.run(ng.command(), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=30)
    is_((done.returncode, done.stdout), (0, b''),
        'nothing of ours holds the output of the one who starts nginx')
    ng.master = ng.wait_pid()
    ng.helper()


with case('idle'), Life() as ng:
    ng.push(10)
    ng.settled('idle')
    pid = ng.helper()

    def switches():
        return int(status(pid, 'voluntary_ctxt_switches')[0])

    # the ring's pages are given back once, 10 s later; nothing else is due
    before = switches()
    time.sleep(2)
    ok(switches() - before <= 2, 'an idle helper sleeps',
       f'woken {switches() - before} times in 2 s')


with case('kill -9 of the helper'), Life(allow=KILLED) as ng:
    for n in range(3):
        pid = ng.backlog(400)
        ng.signal('KILL', pid)
        ng.new_helper(pid)
        ng.push(50)
        ng.settled(f'kill {n + 1}')
    ng.quit()
    ng.counted('killed helpers')


with case('kill -9 of the helper at work'), Life(allow=KILLED) as ng:
    for n in range(5):
        pid = ng.backlog(2000)
        size = os.path.getsize(ng.path('completions')) if n else 0
        ng.thaw(pid)
        wait_for(lambda: os.path.exists(ng.path('completions'))
                 and os.path.getsize(ng.path('completions')) > size,
                 'the first bytes')
        ng.signal('KILL', pid)
        ng.new_helper(pid)
    ng.settled('killed at work')
    ng.quit()
    ng.counted('killed at work')


with case('kill -9 of the workers'), Life(allow=KILLED) as ng:
    pid = ng.backlog(300)
    old = ng.workers()
    for worker in old:
        ng.signal('KILL', worker)
    wait_for(lambda: len(ng.workers()) == 2
             and not set(old) & set(ng.workers()), 'new workers')
    wait_for(ng.serves, 'them to serve')
    ng.push(100)
    ng.thaw(pid)
    ng.settled('workers killed')
    is_(ng.helpers(), [pid], 'the same helper')
    ng.quit()
    ng.counted('workers killed')


with case('kill -9 of all children'), Life(allow=KILLED) as ng:
    pid = ng.backlog(300)
    old = ng.workers()
    for child in old + [pid]:
        ng.signal('KILL', child)
    wait_for(lambda: len(ng.workers()) == 2
             and not set(old) & set(ng.workers()), 'new workers')
    ng.new_helper(pid)
    ng.settled('all children killed')
    ng.push(100)
    ng.settled('and served on')
    ng.quit()
    ng.counted('all children killed')


with case('a worker killed in an upload'), \
        Life(allow=KILLED, workers=1) as ng:
    ng.push(10)
    ng.settled('before')
    c = ng.hold()
    ng.sent -= 1                        # it will never be whole
    ng.push(1)                          # the same worker: it has the upload
    old = ng.workers()
    ng.signal('KILL', old[0])
    wait_for(lambda: ng.workers() and ng.workers() != old, 'a new worker')
    c.close()
    ng.push(10)
    ng.quit()
    ng.whole('an upload cut by a kill')
    row = ng.counters()
    is_((row['seen'], row['recorded'], row['aborted'], row['pending']),
        (ng.sent + 1, ng.sent, 1, 0), 'the cut one is counted as aborted')


with case('a crash loop'), Life(allow=KILLED) as ng:
    ng.crash_loop(4)
    ng.push(20)
    ng.settled('after a crash loop')


with case('master_process off'), \
        Life(main='master_process off;', workers=1) as ng:
    ng.push(300)
    ng.settled('master_process off')
    is_(ng.children(), [], 'no child')
    ng.push(300)
    ng.quit()
    ng.whole('master_process off, at the end')
    ng.counted('master_process off')
