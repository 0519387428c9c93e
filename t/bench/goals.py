"""The goals, each beside its figure of the run: (what, goal, figure, met)."""

import statistics

from bodies import NAMES


def median(spread):
    return spread['median']


def sizes(plan):
    return {int(n): rows for n, rows in plan['sizes'].items()}


def cost(r):
    plan = sizes(r['plans'][0])
    for size, limit in ((4096, 1.05), (65536, 1.2), (262144, 1.3),
                        (1048576, 1.3)):
        if size in plan:
            row = plan[size]['on']
            n = median(row['ratio'])
            yield (f'worker, all recorded, {NAMES[size]}, against off',
                   f'<= {limit:.2f}', f'{n:.3f}',
                   n <= limit and not row['why'])
    for name, text in (('sampled_out', 'sampled out'),
                       ('unmatched', 'unmatched'),
                       ('too_large', 'too large by Content-Length')):
        each = [median(rows[name]['ratio']) for rows in plan.values()]
        n = statistics.median(each)
        yield (f'worker, {text}, against off, median of the sizes', '<= 1.01',
               f'{n:.3f} ({min(each):.3f} to {max(each):.3f})', n <= 1.01)


def instructions(r):
    for name, text in (('sampled_out', 'sampled out'),
                       ('unmatched', 'unmatched'),
                       ('too_large', 'too large by Content-Length')):
        worst = max((row for row in r['rows'] if row['variant'] == name),
                    key=lambda row: row['more'])
        yield (f'instructions more than off, {text}', '<= 500',
               f"{worst['more']:.0f} ({worst['own']:.0f} in the module)",
               worst['more'] <= 500)


def extra(r):
    for row in r['rows']:
        n = median(row['more_us'])
        yield (f"worker's extra time, {NAMES[row['size']]}",
               f"<= memcpy x 1.15 + 0.7 = {row['allowed_us']:.2f} us",
               f'{n:.2f} us' + (f", {row['within_us']:.2f} in the module"
                                if row['within_us'] else ''), n <= row['allowed_us'] and not r['why'])


def stream(r):
    n = median(r['outcome']['ratio'])
    yield (f"worker, outcome of a stream of {r['events']} events, against off",
           '<= 1.10', f'{n:.3f}', n <= 1.1 and not r['why'])


def latency(r):
    for row in r['rows']:
        on = row['variants']['on']
        n = median(on['ratio_p99'])
        yield (f"p99 at half of saturation, {row['protocol']}, "
               f"{NAMES[row['size']]}, against off", '<= 1.05', f'{n:.3f}',
               n <= 1.05 and not on['why'])


def helper(r):
    for row in r['rows']:
        if row['size'] == 65536:
            n = median(row['drain'])
            yield (f"helper, 64 KB bodies, {row['fs']}", '>= 1.0 GB/s',
                   f'{n:.2f} GB/s', n >= 1)
            n = median(row['share'])
            yield (f"the same against a plain writev, {row['fs']}", '>= 50 %',
                   f'{n:.0%}'.replace('%', ' %'), n >= .5)
        elif row['size'] == 4096:
            n = median(row['per_second'])
            yield (f"helper, 4 KB bodies, {row['fs']}", '>= 200 000 a second',
                   f'{n:,.0f}'.replace(',', ' '), n >= 200000)


def parse(r):
    for kind in dict.fromkeys(row['kind'] for row in r['rows']):
        rows = [row for row in r['rows'] if row['kind'] == kind]
        worst = min(rows, key=lambda row: median(row['ratio']))
        n = median(worst['ratio'])
        yield (f'strict scan, {kind}, against simdjson, the worst size '
               f"({NAMES[worst['size']]})", '>= 1', f'{n:.2f}',
               n >= 1 and not worst['refused'])


def lag(r):
    rows = [row for row in r['rows'] if row['load'] != '20 a second']
    for row in rows:
        yield (f"lag, {NAMES[row['size']]}, {row['load']}, p99", '<= 100 ms',
               f"{row['p99']:.0f} ms", row['p99'] <= 100 and not row['why'])


def memory(r):
    n = r['idle']['worker']['wakeups']
    yield 'idle worker, wake-ups a second', '0', f'{n:.2f}', n == 0
    n = r['idle']['helper']['wakeups']
    yield 'idle helper, wake-ups a second', '<= 1', f'{n:.2f}', n <= 1
    table = r['stall']['table']
    rest, after = table['rest']['total'], table['after']['total']
    yield ('resident after a drained stall, against rest', '<= 1.10',
           f'{after / rest:.2f} ({rest / 1024:.1f} and {after / 1024:.1f} MiB)'
           + (f", after {r['stall']['back_after']:.0f} s"
              if r['stall']['back_after'] else ''),
           after <= rest * 1.1 and not r['stall']['why'])
    silent = table['silent']['total']
    yield ('the same, without a request since', '<= 1.10',
           f'{silent / rest:.2f}', silent <= rest * 1.1)
    n = r['ceiling']['more'] / 1024
    yield ('a queue of 1 GiB at low load, resident more', '< 8 MiB',
           f'{n:.1f} MiB', n < 8)


def growth(r):
    for what, row in r['flat'].items():
        rows = [x for x in r['rows'] if x['what'] == what]
        more = row['last_us'] - row['first_us']
        yield (f"{what}, {rows[0]['n']} to {rows[-1]['n']}: extra time of a "
               'request', f"flat within noise ({row['noise_us']:.1f} us)",
               f"{row['first_us']:.1f} to {row['last_us']:.1f} us",
               more <= row['noise_us'] and not any(x['why'] for x in rows))


PARTS = {'cost': cost, 'instructions': instructions, 'extra': extra,
         'stream': stream, 'latency': latency, 'helper': helper, 'parse': parse, 'lag': lag,
         'memory': memory, 'growth': growth}


def rows(results):
    for name, part in PARTS.items():
        if name in results:
            yield from part(results[name])
        else:
            yield name, 'not run', '-', None
