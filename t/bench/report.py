#!/usr/bin/env python3

"""docs/performance.md and its plots, from the results in build/bench/.

    t/bench/report.py [DIRECTORY]     where to; docs by default

The text stands in performance.md.in; @name@ alone on a line is a table.
"""

import json
import os
import re
import sys

import run
import stage
import tables


def load():
    results = {}
    for name in run.PARTS:
        path = f'{stage.BUILD}/{name}.json'
        if os.path.exists(path):
            with open(path) as f:
                results[name] = json.load(f)
    return results


def text(name, results):
    if name == 'machine':
        return tables.machine(results)
    if name == 'goals':
        return tables.met(results)
    part, make = tables.TABLES[name]
    return make(results[part]).rstrip() if part in results else 'Not run.'


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else stage.TOP + '/docs'
    results = load()
    if not results:
        sys.exit('nothing was run: t/bench/run.py')
    os.makedirs(directory, exist_ok=True)
    with open(stage.HERE + '/performance.md.in') as f:
        page = re.sub(r'^@(\w+)@$', lambda m: text(m[1], results), f.read(),
                      flags=re.M)
    with open(directory + '/performance.md', 'w') as f:
        f.write(page)
    try:
        import plots
        plots.draw(results, directory + '/performance')
    except ImportError as e:
        stage.say(f'no plots: {e}')
    print(tables.met(results))


if __name__ == '__main__':
    main()
