"""Where the time goes: perf's samples of the worker and of the helper."""

import os
import re
import subprocess

import bodies
import growth
import stage
from variants import Set

LINE = re.compile(r'^\s*([\d.]+)%\s+(\S+)\s+\[(.)\]\s+(\S.*?)\s*$')
LIMIT = 1.0                         # percent; what is less is not listed

# with what it called, the kernel's part too; the next filter is not in it
OURS = re.compile(r'^\s*([\d.]+)%.*\sngx_http_llm_capture_body\b', re.M)


def there():
    return stage.first_line(['perf', '--version'])


def record(pids, path, load, *more):
    """Runs the load under perf."""
    perf = subprocess.Popen(
        ['perf', 'record', '-q', '-e', 'cpu-clock', '-F', '4000', *more,
         '-o', path, '-p', ','.join(map(str, pids))],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, preexec_fn=stage.rest)
    try:
        load()
    finally:
        perf.terminate()
        perf.wait(60)


def share(pids, load):
    """The part of these processes' time within the module; None: no perf."""
    if not there():
        return None
    path = f'{stage.BUILD}/perf.data'
    record(pids, path, load, '--call-graph', 'dwarf,2048')
    done = subprocess.run(
        ['perf', 'report', '-i', path, '--stdio', '--children', '--sort',
         'symbol', '-g', 'none'], capture_output=True, text=True, timeout=300)
    os.unlink(path)
    found = OURS.findall(done.stdout)
    return max(map(float, found)) / 100 if found else None


def report(path, pid):
    done = subprocess.run(
        ['perf', 'report', '-i', path, '--stdio', '--pid', str(pid),
         '--sort', 'dso,symbol', '-g', 'none', '--percent-limit', str(LIMIT),
         '--percentage', 'relative'],
        capture_output=True, text=True, timeout=120)
    rows = []
    for line in done.stdout.splitlines():
        m = LINE.match(line)
        if m:
            where = 'kernel' if m[3] == 'k' else m[2]
            rows.append((float(m[1]), where, re.split(r'\s{2,}', m[4])[0]))
    return rows


def destinations(n):
    """The same with one file and with many, all of them recorded."""
    path = f'{stage.BUILD}/perf.data'
    body = bodies.chat(growth.SIZE)
    what = 'destinations'
    with stage.back() as up, stage.Proxy(
            up, workers=1, http=growth.HTTP, server=growth.server(what, n),
            pin=True, main='worker_rlimit_nofile 16384;') as p:
        growth.turn(p, 'on', what, n, body, stage.quick(.4, .15))
        pids = {'worker': p.workers()[0], 'helper': p.helpers()[0]}
        record(pids.values(), path, lambda: growth.turn(
            p, 'on', what, n, body, stage.quick(3, 1)))
        rows = [{'size': growth.SIZE, 'process': process, 'variant':
                 f'{n} destination{"s" * (n > 1)}', 'top': report(path, pid)}
                for process, pid in pids.items()]
        p.close()
    os.unlink(path)
    return rows


def run():
    if not there():
        return {'rows': [], 'missing': 'perf is not here'}
    rows = []
    with Set(['off', 'on']) as servers:
        p = servers.proxy['ours']
        for size in stage.quick((4096, 65536, 1048576), (65536,)):
            body = bodies.chat(size)
            for name in ('off', 'on'):
                path = f'{stage.BUILD}/perf.data'
                pids = p.workers() + (p.helpers() if name == 'on' else [])
                record(pids, path, lambda: servers.turn(
                    name, body, stage.quick(3, 1)))
                for pid in pids:
                    rows.append({'size': size, 'variant': name, 'process':
                                 'worker' if pid in p.workers() else 'helper',
                                 'top': report(path, pid)})
                os.unlink(path)
    for n in (1, 1000):
        rows += destinations(n)
    for row in rows:
        stage.say(f"hot: {bodies.NAMES[row['size']]} {row['variant']}, "
                  f"{row['process']}: " + ', '.join(
                      f'{s} {n:.0f} %' for n, _, s in row['top'][:6]))
    return {'rows': rows, 'missing': ''}
