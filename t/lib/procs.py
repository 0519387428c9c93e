"""Processes, ports and waiting for what will happen."""

import os
import random
import select
import socket
import time


def free_port():
    """Below the ephemeral range: no outgoing connection takes it meanwhile."""
    while True:
        port = random.randint(10000, 32000)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(('127.0.0.1', port))
                return port
            except OSError:
                pass


def wait_for(condition, what='condition', timeout=20, step=0.005):
    """What the condition returns, once that is true."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f'waited {timeout} s for {what}')
        time.sleep(step)


def process(pid):
    """(pid, parent, title); None: it is gone, or a zombie."""
    try:
        with open(f'/proc/{pid}/stat') as f:
            stat = f.read().rpartition(')')[2].split()
        if stat[0] == 'Z':
            return None
        with open(f'/proc/{pid}/cmdline', 'rb') as f:
            title = f.read().replace(b'\0', b' ').decode('latin-1')
    except OSError:
        return None
    return int(pid), int(stat[1]), title.strip()


def processes(pids=None):
    """All of the system by default."""
    return list(filter(None, map(
        process, [p for p in os.listdir('/proc') if p.isdigit()]
        if pids is None else pids)))


def children(parent):
    """To look at all of the system each time takes long."""
    last = None
    try:
        while True:
            with open(f'/proc/{parent}/task/{parent}/children') as f:
                pids = f.read().split()
            # one that ends meanwhile hides the next one: see proc(5)
            if pids == last:
                return processes(pids)
            last = pids
    except OSError:
        # the parent is gone, or the kernel has no such file
        return [p for p in processes() if p[1] == parent]


def alive(pid):
    return process(pid) is not None


def wait_gone(pid, timeout=30):
    """Waits for the end of a process that need not be our child."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not select.select([fd], [], [], timeout)[0]:
            raise TimeoutError(f'process {pid} is still there')
    finally:
        os.close(fd)


def fds(pid):
    """descriptor -> what it is, of those that are still there."""
    found = {}
    try:
        for fd in os.listdir(f'/proc/{pid}/fd'):
            found[int(fd)] = os.readlink(f'/proc/{pid}/fd/{fd}')
    except OSError:
        pass
    return found


def listening():
    """inode -> port of what listens on TCP."""
    found = {}
    with open('/proc/net/tcp') as f:
        for line in f.readlines()[1:]:
            words = line.split()
            if words[3] == '0A':
                found[words[9]] = int(words[1].split(':')[1], 16)
    return found


def listens(pid):
    """It holds a socket that listens on TCP."""
    sockets = listening()
    return any(name[8:-1] in sockets for name in fds(pid).values()
               if name.startswith('socket:['))
