"""Lag: from the moment a request is sent to its line standing in the file.

The body carries the moment in its stamp.  A reader woken by inotify looks at
the head of each new line; a line stands when the file reaches its end.
"""

import ctypes
import json
import os
import re
import select
import subprocess
import time

import bodies
import stage
from variants import EVERY, OURS, place

IN_MODIFY, IN_CREATE = 2, 0x100

HEAD = re.compile(rb'{"timestamp":(\d+),"payload":')
STAMP = re.compile(rb'"bench":"(\d{12})-(\d{19})"')


class Follower:
    def __init__(self, path, size):
        libc = ctypes.CDLL(None, use_errno=True)
        self.inotify = libc.inotify_init1(os.O_NONBLOCK)
        libc.inotify_add_watch(self.inotify,
                               os.path.dirname(path).encode(),
                               IN_MODIFY | IN_CREATE)
        self.path, self.size, self.at, self.fd = path, size, 0, -1
        self.lags = []

    def look(self):
        """All lines that stand by now."""
        now = time.monotonic_ns()
        if self.fd == -1:
            if not os.path.exists(self.path):
                return
            self.fd = os.open(self.path, os.O_RDONLY)
        end = os.fstat(self.fd).st_size
        while self.at < end:
            head = os.pread(self.fd, 256, self.at)
            m = HEAD.match(head)
            if not m:
                raise RuntimeError(f'no line at {self.at}: {head[:60]}')
            line = m.end() + self.size + 2
            if self.at + line > end:
                break
            self.lags.append(now - int(STAMP.search(head)[2]))
            self.at += line

    def follow(self, process, done):
        """Until all the load's requests are there, or nothing comes."""
        poll = select.poll()
        poll.register(self.inotify, select.POLLIN)
        moved = time.monotonic()
        while time.monotonic() < moved + 10 or not done(process):
            poll.poll(200)
            try:
                os.read(self.inotify, 65536)
                moved = time.monotonic()
            except BlockingIOError:
                pass
            self.look()
            if done(process) and len(self.lags) >= process.requests:
                return

    def close(self):
        os.close(self.inotify)
        if self.fd != -1:
            os.close(self.fd)


def finished(process):
    if process.poll() is None:
        return False
    if process.requests is None:
        process.result = json.loads(process.stdout.read())
        process.requests = process.result['requests']
    return True


def measure(up, size, seconds, rate, connections):
    body = bodies.chat(size)
    with stage.Proxy(up, workers=1, http=OURS, queue='512m',
                     server=place('on', EVERY)) as p:
        follower = Follower(p.file('on.jsonl'), size)
        _, command = stage.load_command(p.port, '/on/x', body, seconds,
                                        rate=rate, connections=connections)
        load = subprocess.Popen(command, stdout=subprocess.PIPE,
                                stdin=subprocess.DEVNULL,
                                preexec_fn=stage.rest)
        load.requests = None
        try:
            follower.follow(load, finished)
        finally:
            load.kill()
            load.wait()
            follower.close()
        p.close()
        row = p.counters(p.file('on.jsonl'))
    lags = sorted(n / 1e6 for n in follower.lags)
    good = row['recorded'] == load.requests == len(lags) == row['seen']
    return {'size': size, 'per_second': load.result['per_second'],
            'requests': load.requests, 'p50': lags[len(lags) // 2],
            'p99': lags[len(lags) * 99 // 100], 'max': lags[-1],
            'why': [] if good else [f'{len(lags)} lines, {row}']}


def run():
    rows = []
    seconds = stage.quick(4, 1)
    with stage.back() as up:
        for size in stage.quick((4096, 65536, 1048576), (4096, 65536)):
            full = measure(up, size, seconds, 0, 8)
            half = measure(up, size, seconds, full['per_second'] / 2, 32)
            slow = measure(up, size, seconds, 20, 4)
            for load, row in (('saturated', full), ('half of that', half),
                              ('20 a second', slow)):
                row['load'] = load
                rows.append(row)
                stage.say(f"lag: {bodies.NAMES[size]:>6} {load:>13} "
                          f"p50 {row['p50']:6.1f} p99 {row['p99']:6.1f} "
                          f"max {row['max']:6.1f} ms {row['why'] or ''}")
    return {'rows': rows}
