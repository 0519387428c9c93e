#!/usr/bin/env python3
"""The wall: the pure half knows no nginx, and no name of ours is bare.

Object names and symbols of two modules meet in one process (RTLD_GLOBAL) or
in one build, so every external name has the module's prefix.
"""

import glob
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from tap import is_, ok                                     # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.chdir(TOP)

PREFIX = 'ngx_http_llm_capture_'
CC = os.environ.get('CC', 'cc')

# --wrap=stdin says what this one is called
OTHERS = {'stdin': {'__wrap_stdin'}}


def listed(kind):
    return subprocess.run(['sh', 'misc/sources.sh', kind], text=True,
                          stdout=subprocess.PIPE, check=True).stdout.split()


def symbols(path, option):
    out = subprocess.run(['nm', option, '-g', path], text=True, check=True,
                         stdout=subprocess.PIPE).stdout
    return {line.split()[-1] for line in out.splitlines() if line.strip()}


pure, glue = listed('pure'), listed('glue')

is_(sorted(pure + glue + ['stdin']),
    sorted(os.path.basename(p)[len(PREFIX):-2] for p in glob.glob('src/*.c')),
    'config names each source once')

with tempfile.TemporaryDirectory() as tmp:
    for name in pure + ['stdin']:
        source, obj = f'src/{PREFIX}{name}.c', f'{tmp}/{name}.o'

        done = subprocess.run(
            [CC, '-std=c11', '-Wall', '-Wextra', '-Werror', '-O2', '-MD',
             '-MF', obj + '.d', '-c', source, '-o', obj], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

        if not ok(done.returncode == 0, f'{name} compiles with cc alone',
                  done.stdout):
            continue

        with open(obj + '.d') as f:
            headers = re.findall(r'\bngx_[a-z0-9_]+\.h', f.read())

        alien = [h for h in headers if not h.startswith(PREFIX)]
        alien += [h for h in headers if h == 'ngx_http_llm_capture.h']
        alien += [s for s in symbols(obj, '-u')
                  if s.startswith('ngx_') and not s.startswith(PREFIX)]
        is_(alien, [], f'{name} knows no nginx')

        bare = [s for s in symbols(obj, '--defined-only')
                if not s.startswith(PREFIX)]
        is_(sorted(set(bare) - OTHERS.get(name, set())), [],
            f'{name} has no bare name')

for path in sorted(glob.glob('*.[ch]') + glob.glob('src/*.[ch]')
                   + glob.glob('t/*/*.[ch]')):
    with open(path, encoding='utf-8') as f:
        lines = f.read().split('\n')
    bad = [f'{path}:{n}' for n, line in enumerate(lines, 1)
           if len(line) > 80 or '\t' in line or line != line.rstrip()]
    is_(bad, [], f'{path}: 80 columns, no tabs, no blanks at the end')
