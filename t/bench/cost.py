"""What each variant costs: processor time and throughput at saturation.

Turns of the variants alternate, with turns of `off` between them in pairs;
a ratio is that of a turn to the mean of the turns of `off` around it.
"""

import random

import bodies
import stage
from variants import DROPS, NOTHING, TEXT, Set, missing

FULL = ['on', 'sampled', 'sampled_out', 'unmatched', 'too_large', 'full',
        'slow', 'none', 'access_log', 'lua', 'njs', 'mirror', 'goreplay']
FEW = ['on', 'unmatched', 'access_log', 'lua', 'mirror']

SLOW_ROUNDS = 2                 # of GoReplay, which needs seconds to end

# protocol, workers, sizes, variants, rounds (full, short)
PLANS = [
    ('HTTP/1.1', 1, bodies.SIZES, FULL, (5, 1)),
    ('HTTP/2', 1, bodies.SIZES, FEW, (3, 1)),
    ('HTTP/1.1', 2, (4096, 65536, 1048576), FEW, (3, 1)),
    ('HTTP/2', 2, (4096, 65536, 1048576), FEW, (3, 1)),
]


def order(names, rng):
    """off, two of them, off, two of them..., off; what matters twice"""
    names = [*names, 'on']
    rng.shuffle(names)
    turns = ['off']
    for i in range(0, len(names), 2):
        turns += names[i:i + 2] + ['off']
    return turns


def rounds(servers, names, body, count, seconds, **load):
    """Turns of each variant, those of off around them noted in each."""
    rng = random.Random(1)
    turns = {name: [] for name in ['off', *names]}
    for name in ['off', *names]:            # warm, and not counted
        if name != 'goreplay':              # starts anew each time
            servers.turn(name, body, seconds / 3, **load)
    for i in range(count):
        after = []
        last = None
        for name in order([n for n in names
                           if n != 'goreplay' or i < SLOW_ROUNDS], rng):
            done = servers.turn(name, body, seconds, **load)
            turns[name].append(done)
            if name == 'off':
                for other in after:
                    other['after'] = done
                after, last = [], done
            else:
                done['before'] = last
                after.append(done)
    return turns


def ratios(turns, what):
    """off to off: the turns' own scatter."""
    if 'before' not in turns[0]:
        values = [t[what] for t in turns]
        return [b * 2 / (a + c) for a, b, c in
                zip(values, values[1:], values[2:])] or [1.0]
    return stage.paired([t[what] for t in turns],
                        [t['before'][what] for t in turns],
                        [t['after'][what] for t in turns])


def summary(name, turns, size):
    row = {'us': stage.spread([t['worker'] / 1000 for t in turns]),
           'ratio': stage.spread(ratios(turns, 'worker')),
           'per_second': stage.spread([t['per_second'] for t in turns]),
           'other_us': stage.spread([t['other'] / 1000 for t in turns]),
           'busy': stage.spread([t['worker'] * t['per_second'] / 1e9
                                 for t in turns]),
           'requests': sum(t['requests'] for t in turns),
           'why': sorted({t['why'] for t in turns if t.get('why')})}
    if 'before' in turns[0]:
        row['more_us'] = stage.spread([
            (t['worker'] - (t['before']['worker'] + t['after']['worker']) / 2)
            / 1000 for t in turns])
    kept = [t for t in turns if t.get('recorded')]
    if kept and name not in NOTHING:
        row['recorded'] = sum(t['recorded'] for t in kept)
        row['other_us_per_mb'] = stage.spread([
            t['other'] / 1000 * t['requests'] / (t['recorded'] * size / 1e6)
            for t in kept])
    return row


def run():
    seconds = stage.quick(.35, .15)
    plans = []
    for protocol, workers, sizes, names, count in PLANS:
        if stage.SHORT:
            sizes = [s for s in sizes if s in (4096, 65536)]
        absent = {n: missing(n) for n in names if missing(n)}
        names = [n for n in names if n not in absent]
        plan = {'protocol': protocol, 'workers': workers, 'sizes': {},
                'absent': absent}
        with Set(['off', *names], workers) as servers:
            for size in sizes:
                stage.say(f'cost: {protocol}, {workers} worker, '
                          f'{bodies.NAMES[size]}')
                turns = rounds(servers, names, bodies.chat(size),
                               stage.quick(*count), seconds,
                               h2=protocol == 'HTTP/2')
                plan['sizes'][size] = {name: summary(name, t, size)
                                       for name, t in turns.items()}
                show(plan['sizes'][size])
        plan['sums'] = servers.sums
        for name, bad in servers.sums.items():
            if bad:
                stage.say(f'{name}: {bad}')
                for rows in plan['sizes'].values():
                    rows[name]['why'].append(bad)
        plans.append(plan)
    return {'seconds': seconds, 'plans': plans}


def show(rows):
    stage.say(f"{'':>30} {'us':>8} {'ratio':>6} {'min':>6} {'max':>6} "
              f"{'req/s':>8} {'other us':>9}")
    for name, r in rows.items():
        stage.say(f"{TEXT[name]:>30} {r['us']['median']:8.1f} "
                  f"{r['ratio']['median']:6.3f} {r['ratio']['min']:6.3f} "
                  f"{r['ratio']['max']:6.3f} "
                  f"{r['per_second']['median']:8.0f} "
                  f"{r['other_us']['median']:9.1f}  {', '.join(r['why'])}"
                  + (' (drops)' if name in DROPS and not r['why'] else ''))
