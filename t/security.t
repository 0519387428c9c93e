#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# What an attacker gets: no file through root, no secret through a log, a
# process or a core file, no file name of his choice, no time of a worker, no
# place in the queue that others need.

import glob
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from life import Life, status, title        # noqa: E402
from llmcapture import *                    # noqa: E402,F403
from llmcapture import TOP                  # noqa: E402
from traffic import *                       # noqa: E402,F403
import trickle                              # noqa: E402

PASS = 'location / { proxy_pass http://llm; }'
CHAT = '/v1/chat/completions'


# what a process does as root: only that, below where the worker may write

LOOKS = {'stat', 'lstat', 'newfstatat', 'statx', 'access', 'faccessat',
         'readlink', 'readlinkat'}
MAKES = {'mkdir', 'mkdirat', 'chmod', 'fchmodat', 'lchown', 'fchownat'}


def calls(trace):
    """(name, arguments) of the calls of each process, before and after it
    became somebody else."""
    for name in sorted(os.listdir(trace)):
        root = True
        with open(os.path.join(trace, name), errors='replace') as f:
            for line in f:
                found = re.match(r'([a-z0-9_]+)\((.*)', line)
                if not found:
                    continue
                if found[1] == 'setuid':
                    root = False
                else:
                    yield name, root, found[1], found[2]


def test_root():
    """Strace of a whole life, with a umask that takes nothing."""
    before = os.umask(0)
    try:
        ng = Life(prefix='/var/lib', path='', http='llm_capture_path '
                  '%%DIR%%/made/requests.$llm_capture_endpoint.jsonl;',
                  location='llm_capture on;', start=False,
                  allow='exited on signal 9')
        command = ng.command
        trace = ng.dir + '/trace'
        os.mkdir(trace)
        ng.command = lambda *args: [
            'strace', '-ff', '-y', '-s', '4096', '-o', trace + '/pid',
            '-e', 'trace=%file,fchmod,fchown,ftruncate,setuid',
            *command(*args)]
        ng.path = lambda name: f'{ng.dir}/made/requests.{name}.jsonl'
        ng.start()
    finally:
        os.umask(before)

    with ng:
        ng.push(10)
        ng.settled('under strace')
        made = [(n, oct(stat.S_IMODE(st.st_mode)), st.st_uid) for n, st in
                [('', os.stat(ng.dir + '/made'))]
                + [(n, os.stat(f'{ng.dir}/made/{n}'))
                   for n in sorted(os.listdir(ng.dir + '/made'))]]
        uid = int(status(ng.helper(), 'Uid')[0])
        is_(made, [('', '0o700', uid),
                   ('requests.completions.jsonl', '0o600', uid),
                   ('requests.completions.jsonl.epoch', '0o600', uid)],
            'a umask of 0 opens nothing')

        old = ng.helper()
        ng.reload()
        ng.new_helper(old)
        ng.push(10)
        ng.reopen()
        ng.push(10)
        ng.settled('after a reload and USR1')
        pid = ng.backlog(10)
        ng.signal('KILL', pid)
        ng.new_helper(pid)
        ng.settled('after a kill')

        # the master's last child does the work of one that hangs
        ng.backlog(10)
        master = ng.master
        ng.stop('TERM')
        ng.whole('written by the last child')

        as_root, as_user = {}, {}
        for name, root, call, args in calls(trace):
            if ng.dir + '/made' in args:
                (as_root if root else as_user).setdefault(call, []).append(
                    (name, args))
        diag('as root: ' + ', '.join(f'{k} {len(v)}'
                                     for k, v in sorted(as_root.items())),
             'as user: ' + ', '.join(f'{k} {len(v)}'
                                     for k, v in sorted(as_user.items())))
        odd = {k: v for k, v in as_root.items() if k not in LOOKS | MAKES}
        is_(odd, {}, 'root opens, moves and deletes nothing there')
        inside = [a for k in MAKES for _, a in as_root.get(k, [])
                  if ng.dir + '/made/' in a]
        is_(inside, [], 'nor makes or gives away anything in it')
        is_({n for v in as_root.values() for n, _ in v}, {f'pid.{master}'},
            'and it is the master alone that looks')

        opens = [a for k in ('open', 'openat') for _, a in as_user.get(k, [])]
        lines = [a for a in opens if re.search(r'\.jsonl", ', a)]
        ok(len(lines) >= 5, 'the helpers open their files', opens)
        is_([a for a in lines if not all(
            f in a for f in ('O_NOFOLLOW', 'O_CLOEXEC', 'O_NONBLOCK'))], [],
            'never through a link, for a child, or waiting')


def tree(top):
    """All that is there: name -> kind, mode, owner, contents."""
    found = {}
    for at, dirs, files in os.walk(top):
        for name in dirs + files + ['.']:
            path = os.path.join(at, name)
            st = os.lstat(path)
            data = None
            if stat.S_ISREG(st.st_mode):
                with open(path, 'rb') as f:
                    data = f.read()
            found[path] = (st.st_mode, st.st_uid, st.st_gid, data)
    return found


def test_planted():
    """Links that stood there before; what is behind them stays as it is."""
    sites = ('sidecar', 'temp', 'hard', 'root-hard')
    with Upstream() as up, Nginx(up, path='', http=WHAT + ''.join(
            server(n, PASS) for n in sites), start=False) as ng:
        at = ng.path
        os.mkdir(ng.dir + '/victim')
        for n in sites:
            with open(f'{ng.dir}/victim/{n}', 'w') as f:
                f.write('{"timestamp":0,"payload":{"keep":1}}\n')
        os.symlink(ng.dir + '/victim/sidecar', at('sidecar.jsonl.epoch'))
        os.symlink(ng.dir + '/victim/temp', at('temp.jsonl.epoch.tmp'))
        os.link(ng.dir + '/victim/root-hard', at('root-hard.jsonl'))
        os.chmod(ng.dir + '/victim/root-hard', 0o600)
        if ROOT:
            shutil.chown(ng.dir + '/victim/hard', USER)
        os.chmod(ng.dir + '/victim/hard', 0o640)
        os.link(ng.dir + '/victim/hard', at('hard.jsonl'))
        victims = tree(ng.dir + '/victim')

        ng.start()
        b = body(300)
        for n in sites:
            is_(ask(ng.port, whole(b, host=n)).status, 200, f'{n}: served')
        for n in ('sidecar', 'temp'):
            is_([r.payload for r in ng.wait_records(n + '.jsonl', 1)], [b],
                f'a link for its {n}: recorded')
            st = os.lstat(at(n + '.jsonl.epoch'))
            ok(stat.S_ISREG(st.st_mode), f'{n}: its own, no link')
        wait_for(lambda: len(open(at('hard.jsonl')).readlines()) == 2,
                 'the hard link')
        if ROOT:
            wait_for(lambda: 'root-hard.jsonl": cannot open' in ng.log(),
                     'the warning')
        os.unlink(at('root-hard.jsonl'))
        ng.wait_records('root-hard.jsonl', 1)

        now = tree(ng.dir + '/victim')
        hard = ng.dir + '/victim/hard'
        is_(now[hard][:3], victims[hard][:3],
            "a hard link to the user's own file: its mode stays")
        ok(now.pop(hard)[3].startswith(victims.pop(hard)[3]),
           'and what it held')
        is_(now, victims, 'what the links led to is as it was')


def test_swapped():
    """The directory becomes a link to one of root's, under way."""
    if not ROOT:
        return skip('a directory that is swapped', 'not root')

    with Life(prefix='/var/lib') as ng:
        ng.push(5)
        ng.settled('before the swap')
        real, moved = ng.dir + '/capture', ng.dir + '/moved'
        victim = ng.dir + '/victim'
        os.mkdir(victim)
        for n in ('', '.epoch', '.epoch.tmp'):
            with open(f'{victim}/requests.completions.jsonl{n}', 'w') as f:
                f.write('keep\n')
        before = tree(victim)
        os.rename(real, moved)
        os.symlink('victim', real)

        ng.push(5)
        wait_for(lambda: len(records(moved + '/requests.completions.jsonl'))
                 == 10, 'the open file')
        ng.reopen()
        ng.push(5)
        wait_for(lambda: '(13: Permission denied)' in ng.log(), 'the refusal')
        old = ng.helper()
        ng.reload()
        ng.new_helper(old)
        ng.push(5)
        is_(tree(victim), before, "root's files are as they were")

        os.unlink(real)
        os.rename(moved, real)
        ng.settled('once it is mended')
        ng.quit()
        ng.counted('a directory that was swapped')


def test_shared():
    """A directory where others can write: nothing goes into their files."""
    if not ROOT:
        return skip("another user's file", 'not root')

    with Upstream() as up, Nginx(up, path='', http=WHAT + server(
            'shared', PASS), start=False) as ng:
        os.chmod(ng.dir + '/capture', 0o1777)
        os.chown(ng.dir + '/capture', 0, 0)
        at = ng.path('shared.jsonl')
        with open(at, 'w'):
            pass
        os.chmod(at, 0o666)
        shutil.chown(at, 'daemon')
        ng.start()
        b = body(300)
        is_(ask(ng.port, whole(b, host='shared')).status, 200, 'served')
        wait_for(lambda: re.search(r'\[error\].*shared\.jsonl": cannot open '
                                   r'\(.*another user', ng.log()), 'the error')
        is_(os.path.getsize(at), 0, "nothing in another user's file")
        os.unlink(at)
        is_([r.payload for r in ng.wait_records('shared.jsonl', 1)], [b],
            'once it is gone, in one of its own')
        is_(oct(stat.S_IMODE(os.stat(at).st_mode)), '0o600', 'that is private')


# secrets

TOKENS = ['Authorization: Bearer TOKENCANARY-auth', 'x-api-key: TOKENCANARY-x',
          'Cookie: session=TOKENCANARY-cookie', 'api-key: TOKENCANARY-azure',
          'Proxy-Authorization: Basic TOKENCANARY-proxy',
          'X-Forwarded-User: TOKENCANARY-user',
          'Proxy-Connection: TOKENCANARY-connection']
ASK = CHAT + '?api_key=TOKENCANARY-query'
SECRET = b'{"model":"m","user":"BODYCANARY-user","api_key":"BODYCANARY-key",' \
         b'"messages":[{"role":"user","content":"BODYCANARY-text"}]}'
NAMES = {'off', 'queued', 'unmatched', 'sampled_out', 'encoded', 'too_large',
         'queue_full', 'bad_path', 'aborted'}

ARGS = """llm_capture_args '{"path":"%%DIR%%/capture/args.jsonl",
    "sample_rate":"BADVALUE","max_request_bytes":[],"unknown":{}}';"""

SITES = {
    'good': PASS,
    'unbuffered': 'proxy_request_buffering off;' + PASS,
    'unmatched': 'llm_capture_endpoint_pattern ^/x$;' + PASS,
    'sampled-out': 'llm_capture_sample_rate 0;' + PASS,
    'large': 'llm_capture_max_request_bytes 50;' + PASS,
    'directory': PASS,
    'raw': 'llm_capture_format raw_payload;' + PASS,
    'file': 'client_body_in_file_only clean; client_body_buffer_size 1k;'
            + PASS,
    'limit': 'client_max_body_size 60;' + PASS,
}

OTHERS = [*SITES, 'disk', 'args', 'bad-path']

INVALID = [SECRET[:-1], SECRET + b'x', b'[' + SECRET + b']',
           SECRET.replace(b'"m"', b'"\xff"'), SECRET.replace(b'"m"', b'1e999'),
           SECRET.replace(b'"m"', b'[' * 1100), b'"BODYCANARY-string"',
           SECRET.replace(b'"m"', b'"\\ud800"'), b'BODYCANARY-noise\0\n']


def secrets(ng, disk):
    """Requests of all fates."""
    def post(name, data, *headers, **kw):
        return ask(ng.port, whole(data, ASK, *TOKENS, *headers, host=name,
                                  **kw))

    for name in OTHERS:
        post(name, SECRET)
        post(name, SECRET, sizes=(30,))
    for data in INVALID:
        post('good', data)
        post('unbuffered', data, sizes=(10,))
    post('good', SECRET, 'Content-Encoding: gzip')
    post('raw', b'{"prompt":"BODYCANARY-prompt"}')

    post('bad-path', SECRET, 'X-A: x.e', 'X-B: poch')
    for i in range(3):
        # more than a ring holds, for while the helper stands still
        post('good', SECRET.replace(b'-text', b'-' + b'x' * 900000))

    for i in range(40):
        post('disk', SECRET.replace(b'-text', b'-' + b'x' * 1500))

    for name in ('good', 'unbuffered'):
        for sizes in (None, (20,)):
            with Client(ng.port) as c:
                c.say(whole(SECRET, ASK, *TOKENS, host=name,
                            sizes=sizes)[:-20])
                c.taken()
                c.reset()
    # not HTTP, and what follows a request
    with Client(ng.port) as c:
        c.say(b'POST ' + ASK.encode() + b' HTTP/9.9\r\nX: TOKENCANARY-bad\r\n'
              b'\r\n' + SECRET)
        c.gone()
    with Client(ng.port) as c:
        c.ask(whole(SECRET, ASK, *TOKENS, host='good') + b'TOKENCANARY-tail')
        c.gone()


def of_processes(pids):
    """What anybody can read of them, and their environment."""
    found = b''
    for pid in pids:
        for name in ('cmdline', 'comm', 'environ', 'status', 'wchan'):
            try:
                with open(f'/proc/{pid}/{name}', 'rb') as f:
                    found += f.read() + b'\n'
            except OSError:
                pass
    return found


def spill_secrets(ng, disk, on):
    """All fates, in all states of the helper; what processes show."""
    shown = b''
    secrets(ng, disk)
    if on:
        ng.wait_records('good.jsonl', 2)
        pid = ng.helper()
        ng.signal('STOP', pid)
        secrets(ng, disk)
        shown += of_processes(ng.children())
        ng.signal('KILL', pid)
        wait_for(lambda: ng.helpers() and ng.helpers() != [pid], 'a helper')
    ng.reopen()
    secrets(ng, disk)
    ng.reload()
    secrets(ng, disk)
    return shown + of_processes([ng.master] + ng.children())


def plain(line):
    """A log line without what changes from run to run."""
    line = re.sub(r'^\S+ \S+ (\[\w+\]) \d+#\d+: (\*\d+ )?', r'\1 ', line)
    line = re.sub(r'/llm-capture-\w+', '', line)
    return re.sub(r'0x\w+|[0-9A-F]{16}|\d+', 'N', line)


# nginx's own, which of them is a matter of moments
GONE = r'prematurely closed connection|Connection reset by peer|Broken pipe'


def with_tokens(log):
    return {plain(s) for s in log.splitlines()
            if 'CANARY' in s and not re.search(GONE, s)}


def containing(top, word):
    found = set()
    for at, _, files in os.walk(top):
        for name in files:
            with open(os.path.join(at, name), 'rb') as f:
                if word in f.read():
                    found.add(os.path.relpath(os.path.join(at, name), top))
    return found


def run_secrets(on, disk):
    http = WHAT + ARGS + ''.join(server(n, c) for n, c in SITES.items()) \
        + server('disk', PASS, path=disk + '/x.jsonl') \
        + server('bad-path', PASS,
                 path='%%DIR%%/capture/b$http_x_a$http_x_b') \
        + server('args', PASS).replace(
            'llm_capture_path %%DIR%%/capture/args.jsonl;', '')
    if not on:
        http = http.replace('llm_capture on;', 'llm_capture off;')

    with Upstream() as up, Nginx(
            up, path='', http=http + 'llm_capture_drain_timeout 200ms;'
            'llm_capture_max_queue_bytes 18m; llm_capture_min_free off;',
            level='debug', start=False,
            allow='exited on signal 9|requests lost') as ng:
        os.mkdir(ng.path('directory.jsonl'))
        ng.start()
        shown = spill_secrets(ng, disk, on)
        ng.quit()
        is_(shown.count(b'CANARY'), 0, 'no secret in what processes show')
        ok(b'helper process' in shown or not on, 'the helper was looked at')

        for n in os.listdir(disk):
            shutil.move(f'{disk}/{n}', f'{ng.dir}/capture/disk-{n}')
        states = {s.split()[0] for n in OTHERS
                  for s in log_lines(ng, n)}
        return ng.log(), containing(ng.dir, b'BODYCANARY'), \
            containing(ng.dir, b'TOKENCANARY'), states


def test_secrets():
    core = open('/proc/sys/kernel/core_pattern').read()
    disk = tempfile.mkdtemp(prefix='llm-capture-disk-')
    mounted = ROOT and not subprocess.run(
        ['mount', '-t', 'tmpfs', '-o', 'size=48k,mode=777', 'none', disk],
        stderr=subprocess.DEVNULL).returncode
    os.chmod(disk, 0o777)
    try:
        off, _, _, _ = run_secrets(False, disk)
        on, bodies, tokens, states = run_secrets(True, disk)
    finally:
        if mounted:
            subprocess.run(['umount', '-l', disk])
        shutil.rmtree(disk, ignore_errors=True)

    is_(states, NAMES, 'all fates were met')
    for what in ('invalid_json', 'invalid_utf8', 'invalid_number',
                 'invalid_depth', 'invalid_not_object', 'failed'):
        ok(re.search(rf' {what} [1-9]', on), f'{what}, too')
    ok('(28: No space' in on or not mounted, 'and a full disk')
    ok('[debug]' in on, 'at debug level')

    mine = [s for s in on.splitlines() if 'llm capture' in s or '"llm_' in s]
    ok(len(mine) > 20, 'there are lines of ours', len(mine))
    is_([s for s in mine if 'CANARY' in s], [], 'without a secret')
    is_([s for s in on.splitlines() if 'BODYCANARY' in s], [],
        'no body in the error log')
    is_(sorted(with_tokens(on) - with_tokens(off)), [],
        'and no line with a token that nginx alone has not')
    is_({n for n in bodies if not re.fullmatch(
        r'capture/([a-z-]+\.jsonl|bnonenone)', n)}, set(),
        'bodies are in capture files alone')
    ok('capture/good.jsonl' in bodies, 'and they are there')
    is_(tokens, {'error.log'}, 'tokens in the log of nginx alone')
    is_(open('/proc/sys/kernel/core_pattern').read(), core,
        'the core pattern is as it was')


def shared_maps(pid, least):
    """VmFlags of shared anonymous memory of that size or more."""
    found, wanted = [], False
    with open(f'/proc/{pid}/smaps') as f:
        for line in f:
            head = re.match(r'([0-9a-f]+)-([0-9a-f]+) (\S+) ', line)
            if head:
                wanted = head[3].endswith('s') and '/dev/zero' in line and \
                    int(head[2], 16) - int(head[1], 16) >= least
            elif wanted and line.startswith('VmFlags:'):
                found.append(line.split()[1:])
    return found


def test_core():
    with Life() as ng:
        ng.push(5)
        for again in ('', ', after a reload with another size'):
            for pid in [ng.master, *ng.workers(), ng.helper()]:
                maps = shared_maps(pid, 64 << 20)
                ok(maps and all('dd' in flags for flags in maps),
                   f'no core file of "{title(pid)}" has the queue{again}',
                   maps)
            old = ng.helper()
            ng.reload(http=ng.words['HTTP']
                      + 'llm_capture_max_queue_bytes 128m;') \
                if not again else None
            again or ng.new_helper(old)
        ng.settled('and nothing is lost')


# names

VALUES = ['..', '.', '...', '/', '//', '../x', '../../../etc/passwd', '/etc/x',
          'a/../b', '..%2f..%2fx', '%2e%2e%2f', '%00', 'a%00b', 'a%0ab',
          '.hidden', '-rf', '~', '~root', '$HOME', '`id`', '*', '?', 'a b',
          'CON', 'nul.txt', 'c:\\x', '..\\..\\x', 'a:b', 'x' * 63, 'x' * 64,
          'x' * 65, 'x' * 3000, '.' * 300, '\xe4\xf6', '\xff',
          'none', 'x.epoch', 'x.epoch.tmp', 'h.x.jsonl.epoch', 'x.jsonl',
          'x.key', 'x.0123abcd.key.tmp', 'h.x.jsonl.key', 'x', 'X', 'x.tmp', '_', '__']


def test_names():
    paths = {'header': 'h.$http_x_tenant.jsonl', 'arg': '$arg_t',
             'decoded': 'd$name', 'joined': 'j$arg_a$arg_b'}
    with Upstream() as up, Nginx(
            up, path='', http=WHAT + 'llm_capture_endpoint_pattern .*;'
            + ''.join(server(n, PASS if n != 'decoded' else
                             'location ~ "^/t/(?<name>(?s:.)*)$" {'
                             ' proxy_pass http://llm; }',
                             path='%%DIR%%/capture/' + p)
                      for n, p in paths.items())) as ng:
        before = {n for n in os.listdir(ng.dir)}
        sent, refused = [], 0

        def send(value, how, data):
            nonlocal refused
            path, headers = CHAT, []
            if how == 'header':
                headers = ['X-Tenant: ' + value]
            elif how == 'arg':
                path += '?t=' + re.sub('[ ?#]', '+', value)
            else:
                path = '/t/' + ''.join(f'%{ord(c):02x}' for c in value)
            got = ask(ng.port, whole(data, path, *headers, host=how)).status
            if got == 200:
                sent.append((how, value, data))
            else:
                refused += 1
                ok(got in (400, 404, 414),
                   f'{how}: {value[:20]!r} is refused by nginx', got)

        n = 0
        for how in ('header', 'arg', 'decoded'):
            for value in VALUES + ['a\0b']:
                if how == 'decoded' and value in ('.', '/', '//'):
                    continue            # nginx makes nothing of them
                n += 1
                # the second one comes when the sidecar is there
                for _ in range(2):
                    send(value, how, b'{"n":%d}' % n)
        for a, b in (('x.e', 'poch'), ('x.epoch.t', 'mp'), ('x.k', 'ey'),
                     ('x.1.key.t', 'mp')):
            for i in range(2):
                is_(ask(ng.port, whole(b'{"a":1}', f'{CHAT}?a={a}&b={b}',
                                       host='joined')).status, 200, 'served')
        ng.quit()

        names = os.listdir(ng.dir + '/capture')
        is_([x for x in names if not re.fullmatch(r'[\w-][\w.-]*', x, re.A)],
            [], 'names of plain letters')
        is_({x for x in os.listdir(ng.dir)} - before - {
            f'{p}.log' for p in paths}, set(), 'nothing beside the directory')
        is_([x for x in names if not os.path.isfile(f'{ng.dir}/capture/{x}')],
            [], 'files, and no directory in it')
        ok(max(map(len, names)) < 120, 'none is long')
        files = {x: records(f'{ng.dir}/capture/{x}') for x in names
                 if not x.endswith(('.epoch', '.manifest.json'))}
        is_(sorted(r.value['payload']['n'] for rows in files.values()
                   for r in rows),
            sorted(int(d[5:-1]) for _, _, d in sent), 'each record is there')
        is_([x for x, rows in files.items()
             if len({r.payload for r in rows}) != 1], [],
            'no two values share a file')
        is_({h: counted(ng, f'{ng.dir}/capture/{p}') for h, p in
             paths.items() if h == 'joined'},
            {'joined': {'seen': 8, 'bad_path': 8}},
            'values that make the name of a sidecar together')


# time

PATTERNS = ['^/(a?)*?(a*)*(.)*[0-9]$', '^/(a+)+$', '^/((a|aa)+)*b$',
            '^(?:/?(a|a)*)*$x', '(.*)*(.*)*(.*)*z$', '^/(?:(?R)?a)+$']


def used(pid):
    """Seconds of a processor."""
    with open(f'/proc/{pid}/stat') as f:
        words = f.read().rpartition(')')[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf('SC_CLK_TCK')


def test_patterns():
    """The worst patterns, the longest paths: a request more is soon served."""
    http = WHAT + ''.join(
        server(f'p{i}', f'llm_capture_endpoint_pattern "{p}";' + PASS)
        for i, p in enumerate(PATTERNS))
    with Upstream() as up, Nginx(up, path='', http=http) as ng:
        pid, = wait_for(ng.workers, 'a worker')
        long = '/' + 'a' * 7900 + '!'
        ask(ng.port, whole(b'{"a":1}', '/a!', host='p0'))
        before, spent = status(pid, 'VmStk'), used(pid)
        with Client(ng.port) as c:
            for i in range(len(PATTERNS)):
                for _ in range(10):
                    got = c.ask(whole(b'{"a":1}', long, host=f'p{i}'))
                    if got.status != 200:
                        is_(got.status, 200, PATTERNS[i])
        spent = used(pid) - spent
        diag(f'{10 * len(PATTERNS)} requests: {spent:.2f} s of a processor')
        ok(spent < 0.5, 'no pattern holds a worker', spent)
        is_(status(pid, 'VmStk'), before, 'the stack has not grown')
        is_(ng.workers(), [pid], 'the worker lives')
        ng.quit()
        for i, p in enumerate(PATTERNS):
            row = counted(ng, ng.path(f'p{i}.jsonl'))
            is_(row, {'seen': 10 + (i == 0), 'unmatched': 10 + (i == 0)},
                f'{p}: not captured')
        like(ng.log(), r'\[warn\].*gave up on', 'and said so')


def test_trickle():
    is_(trickle.run(500, 4000, 4), {'seen': 500, 'recorded': 500},
        'nor are they lost themselves')
    row = trickle.run(500, 4000, 4, queue='16m')
    ok(row.get('queue_full', 0) > 50, 'without room for them they give way',
       row)


def test_promises():
    """SECURITY.md names tests that there are."""
    with open(TOP + '/SECURITY.md') as f:
        named = set(re.findall(r'\bt/[\w./*-]+', f.read()))
    ok(len(named) > 10, 'promises and their tests')
    is_([n for n in named if not glob.glob(f'{TOP}/{n}')], [],
        'which are all there')


if shutil.which('strace') and ROOT:
    with case('test_root'):
        test_root()
else:
    skip('what root does', 'no strace, or not root')

for test in (test_planted, test_swapped, test_shared, test_secrets, test_core,
             test_names, test_patterns, test_trickle, test_promises):
    with case(test.__name__):
        test()
