#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Faults of processes: the helper, the workers, the master.

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from driver import *                        # noqa: E402,F403


@row('helper: kill -9', 'once', daemons=(False, True), allow=KILLED)
def helper_killed(s):
    pid = s.helper()
    s.signal('KILL', pid)
    s.new_helper(pid)
    s.load.more(100)


@row('worker: kill -9', 'with a queue that the helper has not read',
     cuts=True, drops=('aborted',), allow=KILLED)
def worker_killed(s):
    pid = s.freeze()
    s.load.more(200)
    s.signal('KILL', s.workers()[0])
    s.load.more(200)
    s.thaw(pid)
    s.load.more(100)


run()
