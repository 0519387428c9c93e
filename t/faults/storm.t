#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The storm at scale: minutes of many requests, while the helper is killed and
# the configuration loaded anew without a break.
#
# With LLM_CAPTURE_LONG alone.

import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from driver import *                        # noqa: E402,F403
from crowd import Crowd                     # noqa: E402
from tap import skip_all                    # noqa: E402

RATE, SECONDS = 2000, 180

if not LONG:
    skip_all('LLM_CAPTURE_LONG is not set')


@row('storm: helper kill -9, reloads', f'without a break, for {SECONDS} s of '
     f'{RATE} requests a second', length=1000, allow=KILLED)
def storm(s):
    s.load.stop()
    crowd, end, n = Crowd(s, RATE), time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        pid = s.helper()
        s.signal('KILL', pid)
        s.new_helper(pid)
        s.reload()
        n += 1
    crowd.stop()
    diag(f'{n} times, {s.ledger.sent / SECONDS:.0f} requests a second')
    s.helper()


run()
