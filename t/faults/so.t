#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The module's file is replaced by one of another version: other code, another
# layout of what is shared.  As a package manager does it: a new file is moved
# over the old one, which nginx goes on to use until it is told otherwise.

import os
import re
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from driver import *                        # noqa: E402,F403
from points import build                    # noqa: E402
from tap import skip_all                    # noqa: E402

if not MODULE:
    skip_all('the module is part of nginx')

DIR = os.path.join(TOP, 'build/so')
ZONE = 'src/ngx_http_llm_capture_zone.h'

# what another version may have in this place
CHANGES = {'LAYOUT': 77, 'TEMPLATES': 24, 'BATCH': 200, 'BLOCK': 8192}


def another_version():
    """The module from a copy of its source: where it is."""
    top = DIR + '/source'
    for name in ('misc', 'src'):
        shutil.copytree(f'{TOP}/{name}', f'{top}/{name}', dirs_exist_ok=True)
    for name in ('config', 'config.make', 'ngx_http_llm_capture_module.c'):
        shutil.copy2(f'{TOP}/{name}', top)
    with open(f'{top}/{ZONE}') as f:
        text = f.read()
    for name, value in CHANGES.items():
        text, n = re.subn(rf'(#define NGX_HTTP_LLM_CAPTURE_{name} +)\d+',
                          rf'\g<1>{value}', text)
        is_(n, 1, f'{name} is {value} there')
    with open(f'{top}/{ZONE}', 'w') as f:
        f.write(text)
    shutil.copystat(f'{TOP}/{ZONE}', f'{top}/{ZONE}')
    return build(DIR + '/nginx', top, '-O1')


def file(s):
    return s.dir + '/module.so'


def install(s, module):
    shutil.copy(module, file(s) + '.new')
    os.rename(file(s) + '.new', file(s))


def run_by(path, pids):
    """All of these run the file that is there now."""
    inode = str(os.stat(path).st_ino)
    for pid in pids:
        with open(f'/proc/{pid}/maps') as f:
            if not any(line.split()[4] == inode for line in f):
                return False
    return True


def from_copy(s):
    install(s, MODULE)
    s.words['LOAD'] = f'load_module {file(s)};'
    s.configure()


# dlopen() looks for the name among those that are loaded, and the cycle before
# still has it

@row('module: replaced by another version', '3 times with a reload each, over '
     'uploads: the old code goes on', prepare=from_copy)
def replaced(s):
    held = []
    for module in (OTHER, MODULE, OTHER):
        held.append(s.hold())
        install(s, module)
        s.reload_helper()
        s.load.more(20)
    is_(run_by(file(s), [s.helper(), *s.workers()]), False,
        'that of the start is run')
    for c in held:
        s.let_go(c)
    s.load.more(50)


@row('module: another version beside it', '3 times the one and the other, '
     'with a reload each, over uploads and a queue', load={'pause': 0.02})
def beside(s):
    held, pid = [], s.helper()
    for module in (OTHER, MODULE) * 3:
        held.append(s.hold())
        old = s.freeze(pid)
        s.load.more(20)
        pid = s.reload_helper(load=f'load_module {module};')
        is_(run_by(module, [pid, *s.workers()]), True, 'the new file is run')
        s.load.more(20)                     # read by the next one, not the old
        s.thaw(old)
    for c in held:
        s.let_go(c)
    s.helper()
    s.load.more(50)


@row('module: replaced by another version, and an upgrade', 'USR2, QUIT to '
     'the old, and back so', daemons=(True,), prepare=from_copy)
def upgraded(s):
    for module in (OTHER, MODULE):
        held, pid = s.hold(), s.freeze()
        s.load.more(20)
        install(s, module)
        old = s.new_binary()
        is_(run_by(file(s), [s.helper(), *s.workers()]), True,
            'the new file is run')
        s.load.more(50)
        s.thaw(pid)
        s.signal('QUIT', old)
        s.let_go(held)
        wait_gone(old)
        s.load.more(50)


@row('module: replaced by another version, helper kill -9', 'without a '
     'reload: the next helper is of the old one', prepare=from_copy,
     allow=KILLED)
def replaced_alone(s):
    install(s, OTHER)
    for _ in range(3):
        pid = s.freeze()
        s.load.more(50)
        s.signal('KILL', pid)
        is_(run_by(file(s), [s.new_helper(pid)]), False,
            'the old file is run')
        s.load.more(20)


with case('another version'):
    OTHER = another_version()
    run()
