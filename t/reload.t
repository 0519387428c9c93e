#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Reloads: one helper hands over to the next, whatever changes in the
# configuration, while old workers stay behind with their uploads.

import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from life import *                          # noqa: E402,F403
from llmcapture import *                    # noqa: E402,F403


def reload(ng, **words):
    """Until the new helper is there and no other: the old one has left."""
    old = ng.helper()
    ng.reload(**words)
    return ng.new_helper(old)


with case('ten reloads'), Life() as ng:
    ng.push(20)
    held = ng.hold()
    ng.push(1)
    for n in range(10):
        pid = ng.helper()
        if n % 2:
            # the old one leaves in the middle of this
            pid = ng.backlog(500)
        ng.signal('HUP')
        ng.push(20)
        ng.thaw(pid)
        ng.new_helper(pid)
    ng.push(20)
    ng.let_go(held)
    ng.settled('ten reloads with a held upload')
    is_(len(ng.helpers()), 1, 'one helper')
    ng.quit()
    ng.counted('ten reloads')


with case('quick reloads'), Life() as ng:
    for n in range(12):
        ng.signal('HUP')
        ng.push(5)
    ng.settled('reloads on top of each other')
    ng.helper()
    wait_for(lambda: len(ng.children()) == 3, 'old children to leave')
    ng.push(5)
    ng.settled('and after them')


# the process table has 1024 entries: a helper that moves up by a number of
# slots with each reload, as one that must leave room for the workers would,
# runs out of them in 24 of these

with case('many reloads'), Life(workers=40) as ng:
    for n in range(30):
        pid = reload(ng)
    ng.push(50)
    ng.settled('30 reloads of 40 workers')
    wait_for(lambda: len(ng.workers()) == 40, '40 workers')


with case('a broken configuration'), Life() as ng:
    pid = ng.backlog(100)
    ng.reload_fails(location='llm_capture on; no_such_directive;')
    ng.reload_fails(location='llm_capture maybe so;')
    ng.thaw(pid)
    ng.push(20)
    ng.settled('a refused reload')
    is_(ng.helpers(), [pid], 'the same helper')
    ng.configure(location='llm_capture on;')
    ng.allow = r'no_such_directive|invalid number of arguments'


with case('the directive removed and back'), Life() as ng:
    ng.push(20)
    held = ng.hold()
    ng.push(1)
    pid = ng.backlog(300)
    ng.reload(location='')
    ng.thaw(pid)
    c = Connection(ng.port)
    data = body(0)
    c.head('/v1/completions', len(data))
    c.send(data)
    is_(c.response().status, 200, 'served without capture')
    c.close()
    ng.wait_records('completions', ng.sent - 1)
    wait_gone(pid)
    ok(ng.helper(), 'another helper stays for the old worker')
    ng.let_go(held)
    ng.settled('an upload older than the removal')
    wait_for(lambda: not ng.helpers(), 'it to leave')
    ng.reload(location='llm_capture on;')
    ng.helper()
    ng.push(20)
    ng.settled('the directive came back')


with case('the module unloaded and back'), Life() as ng:
    load, path = ng.words['LOAD'], ng.words['HTTP']
    for n in range(3):
        ng.push(20)
        held = ng.hold()
        ng.push(1)
        pid = ng.backlog(300)
        ng.reload(location='', load='', http=ng.echo.conf)
        ng.thaw(pid)
        ng.let_go(held)
        ng.settled(f'unloaded {n + 1}')
        wait_gone(pid)
        # its title is logged here, by a master without the module
        wait_for(lambda: f'process {pid} exited with code 0' in ng.log(),
                 'the master to see it')
        # of a static module one stays for the old worker's zone
        wait_for(lambda: not ng.helpers(), 'the last helper to leave')
        ng.reload(location='llm_capture on;', load=load, http=path)
        ng.helper()
    ng.push(20)
    ng.settled('loaded again')
    fd = len(fds(ng.master))
    for n in range(3):
        ng.reload(location='', load='', http=ng.echo.conf)
        ng.reload(location='llm_capture on;', load=load, http=path)
        ng.helper()
    is_(len(fds(ng.master)), fd, 'the master has as many descriptors')


with case('the zone resized'), Life() as ng:
    http = ng.words['HTTP']
    ng.push(20)
    held = ng.hold()
    ng.push(1)
    pid = ng.backlog(300)
    ng.reload(http=http + 'llm_capture_max_queue_bytes 300m;')
    new = wait_for(lambda: [p for p in ng.helpers() if p != pid],
                   'a helper of the new zone')
    ng.push(50)
    ng.thaw(pid)
    ng.wait_records('completions', ng.sent - 1)
    wait_gone(pid)
    is_(ng.helpers(), new, 'one helper for both zones')
    ng.let_go(held)
    ng.settled('a resized zone')
    is_(ng.helpers(), new, 'the same helper')


with case('a port given up'), Life() as ng:
    old = ng.port
    ng.push(10)
    ng.helper()
    ng.words['PORT'] = ng.port = free_port()
    ng.configure()
    pid = ng.helper()
    ng.signal('HUP')
    ng.new_helper(pid)
    ng.push(10)
    ng.settled('another port')
    is_(old in listening().values(), False, 'nobody holds the old port')


# long answers keep the old workers; a body that comes late and is refused must
# not keep a ring as well: there are 16 of them

LATE = """
    location /slow { proxy_pass http://127.0.0.1:%d; }
    location /late { llm_capture on; proxy_pass http://llm; }
"""
DONE = threading.Event()

with case('late and refused'), \
        Upstream(actions={'/slow': mock.until(DONE)}) as up, \
        Life(workers=1, server=LATE % up.port) as ng:
    held = []
    for n in range(20):
        slow, late = Connection(ng.port), Connection(ng.port)
        slow.head('/slow', 2)
        slow.send(b'{}')
        late.head('/late', 2)
        wait_for(lambda: accepted(slow) and accepted(late), 'both to be read')
        ng.reload()
        late.rest = b'{}'
        ng.let_go(late)
        held.append(slow)
    ng.push(10)
    ng.settled('after 20 reloads')
    DONE.set()
    for slow in held:
        is_(slow.response().status, 200, 'a long answer')
        slow.close()
    ng.quit()
    row = ng.counters()
    is_((row['unmatched'], row['queue_full'], row['recorded']), (20, 0, 10),
        'nothing was refused for want of a ring')


with case('a reload and the end'), Life() as ng:
    for sig in ('QUIT', 'TERM'):
        ng.sent = 0
        if not ng.master:
            os.remove(ng.path('completions'))
            ng.start()
        pid = ng.backlog(500)
        ng.signal('HUP')
        family = ng.family()
        ng.signal(sig)
        ng.thaw(pid)
        ng.wait_end(family)
        ng.whole(f'HUP and {sig}')
