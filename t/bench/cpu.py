#!/usr/bin/env python3

"""What capture costs a worker: CPU per request, on against off, in one run.

    t/bench/cpu.py [--rounds 15] [--seconds 1] [--sizes 4096,...]

One nginx with one worker proxies keep-alive POSTs of chat shape to a second
nginx, which drops them.  The variants differ in their location alone and take
turns of a second; the worker has a processor to itself, and its user and
system time comes from /proc.  The ratio is the median of the ratios of a turn
to the turns of `off` around it; their quartiles show how noisy the machine
was.  The module's own sum is printed at the end.

Needs wrk.  Writes nothing outside a directory of its own.
"""

import argparse
import json
import os
import pwd
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
NGINX = os.environ.get("LLM_CAPTURE_NGINX", "/usr/sbin/nginx")
MODULE = os.environ.get("LLM_CAPTURE_MODULE",
                        TOP + "/build/ngx_http_llm_capture_module.so")
TICK = os.sysconf("SC_CLK_TCK")

CONF = """
load_module {module};
worker_processes 1;
worker_cpu_affinity {affinity};
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/error.log notice;
events {{ worker_connections 512; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_max_body_size 8m;
    client_body_buffer_size 2m;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    llm_capture_path {dir}/capture/requests.jsonl;
    llm_capture_max_request_bytes 2m;
    llm_capture_max_queue_bytes {queue};
    llm_capture_endpoint_pattern ^/(on|sampled_out)/;
    upstream back {{ server 127.0.0.1:{back}; keepalive 64; }}
    server {{
        listen 127.0.0.1:{port};
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        location /off/ {{ proxy_pass http://back; }}
        location /on/ {{ proxy_pass http://back; llm_capture on; }}
        location /sampled_out/ {{
            proxy_pass http://back; llm_capture on;
            llm_capture_sample_rate 0;
        }}
        location /unmatched/ {{ proxy_pass http://back; llm_capture on; }}
    }}
}}
"""

BACK = """
worker_processes 1;
daemon off;
pid {dir}/back.pid;
error_log {dir}/back.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_max_body_size 8m;
    client_body_temp_path {dir}/body2;
    proxy_temp_path {dir}/proxy2;
    fastcgi_temp_path {dir}/fastcgi2;
    uwsgi_temp_path {dir}/uwsgi2;
    scgi_temp_path {dir}/scgi2;
    server {{ listen 127.0.0.1:{back}; return 200 "{{}}\\n"; }}
}}
"""

VARIANTS = ("off", "on", "sampled_out", "unmatched")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def chat(size):
    """A chat history of about `size` bytes, with escapes and non-ASCII."""
    text = ("Explain how the ring buffer behaves when the consumer stalls, "
            "and quote the code:\n\t\"head == tail\" – überprüft, 空. ")
    messages = [{"role": "system", "content": "You are terse."}]
    body = {"model": "bench", "stream": True, "messages": messages}
    while len(json.dumps(body, ensure_ascii=False).encode()) < size:
        left = size - len(json.dumps(body, ensure_ascii=False).encode())
        n = max(1, min(1200, left) // len(text))
        messages.append({"role": ("user", "assistant")[len(messages) % 2],
                         "content": text * n})
    return json.dumps(body, ensure_ascii=False)


def make_directory():
    directory = tempfile.mkdtemp(prefix="llm-capture-bench-", dir="/dev/shm")
    os.chmod(directory, 0o755)
    os.mkdir(directory + "/capture", 0o700)
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(directory + "/capture", nobody.pw_uid, nobody.pw_gid)
    return directory


# the last processor is the worker's
CPUS = sorted(os.sched_getaffinity(0))
AFFINITY = f"{1 << CPUS[-1]:b}"


def elsewhere():
    if len(CPUS) > 1:
        os.sched_setaffinity(0, CPUS[:-1])


def start(text, name, directory, port, tool=()):
    path = f"{directory}/{name}.conf"
    with open(path, "w") as f:
        f.write(text)
    p = subprocess.Popen([*tool, NGINX, "-p", directory, "-c", path],
                         preexec_fn=elsewhere)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return p
        except OSError:
            if p.poll() is not None:
                break
            time.sleep(0.02)
    sys.exit(f"{name} did not start: see {directory}")


def first_child(pid):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            kids = f.read().split()
        if len(kids) >= 2:
            return min(map(int, kids))
        time.sleep(0.02)
    sys.exit("no children")


def child(pid, title):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            for c in f.read().split():
                with open(f"/proc/{c}/cmdline") as g:
                    if title in g.read():
                        return int(c)
        time.sleep(0.02)
    sys.exit(f"no {title}")


def cpu(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def load(directory, port, variant, body, seconds, connections):
    script = f"{directory}/post.lua"
    with open(f"{directory}/body.json", "w") as f:
        f.write(body)
    with open(script, "w") as f:
        f.write(f'''
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local f = io.open("{directory}/body.json", "rb")
wrk.body = f:read("*a")
f:close()
done = function(summary)
    local e = summary.errors
    io.write("REQUESTS ", summary.requests, " ERRORS ",
             e.connect + e.read + e.write + e.status + e.timeout, "\\n")
end
''')
    out = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", script,
         f"http://127.0.0.1:{port}/{variant}/x"], preexec_fn=elsewhere,
        capture_output=True, text=True, check=True).stdout
    requests, errors = map(int, re.search(
        r"REQUESTS (\d+) ERRORS (\d+)", out).groups())
    if errors:
        sys.exit(f"{variant}: {errors} errors\n{out}")
    return requests


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--rounds", type=int, default=15)
    a.add_argument("--seconds", type=int, default=1)
    a.add_argument("--connections", type=int, default=4)
    a.add_argument("--queue", default="512m")
    a.add_argument("--sizes", default="4096,65536,262144")
    a.add_argument("--keep", action="store_true",
                   help="the directory with the logs")
    a = a.parse_args()

    directory = make_directory()
    port, back = free_port(), free_port()
    procs = []
    try:
        procs.append(start(BACK.format(dir=directory, back=back), "back",
                           directory, back))
        procs.append(start(CONF.format(dir=directory, back=back, port=port,
                                       module=MODULE, queue=a.queue,
                                       affinity=AFFINITY),
                           "nginx", directory, port))
        worker = child(procs[1].pid, "worker process")
        helper = child(procs[1].pid, "llm capture helper")
        print(f"{'bytes':>8} {'variant':>12} {'us/request':>11} "
              f"{'ratio':>6} {'quartiles':>15} {'helper us':>10}")
        for size in map(int, a.sizes.split(",")):
            body = chat(size)
            times = {v: [] for v in VARIANTS}
            helps = {v: [] for v in VARIANTS}
            ratios = {v: [] for v in VARIANTS}
            for i in range(a.rounds + 1):
                for v in ("off",) + VARIANTS[1:] if i % 2 == 0 \
                        else ("off",) + VARIANTS[:0:-1]:
                    c, h = cpu(worker), cpu(helper)
                    n = load(directory, port, v, body, a.seconds,
                             a.connections)
                    times[v].append((cpu(worker) - c) / n * 1e6)
                    time.sleep(0.05)
                    helps[v].append((cpu(helper) - h) / n * 1e6)
                path = f"{directory}/capture/requests.jsonl"
                if os.path.exists(path):
                    os.truncate(path, 0)
            for i in range(1, a.rounds):
                # the turns of off before and after this round
                off = (times["off"][i] + times["off"][i + 1]) / 2
                for v in VARIANTS:
                    ratios[v].append(times[v][i] / off)
            for v in VARIANTS:
                q = statistics.quantiles(ratios[v], n=4)
                print(f"{len(body.encode()):8} {v:>12} "
                      f"{statistics.median(times[v][1:]):11.1f} {q[1]:6.3f} "
                      f"{q[0]:7.3f} {q[2]:7.3f} "
                      f"{statistics.median(helps[v][1:]):10.1f}", flush=True)
    finally:
        for p in reversed(procs):
            p.send_signal(signal.SIGQUIT)
        for p in reversed(procs):
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                p.kill()
        with open(f"{directory}/error.log") as f:
            for line in f:
                if "llm capture: \"" in line or "[alert]" in line:
                    print(line.strip()[:400])
        if a.keep:
            print(directory)
        else:
            shutil.rmtree(directory)


if __name__ == "__main__":
    main()
