#
# Copyright (C) the llm-capture authors
#
# The build whose helper stops at named points, and whose rules can be broken.
#
#     with Points() as points:
#         points.arm('after intent', 3)      # dies there, the third time
#         with points.broken('intent'): ...  # one who starts now has no intent
#
# Both come by the environment, which nginx hands on to its workers where
# PASS stands in the configuration.

import mmap
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
from contextlib import contextmanager

import llmcapture
from llmcapture import NGINX, TOP, wait_for

TREE = os.path.join(TOP, 'build/points/nginx')
OBJECT = 'objs/ngx_http_llm_capture_module.so'
MODULE = os.path.join(TREE, OBJECT)
SRC = os.environ.get('LLM_CAPTURE_NGINX_SRC') or '/usr/share/nginx/src'

PASS = 'env LLM_CAPTURE_POINT; env LLM_CAPTURE_BROKEN;'

SLOT = struct.Struct('56sII')
SLOTS = 4


def names(macro):
    """What stands in NGX_HTTP_LLM_CAPTURE_macro("..."), in all of src/."""
    found = []
    for name in sorted(os.listdir(TOP + '/src')):
        if name.endswith('.c'):
            with open(f'{TOP}/src/{name}') as f:
                found += re.findall(rf'NGX_HTTP_LLM_CAPTURE_{macro}'
                                    r'\("(.*?)"\)', f.read())
    return list(dict.fromkeys(found))


def build(tree=TREE, top=TOP, opt='-DNGX_HTTP_LLM_CAPTURE_POINTS'):
    """As the Makefile builds, into a tree; nothing to do: at once."""
    opt = os.environ.get('CC_OPT', '-g -O2') + ' ' + opt
    words = f'{SRC} {NGINX} {opt}'
    by = [os.path.join(top, name)
          for name in ('config', 'config.make', 'misc/configure.sh')]
    made = tree + '/configured-for'
    outer = {'MAKEFLAGS': '', 'MAKELEVEL': '0', 'MFLAGS': ''}
    env = dict(os.environ, **outer, CC_OPT=opt)

    if not (os.path.exists(made) and open(made).read() == words and all(
            os.stat(name).st_mtime < os.stat(made).st_mtime for name in by)):
        subprocess.run([by[-1], SRC, NGINX, tree], env=env, check=True,
                       stdout=subprocess.DEVNULL)
        with open(made, 'w') as f:
            f.write(words)
    subprocess.run(['make', '-s', '-C', tree, '-f', 'objs/Makefile',
                    'modules'], env=env, check=True,
                   stdout=subprocess.DEVNULL)
    return os.path.join(tree, OBJECT)


class Points:
    rule = None                         # that is broken

    def __enter__(self):
        llmcapture.MODULE = build()
        self.dir = tempfile.mkdtemp(prefix='llm-capture-points-')
        os.chmod(self.dir, 0o755)
        path = self.dir + '/points'
        with open(path, 'w+b') as f:
            f.write(bytes(SLOT.size * SLOTS))
            f.flush()
            self.map = mmap.mmap(f.fileno(), 0)
        os.chmod(path, 0o666)
        os.environ['LLM_CAPTURE_POINT'] = path
        return self

    def __exit__(self, *exc):
        del os.environ['LLM_CAPTURE_POINT']
        shutil.rmtree(self.dir)

    def arm(self, name, times=1, slot=0, sig='KILL'):
        """Who gets there for that time gets the signal."""
        SLOT.pack_into(self.map, slot * SLOT.size, name.encode(),
                       getattr(signal, 'SIG' + sig), times)

    def armed(self, slot=0):
        return SLOT.unpack_from(self.map, slot * SLOT.size)[2]

    def wait(self, name, slot=0, timeout=60):
        wait_for(lambda: not self.armed(slot), f'point "{name}"', timeout)

    @contextmanager
    def broken(self, rule):
        os.environ['LLM_CAPTURE_BROKEN'] = self.rule = rule
        try:
            yield
        finally:
            del os.environ['LLM_CAPTURE_BROKEN']
            self.rule = None


HEADERS = 32 + 48                       # of a frame, and of its BEGIN


def spoil(pid, text):
    """The frame whose path and body begin with text: has no size now."""
    with open(f'/proc/{pid}/maps') as f:
        spans = [[int(x, 16) for x in line.split()[0].split('-')]
                 for line in f if '/dev/zero' in line]
    begin, end = max(spans, key=lambda span: span[1] - span[0])
    with open(f'/proc/{pid}/mem', 'r+b', buffering=0) as mem:
        mem.seek(begin)
        at = mem.read(end - begin).find(text)
        if at < 0:
            raise ValueError('no such frame')
        mem.seek(begin + at - HEADERS)
        mem.write(bytes(4))
