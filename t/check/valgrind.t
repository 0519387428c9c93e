#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# valgrind's memcheck over the unit tests, two at a time, and over an nginx
# that records, reloads, reopens its files and ends: master, workers and helper.
# What nginx itself is known for stands in valgrind.supp, with why.
#
#     t/check/valgrind.t [NAME...]      these unit tests only, and nginx

import glob
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                '../lib'))
from llmcapture import (TOP, Nginx, Upstream, case, diag, is_, ok,
                        request)                            # noqa: E402

os.chdir(TOP)

# why a unit test is not run under valgrind; those with a sanitizer cannot be
NOT_HERE = {
    'ring_fork': 'a race of two processors: valgrind has threads in turns',
    'crash_storm': 'kills its children at any moment, by their speed',
    'crash': 'thousands of children, over what drain and writer test too',
    'answer_crash': 'the same, of outcomes: answer_asan tests them too',
    'trace_crash': 'the same, of rows that need the answer',
    'seal_crash': 'the same, of segments: seal tests them too',
    'writer_points': 'the same',
    'ring_model': 'millions of steps, in one mapping: memcheck sees no bounds'
}

MEMCHECK = ['valgrind', '-q', '--vgdb=no', '--error-exitcode=99',
            '--keep-debuginfo=yes', '--leak-check=full',
            '--show-leak-kinds=definite',
            '--errors-for-leak-kinds=definite',
            '--suppressions=t/check/valgrind.supp']
BODY = b'{"model":"m","messages":[{"role":"user","content":"%s"}]}'


def names():
    found = []
    for path in sorted(glob.glob('t/unit/*.c')):
        name = os.path.basename(path)[:-2]
        with open(path) as f:
            whole = 'cmocka_run_group_tests' in f.read()
        if whole and not name.endswith(('_asan', '_tsan')) \
                and name not in NOT_HERE:
            found.append(name)
    return found


def unit(name):
    done = subprocess.run([*MEMCHECK, f'build/unit/{name}'],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True,
                          errors='backslashreplace')
    return done.returncode, done.stdout


def findings(text):
    """Its own lines; those between dashes tell what valgrind cannot do."""
    return ''.join(re.findall(r'^==\d+== .*\n', text, re.M))


def report(name, code, text):
    plan = sum(map(int, re.findall(r'^1\.\.(\d+)', text, re.M)))
    done = len(re.findall(r'^ok ', text, re.M))
    said = findings(text)

    # a child of a test may end with an error of its own: its lines tell
    ok(code == 0 and not said and plan == done > 0, f'{name}: {plan} tests',
       said or text[-2000:])


class Checked(Nginx):
    """nginx under valgrind, which all its processes stay under."""

    logs = None

    def command(self, *args):
        return [*MEMCHECK, '--trace-children=yes',
                f'--log-file={self.logs}/%p', *super().command(*args)]

    def workers(self):
        """By the log: valgrind shows a command line of its own."""
        started = re.findall(r'start worker process (\d+)', self.log())
        leaves = re.findall(r' (\d+)#\d+: (?:gracefully shutting down|exiting)',
                            self.log())
        return sorted(p for p in self.children()
                      if str(p) in started and str(p) not in leaves)


def looked_at(logs):
    """(pids that were looked at, what was found)."""
    paths = glob.glob(logs + '/*')
    text = ''
    for path in paths:
        with open(path, errors='replace') as f:
            text += findings(f.read())
    return [os.path.basename(path) for path in paths], text


def smoke():
    with tempfile.TemporaryDirectory() as logs, Upstream() as up:
        os.chmod(logs, 0o1777)
        Checked.logs = logs
        with Checked(up, location='llm_capture on;',
                     http='llm_capture_args \'{"sample_rate":1}\';') as ng:
            for size in (10, 1000, 40000):
                is_(request(ng.port, '/v1/chat/completions',
                            BODY % (b'x' * size)).status, 200, 'served')
            is_(request(ng.port, '/v1/completions', b'{"a":}').status, 200,
                'what is no JSON is served')
            ng.wait_records('chat', 3, timeout=120)
            ng.reopen()
            ng.reload()
            is_(request(ng.port, '/v1/chat/completions', BODY % b'y').status,
                200, 'served after a reload')
            ng.wait_records('chat', 4, timeout=120)
            ng.quit(120)
            pids, text = looked_at(logs)
        ok(len(pids) >= 5, 'a master, two workers and two helpers were '
           'looked at', pids)
        ok(not text, 'valgrind found nothing', text[:5000])


diag(*[f'{name}: {why}' for name, why in NOT_HERE.items()])

with ThreadPoolExecutor(2) as pool:
    units = sys.argv[1:] or names()
    for name, (code, text) in zip(units, pool.map(unit, units)):
        report(name, code, text)

with case('nginx'):
    smoke()
