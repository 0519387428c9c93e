#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# docs/reliability.md from the results of a run: build/faults/*.json.
#
#     t/faults/report.py [FILE]

import json
import os
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
NGINX = os.environ.get('LLM_CAPTURE_NGINX', 'nginx')

TITLES = {'processes': 'Processes', 'points': 'The helper at each step',
          'config': 'Configuration', 'so': 'The module replaced',
          'files': 'Files and disks', 'clients': 'Clients',
          'limits': 'Clock and limits', 'storm': 'A storm'}

HEAD = """\
# Reliability

Each row of these tables is a fault that was staged under load, and the account
that was settled afterwards from the clients' own ledger. They are written by
`t/faults/report.py` from a run of the rows in `t/faults/`, here with
{nginx}; `make check-long` runs those that take long as well.

- *sent*: requests that clients began; *answered*: those nginx answered 2xx.
  The difference are clients that went away, and workers that were killed.
- *recorded*: lines in the files; *counted*: requests that a counter names
  instead, `aborted` for one.
- *lost*: answered, but neither in a file nor counted. *twice*: more than one
  line. Both have to be 0.

A row also fails when a line is torn or not byte for byte the body that was
sent, when an answer differs from that of the same request without capture,
when the error log has an alert that does not belong to the fault, and when
processes, descriptors or memory are not back to where they began.

Outside of the sum is SIGKILL of all processes at once, or the loss of the
machine: it takes the queue with its numbers. What had been written stays.

So is a helper killed after a reload that removed `load_module` or found another
file there: it has no successor, and what it had not written is lost.
"""

COLUMNS = ('sent', 'answered', 'recorded', 'counted', 'lost', 'twice')


def table(results):
    yield '| fault | what was done | requests | ' + ' | '.join(COLUMNS) + ' |'
    yield '|---|---|---|' + '--:|' * len(COLUMNS)
    for r in results:
        if 'sent' not in r:
            raise SystemExit(f"{r['row']}: no result")
        mode = r['mode'] + (', `daemon on`' if r['daemon'] else '')
        yield f"| {r['row']} | {r['did']} | {mode} | " + \
            ' | '.join(str(r[c]) for c in COLUMNS) + ' |'


def main():
    version = subprocess.run([NGINX, '-v'], stderr=subprocess.PIPE, text=True)
    text = HEAD.format(nginx=version.stderr.split()[-1].replace('/', ' '))
    bad = 0
    for name, title in TITLES.items():
        path = f'{TOP}/build/faults/{name}.json'
        if not os.path.exists(path):
            raise SystemExit(f'{path}: run t/faults/{name}.t first')
        with open(path) as f:
            results = json.load(f)
        bad += sum(not r['good'] for r in results)
        text += f'\n## {title}\n\n' + '\n'.join(table(results)) + '\n'
    if bad:
        raise SystemExit(f'{bad} rows failed')
    out = sys.argv[1] if len(sys.argv) > 1 else f'{TOP}/docs/reliability.md'
    os.makedirs(os.path.dirname(out), exist_ok=True)
    with open(out, 'w') as f:
        f.write(text)


main()
