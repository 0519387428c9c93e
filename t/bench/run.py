#!/usr/bin/env python3

"""Measures what capture costs; nothing passes or fails by time.

    t/bench/run.py [PART...]      all parts without a name; list: the names

Results go to build/bench/PART.json; t/bench/report.py makes the document of
them.  LLM_CAPTURE_BENCH=short is a try of some minutes: its figures are none.
Loopback alone; each loop ends by itself.
"""

import importlib
import json
import os
import subprocess
import sys
import time

import stage

PARTS = {
    'cost': 'processor time and throughput of all variants',
    'instructions': 'instructions of a request, by callgrind',
    'latency': 'latency at half the load it saturates at',
    'lag': 'from arrival to the line in the file',
    'memory': 'resident memory over a stall, idle wake-ups',
    'extra': "the worker's extra time against a bare memcpy",
    'stream': 'a streaming answer and its outcome',
    'helper': 'the drain alone against a plain writev',
    'parse': 'the strict scan against parsers of JSON',
    'hot': 'where the time goes, by perf',
    'growth': 'cost over workers, locations, destinations, uploads',
}


def main():
    names = sys.argv[1:] or list(PARTS)
    if names == ['list'] or not set(names) <= set(PARTS):
        for name, what in PARTS.items():
            print(f'{name:>12}   {what}')
        sys.exit(names != ['list'])
    subprocess.run(['make', '-s', '-f', 't/bench/tools.mk', 'all'],
                   cwd=stage.TOP, check=True)
    failed = []
    for name in names:                    # nothing stays of an earlier run
        if os.path.exists(f'{stage.BUILD}/{name}.json'):
            os.unlink(f'{stage.BUILD}/{name}.json')
    for name in names:
        started = time.monotonic()
        stage.rest()
        try:
            result = importlib.import_module(name).run()
        except Exception as e:
            # the other parts are still worth their time
            stage.say(f'{name}: {type(e).__name__}: {e}')
            failed.append(name)
            if len(names) == 1:
                raise
            continue
        result.update(machine=stage.machine(), short=stage.SHORT,
                      took=round(time.monotonic() - started, 1))
        with open(f'{stage.BUILD}/{name}.json', 'w') as f:
            json.dump(result, f, indent=1)
        stage.say(f"{name}: {result['took']} s")
    sys.exit(bool(failed))


if __name__ == '__main__':
    main()
