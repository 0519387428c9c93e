#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Faults of files and disks: rotation, what stands in a file's place, disks that
# are full, fail, come short or are slow.
#
# LLM_CAPTURE_LONG: longer stalls, on top.

import errno
import os
import stat
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from disk import Disk                       # noqa: E402
from driver import *                        # noqa: E402,F403

ROOT = os.geteuid() == 0

# a back-off lasts up to 1 s: what comes meanwhile has to find room
CALM = {'pause': 0.02}

# a queue of 512k for each worker, which a disk can fill
SMALL = CAPTURE_PATH + 'llm_capture_max_request_bytes 320k;' \
                       'llm_capture_max_queue_bytes 9m;'


def file(s):
    return s.path('completions')


def grows(path, more=1):
    size = os.path.getsize(path)
    wait_for(lambda: os.path.getsize(path) >= size + more, f'{path} to grow')


def there(path):
    wait_for(lambda: os.path.exists(path), path)


def private(*paths):
    """The permissions that are wrong, and owners."""
    found = [(p, oct(stat.S_IMODE(os.lstat(p).st_mode)), os.lstat(p).st_uid)
             for p in paths]
    uid = os.stat(os.path.dirname(paths[0])).st_uid
    return [f for f in found
            if f[1:] != (oct(0o700 if os.path.isdir(f[0]) else 0o600), uid)]


def open_files(s):
    """Of captures, by all processes of nginx: (the kind, the name)."""
    found = []
    for kind, pids in (('master', [s.master]), ('worker', s.workers()),
                       ('helper', s.helpers())):
        for pid in pids:
            found += [(kind, os.path.basename(name))
                      for name in fds(pid).values() if '/capture/' in name]
    return sorted(found)


def only_one_open(s, what):
    name = os.path.basename(file(s))
    try:
        wait_for(lambda: open_files(s) == [('helper', name)], 'others to close')
    except TimeoutError:
        pass
    is_(open_files(s), [('helper', name)], f'{what}: no other file is open')


# rotation

def rotate(s, n, how):
    """mv, a signal; a new file is there at once."""
    old = file(s)
    os.rename(old, f'{old}.{n}')
    how()
    there(old)
    return private(old)


@row('file: renamed, `nginx -s reopen`', '100 times, then 3 times `reload`')
def reopened(s):
    wrong = []
    for n in range(100):
        wrong += rotate(s, n, lambda: s.run('-s', 'reopen'))
        if n % 10 == 0:
            s.load.more(10)
    s.load.more(50)
    only_one_open(s, 'after reopen')
    for n in range(100, 103):
        pid = s.helper()
        wrong += rotate(s, n, lambda: s.run('-s', 'reload'))
        s.new_helper(pid)
    wait_for(lambda: len(s.workers()) == 2, 'old workers to leave')
    s.load.more(50)
    only_one_open(s, 'after reload')
    is_(wrong, [], 'each new file is private, its owner as before')
    is_(len([n for n in os.listdir(s.dir + '/capture')
             if 'epoch' not in n and 'manifest' not in n]), 104, 'each of them is there')


@row('file: renamed, USR1', '30 times, one that exists already in its place')
def created(s):
    """As with "create" of logrotate: what the administrator made stays so."""
    path, uid = file(s), os.stat(file(s)).st_uid
    for n in range(30):
        os.rename(path, f'{path}.{n}')
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o640))
        os.chmod(path, 0o640)
        os.chown(path, uid, -1)
        s.signal('USR1')
        grows(path)
        if stat.S_IMODE(os.stat(path).st_mode) != 0o640:
            raise AssertionError('its mode was changed')
    s.load.more(50)
    only_one_open(s, 'after reopen')


@row('file: renamed, no signal', 'it goes on in the renamed one till USR1')
def renamed(s):
    path = file(s)
    os.rename(path, path + '.1')
    for _ in range(3):
        grows(path + '.1')
    s.load.more(100)
    ok(not os.path.exists(path), 'no other file is made')
    s.signal('USR1')
    there(path)
    s.load.more(50)
    only_one_open(s, 'after reopen')


@row('file: deleted', '20 times while it is open')
def deleted(s):
    path = file(s)
    for n in range(20):
        s.files.append(open(path, 'rb'))
        os.unlink(path)
        there(path)
        s.load.more(5)
    os.unlink(path + '.epoch')
    s.load.more(50)
    only_one_open(s, 'after all')
    is_(private(path), [], 'the new file is private')


@row('file: copied and truncated', '20 times', lossy=True)
def copytruncate(s):
    path = file(s)
    for n in range(20):
        with open(path, 'rb') as f, open(f'{path}.{n}', 'wb') as copy:
            data = f.read()
            os.truncate(path, 0)
            # what grows may be read in the middle of a line
            copy.write(data[:data.rfind(b'\n') + 1])
        grows(path)
        s.load.more(5)
    for name in os.listdir(s.dir + '/capture'):
        with open(f'{s.dir}/capture/{name}', 'rb') as f:
            if b'\0' in f.read():
                ok(False, 'no hole', name)
    only_one_open(s, 'after all')


# what stands in its place

def symlink(path):
    os.symlink(path + '.target', path)
    with open(path + '.target', 'w'):
        os.chmod(path + '.target', 0o666)


def fifo(path):
    os.mkfifo(path)
    os.chmod(path, 0o666)


def unlink(path):
    os.unlink(path)


def replaced(make, mend):
    def function(s):
        path = file(s)
        os.rename(path, path + '.1')
        make(path)
        s.signal('USR1')
        wait_for(lambda: 'cannot open' in s.log(), 'the warning')
        s.load.more(50)
        only = [n for k, n in open_files(s)]
        ok(os.path.basename(path) not in only, 'it is not open', only)
        mend(path)
        there(path)
        mark = s.ledger.sent
        s.load.more(50)
        # those that are sent now go into the new file
        s.wait_drained(since=mark)
        s.due = {'failed': 1, 'write_errors': 1}
        is_(private(path), [], 'the new file is private')
        if os.path.exists(path + '.target'):
            is_(os.path.getsize(path + '.target'), 0, 'nothing went elsewhere')
    return function


for name, make, mend in (('a symbolic link', symlink, unlink),
                         ('a fifo', fifo, unlink),
                         ('a directory', os.mkdir, os.rmdir)):
    row(f'file: replaced by {name}', 'and back', drops=('failed',))(
        replaced(make, mend))


def no_way_in(close, mend):
    def function(s):
        close(s.dir + '/capture')
        s.signal('USR1')
        wait_for(lambda: 'cannot open' in s.log(), 'the warning')
        s.load.more(100)
        mend(s.dir + '/capture')
        mark = s.ledger.sent
        s.load.more(20)
        s.wait_drained()
        ok(mark < max(s.account().lines), 'it goes on')
        s.due = {'write_errors': 1}
    return function


row('directory: chmod 0', 'with USR1, and back: all is kept', load=CALM)(
    no_way_in(lambda d: os.chmod(d, 0), lambda d: os.chmod(d, 0o700)))

row('directory: moved away', 'with USR1, and back: all is kept', load=CALM)(
    no_way_in(lambda d: os.rename(d, d + '-away'),
              lambda d: os.rename(d + '-away', d)))


@row('directory: moved away for long', 'the queue, of 512k, is full of it',
     drops=('failed', 'queue_full'), path=SMALL)
def away(s):
    d = s.dir + '/capture'
    os.rename(d, d + '-away')
    s.signal('USR1')
    wait_for(lambda: 'cannot open' in s.log(), 'the warning')
    s.load.more(400)
    os.rename(d + '-away', d)
    grows(file(s))
    mark = s.ledger.sent
    s.load.more(50)
    s.wait_drained(since=mark)
    s.due = {'failed': 1, 'write_errors': 1}


# full disks

def mount(s):
    d = s.dir + '/capture'
    uid = os.stat(d).st_uid
    subprocess.run(['mount', '-t', 'tmpfs', '-o',
                    f'size=64m,mode=700,uid={uid}', 'none', d], check=True)
    s.ends.append(lambda: subprocess.run(['umount', '-l', d], check=True))


def fill(s):
    """Room is left for a few records, and a part of one."""
    with open(s.dir + '/capture/ballast', 'wb', 0) as f:
        try:
            while f.write(bytes(1 << 16)) == 1 << 16:
                pass
        except OSError as e:
            if e.errno != errno.ENOSPC:
                raise
        f.truncate(max(f.tell() - (1 << 15), 0))


def can_mount():
    if not ROOT:
        return False
    d = os.path.join(RESULTS, f'mount.{os.getpid()}')
    os.makedirs(d)
    try:
        if subprocess.run(['mount', '-t', 'tmpfs', 'none', d],
                          stderr=subprocess.DEVNULL).returncode:
            return False
        subprocess.run(['umount', d], check=True)
        return True
    finally:
        os.rmdir(d)


if can_mount():

    @row('disk: full', '5 times in the middle of a record, and freed',
         prepare=lambda s: (mount(s), Disk(s)), load=CALM)
    def full(s):
        for _ in range(5):
            n = s.disk.count('shortened')
            fill(s)
            wait_for(lambda: s.disk.count('shortened') > n, 'a short write')
            s.load.more(20)
            os.unlink(s.dir + '/capture/ballast')
            s.wait_drained()
        like(s.log(), 'No space left', 'warned of')
        s.due = {'write_errors': 1}

    @row('disk: full for long', 'the queue, of 512k, is full, too',
         drops=('failed', 'queue_full'), path=SMALL, prepare=mount)
    def full_for_long(s):
        fill(s)
        s.load.more(400)
        os.unlink(s.dir + '/capture/ballast')
        grows(file(s))
        mark = s.ledger.sent
        s.load.more(50)
        s.wait_drained(since=mark)
        s.due = {'failed': 1, 'write_errors': 1}

    # nginx kills its children 3 s after TERM, and a last one goes on

    def end_when_full(sig, limit, free):
        def function(s):
            fill(s)
            wait_for(lambda: 'No space left' in s.log(), 'the warning')
            s.load.more(50)
            s.load.stop()
            family, began = s.family(), time.monotonic()
            s.signal(sig)
            if free:
                os.unlink(s.dir + '/capture/ballast')
            s.wait_end(family)
            took = time.monotonic() - began
            ok(took < limit + 4, 'the master has left', f'{took:.1f} s')
            s.due = {'write_errors': 1, **({} if free else {'lost': 1})}
        return function

    for sig, limit in (('QUIT', 1), ('TERM', 4)):
        for free in (False, True):
            row(f'disk: full, and {sig}', 'with a queue'
                + (', and freed after it' if free else ''), prepare=mount,
                load=CALM, drops=() if free else ('lost',),
                allow=f'{KILLED}|requests lost: not written',
                path=CAPTURE_PATH + f'llm_capture_drain_timeout {limit}s;')(
                end_when_full(sig, limit, free))

else:
    skip('a disk that is full', 'no tmpfs can be mounted')


# disks that fail

def failing(name, **faults):
    def function(s):
        s.disk.set(**faults)
        wait_for(lambda: s.disk.count('failed'), 'a write to fail')
        s.load.more(150)
        s.disk.set()
        s.wait_drained()
        like(s.log(), faults.get('say', name), 'warned of')
        s.due = {'write_errors': 1}
    return function


row('disk: EIO', 'each write', prepare=Disk, load=CALM)(
    failing('Input/output error', error=errno.EIO))

row('disk: EDQUOT', 'each write', prepare=Disk, load=CALM)(
    failing('Disk quota exceeded', error=errno.EDQUOT))

row('disk: short writes, EIO', '5000 bytes a write, each 7th fails',
    prepare=Disk, load=CALM)(
    failing('Input/output error', error=errno.EIO, every=7, most=5000))

row('disk: short writes, ENOSPC, no truncation', '3000 bytes a write, each '
    '5th fails, what is torn cannot be cut', prepare=Disk, load=CALM)(
    failing('cannot cut', error=errno.ENOSPC, every=5, most=3000,
            cut=errno.EIO))


@row('disk: short writes', '1000 bytes at most', prepare=Disk)
def short(s):
    s.disk.set(most=1000)
    s.load.more(150)
    s.wait_drained()
    ok(s.disk.count('shortened') > 100, 'writes were cut short')
    s.disk.set()


@row('disk: short writes, helper kill -9', '5 times in the middle of a line',
     prepare=Disk, allow=KILLED, load=CALM)
def short_and_killed(s):
    s.disk.set(most=3000, delay=300)
    for _ in range(5):
        n = s.disk.count('shortened')
        pid = s.helper()
        wait_for(lambda: s.disk.count('shortened') > n + 2, 'a short write')
        s.signal('KILL', pid)
        s.new_helper(pid)
    s.disk.set()
    s.load.more(20)
    s.wait_drained()


# a line that is cut again and again while much waits behind it is given up

@row('disk: short writes, copied and truncated', '20 times', prepare=Disk,
     lossy=True, drops=('failed',))
def short_and_truncated(s):
    s.disk.set(most=2000, delay=500)
    copytruncate(s)
    s.disk.set()


# slow sinks

def shared_memory(s):
    """KiB of the zone that are resident: those a process has touched."""
    return max(int(status(p, 'RssShmem')[0]) for p in s.helpers()
               + s.workers())


def latency(took):
    took = sorted(took)
    return took[len(took) // 2], took[len(took) * 99 // 100], took[-1]


def stalled(stall, go_on, seconds):
    """50 KB each: answers as before, memory bounded, dropped ones counted."""
    def function(s):
        s.load.more(200)
        usual = latency(s.load.took)
        del s.load.took[:]
        stall(s)
        s.ledger.wait_verdict('queue_full')
        first, heap = shared_memory(s), snapshot(s)['memory']
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            s.load.more(50)
        later = shared_memory(s)
        ours = latency(s.load.took)
        now = snapshot(s)['memory']
        go_on(s)
        s.load.stop()
        s.wait_drained()
        s.wait_room()
        ok(all(s.queued() for _ in range(10)), 'it has caught up')
        s.exact = {'queue_full': len(s.ledger.turned_down())}

        diag('median, 99 %, most: ' + ', '.join(
            f'{a * 1e3:.1f} -> {b * 1e3:.1f} ms' for a, b in zip(usual, ours)),
            f'shared {first} -> {later} KiB, {len(s.ledger.turned_down())} of '
            f'{s.ledger.sent} dropped')
        ok(ours[0] < 5 * usual[0] + 0.05, 'answers take no longer',
           (usual, ours))
        ok(later <= first + 1024, 'shared memory is flat', (first, later))
        check_memory(heap, now, 'memory is flat')
    return function


def slow_row(name, did, seconds, prepare, stall, go_on):
    for n, kw in ((seconds, {}), (20, {'long': True})):
        row(name, f'{did}, {n} s of requests of 50 KB', length=50000,
            path=SMALL, drops=('queue_full',), prepare=prepare, **kw)(
            stalled(stall, go_on, n))


slow_row('helper: stopped', 'SIGSTOP and SIGCONT', 3, None,
         lambda s: setattr(s, 'frozen', s.freeze()),
         lambda s: s.thaw(s.frozen))

slow_row('disk: slow', '100 KB/s', 3, Disk,
         lambda s: s.disk.set(most=2000, delay=20000),
         lambda s: s.disk.set())


# others

@row('file: two instances of nginx', '20 times renamed and USR1; writes of '
     '2000 bytes at most', prepare=Disk)
def two(s):
    """Each write alone would be whole: only their lock keeps lines so."""
    path = file(s)
    with s.another() as other:
        for each in (s, other):
            each.disk.set(most=2000)
        other.helper()
        load = other.start_load()
        for n in range(20):
            os.rename(path, f'{path}.{n}')
            s.signal('USR1')
            other.signal('USR1')
            there(path)
            load.more(5)
            s.load.more(5)
        is_(private(path), [], 'private')
        load.stop()
        s.load.stop()
        for each in (s, other):
            each.disk.set()
        s.wait_drained()
        other.quit()
        s.add(other)
        is_(other.counters()['recorded'] > 0, True, 'both have written')


def with_umask(mask):
    def prepare(s):
        if ROOT:
            os.rmdir(s.dir + '/capture')
        s.spawn['umask'] = mask
    return prepare


# nginx makes directories only where all above is root's alone

for mask in (0, 0o777):
    @row(f'umask {mask:o}', 'files, their sidecar, directory; renamed, USR1',
         prepare=with_umask(mask), prefix='/var/lib' if ROOT else None)
    def umask(s):
        path = file(s)
        is_(private(path, path + '.epoch', s.dir + '/capture'), [],
            'private, the worker\'s')
        rotate(s, 1, lambda: s.signal('USR1'))
        s.load.more(50)
        is_(private(path, path + '.1', path + '.epoch'), [], 'and so later')


run()
