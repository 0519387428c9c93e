#
# Copyright (C) the llm-capture authors
#
# A disk that fails when told to.
#
#     disk = Disk(s)                  in prepare, before nginx starts
#     disk.set(error=errno.EIO)
#     disk.set()                      well again

import mmap
import os
import shlex
import struct
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(HERE, '../../build/faults')


def library(name):
    """Built once, by whoever comes first."""
    source, path = f'{HERE}/{name}.c', os.path.abspath(f'{BUILD}/{name}.so')
    if not os.path.exists(path) or \
            os.path.getmtime(path) < os.path.getmtime(source):
        os.makedirs(BUILD, exist_ok=True)
        temp = f'{path}.{os.getpid()}'
        subprocess.run([*shlex.split(os.environ.get('CC', 'cc')), '-shared',
                        '-fPIC', '-O2', '-Wall', '-Wextra', '-o', temp,
                        source, '-ldl'], check=True)
        os.rename(temp, path)
    return path


class Disk:
    """
    error   errno of every `every`-th write; 0: none
    most    bytes that a write takes
    delay   us of each
    cut     errno of ftruncate()
    """

    SETTINGS = ('error', 'every', 'most', 'delay', 'cut')
    COUNTS = ('writes', 'failed', 'shortened', 'uncut')

    def __init__(self, stage):
        path = stage.dir + '/disk'
        with open(path, 'w+b') as f:
            f.truncate(8 * len(self.SETTINGS + self.COUNTS))
            self.map = mmap.mmap(f.fileno(), 0)
        self.set()
        asan = os.environ.get('ASAN_OPTIONS', '')
        stage.spawn['env'] = dict(
            os.environ, LD_PRELOAD=library('disk'), LLM_CAPTURE_DISK=path,
            ASAN_OPTIONS=f'{asan}:verify_asan_link_order=0')
        stage.disk = self

    def set(self, **what):
        """Of one call of the library and the next, as long as nothing else."""
        what = {'every': 1, **what}
        for i, name in enumerate(self.SETTINGS):
            struct.pack_into('l', self.map, 8 * i, what.get(name, 0))

    def count(self, name):
        at = 8 * (len(self.SETTINGS) + self.COUNTS.index(name))
        return struct.unpack_from('l', self.map, at)[0]
