#
# Copyright (C) the llm-capture authors
#
# A wall clock that is stepped under a running nginx.
#
#     clock = Clock(s)                in prepare, before nginx starts
#     clock.set(60)                   a minute ahead from now on

import mmap
import os
import struct

from disk import library


class Clock:
    def __init__(self, stage):
        path = stage.dir + '/clock'
        with open(path, 'w+b') as f:
            f.truncate(8)
            self.map = mmap.mmap(f.fileno(), 0)
        asan = os.environ.get('ASAN_OPTIONS', '')
        stage.spawn['env'] = dict(
            os.environ, LD_PRELOAD=library('clock'), LLM_CAPTURE_CLOCK=path,
            ASAN_OPTIONS=f'{asan}:verify_asan_link_order=0')
        stage.clock = self

    def set(self, seconds):
        struct.pack_into('l', self.map, 0, seconds)
