#
# Copyright (C) the llm-capture authors
#
# The fault matrix: faults staged under load, each proven from a ledger.
#
#     @row('helper: kill -9', 'killed once', daemons=(False, True))
#     def helper_killed(s):
#         pid = s.helper()
#         s.load.more(200)
#         s.signal('KILL', pid)
#         s.new_helper(pid)
#         s.load.more(200)
#
#     run()
#
# A row runs with request buffering and without, where it says so also with
# "daemon on".  The load runs before its function begins; the function may
# stop it, or nginx.  Then the driver settles the account:
#
#     each request answered 2xx is in a file once, or in one counter
#     no line torn or changed, none twice, none that was not sent
#     answers as those of the same requests without capture
#     no alert but the expected, no process left
#     descriptors, helpers and memory as before the fault
#
# LLM_CAPTURE_ROWS: a pattern of the rows to run; LLM_CAPTURE_LONG: the long
# ones too.

import json
import os
import re
import signal
import socket
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, 't/lib'))

from ledger import (PATH, SHAPES, VERDICT, Account,         # noqa: E402,F401
                    Ledger, body)
from life import (KILLED, Lives, accepted, fds, state,      # noqa: E402,F401
                  status, title)
from llmcapture import (CAPTURE_PATH, H2, HELPER, MODULE,   # noqa: E402,F401
                        WORKER, Connection, Nginx, alive, case, diag,
                        free_port, is_, like, mock, ok, processes, request,
                        skip, wait_for, wait_gone)
from load import Load, numbered, send                       # noqa: E402,F401
from snapshot import (SANITIZED, check_back, check_memory,  # noqa: E402,F401
                      shared, snapshot)
from tap import failures, trial                             # noqa: E402,F401

LONG = bool(os.environ.get('LLM_CAPTURE_LONG'))
ONLY = os.environ.get('LLM_CAPTURE_ROWS', '')
RESULTS = os.path.join(TOP, 'build/faults')

sys.setswitchinterval(0.0005)           # for clients that send byte by byte

ID = re.compile(rb'"id":"([0-9a-f]{16})"')

CONTAINER = ('unshare', '-p', '-f', '--mount-proc', '--kill-child')

BUFFERED, UNBUFFERED, OUTCOMES = 'buffered', 'unbuffered', 'outcomes'
MODES = {BUFFERED: '', UNBUFFERED: 'proxy_request_buffering off;',
         OUTCOMES: 'llm_capture_outcome on;'}

# the backend is an nginx of its own that takes the whole body before it
# answers, with the number of the request and the length that came
BACKEND = """
daemon off;
worker_processes 1;
pid %%DIR%%/nginx.pid;
error_log %%DIR%%/error.log notice;
%%MAIN%%
events { worker_connections 8192; }
http {
    access_log off;
    client_body_temp_path %%DIR%%/body;
    proxy_temp_path %%DIR%%/proxy;
    fastcgi_temp_path %%DIR%%/fastcgi;
    uwsgi_temp_path %%DIR%%/uwsgi;
    scgi_temp_path %%DIR%%/scgi;
    client_max_body_size 64m;
    client_body_buffer_size 512k;
    server {
        listen 127.0.0.1:%%PORT%% backlog=4096;
        location / {
            proxy_pass http://127.0.0.1:%%UPSTREAM%%;
        }
        location /early {
            return 200 "early\\n";
        }
    }
    server {
        listen 127.0.0.1:%%UPSTREAM%% backlog=4096;
        location / {
            return 200 "$http_x_n $content_length\\n";
        }
    }
}
"""


class Backend(Nginx):
    def __init__(self):
        super().__init__(conf=BACKEND, start=False)
        self.words.update(LOAD='', UPSTREAM=free_port())
        self.configure()
        self.start()


class Stage(Lives):
    """
    The nginx of a row, with its load and its ledger.

    files   open ones, read as well: what was deleted is still in them
    due     counters: at least that
    exact   counters: just that
    ends    what is undone at the end: [function]
    """

    def __init__(self, row, backend, control, mode, daemon, ledger=None, **kw):
        self.row, self.mode = row, mode
        self.backend, self.control = backend, control
        self.ledger = ledger or Ledger(control, row.length)
        self.before = self.load = None
        self.due, self.exact, self.more = {}, {}, {}
        self.files, self.ends = [], []
        kw = {**row.conf, **kw}
        location = kw.pop('location', 'llm_capture on;')
        # a disk is filled to its end here
        kw['http'] = kw.get('http', '') + 'llm_capture_min_free off;'
        super().__init__(backend, location=self.place(location),
                         daemon=daemon, workers=kw.pop('workers', 2),
                         allow=row.allow, start=False, **kw)
        try:
            if row.prepare:
                row.prepare(self)
            self.start()
        except BaseException:
            self.finish()
            raise

    def finish(self):
        """Also of masters that are no longer looked at, or dead."""
        while self.ends:
            self.ends.pop()()
        left = super().finish()
        # a master first, or it would start others
        for pid, _, name in sorted(
                processes(), key=lambda p: 'master' not in p[2]):
            if name.startswith('nginx: ') and any(
                    v.startswith(self.dir + '/') for v in fds(pid).values()):
                os.kill(pid, signal.SIGKILL)
                left.append(pid)
        return left

    def place(self, location):
        """With the mode, and answers that say what became of a request."""
        if 'llm_capture ' in location:
            location += f'add_header {VERDICT} $llm_capture_status;'
        return location + MODES[self.mode]

    def configure(self, conf=None, **words):
        if 'location' in words:
            words['location'] = self.place(words['location'])
        super().configure(conf, **words)

    def command(self, *args):
        command = super().command(*args)
        if self.row.container and not args:
            command = [*CONTAINER, *command]
        return command

    def wait_pid(self, other_than=None):
        if not self.row.container:
            return super().wait_pid(other_than)
        return wait_for(lambda: [p[0] for p in processes()
                                 if p[1] == self.process.pid],
                        'the container')[0]

    def another(self):
        """One more nginx on the same files and the same ledger."""
        return Stage(self.row, self.backend, self.control, self.mode, False,
                     self.ledger, path=CAPTURE_PATH.replace('%%DIR%%',
                                                            self.dir))

    def add(self, other):
        """Its numbers go into the sum, once it has quit."""
        for k, v in other.counters().items():
            self.more[k] = self.more.get(k, 0) + v

    def reload_helper(self, **words):
        """A reload: the pid of the next helper."""
        old = set(self.helpers())
        self.reload(**words)
        pid, = wait_for(lambda: set(self.helpers()) - old, 'the next helper')
        return pid

    def start_load(self, **kw):
        self.load = Load(self, **kw)
        self.load.more(2 * SHAPES)
        return self.load

    def hold(self, part=0.5, length=None, more=0, chunked=False, path=PATH,
             wait=True):
        """An upload that a worker has begun to read; let_go() or cut() it.

        Half of the body comes with the head, in one piece: what nginx reads
        later it shows to nobody before there is more of it.

        part    of the body that comes so, 0 to 1
        length  of the body
        more    bytes that are announced and will not come
        wait    until the worker has worked on it, or by handled() of several
        """
        c = Connection(self.port)
        c.n = self.ledger.next()
        data = body(c.n, length or self.ledger.length)
        at = int(len(data) * part)
        c.rest = data[at:]
        c.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        c.head(path, None if chunked else len(data) + more,
               numbered(c.n, {'Expect': '100-continue'}))
        if at:
            (c.chunk if chunked else c.send)(data[:at])
        c.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        if wait:
            self.handled([c])
        return c

    def handled(self, connections):
        for c in connections:
            if c.file.readline().split()[1] != b'100':
                raise RuntimeError('no 100 Continue')
            c.file.readline()
        for pid in self.workers():
            wait_for(lambda: state(pid) in ('S', ''), 'it to be handled')

    def let_go(self, c):
        c.send(c.rest)
        self.ledger.answer(c.n, c.response())
        c.close()

    def cut(self, c):
        self.ledger.no_answer(c.n, 'cut')
        c.close()

    def account(self):
        return Account(self.ledger, self.dir + '/capture', files=self.files)

    def wait_drained(self, since=0, timeout=60):
        """Until what has been answered so far is in the files."""
        goal = self.ledger.answered - self.ledger.not_captured() \
            - self.ledger.turned_down()
        goal = {n for n in goal if n > since}
        wait_for(lambda: goal <= set(self.account().lines),
                 'the records of all answers', timeout, 0.05)

    def old_zones_over(self):
        """Until the helper has left those that reloads replaced."""
        own = max(self.before['shared memory']['helper'])
        wait_for(lambda: all(shared(p) <= own for p in self.helpers()),
                 'the old zones to end')

    def queued(self):
        """One more request: was it queued?  If so it is in the file now."""
        n = self.ledger.next()
        with Connection(self.port) as c:
            send(c, n, data=self.ledger.body(n))
            self.ledger.answer(n, c.response())
        self.wait_drained(since=n - 1)
        return n in self.ledger.with_verdict('queued')

    def wait_room(self):
        """A line is in the file a moment before its room is given back."""
        wait_for(self.queued, 'room in the queue')

    def counters(self):
        """The sums over all paths and zones, of the last reports of each."""
        last = {}
        for line in self.log().splitlines():
            found = self.LINE.search(line)
            if found:
                last[found['zone'], found[1]] = line
        total = dict(self.more)
        self.outcomes = {}
        for line in last.values():
            found = self.LINE.search(line)
            name, seen, terms, _, errors, *_ = found.groups()
            self.add_outcomes(name, found)
            row = {k: int(v) for k, v in
                   (term.split() for term in terms.split(' + '))}
            if sum(row.values()) != int(seen):
                raise AssertionError(f'{name}: {row} is not {seen}')
            for k, v in dict(row, seen=int(seen),
                             write_errors=int(errors)).items():
                total[k] = total.get(k, 0) + v
        return total


    def add_outcomes(self, name, found):
        """To the sum of answers."""
        if found['answers'] is None:
            return
        row = {k: int(v) for k, v in
               (t.rsplit(' ', 1) for t in found['outcomes'].split(' + '))}
        if sum(row.values()) != int(found['answers']):
            raise AssertionError(f'{name}: {row} is not {found["answers"]}')
        for k, v in dict(row, answers=int(found['answers'])).items():
            if v:
                self.outcomes[k] = self.outcomes.get(k, 0) + v


# a row

class Row:
    """
    name, did  what stands in the table
    modes      of request buffering, or with outcomes
    daemons    of "daemon"
    cuts       clients may get no answer: their worker is killed, or they go
    drops      counters that may be other than 0, besides recorded
    allow      alerts that belong to the fault
    stays      what it leaves behind is not as it was before, by intent
    lossy      what another program loses is not in the sum: copytruncate
    uncounted  the numbers are lost with the memory
    container  nginx is process 1 of a pid namespace
    prepare    function of the stage, before nginx starts
    length     of all bodies, in place of the sizes of ledger.py
    long       only in the long run
    load       arguments of Load; None: the row sends by itself
    conf       of Nginx
    """

    def __init__(self, function, name, did, modes=(BUFFERED, UNBUFFERED),
                 daemons=(False,), cuts=False, drops=(), allow=None,
                 stays=False, lossy=False, uncounted=False, container=False,
                 prepare=None, length=None, long=False, load={}, **conf):
        self.function, self.name, self.did = function, name, did
        self.modes, self.daemons = modes, daemons
        self.cuts, self.drops, self.allow = cuts, set(drops), allow
        self.stays, self.lossy, self.long = stays, lossy, long
        self.uncounted, self.container = uncounted, container
        self.prepare, self.length = prepare, length
        self.load, self.conf = load, conf

    def variants(self):
        for mode in self.modes:
            for daemon in self.daemons:
                yield mode, daemon


ROWS = []


def row(name, did, **kw):
    def add(function):
        ROWS.append(Row(function, name, did, **kw))
        return function
    return add


def play(r, backend, control, mode, daemon):
    name = f"{r.name}, {mode}{', daemon' if daemon else ''}"
    failed = failures()
    result = {'row': r.name, 'did': r.did, 'mode': mode, 'daemon': daemon}
    with case(name), Stage(r, backend, control, mode, daemon) as s:
        if r.load is not None:
            s.start_load(**r.load).stop()
            s.wait_drained()
        s.helper()
        s.before = snapshot(s)
        if r.load is not None:
            s.start_load(**r.load)
        try:
            r.function(s)
        finally:
            if s.load:
                s.load.stop()
        if s.master:
            check_back(s, name)
            s.quit(60)
        settle(s, name, result)
    result['good'] = failures() == failed
    return result


def summed(s, name):
    try:
        return s.counters()
    except AssertionError as e:
        ok(False, f'{name}: the terms make up what was seen', e)
        return {}


def settle(s, name, result):
    """From the ledger, the files and the last report."""
    r, led = s.row, s.ledger
    account = s.account()
    row = {} if r.uncounted else summed(s, name)
    seen, recorded = row.get('seen', 0), row.get('recorded', 0)
    counted = seen - recorded
    off, refused = led.not_captured(), led.turned_down()
    twice = account.twice()
    lost = 0 if r.lossy else account.lost(row)

    ok(not account.torn, f'{name}: no line torn', account.torn[:5])
    is_(twice[:20], [], f'{name}: none twice')
    is_((account.changed[:5], account.strangers()[:5]), ([], []),
        f'{name}: each line is a body that was sent')
    is_(sorted((off | refused) & set(account.lines))[:20], [],
        f'{name}: none that was not to be recorded')
    is_(led.wrong[:3], [], f'{name}: answers as without capture')
    if not r.cuts:
        bad = {n: why for n, why in led.cut.items() if why != 'reused'}
        is_((bad, led.refused), ({}, {}),
            f'{name}: every request was answered')
    is_(lost, 0, f'{name}: none of {len(led.answered)} lost')

    if not r.uncounted:
        others = {k: v for k, v in row.items() if v and k not in
                  ('seen', 'recorded', 'write_errors') and k not in r.drops}
        is_(others, {}, f'{name}: nothing counted but what is due')
        is_({k: (row[k], v) for k, v in s.due.items() if row[k] < v}, {},
            f'{name}: and all that is due')
        ok(len(led.answered - off) <= seen <= led.sent - len(off),
           f'{name}: each was seen once',
           f'{len(led.answered)} answered, {seen} seen, {led.sent} sent, '
           f'{len(off)} without capture')
        if s.exact:
            is_({k: row.get(k) for k in s.exact}, s.exact,
                f'{name}: counted to the last one')
        ok(recorded == account.recorded
           or r.lossy and recorded > account.recorded,
           f'{name}: the counter agrees with the files',
           f'{recorded} recorded, {account.recorded} in the files')

    if s.mode == OUTCOMES:
        settle_outcomes(s, name, recorded)

    result.update(sent=led.sent - len(off), answered=len(led.answered - off),
                  recorded=account.recorded, counted=counted, lost=lost,
                  twice=len(twice), torn=len(account.torn))


def ids(s, end):
    found = []
    for top, _, names in os.walk(s.dir + '/capture'):
        for path in (os.path.join(top, n) for n in names if n.endswith(end)):
            with open(path, 'rb') as f:
                found += [ID.search(line)[1] for line in f]
    return found


def settle_outcomes(s, name, recorded):
    """Each record has one outcome, or one count of why it has none."""
    rows, records = ids(s, '.outcomes'), ids(s, '.jsonl')
    terms = s.outcomes
    is_(len(rows), len(set(rows)), f'{name}: no outcome twice')
    is_(sorted(set(rows) - set(records))[:5], [],
        f'{name}: each is that of a record')
    is_((terms.get('answers'), terms.get('outcomes')), (recorded, len(rows)),
        f'{name}: the sum of outcomes agrees with the files')
    if not s.row.cuts:
        due = {'answers', 'outcomes', *(f'outcome_{d}' for d in s.row.drops)}
        is_(set(terms) - due, set(), f'{name}: none is missing')


def run(play=play):
    """All rows of the script; results in build/faults/NAME.json."""
    control, results = {}, []
    rows = [r for r in ROWS if re.search(ONLY, r.name)
            and (LONG or not r.long)]
    if any(r.container for r in rows) and not can_contain():
        skip('nginx as process 1', 'no pid namespace is to be had')
        rows = [r for r in rows if not r.container]
    with Backend() as backend:
        for length in {r.length for r in rows}:
            learn(backend, control, length)
        for r in rows:
            for mode, daemon in r.variants():
                results.append(play(r, backend, control, mode, daemon))
    if None in results or SANITIZED:
        return                          # not those of the matrix
    os.makedirs(RESULTS, exist_ok=True)
    name = os.path.basename(sys.argv[0]).rpartition('.')[0]
    with open(f'{RESULTS}/{name}.json', 'w') as f:
        json.dump(results, f, indent=1)


def can_contain():
    """A pid namespace to be process 1 of: some machines refuse it."""
    return not subprocess.run([*CONTAINER, 'true'],
                              stderr=subprocess.DEVNULL).returncode


def learn(backend, control, length):
    """What clients get without capture: the measure of all rows."""
    r = Row(None, 'capture off', '', length=length, location='', path='',
            http='')
    with Stage(r, backend, control, BUFFERED, False) as s:
        with Connection(s.port) as c:
            for _ in range(SHAPES + 1):
                n = s.ledger.next()
                send(c, n, data=s.ledger.body(n))
                s.ledger.answer(n, c.response())
        is_(s.ledger.refused, {}, 'served without capture')
