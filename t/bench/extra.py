"""The worker's extra time per request against one bare memcpy.

Rounds of: off, everything recorded, off, then memcpy.c on the worker's
processor: the same bytes into a ring of the same size and the window that the
ring takes at this load; once alone, once with a reader on another processor,
as the helper is one: its lines must come back from there.

And what of it passes within the module, by perf: the rest is what others leave
to this worker of caches, of memory and of the peers' time.
"""

import os
import statistics
import subprocess

import bodies
import cost
import hot
import stage
from variants import Set

QUEUE = 512 * 1024 * 1024
RINGS = 16                                # one worker's: 2 x 1 + 14
NAP = .01                                 # seconds in which a batch gathers


def window(size, per_second):
    """What stands in the ring at this rate, doubled as the ring does."""
    want, w = size * per_second * NAP * 2, 1 << 20
    while w < want and w < QUEUE // RINGS:
        w *= 2
    return min(w, QUEUE // RINGS)


def memcpy(size, w, reader=False):
    command = [stage.BUILD + '/memcpy', '-t', str(stage.quick(.3, .1))]
    if reader:
        command += ['-r', str(stage.REST[0])]
    command += [str(size), str(w), str(QUEUE // RINGS)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60,
        preexec_fn=lambda: os.sched_setaffinity(0, stage.CPUS[-1:])
        if not reader else os.sched_setaffinity(0, stage.CPUS))
    return float(done.stdout) / 1000


def run():
    rows = []
    with Set(['off', 'on']) as servers:
        for size in stage.quick(bodies.SIZES, (4096, 65536)):
            body = bodies.chat(size)
            more, off, bare, read, on_us = [], [], [], [], []
            w = 1 << 20
            for i in range(stage.quick(6, 2)):
                turns = cost.rounds(servers, ['on'], body, 1,
                                    stage.quick(.35, .15))
                for on in turns['on']:
                    around = (on['before']['worker']
                              + on['after']['worker']) / 2
                    more.append((on['worker'] - around) / 1000)
                    on_us.append(on['worker'] / 1000)
                    off.append(around / 1000)
                w = window(size, on['per_second'])
                bare.append(memcpy(size, w))
                read.append(memcpy(size, w, True)
                            if len(stage.CPUS) > 1 else bare[-1])
            row = {'size': size, 'window': w, 'off_us': stage.spread(off),
                   'more_us': stage.spread(more),
                   'memcpy_us': stage.spread(bare),
                   'read_us': stage.spread(read)}
            part = hot.share(servers.proxy['ours'].workers(),
                             lambda: servers.turn('on', body,
                                                  stage.quick(3, 1)))
            row['within_us'] = part and part * statistics.median(on_us)
            row['allowed_us'] = statistics.median(bare) * 1.15 + .7
            rows.append(row)
            stage.say(f"extra: {bodies.NAMES[size]:>6} "
                      f"{row['more_us']['median']:8.2f} us more, within "
                      f"{row['within_us'] or 0:8.2f}, memcpy "
                      f"{row['memcpy_us']['median']:8.2f}, read by another "
                      f"{row['read_us']['median']:8.2f}, allowed "
                      f"{row['allowed_us']:8.2f}")
    why = servers.sums.get('on')
    return {'rows': rows, 'why': [why] if why else []}
