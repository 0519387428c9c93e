#!/usr/bin/env python3
"""A capture as a picture: when requests came, and how long they were.

    plot.py OUT.svg requests.chat.jsonl requests.completions.jsonl

Above arrivals a second, below a dot for each request.  Times are those of the
files, each from its own first row.  No content.  Only Python's own library.
"""

import json
import math
import os
import sys

WIDTH, LEFT, RIGHT = 880, 70, 20
BARS, DOTS = (50, 130), (180, 420)              # top and bottom of each
COLOURS = ('#1b6ca8', '#d1495b', '#5c8a2f', '#8a5a9e')

STYLE = ('text { font: 12px sans-serif; fill: #333 } '
         '.axis { stroke: #999 } .grid { stroke: #e4e4e4 } '
         '.name { font-size: 14px } .end { text-anchor: end } '
         '.mid { text-anchor: middle }')


def rows(path):
    """(ms, bytes of the payload) of each line."""
    with open(path, 'rb') as f:
        return [(json.loads(line)['timestamp'],
                 len(line.partition(b',"payload":')[2]) - 2) for line in f]


def step(top, wanted=6):
    """1, 2 or 5 times a power of ten: about so many to the top."""
    size = 10 ** math.floor(math.log10(max(top, 1e-9) / wanted))
    return next(size * n for n in (1, 2, 5, 10) if top / (size * n) <= wanted)


def size(n):
    return f'{n >> 20} MB' if n >= 1 << 20 else \
        f'{n >> 10} KB' if n >= 1 << 10 else f'{n} B'


class Picture:
    def __init__(self, captures):
        self.captures = captures
        points = [point for rows in captures.values() for point in rows]
        end = max(max(t for t, _ in points) / 1000, 0.001)
        self.bin = step(end, 60)
        self.end = (int(end / self.bin) + 1) * self.bin
        sizes = [n for _, n in points]
        self.low = math.floor(math.log2(max(min(sizes), 1)))
        self.high = max(math.ceil(math.log2(max(sizes))), self.low + 1)
        self.out = []

    def x(self, seconds):
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / self.end

    def y(self, n):
        top, bottom = DOTS
        share = (math.log2(max(n, 1)) - self.low) / (self.high - self.low)
        return bottom - (bottom - top) * share

    def put(self, text):
        self.out.append(text)

    def line(self, x1, y1, x2, y2, kind):
        self.put(f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" '
                 f'x2="{x2:.1f}" y2="{y2:.1f}"/>')

    def text(self, x, y, text, kind=''):
        self.put(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{text}</text>')

    def times(self):
        pace = step(self.end)
        for i in range(int(self.end / pace) + 1):
            x = self.x(i * pace)
            self.line(x, BARS[0], x, DOTS[1], 'grid')
            self.text(x, DOTS[1] + 18, f'{i * pace:g}', 'mid')
        self.text(WIDTH - RIGHT, DOTS[1] + 36, 's since the first request',
                  'end')

    def arrivals(self):
        width, bins = self.bin, {}
        for name, points in self.captures.items():
            for t, _ in points:
                bins.setdefault(int(t / 1000 / width), []).append(name)
        top = max(map(len, bins.values()))
        high = BARS[1] - BARS[0]
        for n, names in bins.items():
            y = BARS[1]
            for name, colour in zip(self.captures, COLOURS):
                h = high * names.count(name) / top
                y -= h
                self.put(f'<rect x="{self.x(n * width):.1f}" y="{y:.1f}" '
                         f'width="{self.x(width) - LEFT - 1:.1f}" '
                         f'height="{h:.1f}" fill="{colour}"/>')
        self.line(LEFT, BARS[1], WIDTH - RIGHT, BARS[1], 'axis')
        self.text(LEFT - 8, BARS[0] + 10, f'{top / width:g}/s', 'end')
        self.text(LEFT - 8, BARS[1], '0', 'end')

    def lengths(self):
        for power in range(self.low, self.high + 1):
            if (power - self.low) % max(1, (self.high - self.low) // 6) == 0:
                y = self.y(2 ** power)
                self.line(LEFT, y, WIDTH - RIGHT, y, 'grid')
                self.text(LEFT - 8, y + 4, size(2 ** power), 'end')
        self.line(LEFT, DOTS[1], WIDTH - RIGHT, DOTS[1], 'axis')
        for (name, points), colour in zip(self.captures.items(), COLOURS):
            for t, n in points:
                self.put(f'<circle cx="{self.x(t / 1000):.1f}" '
                         f'cy="{self.y(n):.1f}" r="3" fill="{colour}" '
                         'fill-opacity="0.6"/>')

    def names(self):
        x = LEFT
        for (name, points), colour in zip(self.captures.items(), COLOURS):
            self.put(f'<rect x="{x}" y="14" width="12" height="12" '
                     f'fill="{colour}"/>')
            text = f'{name}: {len(points)} requests'
            self.text(x + 18, 25, text, 'name')
            x += 50 + 8 * len(text)
        self.text(LEFT, BARS[0] - 6, 'arrivals')
        self.text(LEFT, DOTS[0] - 8, 'bytes of the body')

    def svg(self):
        self.times()
        self.arrivals()
        self.lengths()
        self.names()
        height = DOTS[1] + 50
        return '\n'.join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
            f'height="{height}" viewBox="0 0 {WIDTH} {height}">',
            f'<style>{STYLE}</style>',
            '<rect width="100%" height="100%" fill="#fff"/>',
            *self.out, '</svg>', ''])


def plot(out, paths):
    captures = {os.path.basename(p).replace('.jsonl', ''): rows(p)
                for p in paths}
    with open(out, 'w') as f:
        f.write(Picture({n: r for n, r in captures.items() if r}).svg())


if __name__ == '__main__':
    plot(sys.argv[1], sys.argv[2:])
