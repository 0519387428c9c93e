#!/usr/bin/env python3
"""The unit tests: every cmocka program of t/unit, built by `make unit`."""

import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from tap import diag, ok                                    # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

count = 0

for source in sorted(glob.glob(TOP + '/t/unit/*.c')):
    name = os.path.basename(source)[:-2]

    with open(source) as f:
        if 'cmocka_run_group_tests' not in f.read():
            continue                    # a program other tests drive

    program = f'{TOP}/build/unit/{name}'

    if not ok(os.access(program, os.X_OK), f'{name}: is built'):
        continue

    done = subprocess.run([program], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True,
                          errors='backslashreplace',
                          env=dict(os.environ, CMOCKA_MESSAGE_OUTPUT='tap'))

    seen = 0
    for line in done.stdout.splitlines():
        found = re.match(r'(not )?ok \d+ - (\S+)', line)
        if found:
            seen += 1
            ok(not found[1], f'{name}: {found[2]}')

    planned = sum(map(int, re.findall(r'^1\.\.(\d+)', done.stdout, re.M)))

    # a crash shows as fewer tests than planned
    if not ok(done.returncode == 0 and seen == planned and seen > 0,
              f'{name}: ran all its {planned} tests'):
        diag(f'exit code {done.returncode}', done.stdout)

    count += seen

ok(count > 0, f'{count} unit tests')
