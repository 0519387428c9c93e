"""The tables of docs/performance.md, from the results of the parts."""

import textwrap

import goals
from bodies import NAMES
from variants import NOTHING, TEXT


def table(head, rows):
    lines = ['| ' + ' | '.join(head) + ' |',
             '|' + '|'.join('---' if i == 0 else '--:'
                            for i in range(len(head))) + '|']
    lines += ['| ' + ' | '.join(str(c) for c in row) + ' |' for row in rows]
    return '\n'.join(lines)


def span(s, digits=2):
    """median (min to max)"""
    return (f"{s['median']:.{digits}f} ({s['min']:.{digits}f} to "
            f"{s['max']:.{digits}f})")


def machine(results):
    m = next(iter(results.values()))['machine']
    p = m['packages']
    words = [
        f"{m['cpu']}, {m['cores']} cores" +
        (' of a virtual machine' if m['virtual'] else ''),
        f"{m['vectors']}, {m['memory']} of memory",
        f"Linux {m['kernel']}", m['nginx'].replace('nginx version: ', ''),
        m['compiler'],
        f"capture files on {m['fs']['tmpfs']}, where said on "
        f"{m['fs']['disk']}",
        f"simdjson {p['libsimdjson-dev']}, jansson {p['libjansson-dev']}, "
        f"lua {p['libnginx-mod-http-lua']}, njs {p['libnginx-mod-http-js']}, "
        'GoReplay 1.3.2', f"commit {m['commit']}, {m['when']}",
    ]
    text = textwrap.fill('; '.join(words) + '.', 79)
    busy = max(r['machine']['load'] for r in results.values())
    if any(r['short'] for r in results.values()):
        text += '\n\n**A short run: its figures say nothing.**'
    return text + f'\n\nLoad average at the end of a part, at most {busy:.1f}.'


def met(results):
    return table(('what', 'goal', 'this run', 'met'), [
        (what, goal, figure,
         {True: 'yes', False: '**no**', None: '-'}[ok])
        for what, goal, figure, ok in goals.rows(results)])


def cost_rows(plan):
    """A row per variant: its ratio by size."""
    for name in next(iter(plan['sizes'].values())):
        row, why = [TEXT[name]], []
        for n, rows in plan['sizes'].items():
            r = rows[name]
            row.append(span(r['ratio']) if not r['why']
                       else f"~~{r['ratio']['median']:.2f}~~")
            why += [f'{NAMES[int(n)]}: {text}' for text in r['why'][:1]]
        none = '-' if name in NOTHING - {'full'} else \
            'not looked at' if name == 'mirror' else 'whole'
        row.append('; '.join(dict.fromkeys(why)) or none)
        yield row
    for name, why in plan['absent'].items():
        yield [TEXT[name]] + ['-'] * len(plan['sizes']) + [why]


def cost(r):
    parts = []
    for plan in r['plans']:
        names = [NAMES[int(n)] for n in plan['sizes']]
        parts.append(f"{plan['protocol']}, {plan['workers']} "
                     f"worker{'s' if plan['workers'] > 1 else ''}\n")
        parts.append(table(['variant', *names, 'records'], cost_rows(plan)))
        parts.append('')
    return '\n'.join(parts)


def absolute(r):
    """Microseconds of the worker and of others, and throughput."""
    plan = r['plans'][0]
    rows = []
    for n, variants in plan['sizes'].items():
        for name, v in variants.items():
            rows.append((NAMES[int(n)], TEXT[name],
                         f"{v['us']['median']:.1f}",
                         f"{v['other_us']['median']:.1f}",
                         f"{v['other_us_per_mb']['median']:.0f}"
                         if 'other_us_per_mb' in v else '-',
                         f"{v['per_second']['median']:.0f}",
                         f"{v['busy']['median']:.0%}".replace('%', ' %')))
    return table(('body', 'variant', 'worker, us', 'others, us',
                  'others, us per MB recorded', 'requests a second',
                  'worker busy'), rows)


def instructions(r):
    return table(('body', 'variant', 'instructions', 'more than off',
                  'in the module'), [
        (NAMES[x['size']], TEXT[x['variant']], f"{x['instructions']:.0f}",
         f"{x['more']:.0f}", f"{x['own']:.0f}") for x in r['rows']])


def extra(r):
    return table(('body', 'worker, more than off, us',
                  'of it within the module, us', 'memcpy alone, us',
                  'memcpy, read by another core, us',
                  'memcpy x 1.15 + 0.7, us', 'window, MiB'), [
        (NAMES[x['size']], span(x['more_us']),
         f"{x['within_us']:.2f}" if x['within_us'] else 'no perf',
         span(x['memcpy_us']), span(x['read_us']),
         f"{x['allowed_us']:.2f}",
         f"{x['window'] / 2 ** 20:.0f}") for x in r['rows']])


def stream(r):
    return table(('variant', 'worker, us an answer', 'against off'), [
        ('off', span(r['off_us'], 0), '-'),
        ('request recorded', span(r['on']['us'], 0), span(r['on']['ratio'])),
        ('request and outcome', span(r['outcome']['us'], 0),
         span(r['outcome']['ratio']))])


def latency(r):
    rows = []
    for x in r['rows']:
        for name, v in x['variants'].items():
            rows.append((f"{x['protocol']}, {NAMES[x['size']]}, "
                         f"{x['rate']:.0f} a second", TEXT[name],
                         *(f"{v[k]['median']:.0f}"
                           for k in ('p50', 'p99', 'p999', 'max')),
                         span(v['ratio_p50']), span(v['ratio_p99']),
                         '; '.join(v['why']) or
                         ('-' if name in NOTHING else 'whole')))
    return table(('load', 'variant', 'p50, us', 'p99', 'p999', 'max',
                  'p50 / off', 'p99 / off', 'records'), rows)


def lag(r):
    return table(('body', 'load', 'requests a second', 'p50, ms', 'p99',
                  'max', 'records'), [
        (NAMES[x['size']], x['load'], f"{x['per_second']:.0f}",
         f"{x['p50']:.1f}", f"{x['p99']:.1f}", f"{x['max']:.1f}",
         '; '.join(x['why']) or 'all') for x in r['rows']])


def memory(r):
    def mib(kb):
        return f'{kb / 1024:.1f}'
    names = {'rest': 'at rest', 'load': 'under load, 500 x 64 KB a second',
             'stall': f"helper stopped for {r['stall']['stalled_for']} s, "
             'queue full', 'drained': 'just drained',
             'silent': '12 s later, without a request',
             'after': 'then, with 5 requests a second'}
    return table(('when', 'all processes, MiB', 'of it shared',
                  'worker, resident', 'helper, resident', 'master, resident'),
                 [(names[k], mib(x['total']), mib(x['shared']),
                   mib(x['worker']['rss']), mib(x['helper']['rss']),
                   mib(x['master']['rss']))
                  for k, x in r['stall']['table'].items()])


def idle(r):
    return table(('idle', 'wake-ups a second', 'CPU, us a second'), [
        (k, f"{v['wakeups']:.2f}", f"{v['cpu_us']:.0f}")
        for k, v in r['idle'].items()])


def helper(r):
    return table(('file system', 'body', 'drain, GB/s', 'plain writev, GB/s',
                  'of writev', 'scan alone, GB/s', 'records a second'), [
        (x['fs'], NAMES[x['size']], span(x['drain']), span(x['writev']),
         f"{x['share']['median']:.0%}".replace('%', ' %'),
         span(x['scan'], 1), f"{x['per_second']['median']:.0f}")
        for x in r['rows']])


def parse(r):
    parsers = list(r['rows'][0]['speed'])
    rows = [(x['kind'], NAMES[x['size']],
             *(f"{x['speed'][p]['median']:.2f}" if p not in x['refused']
               else 'refused' for p in parsers), span(x['ratio']))
            for x in r['rows']]
    text = table(('bodies', 'size', *parsers, 'scan / simdjson'), rows)
    version = r['kernels']['yyjson']
    return text + ('\n\n' + (f'yyjson {version}, in place.' if version
                              else 'yyjson could not be had here.'))


def hot(r):
    """What of the module, of copying and of the kernel's top stands out."""
    if r['missing']:
        return r['missing']
    rows = []
    for x in r['rows']:
        rows.append((NAMES[x['size']],
                     TEXT.get(x['variant'], x['variant']), x['process'],
                     ', '.join(f'`{symbol}` {share:.0f} %'
                               for share, _, symbol in x['top'][:8])))
    return table(('body', 'variant', 'process', 'top of the profile'), rows)


def growth(r):
    return table(('of what', 'how many', 'off, us', 'more, us', 'on / off',
                  'helper, us a record', 'records'), [
        (x['what'], x['n'], f"{x['off_us']['median']:.1f}",
         span(x['more_us'], 1), span(x['ratio']),
         f"{x['helper_us']['median']:.1f}", '; '.join(x['why']) or 'all')
        for x in r['rows']])


# name in the template: the part, and what makes the text of it
TABLES = {'cost': ('cost', cost), 'absolute': ('cost', absolute),
          'instructions': ('instructions', instructions),
          'extra': ('extra', extra), 'stream': ('stream', stream),
          'latency': ('latency', latency),
          'lag': ('lag', lag), 'memory': ('memory', memory),
          'idle': ('memory', idle), 'helper': ('helper', helper),
          'parse': ('parse', parse), 'growth': ('growth', growth),
          'hot': ('hot', hot)}
