"""Latency at half the load that saturates `off`: open loop, even distances.

A latency counts from when its request was due, so one that waits for a free
connection waits in the figures too (as wrk2 does).  Pairs of turns, `off`
before and after each.
"""

import bodies
import cost
import stage
from variants import Set

NAMES = ['on', 'access_log', 'lua', 'mirror']
KEYS = ('p50', 'p99', 'p999', 'max')
CONNECTIONS = 32


def saturation(servers, body, h2):
    """Requests per second of `off`, connections as in the turns."""
    found = [servers.turn('off', body, stage.quick(1, .3), h2=h2,
                          connections=CONNECTIONS)['per_second']
             for _ in range(3)]
    return sorted(found)[1]


def summary(turns):
    row = {k: stage.spread([t[k] for t in turns]) for k in KEYS}
    for k in KEYS:
        row['ratio_' + k] = stage.spread(cost.ratios(turns, k))
    row['us'] = stage.spread([t['worker'] / 1000 for t in turns])
    row['requests'] = sum(t['requests'] for t in turns)
    row['why'] = sorted({t['why'] for t in turns if t.get('why')})
    return row


def run():
    seconds = stage.quick(1, .4)
    rows = []
    for h2 in (False, True):
        with Set(['off', *NAMES]) as servers:
            for size in stage.quick((4096, 65536), (4096,)):
                body = bodies.chat(size)
                rate = saturation(servers, body, h2) / 2
                turns = cost.rounds(servers, NAMES, body, stage.quick(3, 1),
                                    seconds, h2=h2, rate=rate,
                                    connections=CONNECTIONS)
                row = {'protocol': 'HTTP/2' if h2 else 'HTTP/1.1',
                       'size': size, 'rate': rate,
                       'variants': {n: summary(t) for n, t in turns.items()}}
                rows.append(row)
                show(row)
        for name, bad in servers.sums.items():
            if bad:
                stage.say(f'{name}: {bad}')
                for row in rows:
                    row['variants'][name]['why'].append(bad)
    return {'rows': rows, 'seconds': seconds, 'connections': CONNECTIONS}


def show(row):
    stage.say(f"latency: {row['protocol']}, {bodies.NAMES[row['size']]}, "
              f"{row['rate']:.0f} a second")
    for name, v in row['variants'].items():
        stage.say(f'{name:>12} ' + ' '.join(
            f"{k} {v[k]['median']:8.0f} ({v['ratio_' + k]['median']:.3f})"
            for k in KEYS), ', '.join(v['why']))
