import json
import os
import sys

try:
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
except ImportError:
    sys.exit(1)

out, name = sys.argv[1:3]
data = json.load(sys.stdin)
plt.rcParams.update({
    'font.size': 9, 'axes.spines.top': False, 'axes.spines.right': False,
    'axes.titlesize': 10, 'axes.titleweight': 'bold', 'axes.edgecolor': '#888',
    'axes.titlelocation': 'left', 'svg.fonttype': 'none',
    'figure.facecolor': 'white'})
SOURCES = {'estimate': 'an estimate: bytes of text / 4',
           'asked': 'as asked for at most',
           'outcomes': 'from outcomes', 'rows': 'from the rows'}
figure = plt.figure(figsize=(9, 5.6), layout='constrained')
figure.suptitle(f'{os.path.basename(name)}: {data["requests"]:,} requests',
                x=0.01, ha='left')
below = [(key, title, unit) for key, title, unit in [
    ('input', 'Input', 'tokens'), ('output', 'Output', 'tokens'),
    ('ttft', 'Time to first token', 'ms')] if key in data]
rows = figure.add_gridspec(2, max(1, len(below)))


def arrivals(axes):
    counts, seconds = data['arrivals'], data['seconds']
    scale, unit = next((s, u) for s, u in [
        (3600, 'hours'), (60, 'minutes'), (1, 'seconds')]
        if seconds > 3 * s or s == 1)
    step = seconds / len(counts) / scale
    times = [i * step for i in range(len(counts) + 1)]
    axes.stairs(counts, times, fill=True, color='#76b900', alpha=.35)
    axes.stairs(counts, times, color='#4b7a00', linewidth=1)
    for start, end in data.get('gaps', []):
        axes.axvspan(max(start / scale, 0), end / scale, color='#c0392b',
                     alpha=.3, linewidth=0)
        axes.axvline(start / scale, color='#c0392b', linewidth=1, alpha=.5)
    axes.set_title('Arrivals, and when requests were dropped'
                   if data.get('gaps') else 'Arrivals')
    axes.set_ylabel('requests a second')
    axes.set_xlabel(unit)
    axes.set_xlim(0, times[-1])
    axes.set_ylim(bottom=0)


def lengths(axes, found, title, unit, color):
    low, high, counts = found['low'], found['high'], found['n']
    edges = [low * (high / low) ** (i / len(counts))
             for i in range(len(counts) + 1)]
    axes.stairs(counts, edges, fill=True, color=color, alpha=.55)
    for key, style in [('p50', '-'), ('p99', ':')]:
        axes.axvline(found[key], color='#333', linewidth=1, linestyle=style)
        axes.annotate(f' {key} {found[key]:,.0f}', (found[key], 1),
                      xycoords=('data', 'axes fraction'), va='top',
                      fontsize=8)
    axes.set_xscale('log')
    axes.set_title(title)
    axes.set_xlabel(f'{unit}, {SOURCES[found["from"]]}', fontsize=8)
    axes.set_ylim(bottom=0)


if 'arrivals' in data:
    arrivals(figure.add_subplot(rows[0, :]))
for i, (key, title, unit) in enumerate(below):
    lengths(figure.add_subplot(rows[1, i]), data[key], title, unit,
            ['#4c8bbf', '#d9863d', '#8a6fb0'][i])
figure.savefig(out, dpi=144)
