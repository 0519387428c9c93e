#
# Copyright (C) the llm-capture authors
#
# What the life-cycle tests share: traffic by number, backlogs, the ledger.
#
#     with Life() as ng:
#         ng.signal('KILL', ng.backlog(500))
#         ng.settled('after a kill')
#
# A backlog is made by stopping the helper, never by being faster than it.

import os
import time

from client import Connection
from llmcapture import Nginx, is_, ok, wait_for
from procs import (children, fds, free_port, listening,      # noqa: F401
                   processes,
                   wait_gone)

PATH = '/v1/completions'
KILLED = r'exited on signal 9'

ECHO = 'server { listen 127.0.0.1:%d; location / { return 200 ok; } }'


class Echo:
    """Stands for an upstream: a server of the same nginx, as it is fast."""

    def __init__(self):
        self.port = free_port()
        self.conf = ECHO % self.port


def state(pid):
    """The letter of /proc: S, T..., '' when it is gone."""
    try:
        with open(f'/proc/{pid}/stat') as f:
            return f.read().rpartition(')')[2].split()[0]
    except OSError:
        return ''


def body(n):
    return b'{"model":"m","prompt":"number %d","n":%d}' % (n, n)


class Lives(Nginx):
    """An nginx whose processes are stopped, killed and waited for."""

    def freeze(self, pid=None):
        pid = pid or self.helper()
        self.signal('STOP', pid)
        # t: while somebody traces it
        wait_for(lambda: state(pid) in ('T', 't'), 'the helper to stop')
        return pid

    def thaw(self, pid):
        try:
            self.signal('CONT', pid)
        except ProcessLookupError:
            pass

    def new_helper(self, old):
        def one():
            pids = self.helpers()
            return pids[0] if len(pids) == 1 and pids != [old] else 0
        return wait_for(one, 'a new helper')

    # an upgrade: self.master is the one looked at

    def new_binary(self):
        """USR2, until the new master's workers are there: the old master."""
        old = self.master
        self.signal('USR2')
        self.master = self.wait_pid(other_than=old)
        wait_for(lambda: len(self.workers()) == self.words['WORKERS'],
                 'workers of the new one')
        return old

    @staticmethod
    def no_child(master, name):
        wait_for(lambda: not [p for p in children(master) if name in p[2]],
                 f'the end of each "{name}"')

    def crash_loop(self, times):
        """Kills each helper that is ready; returns when one lives."""
        # without a pause there are some hundred starts in this time
        begun, last = time.monotonic(), 0
        for _ in range(times):
            last = wait_for(lambda: [p for p in self.helpers() if p != last
                                     and 'anon_inode:[eventpoll]'
                                     in fds(p).values()],
                            'a helper that is ready')[0]
            self.signal('KILL', last)
        took = time.monotonic() - begun
        starts = self.log().count('start llm capture helper process')
        # one before, one after more than a second, one that still waits
        ok(starts <= took + 3, 'it is started once a second at most',
           f'{starts} starts in {took:.2f} s')
        self.new_helper(last)

    def family(self):
        return [self.master] + [p[0] for p in children(self.master)]

    def wait_end(self, pids, timeout=30):
        for pid in pids:
            wait_gone(pid, timeout)
        if self.process:
            self.process.wait(timeout)
            self.process = None
        self.master = None


class Life(Lives):
    def __init__(self, http='', location='llm_capture on;', workers=2, **kw):
        self.sent = 0
        echo = Echo()
        super().__init__(echo, http=echo.conf + http, location=location,
                         workers=workers, **kw)
        self.echo = echo

    def push(self, n):
        """n requests of the next numbers, over connections of 500 each."""
        while n:
            with Connection(self.port) as c:
                for _ in range(min(n, 500)):
                    self.sent += 1
                    data = body(self.sent)
                    c.head(PATH, len(data))
                    c.send(data)
                    if c.response().status != 200:
                        raise RuntimeError('not served')
                    n -= 1

    def hold(self):
        """An upload that keeps its worker: let_go() sends the rest."""
        self.sent += 1
        c = Connection(self.port)
        data = body(self.sent)
        c.head(PATH, len(data))
        c.send(data[:7])
        c.rest = data[7:]
        return c

    @staticmethod
    def let_go(c, status=200):
        c.send(c.rest)
        is_(c.response().status, status, 'the held upload was taken')
        c.close()

    def backlog(self, n):
        """n records that the helper, whose pid is returned, has not seen."""
        pid = self.freeze()
        self.push(n)
        return pid

    def numbers(self, name='completions'):
        return sorted(row.value['payload']['n'] for row in self.records(name))

    def settled(self, what, name='completions'):
        """Waits for the records of all that was sent: each once."""
        try:
            self.wait_records(name, self.sent)
        except TimeoutError as e:
            ok(False, f'{what}: all recorded', e)
        self.whole(what, name)

    def whole(self, what, name='completions'):
        got = self.numbers(name)
        want = list(range(1, self.sent + 1))
        ok(got == want, f'{what}: {self.sent} recorded, each once',
           f'{len(got)} lines, {len(set(got))} different, missing '
           f'{sorted(set(want) - set(got))[:20]}')

    def counted(self, what):
        """The last report of the helper agrees."""
        row = self.counters() or {}
        is_((row.get('seen'), row.get('recorded'), row.get('pending')),
            (self.sent, self.sent, 0), f'{what}: counted')


def status(pid, field):
    with open(f'/proc/{pid}/status') as f:
        for line in f:
            if line.startswith(field + ':'):
                return line.split()[1:]


def title(pid):
    try:
        with open(f'/proc/{pid}/cmdline', 'rb') as f:
            return f.read().replace(b'\0', b' ').decode('latin-1').strip()
    except OSError:
        return ''


def accepted(c):
    """All that was sent has been read by a process that took c's peer."""
    mine = '%08X' % int.from_bytes(b'\x7f\0\0\x01', 'little') \
        + ':%04X' % c.sock.getpeername()[1]
    port = ':%04X' % c.sock.getsockname()[1]
    with open('/proc/net/tcp') as f:
        for line in f.readlines()[1:]:
            words = line.split()
            if words[1] == mine and words[2].endswith(port):
                return words[4].endswith(':00000000') and words[9] != '0'
    return False
