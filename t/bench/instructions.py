#!/usr/bin/env python3

"""What capture costs a worker, in instructions: the figure without noise.

    t/bench/instructions.py [--requests 500] [--sizes 4096,...]

The nginx of cpu.py under valgrind's callgrind, once with N requests and once
with 2N: the difference is what N requests cost the worker's own code (the
kernel's part is not seen).  A copy of more than a few KB is one instruction,
"rep movsb", which valgrind counts once for each byte.  Needs valgrind.
"""

import argparse
import glob
import http.client
import os
import re
import shutil
import signal

import cpu


def totals(directory):
    found = {}
    for path in glob.glob(directory + "/callgrind/*"):
        with open(path) as f:
            m = re.search(r"^(?:summary|totals): (\d+)", f.read(), re.M)
        found[int(os.path.basename(path))] = int(m.group(1)) if m else 0
    return found


def count(directory, back, variant, body, requests):
    """Instructions of the worker, from its fork to its end."""
    shutil.rmtree(directory + "/callgrind", ignore_errors=True)
    os.mkdir(directory + "/callgrind")
    os.chmod(directory + "/callgrind", 0o777)
    port = cpu.free_port()
    text = cpu.CONF.format(dir=directory, back=back, port=port,
                           module=cpu.MODULE, queue="512m",
                           affinity=cpu.AFFINITY)
    nginx = cpu.start(
        text, "nginx", directory, port,
        ["valgrind", "-q", "--tool=callgrind", "--trace-children=yes",
         f"--callgrind-out-file={directory}/callgrind/%p",
         f"--log-file={directory}/valgrind.log"])
    try:
        # valgrind's children keep its command line: the worker comes first
        worker = cpu.first_child(nginx.pid)
        c = http.client.HTTPConnection("127.0.0.1", port)
        for _ in range(requests):
            c.request("POST", f"/{variant}/x", body,
                      {"Content-Type": "application/json"})
            answer = c.getresponse()
            assert answer.status == 200, answer.status
            answer.read()
        c.close()
    finally:
        nginx.send_signal(signal.SIGQUIT)
        nginx.wait()
    return totals(directory)[worker]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--requests", type=int, default=500)
    a.add_argument("--sizes", default="4096,65536")
    a = a.parse_args()

    directory = cpu.make_directory()
    port = cpu.free_port()
    back = cpu.start(cpu.BACK.format(dir=directory, back=port), "back",
                     directory, port)
    n = a.requests
    try:
        print(f"{'bytes':>8} {'variant':>12} {'instructions':>13} "
              f"{'more':>7} {'ratio':>6}")
        for size in map(int, a.sizes.split(",")):
            body = cpu.chat(size).encode()
            off = None
            for v in cpu.VARIANTS:
                one = (count(directory, port, v, body, 2 * n)
                       - count(directory, port, v, body, n)) / n
                off = off or one
                print(f"{len(body):8} {v:>12} {one:13.0f} {one - off:7.0f} "
                      f"{one / off:6.3f}", flush=True)
    finally:
        back.send_signal(signal.SIGQUIT)
        back.wait()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
