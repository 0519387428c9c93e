"""Resident memory of each process over a stall of the helper; idle wake-ups.

Shared pages are counted once, by /proc/PID/smaps_rollup's proportional set.
The capture file is on the disk here: files on tmpfs would look like memory.
"""

import os
import subprocess
import time

import bodies
import stage
from variants import EVERY, OURS, place

SILENT = 12                     # pages are given back in steps of 10 s


def rollup(pid):
    found = {}
    with open(f'/proc/{pid}/smaps_rollup') as f:
        for line in f:
            words = line.split()
            if words[-1] == 'kB':
                found[words[0].rstrip(':')] = int(words[1])
    return found


def look(p):
    """kB: of each kind of process, and all of it together."""
    row = {'at': time.monotonic()}
    total = shared = 0
    for pid in [p.master] + p.children():
        r = rollup(pid)
        total += r['Pss']
        shared += r['Pss_Shmem']
        name = 'worker' if pid in p.workers() else \
            'master' if pid == p.master else 'helper'
        row[name] = {'rss': r['Rss'], 'shmem': stage.status(pid, 'RssShmem')}
    row.update(total=total, shared=shared)
    return row


def proxy(up, queue):
    return stage.Proxy(up, workers=1, http=OURS, queue=queue,
                       server=place('on', EVERY), prefix=stage.BUILD)


def clear(p):
    if os.path.exists(p.file('on.jsonl')):
        os.truncate(p.file('on.jsonl'), 0)


def watch(p, seconds, series, mark):
    """A look each second."""
    end = time.monotonic() + seconds
    while True:
        row = look(p)
        row['phase'] = mark
        series.append(row)
        if time.monotonic() >= end:
            return row
        time.sleep(min(1, max(0, end - time.monotonic())))


def trickle(p, table, series):
    """Some requests a second; the seconds until it is as at rest, or None."""
    limit = stage.quick(30, 25)
    _, command = stage.load_command(p.port, '/on/x', bodies.chat(4096), limit,
                                    rate=5)
    load = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, preexec_fn=stage.rest)
    start = time.monotonic()
    back = None
    while load.poll() is None:
        table['after'] = row = watch(p, 1, series, 'few requests')
        if back is None and row['total'] <= table['rest']['total'] * 1.1:
            back = row['at'] - start
            load.terminate()
    load.wait()
    stage.quiet(p.helpers)
    return back


def stall(up):
    body = bodies.chat(65536)
    series, table = [], {}
    hold = stage.quick(60, 3)
    with proxy(up, '256m') as p:
        # one worker has one of 16 rings, of which it goes through a window of
        # 1 MiB whatever the load: at rest it has been through that once
        stage.load(p.port, '/on/x', bodies.chat(4096), 4, rate=100)
        stage.quiet(p.helpers)
        table['rest'] = watch(p, 2, series, 'rest')
        stage.load(p.port, '/on/x', body, 2, rate=500)
        table['load'] = watch(p, 0, series, 'load')
        stage.quiet(p.helpers)
        clear(p)
        helper = p.helper()
        p.signal('STOP', helper)
        try:
            done = stage.load(p.port, '/on/x', body, 1)
            table['stall'] = watch(p, hold, series, 'stall')
        finally:
            p.signal('CONT', helper)
        stage.quiet(p.helpers)
        table['drained'] = watch(p, 0, series, 'drained')
        # no request at all, then few
        table['silent'] = watch(p, SILENT, series, 'silent')
        back = trickle(p, table, series)
        p.close()
        sums = p.counters(p.file('on.jsonl'))
    start = series[0]['at']
    for row in series:
        row['at'] = round(row['at'] - start, 2)
    good = sums['seen'] == sums['recorded'] + sums['queue_full'] \
        and sums['queue_full'] > 0
    return {'table': table, 'series': series, 'back_after': back,
            'stalled_for': hold, 'sent_in_stall': done['requests'],
            'recorded': sums['recorded'], 'queue_full': sums['queue_full'],
            'why': [] if good else [str(sums)]}


def ceiling(up):
    """What a queue of 1 GiB costs that is never filled."""
    with proxy(up, '1g') as p:
        before = look(p)
        stage.load(p.port, '/on/x', bodies.chat(4096), stage.quick(15, 3),
                   rate=100)
        stage.quiet(p.helpers)
        after = look(p)
    return {'before': before, 'after': after, 'shared': after['shared'],
            'more': after['total'] - before['total']}


def idle(up):
    with proxy(up, '256m') as p:
        stage.load(p.port, '/on/x', bodies.chat(4096), .5, rate=100)
        stage.quiet(p.helpers)
        # a keep-alive connection to the upstream may still be closed once
        seconds = stage.quick(15, 4)
        time.sleep(1)
        pids = {'worker': p.workers()[0], 'helper': p.helper()}
        before = {k: (stage.switches(v), stage.cpu([v]))
                  for k, v in pids.items()}
        time.sleep(seconds)
        return {k: {'wakeups': (stage.switches(v) - before[k][0]) / seconds,
                    'cpu_us': (stage.cpu([v]) - before[k][1]) / seconds / 1e3}
                for k, v in pids.items()}


def run():
    with stage.back() as up:
        result = {'idle': idle(up), 'ceiling': ceiling(up),
                  'stall': stall(up)}
    for name, row in result['stall']['table'].items():
        stage.say(f"memory: {name:>8} total {row['total'] / 1024:6.1f} MiB, "
                  f"shared {row['shared'] / 1024:6.1f} MiB, worker "
                  f"{row['worker']['rss'] / 1024:.1f}, helper "
                  f"{row['helper']['rss'] / 1024:.1f}")
    stage.say(f"memory: back after {result['stall']['back_after']} s; "
              f"{result['stall']['why'] or 'sums exact'}")
    stage.say(f"memory: 1 GiB costs {result['ceiling']['more'] / 1024:.1f} "
              f"MiB; idle {result['idle']}")
    return result
