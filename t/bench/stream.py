"""A streaming answer with its outcome recorded, against the same without.

Each event is a write of the upstream, a wake-up of the worker and a write to
the client, as from a model; off, outcome, off, outcome... in one run.
"""

import os
import subprocess

import stage
from procs import wait_for

EVENTS = 500
PAUSE = 200                               # microseconds between two events
CLIENTS = 8

LOCATION = """
proxy_buffering off;
llm_capture_path %%DIR%%/capture/stream.jsonl;
location = /off { proxy_pass http://back; }
location = /on { proxy_pass http://back; llm_capture on;
    llm_capture_endpoint_pattern .*; }
location = /outcome { proxy_pass http://back; llm_capture on;
    llm_capture_endpoint_pattern .*; llm_capture_outcome on; }
"""


def turn(ng, name, requests):
    pids = ng.workers
    before = stage.cpu(pids())
    done = subprocess.run(
        [stage.BUILD + '/stream', '-c', str(CLIENTS), '-n', str(requests),
         '-u', '/' + name, str(ng.port)], capture_output=True, text=True,
        check=True, timeout=300, preexec_fn=stage.rest)
    stage.quiet(pids)
    whole = int(done.stdout)
    return (stage.cpu(pids()) - before) / 1000 / max(whole, 1), whole


def run():
    requests, rounds = stage.quick((5, 9), (2, 2))
    up = subprocess.Popen([stage.BUILD + '/stream', '-s', str(EVENTS), '-p',
                           str(PAUSE)], stdout=subprocess.PIPE, text=True,
                          preexec_fn=stage.rest)
    try:
        port = int(up.stdout.readline())
        with stage.Proxy(upstream=port, workers=1, server=LOCATION) as ng:
            for name in ('off', 'on', 'outcome'):
                turn(ng, name, 1)
            us = {'off': [], 'on': [], 'outcome': []}
            whole = CLIENTS
            for _ in range(rounds):
                for name in ('off', 'on', 'off', 'outcome'):
                    n, got = turn(ng, name, requests)
                    us[name].append(n)
                    whole += got if name == 'outcome' else 0
            us['off'].append(turn(ng, 'off', requests)[0])
            rows = ng.file('stream.outcomes')
            wait_for(lambda: os.path.exists(rows)
                     and sum(1 for _ in open(rows)) >= whole, 'outcomes')
            why = [] if sum(1 for _ in open(rows)) == whole else ['rows']
    finally:
        up.kill()
        up.wait()
    off = us['off']
    # on stands between 0 and 1, 2 and 3...; outcome between 1 and 2...
    around = {'on': (off[0::2], off[1::2]), 'outcome': (off[1::2], off[2::2])}
    result = {'events': EVENTS, 'off_us': stage.spread(off), 'why': why}
    for name, (before, after) in around.items():
        result[name] = {'us': stage.spread(us[name]), 'ratio': stage.spread(
            stage.paired(us[name], before, after))}
        stage.say(f"stream: {name:>8} {result[name]['us']['median']:9.1f} us, "
                  f"off {result['off_us']['median']:9.1f}, "
                  f"{result[name]['ratio']['median']:.3f}")
    return result
