"""Instructions of a request in the worker's own code: a figure without noise.

An nginx under valgrind's callgrind, once with N requests and once with 2N: the
difference is what N requests cost (the kernel's part is not seen).  A copy of
more than a few KB is one instruction, "rep movsb", which valgrind counts once
for each byte.
"""

import glob
import http.client
import os
import signal

import bodies
import stage
from procs import wait_for
from variants import OURS, OURS_SERVER

VARIANTS = ('off', 'on', 'sampled_out', 'unmatched', 'too_large')


def first_child(pid):
    """Under valgrind titles are not seen: the worker comes first."""
    def kids():
        with open(f'/proc/{pid}/task/{pid}/children') as f:
            found = [int(n) for n in f.read().split()]
        return found if len(found) >= 2 else None
    return min(wait_for(kids, 'the children', 60))


def parse(path):
    """All instructions of a profile, and those in the module: its own code,
    pcre2 in it, and what that compiled at run time (an object of no name)."""
    names, ours, total, module, call = {}, False, 0, 0, False
    with open(path) as f:
        for line in f:
            if line[0] in '+-*0123456789':
                if not call:
                    n = int(line.split()[-1])
                    total += n
                    module += n if ours else 0
                call = False
            elif line.startswith('ob='):
                key, _, name = line[3:].strip().partition(' ')
                name = names.setdefault(key, name)
                ours = 'llm_capture' in name or name == '???'
            elif line.startswith('cob='):
                key, _, name = line[4:].strip().partition(' ')
                names.setdefault(key, name)
            elif line.startswith('calls='):
                call = True
    return total, module


def totals(directory):
    return {int(path.rpartition('.')[2]): parse(path)
            for path in glob.glob(directory + '/capture/callgrind.*')}


class Counted(stage.Proxy):
    def __init__(self, up, **words):
        super().__init__(up, tool=['valgrind'], **words)

    def command(self, *args):
        # the directory is known only now; the worker's user writes there
        return ['valgrind', '-q', '--tool=callgrind', '--trace-children=yes',
                f'--callgrind-out-file={self.dir}/capture/callgrind.%p',
                f'--log-file={self.dir}/valgrind.log',
                *super().command(*args)[1:]]


def count(up, variant, body, requests):
    """Those of the worker from its fork to its end, and the module's."""
    with Counted(up, workers=1, http=OURS, server=OURS_SERVER,
                 queue='512m') as p:
        worker = first_child(p.master)
        c = http.client.HTTPConnection('127.0.0.1', p.port, timeout=120)
        uri = f'/{variant}/'.ljust(16, 'x')    # parsed byte by byte
        for _ in range(requests):
            c.request('POST', uri, body,
                      {'Content-Type': 'application/json'})
            answer = c.getresponse()
            if answer.status != 200:
                raise RuntimeError(f'{variant}: {answer.status}')
            answer.read()
        c.close()
        os.kill(p.master, signal.SIGQUIT)
        p.process.wait(120)
        p.process = p.master = None
        return totals(p.dir)[worker]


def run():
    n = stage.quick(600, 100)
    rows = []
    with stage.back() as up:
        for size in stage.quick((4096, 65536), (4096,)):
            body = bodies.chat(size)
            off = None
            for name in VARIANTS:
                twice = count(up, name, body, 2 * n)
                once = count(up, name, body, n)
                one, own = ((a - b) / n for a, b in zip(twice, once))
                off = off or one
                rows.append({'size': size, 'variant': name, 'own': own,
                             'instructions': one, 'more': one - off})
                stage.say(f'instructions: {bodies.NAMES[size]:>6} '
                          f'{name:>12} {one:9.0f} {one - off:8.0f} more, '
                          f'{own:.0f} in the module')
    return {'requests': n, 'rows': rows}
