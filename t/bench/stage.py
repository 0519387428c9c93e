"""What the parts of the bench share: nginx, pinned processors, CPU, load.

The worker that is measured has the last processor to itself; nginx's other
processes, the upstream and the load have the rest.  One processor: all share.
"""

import atexit
import glob
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                '../lib'))

import llmcapture                                           # noqa: E402
from llmcapture import MODULE, TOP, Nginx                     # noqa: E402
from procs import free_port, wait_for                        # noqa: E402

import tap                                                   # noqa: E402

# no test: nothing to be counted at the end
atexit.unregister(tap._end)
sys.excepthook = sys.__excepthook__

BUILD = os.path.join(TOP, 'build/bench')
HERE = os.path.join(TOP, 't/bench')
SHORT = os.environ.get('LLM_CAPTURE_BENCH') == 'short'
ROOM = 4 << 30                  # bytes that a turn may leave behind


def memory_directory():
    """/dev/shm, or None where it is too small, as in many containers."""
    try:
        fs = os.statvfs('/dev/shm')
    except OSError:
        return None
    enough = fs.f_bavail * fs.f_frsize >= ROOM
    return '/dev/shm' if enough and os.access('/dev/shm', os.W_OK) else None


MEMORY = memory_directory()

CPUS = sorted(os.sched_getaffinity(0))
REST = CPUS[:-1] or CPUS
AFFINITY = f'worker_cpu_affinity {1 << CPUS[-1]:b};'

MAIN = """
%%LOAD%%
daemon off;
worker_processes %%WORKERS%%;
pid %%DIR%%/nginx.pid;
error_log %%DIR%%/error.log %%LEVEL%%;
%%MAIN%%
events { worker_connections 8192; }
http {
    access_log off;
    keepalive_requests 1000000000;
    client_max_body_size 8m;
    client_body_buffer_size 2m;
    client_body_timeout 600s;
    client_body_temp_path %%DIR%%/body;
    proxy_temp_path %%DIR%%/proxy;
    fastcgi_temp_path %%DIR%%/fastcgi;
    uwsgi_temp_path %%DIR%%/uwsgi;
    scgi_temp_path %%DIR%%/scgi;
    %%HTTP%%
"""

CONF = MAIN + """
    upstream back { server 127.0.0.1:%%UPSTREAM%%; keepalive 64; }
    server {
        listen 127.0.0.1:%%PORT%%;
        listen 127.0.0.1:%%PORT2%% http2;
        http2_max_concurrent_streams 128;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        %%SERVER%%
        location / { proxy_pass http://back; %%LOCATION%% }
    }
}
"""

BACK = MAIN + """
    server { listen 127.0.0.1:%%PORT%%; return 200 "{}\\n"; }
}
"""


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def quick(full, short):
    """A figure of the full run, or of the short one."""
    return short if SHORT else full


class Proxy(Nginx):
    """An nginx of the bench; words go into CONF, tool before its command."""

    def wait_workers(self):
        # of processes that a tool hides the titles are not seen
        if not self.tool or 'valgrind' not in self.tool[0]:
            super().wait_workers()

    def __init__(self, up=None, tool=(), conf=CONF, module=True, pin=True,
                 http='', prefix=MEMORY, main='', level='notice', **words):
        self.tool = list(tool)
        super().__init__(up, conf=conf, http=http, path='', prefix=prefix,
                         main=(AFFINITY if pin else '') + main, start=False,
                         level=level)
        self.words.update({k.upper(): v for k, v in words.items()})
        self.port2 = self.words['PORT2'] = free_port()
        self.words['LOAD'] = words.get('load', '') + (
            f'load_module {MODULE};' if module and MODULE else '')
        self.configure()
        try:
            self.start()
            if not tool or 'valgrind' not in tool[0]:
                self.to_rest()
        except BaseException:
            say(self.log()[-2000:])
            self.finish()
            raise

    def command(self, *args):
        return self.tool + super().command(*args)

    def to_rest(self):
        """All but the pinned workers leave the worker's processor."""
        os.sched_setaffinity(self.master, REST)
        for pid in self.children():
            if pid not in self.workers():
                os.sched_setaffinity(pid, REST)

    def others(self):
        return [p for p in self.children() if p not in self.workers()]

    def file(self, name):
        return os.path.join(self.dir, 'capture', name)

    def files(self):
        return glob.glob(self.dir + '/capture/*.jsonl')

    def counters_all(self):
        """What was last logged, for each path."""
        names = {m[0] for m in self.LINE.findall(self.log())}
        return [self.counters(name) for name in sorted(names)]

    def close(self):
        """Stops it; its counters stay to be read."""
        if self.master is not None:
            self.quit(60)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        try:
            self.close()
        finally:
            for line in self.alerts():
                say(line[:300])
            self.finish()


def back(workers=1, **words):
    """The upstream: takes bodies and drops them."""
    return Proxy(conf=BACK, module=False, pin=False, workers=workers, **words)


# processor time

def cpu(pids):
    """User and system time in ns; exact while they sleep."""
    total = 0
    for pid in pids:
        for path in glob.glob(f'/proc/{pid}/task/*/schedstat'):
            with open(path) as f:
                total += int(f.read().split()[0])
    return total


def quiet(pids, looks=4, step=.02):
    """Waits until these have done nothing over some looks."""
    last, same = -1, 0

    def still():
        nonlocal last, same
        now = cpu(pids())
        same = same + 1 if now == last else 0
        last = now
        return same >= looks
    wait_for(still, 'processes to rest', 120, step=step)


def switches(pid):
    total = 0
    for path in glob.glob(f'/proc/{pid}/task/*/status'):
        with open(path) as f:
            for line in f:
                if line.startswith('voluntary_ctxt_switches'):
                    total += int(line.split()[1])
    return total


def status(pid, field):
    """A figure of /proc/PID/status, kB."""
    with open(f'/proc/{pid}/status') as f:
        for line in f:
            if line.startswith(field + ':'):
                return int(line.split()[1])
    return 0


# load

def rest():
    os.sched_setaffinity(0, REST)


_files = {}


def body_file(data):
    """A file that holds the body; its name is of its content."""
    name = _files.get(data)
    if name is None:
        fd, name = tempfile.mkstemp(prefix='llm-capture-body-', dir=MEMORY)
        os.write(fd, data)
        os.close(fd)
        _files[data] = name
    return name


def forget_bodies():
    for name in _files.values():
        os.unlink(name)
    _files.clear()


atexit.register(forget_bodies)


class Numbers:
    """The numbers of a turn's requests; no two requests share one."""
    next = 1


def load_command(port, uri, body, seconds, h2=False, connections=4, rate=0,
                 uris=1, held=0):
    first = Numbers.next
    Numbers.next += 5_000_000
    return first, [BUILD + '/load', '-p', str(port), '-u', uri,
                   '-b', body_file(body), '-t', str(seconds),
                   '-c', str(connections), '-n', str(first),
                   '-r', str(rate), '-k', str(uris), '-w', str(held),
                   *(['-2'] if h2 else [])]


def load(port, uri, body, seconds, **options):
    """Runs the load; its figures, with the first number it used."""
    first, command = load_command(port, uri, body, seconds, **options)
    done = subprocess.run(command, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, preexec_fn=rest,
                          timeout=seconds + 120)
    if done.returncode:
        raise RuntimeError(f'load on {uri}: {done.stderr or done.stdout}')
    return {**json.loads(done.stdout), 'first': first}


# figures

def spread(values):
    return {'min': min(values), 'median': statistics.median(values),
            'max': max(values), 'n': len(values)}


def paired(variant, before, after):
    """Ratios of turns to the mean of the turns of `off` around each."""
    return [v / ((b + a) / 2) for v, b, a in zip(variant, before, after)]


# the machine

def first_line(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return None
    return (done.stdout or done.stderr).strip().splitlines()[0] \
        if done.returncode == 0 else None


def file_system(path):
    best, kind = '', '?'
    with open('/proc/mounts') as f:
        for line in f:
            _, where, what = line.split()[:3]
            if os.path.realpath(path).startswith(where) \
                    and len(where) > len(best):
                best, kind = where, what
    return kind


def package(name):
    return first_line(['dpkg-query', '-W', '-f=${Version}', name])


def machine():
    model, flags = '?', ''
    with open('/proc/cpuinfo') as f:
        for line in f:
            key, _, value = line.partition(':')
            if key.strip() == 'model name':
                model = value.strip()
            elif key.strip() == 'flags':
                flags = value
    with open('/proc/meminfo') as f:
        memory = int(f.readline().split()[1]) // 1024 // 1024 + 1
    return {
        'cpu': model, 'cores': len(CPUS), 'virtual': 'hypervisor' in flags,
        'vectors': next((v for v in ('AVX2', 'SSSE3')
                         if f' {v.lower()}' in flags),
                        {'aarch64': 'NEON'}.get(platform.machine(),
                                                'no vectors')),
        'memory': f'{memory} GiB', 'kernel': platform.release(),
        'load': os.getloadavg()[0],
        'fs': {'tmpfs': file_system(MEMORY or '/tmp'),
               'disk': file_system(BUILD)},
        'commit': first_line(['git', '-C', TOP, 'describe', '--always',
                              '--dirty']),
        'nginx': first_line([llmcapture.NGINX, '-v']),
        'compiler': first_line(['cc', '--version']),
        'packages': {p: package(p) for p in (
            'libsimdjson-dev', 'libjansson-dev', 'libnginx-mod-http-lua',
            'libnginx-mod-http-js', 'valgrind')},
        'python': platform.python_version(),
        'when': time.strftime('%Y-%m-%d', time.gmtime()),
    }
