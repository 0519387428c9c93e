#!/usr/bin/env python3
"""--help and the manual page have each command and each option."""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))
from tap import case, is_, like, ok                         # noqa: E402
from cli import TOP, cli                                    # noqa: E402

PAGE = TOP + '/llm-capture/llm-capture.1'
PAGES = TOP + '/build/cli/man'
# told once for all commands
COMMON = {'force', 'format', 'out', 'json', 'text', 'outcomes', 'manifest'}

with open(PAGE) as f:
    page = f.read()

code, usage, _ = cli('--help')
is_(code, 0, '--help')
commands = re.findall(r'(?m)^  ([a-z-]+) ', usage)
is_(len(commands), 14, 'commands')

for name in commands:
    with case(name):
        code, said, err = cli(name, '--help')
        is_((code, err), (0, ''), f'{name} --help')
        options = set(re.findall(r'(?m)^  --([a-z-]+)', said))
        own = page.partition(f'.It Ic {name}')[2].split('\n.It Ic ')[0]
        ok(own, f'{name}: is in the manual')
        missing = [o for o in sorted(options - COMMON)
                   if f'Fl -{o}' not in own and name != 'replay-cmd']
        is_(missing, [], f'{name}: its options are in the manual')
        ok(all(len(line) <= 80 for line in said.splitlines()),
           f'{name}: 80 columns', said)
        is_(cli(name, '--no-such-option', 'x')[0], 2, f'{name}: others')

is_(cli('--version')[0], 0, '--version')
is_(cli()[0], 2, 'nothing')
code, _, err = cli('frobnicate')
is_(code, 2, 'no such command')
like(err, 'there is no command "frobnicate"', 'is told')
is_(cli('split', '--by')[0], 2, 'an option without its value')
is_(cli('inspect', '--json=1', 'x')[0], 2, 'a value that is none of its')

with case('manual pages'):
    pages = sorted(os.listdir(PAGES))
    is_(pages, sorted(f'llm-capture-{name}.1' for name in commands),
        'each command has one')
    for name in commands:
        text = subprocess.run(
            ['groff', '-mdoc', '-Tascii', '-P-c', f'{PAGES}/llm-capture-{name}.1'],
            stdout=subprocess.PIPE).stdout.decode()
        text = re.sub('.\b', '', text)
        missing = [o for o in re.findall(r'(?m)^  (--[a-z-]+)',
                                         cli(name, '--help')[1])
                   if not re.search(rf'(?m)^     {o}( |$)', text)]
        is_(missing, [], f'{name}: has all its options')
        like(text, rf'(?s)\n +llm-capture {name} \[.+DESCRIPTION\n +[A-Z\[m]',
             f'{name}: and says what it does')
    is_(subprocess.run(
        ['groff', '-mdoc', '-Tutf8', '-ww', '-z', PAGE,
         *[f'{PAGES}/{page}' for page in pages]],
        stderr=subprocess.PIPE).stderr, b'', 'they are well formed')
