"""The variants: what is measured against `off`, and how each is configured.

Each has a location; those of a kind share an nginx:

    ours    the module alone
    full    the same, its helper stopped and its queue full
    slow    the same, over a slow disk
    plain   no module: what nginx does itself
    script  lua and njs
"""

import contextlib
import os
import signal
import subprocess

import bodies
import check
import stage
from llmcapture import NGINX, ROOT
from procs import wait_for

DEBIAN = '/usr/sbin/nginx'
EVERY = 'llm_capture on; llm_capture_endpoint_pattern ^/;'

# too large: by Content-Length
OURS = """
    llm_capture_path %%DIR%%/capture/off.jsonl;
    llm_capture_max_request_bytes 2m;
    llm_capture_max_queue_bytes %%QUEUE%%;
    llm_capture_drain_timeout 60s;
"""


def place(name, more):
    return (f'location /{name}/ {{ proxy_pass http://back; '
            f'llm_capture_path %%DIR%%/capture/{name}.jsonl; {more} }}\n')


OURS_SERVER = ''.join((
    place('on', EVERY),
    place('sampled', EVERY + 'llm_capture_sample_rate 0.1;'),
    place('sampled_out', EVERY + 'llm_capture_sample_rate 0;'),
    place('unmatched', 'llm_capture on;'),
    place('too_large', EVERY + 'llm_capture_max_request_bytes 512;'),
))

PLAIN_HTTP = """
    log_format body escape=json '$request_body';
    upstream drop { server 127.0.0.1:%%DROP%%; keepalive 64; }
"""

PLAIN_SERVER = """
    location /access_log/ {
        proxy_pass http://back;
        access_log %%DIR%%/capture/access_log body buffer=1m;
    }
    location /mirror/ {
        mirror /copy;
        proxy_pass http://back;
    }
    location = /copy { internal; proxy_pass http://drop; }
"""

SCRIPT_LOAD = """
    load_module /usr/lib/nginx/modules/ndk_http_module.so;
    load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
    load_module /usr/lib/nginx/modules/ngx_http_js_module.so;
"""

SCRIPT_HTTP = """
    init_worker_by_lua_block {
        capture = io.open("%%DIR%%/capture/lua", "a")
    }
    js_path %%HERE%%;
    js_import capture from capture.js;
    js_set $captured capture.capture;
    log_format captured '$captured';
"""

SCRIPT_SERVER = """
    location /lua/ {
        proxy_pass http://back;
        log_by_lua_block {
            local body = ngx.req.get_body_data()
            if body then
                capture:write(body, "\\n")
                capture:flush()
            end
        }
    }
    location /njs/ {
        set $capture_file %%DIR%%/capture/njs;
        proxy_pass http://back;
        access_log /dev/null captured;
    }
"""

# what ours leaves out, and where it may
DROPS = {'sampled', 'sampled_out', 'unmatched', 'too_large', 'full', 'slow'}
NOTHING = {'off', 'none', 'sampled_out', 'unmatched', 'too_large', 'full'}
OUR_OWN = ('on', 'sampled', 'sampled_out', 'unmatched', 'too_large')

KIND = {**dict.fromkeys(('off', *OUR_OWN), 'ours'), 'full': 'full',
        'slow': 'slow', **dict.fromkeys(('none', 'access_log', 'mirror',
                                         'goreplay'), 'plain'),
        'lua': 'script', 'njs': 'script'}

OUR_KINDS = {'ours', 'full', 'slow'}

TEXT = {
    'off': 'capture off', 'on': '**all recorded**',
    'sampled': 'one of ten recorded', 'sampled_out': 'sampled out',
    'unmatched': 'path not matched', 'too_large': 'too large, by its length',
    'full': 'helper stopped, queue full', 'slow': 'disk of 100 MB/s',
    'none': 'module not loaded', 'access_log': 'access_log, `$request_body`',
    'lua': 'lua, log_by_lua', 'njs': 'njs, js_set',
    'mirror': 'mirror, dropped there', 'goreplay': 'GoReplay',
}


class Goreplay:
    """gor on the loopback interface, as a user would start it beside.

    With more room for packets than it takes by itself: it loses less then.
    What it holds for more packets comes out after its two seconds.
    """

    def __init__(self, port, path):
        self.path = path
        self.process = subprocess.Popen(
            [stage.BUILD + '/goreplay', '--input-raw', f'127.0.0.1:{port}',
             '--input-raw-buffer-size', str(64 << 20),
             '--copy-buffer-size', '16mb', '--output-file', path,
             '--output-file-append', '--output-file-queue-limit', '0',
             '--output-file-flush-interval', '100ms',
             '--output-file-size-limit', '8gb'],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=stage.rest)
        wait_for(self.listens, 'goreplay to listen', 30)

    def listens(self):
        """It has a packet socket."""
        if self.process.poll() is not None:
            raise RuntimeError('goreplay ended')
        mine = set()
        for fd in os.listdir(f'/proc/{self.process.pid}/fd'):
            try:
                mine.add(os.readlink(f'/proc/{self.process.pid}/fd/{fd}'))
            except OSError:
                pass
        with open('/proc/net/packet') as f:
            return any(f'socket:[{line.split()[-1]}]' in mine
                       for line in f.readlines()[1:])

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def missing(name):
    """Why a variant cannot be had here; '' if it can."""
    if name == 'goreplay' and not os.path.exists(stage.BUILD + '/goreplay'):
        return 'could not be built'
    if name == 'goreplay' and not ROOT:
        return 'needs root'
    if KIND[name] == 'script' and os.path.realpath(NGINX) != DEBIAN:
        return "its module is built for Debian's nginx"
    if KIND[name] == 'script' and not os.path.exists(
            '/usr/lib/nginx/modules/ngx_http_lua_module.so'):
        return 'its module is not installed'
    return ''


def lines_of(path):
    """What was written after the last turn: the queue, when it had room."""
    if not os.path.exists(path):
        return 0
    with open(path, 'rb') as f:
        return sum(block.count(b'\n') for block in iter(
            lambda: f.read(1 << 20), b''))


class Set:
    """The servers of some variants, for one number of workers."""

    def __init__(self, names, workers=1):
        self.names = [n for n in names if not missing(n)]
        self.workers = workers
        self.proxy, self.stopped = {}, []
        self.seen = dict.fromkeys(self.names, 0)
        self.lines = dict.fromkeys(self.names, 0)

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.back = stack.enter_context(stage.back())
            self.drop = stack.enter_context(stage.back())
            for kind in sorted({KIND[n] for n in self.names}):
                self.proxy[kind] = stack.enter_context(getattr(self, kind)())
                if kind == 'full':
                    stack.callback(self.resume)
                    self.fill(self.proxy[kind])
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *exc):
        with self.stack:
            self.sums = {}
            self.resume()
            if not exc[0]:
                for kind in OUR_KINDS & set(self.proxy):
                    self.proxy[kind].close()
                    self.account(kind, self.proxy[kind])
        return False

    def start(self, queue='8g', **words):
        return stage.Proxy(self.back, workers=self.workers,
                           pin=self.workers == 1, queue=queue,
                           drop=self.drop.port, here=stage.HERE, **words)

    def ours(self):
        return self.start(http=OURS, server=OURS_SERVER)

    def full(self):
        return self.start('64m', http=OURS, server=place('full', EVERY))

    def fill(self, p):
        helper = p.helper()
        p.signal('STOP', helper)
        self.stopped.append(helper)
        for size in (65536, 1024):      # until nothing fits
            done = stage.load(p.port, '/full/x', bodies.chat(size), .3)
            self.seen['full'] += done['requests']

    def resume(self):
        while self.stopped:
            os.kill(self.stopped.pop(), signal.SIGCONT)

    def slow(self):
        return self.start('64m', http=OURS, server=place('slow', EVERY),
                          tool=['env', f'LD_PRELOAD={stage.BUILD}/slow.so',
                                'LLM_CAPTURE_SLOW=100'],
                          main='env LLM_CAPTURE_SLOW; env LD_PRELOAD;')

    def plain(self):
        return self.start(http=PLAIN_HTTP, server=PLAIN_SERVER, module=False)

    def script(self):
        return self.start(http=SCRIPT_HTTP, server=SCRIPT_SERVER,
                          module=False, load=SCRIPT_LOAD)

    def written(self, name):
        p = self.proxy[KIND[name]]
        return p.file(name + '.jsonl' if KIND[name] in OUR_KINDS else name)

    def others(self, name):
        """What works for a variant beside the workers."""
        pids = self.proxy[KIND[name]].others()
        if name == 'mirror':
            pids = pids + self.drop.workers()
        return [p for p in pids if p not in self.stopped]

    def turn(self, name, body, seconds, h2=False, **options):
        """One turn: figures of the load, of processor time, of the check."""
        p = self.proxy[KIND[name]]
        path = self.written(name)
        gor = Goreplay(p.port, path) if name == 'goreplay' else None
        others = self.others(name)
        if gor:
            others = [gor.process.pid]
        try:
            before = stage.cpu(p.workers()), stage.cpu(others)
            done = stage.load(p.port2 if h2 else p.port,
                              options.pop('uri', f'/{name}/x'),
                              body, seconds, h2=h2, **options)
            if name not in NOTHING and name != 'mirror':
                self.settle(name, path, len(body), done['requests'], p)
            n = done['requests']
            done['worker'] = (stage.cpu(p.workers()) - before[0]) / n
            done['other'] = (stage.cpu(others) - before[1]) / n
        finally:
            if gor:
                gor.stop()
        self.seen[name] += n
        self.judge(name, path, body, done)
        return done

    def settle(self, name, path, size, n, p):
        """Waits until it has written all, or writes no more."""
        if name == 'access_log':
            p.signal('USR1')
        want = 0 if name in DROPS else n * size
        last, quiet = -1, 0
        patience = 150 if name == 'goreplay' else 20

        def still():
            nonlocal last, quiet
            now = os.path.getsize(path) if os.path.exists(path) else 0
            quiet = quiet + 1 if now == last else 0
            last = now
            return quiet >= (2 if want and now >= want else patience)
        wait_for(still, f'{name} to write', 60, step=.02)

    def judge(self, name, path, body, done):
        done['why'] = ''
        if name in ('off', 'none', 'mirror'):
            return
        found = check.find(path, body, escape=name == 'access_log')
        self.lines[name] += len(found.numbers)
        done['recorded'] = len(found.numbers)
        done['bytes'] = found.bytes
        done['why'] = found.verdict(done['requests'], done['first'],
                                    name in DROPS)
        if os.path.exists(path):
            os.truncate(path, 0)

    def account(self, kind, p):
        """The module's own sums against what was sent and found."""
        for name in self.names:
            if KIND[name] != kind or name == 'off':
                continue
            bad, row = [], None
            try:
                row = p.counters(p.file(name + '.jsonl'))
            except AssertionError:
                bad.append('its sum is not exact')
            if row is None:
                bad = bad or ['no counters']
            else:
                if row['seen'] != self.seen[name]:
                    bad.append(f"seen {row['seen']} of {self.seen[name]}")
                found = self.lines[name] + lines_of(p.file(name + '.jsonl'))
                if row['recorded'] != found or row['pending']:
                    bad.append(f"recorded {row['recorded']}, found {found}")
            self.sums[name] = '; '.join(bad)
