"""An nginx with the module, in a directory of its own.

    from llmcapture import *

    with Upstream() as up, Nginx(up, location='llm_capture on;') as ng:
        is_(request(ng.port, '/v1/completions', BODY).status, 200, 'served')
        rows = ng.wait_records('completions', 1)
        is_(rows[0].payload, BODY, 'recorded as sent')
        ng.quit()
        is_(ng.counters()['recorded'], 1, 'counted')

When the block ends nginx is stopped, and two checks come for free: no alert
in the error log, no process left.  Environment:

    LLM_CAPTURE_NGINX    the binary (default: nginx)
    LLM_CAPTURE_MODULE   the .so (default: the one in build/); empty: static
    LLM_CAPTURE_KEEP     keep the directories, and say where they are
"""

import grp
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from client import H2, Connection, Response, request        # noqa: F401
from procs import (alive, children, free_port, listens,      # noqa: F401
                   processes,
                   wait_for, wait_gone)
from rows import Row, parse, records                         # noqa: F401
from tap import case, diag, is_, like, ok, skip, skip_all   # noqa: F401
from upstream import Upstream                               # noqa: F401
import upstream as mock                                     # noqa: F401

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
NGINX = os.environ.get('LLM_CAPTURE_NGINX') or shutil.which('nginx') \
    or '/usr/sbin/nginx'
MODULE = os.environ.get('LLM_CAPTURE_MODULE', os.path.join(
    TOP, 'build/ngx_http_llm_capture_module.so'))
KEEP = os.environ.get('LLM_CAPTURE_KEEP')
ROOT = os.geteuid() == 0
USER = 'nobody' if ROOT else pwd.getpwuid(os.geteuid()).pw_name

HELPER = 'nginx: llm capture helper process'
WORKER = 'nginx: worker process'

CONF = """
%%LOAD%%
daemon %%DAEMON%%;
worker_processes %%WORKERS%%;
pid %%DIR%%/nginx.pid;
error_log %%DIR%%/error.log %%LEVEL%%;
%%MAIN%%

events {
    worker_connections 512;
}

http {
    access_log off;
    client_body_temp_path %%DIR%%/body;
    proxy_temp_path %%DIR%%/proxy;
    fastcgi_temp_path %%DIR%%/fastcgi;
    uwsgi_temp_path %%DIR%%/uwsgi;
    scgi_temp_path %%DIR%%/scgi;
    client_max_body_size 16m;
    proxy_http_version 1.1;
    %%HTTP%%

    upstream llm {
        server 127.0.0.1:%%UPSTREAM%%;
    }

    server {
        listen 127.0.0.1:%%PORT%%%%LISTEN%%;
        %%SERVER%%

        location / {
            proxy_pass http://llm;
            %%LOCATION%%
        }
    }
}
"""

CAPTURE_PATH = 'llm_capture_path %%DIR%%/capture/' \
               'requests.$llm_capture_endpoint.jsonl;'


def user_line(user):
    if not ROOT:
        return ''
    group = grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name
    return f'user {user} {group};'


class Nginx:
    """
    main, http, server, location   put into CONF at these places
    path      the llm_capture_path line, '' for none
    conf      instead of CONF; %%DIR%%, %%PORT%%... are put in as well
    allow     alerts of the error log that match this are no failure
    prefix    the directory to make the temporary one in
    spawn     more arguments of Popen: env, umask
    """

    def __init__(self, upstream=None, main='', http='', server='', location='',
                 listen='', path=CAPTURE_PATH, conf=CONF, workers=1,
                 daemon=False, level='notice', allow=None, prefix=None,
                 user=USER, start=True, spawn=None):
        self.dir = tempfile.mkdtemp(prefix='llm-capture-', dir=prefix)
        os.chmod(self.dir, 0o755)
        self.daemon, self.allow, self.spawn = daemon, allow, spawn or {}
        self.process = self.master = None
        self.port = free_port()
        self.conf_file = self.dir + '/nginx.conf'
        self.error_file = self.dir + '/error.log'
        self.words = {
            'LOAD': f'load_module {MODULE};' if MODULE else '',
            'DAEMON': 'on' if daemon else 'off', 'WORKERS': workers,
            'LEVEL': level, 'HTTP': path + http, 'SERVER': server,
            'LOCATION': location, 'LISTEN': f' {listen}' if listen else '',
            'MAIN': user_line(user) + main,
            'UPSTREAM': upstream.port if upstream else 1,
            'DIR': self.dir, 'PORT': self.port}
        self.make_capture_dir()
        self.configure(conf)
        if start:
            try:
                self.start()
            except BaseException:
                self.finish()
                raise

    def make_capture_dir(self):
        os.mkdir(self.dir + '/capture', 0o700)
        if ROOT:
            shutil.chown(self.dir + '/capture', USER)

    def configure(self, conf=None, **words):
        """Writes the configuration anew; words: location='...' and so on."""
        self.conf = conf or self.conf
        for name, value in words.items():
            self.words[name.upper()] = value
        text = self.conf
        for _ in range(3):              # a word may hold others
            for name, value in self.words.items():
                text = text.replace(f'%%{name}%%', str(value))
        with open(self.conf_file, 'w') as f:
            f.write(text)

    def command(self, *args):
        return [NGINX, '-p', self.dir, '-e', self.error_file,
                '-c', self.conf_file, *args]

    def run(self, *args, timeout=60):
        """Runs the binary beside: (exit code, what it said)."""
        done = subprocess.run(self.command(*args), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, timeout=timeout)
        return done.returncode, done.stdout

    def test(self, conf=None, **words):
        """nginx -t with this configuration: (exit code, what it said)."""
        self.configure(conf, **words)
        return self.run('-t')

    # life cycle

    def start(self):
        with open(self.dir + '/stderr', 'ab') as err:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=err,
                stderr=err, start_new_session=True, **self.spawn)

        if self.daemon:
            if self.process.wait(30):
                raise RuntimeError('nginx did not start: ' + self.log())
            self.process = None

        self.master = self.wait_pid()
        wait_for(self.serves, 'nginx to serve')
        self.wait_workers()

    def wait_workers(self):
        """The sockets listen before there is a worker, or it has its title."""
        with open(self.conf_file) as f:
            text = f.read()
        n = re.search(r'^worker_processes (\d+);', text, re.M)
        if n and not re.search(r'master_process\s+off;', text):
            wait_for(lambda: len(self.workers()) == int(n.group(1)),
                     'all workers')

    def wait_pid(self, other_than=None):
        def read():
            if self.process and self.process.poll() is not None:
                raise RuntimeError('nginx did not start: ' + self.log()
                                   + open(self.dir + '/stderr').read())
            try:
                pid = int(open(self.dir + '/nginx.pid').read())
            except (OSError, ValueError):
                return None
            return None if pid == other_than else pid
        return wait_for(read, 'the pid file')

    def serves(self):
        try:
            socket.create_connection(('127.0.0.1', self.port), 5).close()
            return True
        except ConnectionRefusedError:
            return False

    def children(self, title=''):
        return sorted(p[0] for p in children(self.master)
                      if p[2].startswith(title))

    def workers(self):
        """Those that serve, not those that shut down."""
        return sorted(p[0] for p in children(self.master)
                      if p[2] == WORKER)

    def all_workers(self):
        """None as long as one has no title yet."""
        found = self.workers()
        return found if len(found) == self.words['WORKERS'] else None

    def helpers(self):
        return self.children(HELPER)

    def helper(self):
        """The pid of the one helper, once there is just one."""
        return wait_for(lambda: (self.helpers() + [0])[0]
                        if len(self.helpers()) == 1 else 0, 'one helper')

    def signal(self, sig, pid=None):
        os.kill(pid or self.master, getattr(signal, 'SIG' + sig))

    def reload(self, **words):
        """Until all old workers have stopped to accept and new ones serve."""
        old = set(wait_for(self.all_workers, 'all workers'))
        if words:
            self.configure(**words)
        self.signal('HUP')
        wait_for(lambda: self.all_workers() and not old & set(self.workers()),
                 'new workers')
        # the title of an old one changes before it leaves its sockets
        wait_for(lambda: not any(listens(pid) for pid in old),
                 'the old workers to take no more')
        wait_for(self.serves, 'the new workers to serve')

    def reload_fails(self, **words):
        """A reload with a configuration that is refused."""
        self.configure(**words)
        size = len(self.log())
        self.signal('HUP')
        return wait_for(lambda: re.findall(r'\[emerg\].*', self.log()[size:]),
                        'the refusal')

    def reopen(self):
        """USR1; until all workers have opened their files anew."""
        size, pids = len(self.log()), self.workers()
        self.signal('USR1')
        wait_for(lambda: all(
            re.search(rf' {pid}#\d+: reopening logs', self.log()[size:])
            for pid in pids), 'the workers to reopen')

    def stop(self, sig='QUIT', timeout=30):
        """Signals the master and waits until all its processes are gone."""
        if self.master is None:
            return
        family = [self.master] + self.children()
        try:
            self.signal(sig)
        except ProcessLookupError:
            pass
        if self.process:
            self.process.wait(timeout)
            self.process = None
        for pid in family:
            wait_gone(pid, timeout)
        self.master = None

    def quit(self, timeout=30):
        self.stop('QUIT', timeout)

    # what it left

    def path(self, name):
        """'chat' -> the file of that endpoint; a name with a dot -> as is."""
        if '.' not in name:
            name = f'requests.{name}.jsonl'
        return os.path.join(self.dir, 'capture', name)

    def records(self, name):
        return records(self.path(name))

    def wait_records(self, name, n, timeout=20):
        """The rows, once there are n of them or more, and no part of one."""
        def enough():
            try:
                with open(self.path(name), 'rb') as f:
                    data = f.read()
            except FileNotFoundError:
                return None
            return data if data.count(b'\n') >= n \
                and data.endswith(b'\n') else None
        data = wait_for(enough, f'{n} records in {name}', timeout)
        return parse(data, self.path(name))

    def log(self):
        try:
            with open(self.error_file, errors='replace') as f:
                return f.read()
        except FileNotFoundError:
            return ''

    LINE = re.compile(r'llm capture: "(.*)" seen (\d+) = (.*), '
                      r'bytes (\d+), write_errors (\d+)'
                      r'(?:, answers (?P<answers>\d+) = (?P<outcomes>.*))?, '
                      r'zone (?P<zone>[\d.]+)')

    def counters(self, template=None):
        """What was last logged for a path, of the last path by default.

        Checks the sum: seen = recorded + pending + each reason.
        """
        rows = {}
        for name, seen, terms, size, errors, *_ in self.LINE.findall(
                self.log()):
            row = {k: int(v) for k, v in
                   (term.split() for term in terms.split(' + '))}
            if sum(row.values()) != int(seen):
                raise AssertionError(f'{name}: {row} is not {seen}')
            row.update(seen=int(seen), bytes=int(size),
                       write_errors=int(errors))
            rows.pop(name, None)
            rows[name] = row
        if template is None and rows:
            return list(rows.values())[-1]
        return rows.get(template)

    def alerts(self):
        """Alerts and worse that are not allowed, sanitizer reports.

        But for undefined behaviour in files of nginx itself, which has some.
        """
        text = self.log()
        if os.path.exists(self.dir + '/stderr'):
            text += open(self.dir + '/stderr', errors='replace').read()
        found = re.findall(r'.*(?:\[alert\]|\[emerg\]|Sanitizer|'
                           r'runtime error:).*', text)
        nginx = r'^src/(core|event|http|os)/(?!.*llm_capture).*runtime error:'
        return [line for line in found
                if not (self.allow and re.search(self.allow, line))
                and not re.search(nginx, line)]

    # the end

    def finish(self):
        left = []
        if self.master is not None:
            family = [self.master] + self.children()
            try:
                self.stop('QUIT', 15)
            except (TimeoutError, subprocess.TimeoutExpired):
                pass
            for pid in family:
                try:
                    os.kill(pid, signal.SIGCONT)
                    os.kill(pid, signal.SIGKILL)
                    left.append(pid)
                except ProcessLookupError:
                    pass
            if self.process:
                self.process.wait(10)
        if KEEP:
            diag('kept ' + self.dir)
        else:
            shutil.rmtree(self.dir, ignore_errors=True)
        return left

    def __enter__(self):
        return self

    def __exit__(self, kind, value, tb):
        if kind:
            diag('nginx said:', *self.log().splitlines()[-30:],
                 file=sys.stderr)
        else:
            try:
                if self.master is not None:
                    self.quit()
            except (TimeoutError, subprocess.TimeoutExpired):
                pass
            alerts = self.alerts()
            ok(not alerts, 'no alerts', '\n'.join(alerts))
        left = self.finish()
        if not kind:
            ok(not left, 'no process left', left)
