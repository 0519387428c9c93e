"""The plots of docs/performance.md, SVG, from the results of the parts."""

import os

import matplotlib

matplotlib.use('svg')
matplotlib.rcParams.update({
    'svg.hashsalt': 'llm-capture', 'font.size': 9, 'axes.grid': True,
    'axes.axisbelow': True, 'grid.alpha': .3, 'figure.constrained_layout.use':
    True, 'axes.spines.top': False, 'axes.spines.right': False})

import matplotlib.pyplot as plt                              # noqa: E402

from bodies import NAMES                                     # noqa: E402
from variants import KIND, TEXT                                   # noqa: E402


def plain(name):
    return TEXT[name].replace('*', '').replace('`', '')


def cost(r):
    """The worker's time against off, by size."""
    sizes = {int(n): v for n, v in r['plans'][0]['sizes'].items()}
    names = [n for n in next(iter(sizes.values())) if n != 'off']
    figure, axes = plt.subplots(figsize=(8, 4.5))
    marks = iter('ovs^D' * 3)
    for i, name in enumerate(names):
        bad = any(v[name]['why'] for v in sizes.values())
        peer = KIND[name] in ('plain', 'script')
        axes.plot([NAMES[n] for n in sizes],
                  [v[name]['ratio']['median'] for v in sizes.values()],
                  marker=next(marks), color=f'C{i % 10}',
                  ls=':' if bad else '--' if peer else '-',
                  lw=3 if name == 'on' else 1,
                  label=plain(name) + (' (lost records)' if bad else ''))
    axes.set_yscale('log', base=2)
    axes.set_ylabel("worker's time / off")
    axes.yaxis.set_major_formatter('{x:g}')
    axes.legend(fontsize=7, loc='upper left', bbox_to_anchor=(1.02, 1))
    return figure


def latency(r):
    figure, axes = plt.subplots(1, len(r['rows']), squeeze=False,
                                figsize=(2.6 * len(r['rows']) + 1, 3.2))
    for ax, row in zip(axes[0], r['rows']):
        for name, v in row['variants'].items():
            ax.plot(('p50', 'p99', 'p99.9', 'max'),
                    [v[k]['median'] / 1000
                     for k in ('p50', 'p99', 'p999', 'max')],
                    'o-', label=plain(name))
        ax.set_yscale('log')
        ax.set_title(f"{row['protocol']}, {NAMES[row['size']]}")
    axes[0][0].set_ylabel('ms')
    axes[0][0].legend(fontsize=7)
    return figure


def memory(r):
    series = r['stall']['series']
    figure, axes = plt.subplots(figsize=(7.5, 3))
    axes.plot([x['at'] for x in series],
              [x['total'] / 1024 for x in series], label='all processes')
    axes.plot([x['at'] for x in series],
              [x['shared'] / 1024 for x in series], label='of it shared')
    last = None
    for x in series:
        if x['phase'] not in (last, 'drained'):
            last = x['phase']
            axes.axvline(x['at'], color='grey', lw=.6)
            axes.annotate(last, (x['at'], 1), xycoords=('data',
                          'axes fraction'), rotation=60, fontsize=7)
    axes.set_ylim(bottom=0)
    axes.set_xlabel('s')
    axes.set_ylabel('resident, MiB')
    axes.legend()
    return figure


def parse(r):
    parsers = ('scan', 'simdjson', 'jansson')
    kinds = list(dict.fromkeys(x['kind'] for x in r['rows']))
    figure, axes = plt.subplots(1, len(kinds), sharey=True,
                                figsize=(1.9 * len(kinds) + 1, 3))
    for ax, kind in zip(axes, kinds):
        rows = [x for x in r['rows'] if x['kind'] == kind]
        for i, p in enumerate(parsers):
            ax.bar([j + .27 * (i - 1) for j in range(len(rows))],
                   [x['speed'][p]['median'] for x in rows], .27, label=p)
        ax.set_xticks(range(len(rows)), [NAMES[x['size']] for x in rows],
                      rotation=60)
        ax.set_title(kind)
    axes[0].set_ylabel('GB/s')
    axes[0].legend(fontsize=7)
    return figure


def growth(r):
    whats = list(r['flat'])
    figure, axes = plt.subplots(1, len(whats), squeeze=False,
                                figsize=(2.3 * len(whats) + 1, 3))
    for ax, what in zip(axes[0], whats):
        rows = [x for x in r['rows'] if x['what'] == what]
        for key, label in (('off_us', 'off'), ('more_us', 'more, recorded'),
                           ('helper_us', 'helper')):
            s = [x[key] for x in rows]
            ax.errorbar([x['n'] for x in rows], [v['median'] for v in s],
                        [[v['median'] - v['min'] for v in s],
                         [v['max'] - v['median'] for v in s]],
                        fmt='o-', capsize=2, label=label)
        ax.set_xscale('log')
        ax.set_xticks([x['n'] for x in rows], [x['n'] for x in rows])
        ax.minorticks_off()
        ax.set_title(what)
    axes[0][0].set_ylabel('us a request')
    axes[0][0].legend(fontsize=7)
    return figure


PLOTS = {'cost': cost, 'latency': latency, 'memory': memory, 'parse': parse,
         'growth': growth}


def draw(results, directory):
    os.makedirs(directory, exist_ok=True)
    for name, plot in PLOTS.items():
        if name in results:
            figure = plot(results[name])
            figure.savefig(f'{directory}/{name}.svg',
                           metadata={'Date': None})
            plt.close(figure)
