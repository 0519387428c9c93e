#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Timestamps: milliseconds since the first recorded request of that file, in
# the order of arrival, over workers, reloads, restarts and rotations.  When a
# request arrived is what nginx's own log says: $msec less $request_time.

import os
import re
import stat
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from llmcapture import *                    # noqa: E402,F403
from traffic import *                       # noqa: E402,F403

WHEN = "log_format when '$http_x_id $pid $msec $request_time';"

# nginx has one clock for its log, another one for what it measures
NEAR = 2


def log(ng):
    """id -> (worker, arrival in ms) of all that was logged."""
    found = {}
    with open(ng.dir + '/when.log') as f:
        for line in f:
            name, pid, msec, taken = line.split()
            found[name] = (int(pid), int(msec.replace('.', ''))
                           - int(taken.replace('.', '')))
    return found


def capture(**kw):
    return Nginx(upstream, location='llm_capture on;', http=WHEN,
                 server='access_log %%DIR%%/when.log when;', **kw)


class Ids:
    """Requests with a number each, never two in the same millisecond."""

    def __init__(self):
        self.n = 0

    def wire(self):
        self.n += 1
        time.sleep(0.004)
        return whole(b'{"id":"%d"}' % self.n, PATH, f'X-Id: {self.n}')

    def send(self, ng, n=1, client=None):
        for _ in range(n):
            if client:
                client.ask(self.wire())
            else:
                ask(ng.port, self.wire())


def ids(rows):
    return [int(r.value['payload']['id']) for r in rows]


def agree(ng, rows, name, zero=0):
    """The rows tell the times that nginx tells; the first one is at zero."""
    wait_for(lambda: set(map(str, ids(rows))) <= set(log(ng)), 'the log')
    known = log(ng)
    start = min(known[str(i)][1] for i in ids(rows))
    off = [(i, r.timestamp, known[str(i)][1] - start + zero)
           for i, r in zip(ids(rows), rows)
           if abs(r.timestamp - (known[str(i)][1] - start + zero)) > NEAR]
    is_(off, [], f'{name}: as nginx logged them')
    is_(rows[0].timestamp, zero, f'{name}: the first one is at {zero}')
    stamps = [r.timestamp for r in rows]
    is_(stamps, sorted(stamps), f'{name}: in the order of time')


def file_state(path):
    st = os.stat(path)
    return stat.S_IMODE(st.st_mode), st.st_uid


with Upstream() as upstream:

    with case('two workers'), capture(workers=2, listen='reuseport') as ng:
        sent = Ids()
        helper = ng.helper()
        ng.signal('STOP', helper)
        clients = [Client(ng.port) for _ in range(12)]
        for _ in range(4):
            for c in clients:
                sent.send(ng, client=c)
        for c in clients:
            c.close()
        # all are in the rings now: what is written is sorted
        ng.signal('CONT', helper)
        rows = ng.wait_records('chat', 48)
        is_(ids(rows), list(range(1, 49)), 'rows stand in order of arrival')
        agree(ng, rows, 'two workers')
        is_(len({pid for pid, _ in log(ng).values()}), 2, 'of both workers')
        is_(file_state(ng.path('chat') + '.epoch'),
            file_state(ng.path('chat')), 'the epoch is as private')

    with case('one epoch over reload and restart'), capture() as ng:
        sent = Ids()
        sent.send(ng, 3)
        ng.wait_records('chat', 3)
        ng.reload()
        sent.send(ng, 3)
        ng.wait_records('chat', 6)
        ng.quit()
        epoch = open(ng.path('chat') + '.epoch').read()
        ng.start()
        sent.send(ng, 3)
        ng.stop('TERM')
        ng.start()
        sent.send(ng, 3)
        ng.quit()
        rows = ng.records('chat')
        is_(ids(rows), list(range(1, 13)), 'all are there')
        agree(ng, rows, 'four starts')
        is_(open(ng.path('chat') + '.epoch').read(), epoch,
            'the epoch has not changed')

    with case('an earlier request that ends later'), capture() as ng:
        sent = Ids()
        early = Client(ng.port)
        wire = sent.wire()
        early.say(wire[:-3])
        early.taken()
        sent.send(ng)
        ng.wait_records('chat', 1)
        is_(early.ask(wire[-3:]).status, 200, 'it is served')
        rows = ng.wait_records('chat', 2)
        is_(ids(rows), [2, 1], 'a line leaves when its body is whole')
        ok(rows[0].timestamp >= 3, 'the first one counts from the other',
           rows[0].timestamp)
        is_(rows[1].timestamp, 0, 'which is at 0')
        early.close()

    with case('a body that comes after the epoch'), capture() as ng:
        sent = Ids()
        wire = sent.wire()
        with Client(ng.port) as c:
            # without a body it is not yet met
            c.say(wire[:wire.index(b'\r\n\r\n') + 4])
            c.taken()
            sent.send(ng)
            ng.wait_records('chat', 1)
            is_(c.ask(wire[wire.index(b'\r\n\r\n') + 4:]).status, 200,
                'it is served')
        rows = ng.wait_records('chat', 2)
        is_([r.timestamp for r in rows], [0, 0], 'never less than 0')

    with case('a new file has a new epoch'), capture() as ng:
        sent = Ids()
        path = ng.path('chat')
        sent.send(ng, 3)
        old = ng.wait_records('chat', 3)
        os.rename(path, path + '.1')
        sent.send(ng)
        wait_for(lambda: len(records(path + '.1')) == 4, 'the renamed file')
        ok(not os.path.exists(path), 'renamed: it goes on there')
        ng.reopen()
        # the helper opens anew when it writes; it may not have heard so far
        wait_for(lambda: re.search(rf' {ng.helper()}#\d+: reopening logs',
                                   ng.log()), 'the helper to reopen')
        sent.send(ng, 3)
        rows = ng.wait_records('chat', 3)
        is_(ids(records(path + '.1')), [1, 2, 3, 4], 'USR1: the old file')
        agree(ng, records(path + '.1'), 'the old file')
        is_(ids(rows), [5, 6, 7], 'USR1: the new file')
        agree(ng, rows, 'the new file')

        os.truncate(path, 0)
        sent.send(ng, 2)
        rows = ng.wait_records('chat', 2)
        is_(ids(rows), [8, 9], 'truncated: the next rows')
        agree(ng, rows, 'truncated')

        os.unlink(path)
        sent.send(ng, 2)
        rows = ng.wait_records('chat', 2)
        is_(ids(rows), [10, 11], 'removed: the next rows')
        agree(ng, rows, 'removed')

        ng.quit()
        is_(counted(ng, ng.dir + '/capture/requests.$llm_capture_endpoint'
                    '.jsonl'), {'seen': 11, 'recorded': 11}, 'none is lost')

    with case('rows without an epoch'), capture() as ng:
        sent = Ids()
        path = ng.path('chat')
        sent.send(ng, 3)
        rows = ng.wait_records('chat', 3)
        ng.quit()
        os.unlink(path + '.epoch')
        ng.start()
        sent.send(ng, 3)
        ng.quit()
        again = ng.records('chat')
        is_(ids(again), [1, 2, 3, 4, 5, 6], 'are kept')
        is_([r.line for r in again[:3]], [r.line for r in rows], 'as before')
        agree(ng, again[3:], 'behind them', zero=rows[-1].timestamp + 1)

    with case('each file counts for itself'), capture() as ng:
        for path in (PATH, '/v1/completions'):
            time.sleep(0.004)
            ask(ng.port, whole(b'{"id":"1"}', path))
        is_([ng.wait_records(n, 1)[0].timestamp
             for n in ('chat', 'completions')], [0, 0], 'from 0')
