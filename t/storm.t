#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# All at once: helpers killed at any moment, workers killed, reloads, USR1,
# under traffic.  What nginx answered 200 to is there, and once: each request
# is answered only after its last byte was taken.

import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from life import *                          # noqa: E402,F403
from llmcapture import *                    # noqa: E402,F403

seed = int(os.environ.get('LLM_CAPTURE_SEED') or random.randrange(2 ** 32))
steps = int(os.environ.get('LLM_CAPTURE_STEPS') or 80)
rand = random.Random(seed)
diag(f'LLM_CAPTURE_SEED={seed} LLM_CAPTURE_STEPS={steps}')


class Storm(Life):
    files = 0

    def __init__(self):
        # a worker respawned between USR1 and what the master does about it
        # opens the log before its owner was changed: nginx's own
        super().__init__(allow=KILLED + r'|error\.log" failed \(13')
        self.answered = set()

    def post(self, n):
        """n requests, of which some may fail as their worker is killed."""
        left = n
        while left:
            try:
                with Connection(self.port) as c:
                    while left:
                        left -= 1
                        self.sent += 1
                        data = body(self.sent)
                        c.head(PATH, len(data))
                        c.send(data)
                        if c.response().status != 200:
                            break
                        self.answered.add(self.sent)
            except (OSError, ValueError, IndexError):
                pass

    def strike(self, pids):
        for pid in pids:
            try:
                self.signal('KILL', pid)
            except ProcessLookupError:
                pass                    # another stroke, or a reload

    def kill_helper(self):
        self.strike(self.helpers())

    def kill_worker(self):
        self.strike(self.workers()[:1])

    def hup(self):
        self.signal('HUP')

    def usr1(self):
        self.files += 1
        try:
            os.rename(self.path('completions'),
                      self.path(f'old.{self.files}.jsonl'))
        except FileNotFoundError:
            pass
        self.signal('USR1')

    def both(self):
        self.kill_helper()
        self.kill_worker()

    def step(self):
        self.post(rand.randrange(1, 120))
        rand.choices((self.kill_helper, self.kill_worker, self.hup,
                      self.usr1, self.both), (8, 3, 5, 3, 1))[0]()
        self.post(rand.randrange(0, 40))


with case('a storm'), Storm() as ng:
    for _ in range(steps):
        ng.step()

    wait_for(lambda: len(ng.workers()) == 2, 'two workers')
    ng.helper()
    ng.post(100)
    ng.quit(60)

    rows = []
    for name in os.listdir(ng.dir + '/capture'):
        if name.endswith('.jsonl'):
            rows += ng.numbers(name)

    ok(len(rows) == len(set(rows)), 'none is there twice',
       sorted(n for n in set(rows) if rows.count(n) > 1)[:20])
    missing = ng.answered - set(rows)
    ok(not missing, f'all {len(ng.answered)} that were answered are there',
       sorted(missing)[:20])
    ok(set(rows) <= set(range(1, ng.sent + 1)), 'and nothing else')

    row = ng.counters()
    is_((row['recorded'], row['pending'], row['lost'], row['uncertain']),
        (len(rows), 0, 0, 0), 'the counters agree')
