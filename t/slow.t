#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# No request is hurt by capture in trouble: a helper that stands still, a ring
# that is full, uploads that trickle, a destination that cannot be written.
# What is dropped is counted, to the record.

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from llmcapture import *                    # noqa: E402,F403
from traffic import *                       # noqa: E402,F403

PASS = 'location / { proxy_pass http://llm; }'


def queue(size, workers=1):
    return f'llm_capture_max_request_bytes 64k; llm_capture_max_queue_bytes ' \
           f'{(2 * workers + 14) * size};'


def drive(ng, host, bodies, threads=4):
    """All answers in order, and the longest that one took, in seconds."""
    answers, slowest = [None] * len(bodies), [0.0] * threads

    def run(n):
        with Client(ng.port) as c:
            for i in range(n, len(bodies), threads):
                start = time.monotonic()
                got = c.ask(whole(bodies[i], host=host,
                                  sizes=i % 5 == 4 and (1000,)))
                slowest[n] = max(slowest[n], time.monotonic() - start)
                answers[i] = (got.status, got.body)

    crew = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for t in crew:
        t.start()
    for t in crew:
        t.join()
    return answers, max(slowest)


def pause(ng):
    """Stops the helper; it stands still when this returns."""
    pid = ng.helper()
    ng.signal('STOP', pid)
    wait_for(lambda: open(f'/proc/{pid}/stat').read().rpartition(')')[2]
             .split()[0] == 'T', 'the helper to stop')
    return pid


with case('a helper that stands still'), Upstream() as upstream, Nginx(
        upstream, workers=2, path='', http=WHAT + queue(256 << 10, 2)
        + server('off', 'llm_capture off;' + PASS) + server('on', PASS)) as ng:

    bodies = [body(5000 + i, str(i)) for i in range(800)]

    want, usual = drive(ng, 'off', bodies)
    is_({s for s, _ in want}, {200}, 'without capture all are served')

    pid = pause(ng)
    got, slowest = drive(ng, 'on', bodies)
    diag(f'slowest {usual:.3f} s without capture, {slowest:.3f} s with')
    ok(got == want, 'the same answers while nothing is drained')
    ok(slowest < max(1, 5 * usual), 'and none has waited for us',
       (usual, slowest))

    wait_for(lambda: len(log_lines(ng, 'on')) == 800, 'the log')
    states = log_lines(ng, 'on')
    n = states.count('queued chat 200')
    is_(sorted(set(states)), ['queue_full chat 200', 'queued chat 200'],
        'some find room, some do not')
    is_(ng.records('on.jsonl'), [], 'nothing is written')

    ng.signal('CONT', pid)
    rows = ng.wait_records('on.jsonl', n)
    is_(len(rows), n, 'what was queued is written then')
    ok({r.payload for r in rows} <= set(bodies), 'as it was sent')
    is_(len({r.payload for r in rows}), n, 'none twice')

    late = body(6000, 'late')
    ask(ng.port, whole(late, host='on'))
    is_(ng.wait_records('on.jsonl', n + 1)[-1].payload, late,
        'and it goes on')
    ng.quit()
    is_(counted(ng, ng.path('on.jsonl')),
        {'seen': 801, 'recorded': n + 1, 'queue_full': 800 - n}, 'counted')
    ok('queue_full' in ng.log().split(' seen ')[0], 'and warned of')


with case('a ring that fills in the middle of a body'), \
        Upstream() as upstream, Nginx(
            upstream, path='', http=WHAT + queue(128 << 10)
            + server('on', 'proxy_request_buffering off;' + PASS)) as ng:

    b = body(60000, 'middle')
    pid = pause(ng)
    half = []
    for sizes in (None, (500,)):
        c = Client(ng.port)
        wire = whole(b, host='on', sizes=sizes)
        half.append((c, wire[30000:]))
        c.say(wire[:30000])
        c.taken()
    fill = [body(20000, str(i)) for i in range(20)]
    got, _ = drive(ng, 'on', fill, 1)
    is_({s for s, _ in got}, {200}, 'all are served')
    for c, rest in half:
        is_(c.ask(rest).status, 200, 'one that had begun, too')
        c.close()
    is_(len({s.sha256 for s in upstream.wait(22)} & {sha(b)}), 1,
        'with all its bytes')
    wait_for(lambda: len(log_lines(ng, 'on')) == 22, 'the log')
    states = log_lines(ng, 'on')
    ng.signal('CONT', pid)
    ng.quit()
    row = counted(ng, ng.path('on.jsonl'))
    is_(row, {'seen': 22, 'recorded': states.count('queued chat 200'),
              'queue_full': states.count('queue_full chat 200')}, 'counted')
    ok(row['queue_full'] > 10, 'it was full', row)
    ok(set(payloads(ng, 'on')) <= {b, *fill}, 'whole or not at all')


with case('50 uploads that trickle'), Upstream() as upstream, Nginx(
        upstream, path='', http=WHAT + queue(1 << 20)
        + server('slow', PASS) + server('good', PASS)) as ng:

    # three times of what the ring holds
    slow = [body(60000, f'slow{i}') for i in range(50)]
    parts = [list(pieces(whole(b, host='slow', sizes=i & 1 and (900,)),
                         (4000,))) for i, b in enumerate(slow)]
    clients = [Client(ng.port) for _ in slow]
    good = []

    while any(parts):
        for c, left in zip(clients, parts):
            if left:
                c.say(left.pop(0))
        for c in clients:
            c.taken()
        for i in range(4):
            good.append(body(7000, f'good{len(good)}'))
            ask(ng.port, whole(good[-1], host='good'))
        ng.wait_records('good.jsonl', len(good))

    is_({c.response().status for c in clients}, {200}, 'all are served')
    for c in clients:
        c.close()
    ng.quit()
    is_(counted(ng, ng.path('good.jsonl')),
        {'seen': len(good), 'recorded': len(good)}, 'others lose nothing')
    is_(payloads(ng, 'good'), good, 'and are recorded as sent')
    is_(counted(ng, ng.path('slow.jsonl')), {'seen': 50, 'recorded': 50},
        'nor do they themselves')
    is_(sorted(payloads(ng, 'slow')), sorted(slow), 'as sent')


with case('two destinations that fail, and a good one'), \
        Upstream() as upstream, Nginx(
            upstream, path='', http=WHAT + queue(256 << 10)
            + ''.join(server(n, PASS, path=f'%%DIR%%/{n}/x.jsonl')
                      for n in ('gone', 'closed'))
            + server('good', PASS), start=False) as ng:

    for n in ('gone', 'closed'):
        os.mkdir(f'{ng.dir}/{n}', 0o700)
    ng.start()
    os.rmdir(ng.dir + '/gone')
    if not ROOT:
        os.chmod(ng.dir + '/closed', 0o500)

    sent = {'gone': [], 'closed': [], 'good': []}
    for i in range(150):
        for name, bodies in sent.items():
            bodies.append(body(5000, f'{name}{i}'))
            is200 = ask(ng.port, whole(bodies[-1], host=name)).status == 200
            if not is200:
                ok(0, f'{name} is served')
        # the good one is in its file while the others fail
        ng.wait_records('good.jsonl', i + 1)
    ok(1, 'the good one is written at once')

    os.mkdir(ng.dir + '/gone', 0o700)
    if ROOT:
        for n in ('gone', 'closed'):
            shutil.chown(f'{ng.dir}/{n}', USER)
    os.chmod(ng.dir + '/closed', 0o700)
    for n in ('gone', 'closed'):
        sent[n].append(body(5000, f'{n}-mended'))
        ask(ng.port, whole(sent[n][-1], host=n))
        wait_for(lambda: sent[n][-1] in
                 [r.payload for r in records(f'{ng.dir}/{n}/x.jsonl')],
                 'the mended one')
    ng.quit()

    is_(payloads(ng, 'good'), sent['good'], 'good: recorded as sent')
    is_(counted(ng, ng.path('good.jsonl')), {'seen': 150, 'recorded': 150},
        'good: counted')
    for n in ('gone', 'closed'):
        path = f'{ng.dir}/{n}/x.jsonl'
        row = counted(ng, path)
        got = [r.payload for r in records(path)]
        ok(row.pop('write_errors') > 0, f'{n}: errors are counted')
        ok(row.get('failed', 0) > 0, f'{n}: what pinned the ring is dropped')
        is_(row, {'seen': 151, 'failed': 151 - len(got),
                  'recorded': len(got)}, f'{n}: the sum is exact')
        is_(got, sent[n][-len(got):], f'{n}: the newest are kept')
        like(ng.log(), f'llm capture:.*{n}/x.jsonl.*'
             r'\((2: No such file|13: Permission)', f'{n}: warned of')


def make(kind, path):
    """Puts an obstacle in the place of a file."""
    if kind == 'directory':
        os.mkdir(path)
    elif kind == 'fifo':
        os.mkfifo(path)
        os.chmod(path, 0o666)
    elif kind == 'link':
        os.symlink(path + '.other', path)
    elif kind == 'link to a file':
        open(path + '.target', 'w').close()
        os.chmod(path + '.target', 0o666)
        os.symlink(path + '.target', path)
    else:
        os.close(os.open(path, os.O_CREAT, 0o400))


def mend(path):
    if os.path.isdir(path):
        os.rmdir(path)
    else:
        os.unlink(path)


KINDS = ['directory', 'fifo', 'link', 'link to a file', 'unwritable']


with case('what stands in the place of a file'), Upstream() as upstream:

    with Nginx(upstream, path='', http=WHAT + server('good', PASS) + ''.join(
            server(k.replace(' ', '-'), PASS) for k in KINDS),
            start=False) as ng:

        names = [k.replace(' ', '-') for k in KINDS]
        for kind, name in zip(KINDS, names):
            make(kind, ng.path(name + '.jsonl'))
        files = sorted(os.listdir(ng.dir + '/capture'))

        code, said = ng.run('-t')
        is_(code, 0, 'nginx -t passes')
        is_(sorted(os.listdir(ng.dir + '/capture')), files,
            'and changes nothing')
        ng.start()

        first = {n: [body(900, f'{n}{i}') for i in range(3)] for n in names}
        then = {n: [body(900, f'{n}-then{i}') for i in range(2)]
                for n in names}
        for n in names:
            for b in first[n]:
                is_(ask(ng.port, whole(b, host=n)).status, 200,
                    f'{n}: served')
        for i in range(2):
            # the second one is written by a later pass of the helper
            ask(ng.port, whole(body(500), host='good'))
            ng.wait_records('good.jsonl', i + 1)

        for n in names:
            mend(ng.path(n + '.jsonl'))
            for b in then[n]:
                ask(ng.port, whole(b, host=n))
            if n != 'unwritable':
                is_([r.payload for r in ng.wait_records(n + '.jsonl', 2)],
                    then[n], f'{n}: recorded once it is mended')
        rows = ng.wait_records('unwritable.jsonl', 5)
        is_([r.payload for r in rows],
            first['unwritable'] + then['unwritable'],
            'unwritable: all is kept until it is mended')

        is_(stat.S_IMODE(os.stat(ng.path('link.jsonl')).st_mode), 0o600,
            'a new file is private')
        is_(os.path.getsize(ng.path('link-to-a-file.jsonl.target')), 0,
            'no link is followed')
        ok(not os.path.exists(ng.path('link.jsonl.other')), 'nor made')
        ng.quit()

        for n in names:
            row = counted(ng, ng.path(n + '.jsonl'))
            ok(row.pop('write_errors', 0) > 0, f'{n}: errors are counted')
            want = {'seen': 5, 'recorded': 5} if n == 'unwritable' else \
                {'seen': 5, 'recorded': 2, 'failed': 3}
            is_(row, want, f'{n}: counted')
            like(ng.log(), rf'\[(warn|error|alert|crit)\].*llm capture.*{n}',
                 f'{n}: warned of')


with case('a disk that is full'):
    mount = tempfile.mkdtemp(prefix='llm-capture-disk-')
    if not ROOT or subprocess.run(
            ['mount', '-t', 'tmpfs', '-o', 'size=256k,mode=777', 'none',
             mount], stderr=subprocess.DEVNULL).returncode:
        skip('a disk that is full', 'no tmpfs can be mounted')
    else:
        try:
            with Upstream() as upstream, Nginx(
                    upstream, path='', http='llm_capture_min_free off;' + WHAT
                    + server('disk', PASS, path=mount + '/x.jsonl')
                    + server('good', PASS)) as ng:
                ballast = mount + '/ballast'
                with open(ballast, 'wb') as f:
                    f.write(bytes(150 << 10))
                bodies = [body(9000, f'disk{i}') for i in range(40)]
                is_({ask(ng.port, whole(b, host='disk')).status
                     for b in bodies}, {200}, 'all are served')
                ask(ng.port, whole(body(500), host='good'))
                ng.wait_records('good.jsonl', 1)
                wait_for(lambda: '(28: No space left' in ng.log(),
                         'the warning')
                rows = records(mount + '/x.jsonl')
                ok(0 < len(rows) < 40, 'some fit', len(rows))
                subprocess.run(['mount', '-o', 'remount,size=2m', mount],
                               check=True)
                os.unlink(ballast)
                wait_for(lambda: len(records(mount + '/x.jsonl')) == 40,
                         'the rest')
                ng.quit()
                is_([r.payload for r in records(mount + '/x.jsonl')], bodies,
                    'all are there once there is room')
                row = counted(ng, mount + '/x.jsonl')
                ok(row.pop('write_errors') > 0, 'errors are counted')
                is_(row, {'seen': 40, 'recorded': 40}, 'counted')
        finally:
            subprocess.run(['umount', '-l', mount])
    os.rmdir(mount)
