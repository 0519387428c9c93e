#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The tests that start nginx, and the fault matrix, with an nginx that has the
# module in it and was built with ASan and UBSan, each allocation of a pool a
# block of its own, and no access that is not aligned: no report.  Two at a
# time, they share nothing.
#
#     t/check/sanitizers.t [t/NAME.t...]      these only
#
# ThreadSanitizer knows threads of one process, by address: t/unit/ring_tsan.c
# has both sides of the ring as two threads over one map, each with a view of
# its own.  Two processes over a shared map, which it cannot see, are
# t/unit/ring_fork.c, without it.

import glob
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                '../lib'))
from llmcapture import Nginx                                # noqa: E402
from sources import debian                                  # noqa: E402
from tap import case, is_, ok, skip                         # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
os.chdir(TOP)

OUT = TOP + '/build/check/sanitizers'
TREE = OUT + '/nginx'
REPORTS = OUT + '/reports'

# why a test is not for this nginx
NOT_HERE = {
    'aiperf.t': 'minutes of AIPerf, over requests as in decision.t',
    'build.t': 'builds others',
    'controls.t': 'builds one with rules that break',
    'demo.t': 'runs make demo',
    'docs.t': 'asks nginx -t about the documents, for a module to load',
    'examples.t': 'the same',
    'fields.t': 'starts no nginx',
    'points.t': 'builds one with points to die at',
    'scan_orjson.t': 'starts no nginx',
    'tour.t': 'the same as docs.t',
    'trace_aiperf.t': 'minutes of AIPerf, over what trace.t has made as well',
    'trace_rows.t': 'starts no nginx',
    'unit.t': 'starts no nginx',
    'wall.t': 'starts no nginx'
}

# and why a row of the matrix is not
NO_ROWS = {
    'limit: RLIMIT_AS': 'the sanitizers take terabytes of addresses',
    'reload: 18 times with 60 workers': 'each would take half a minute',
    'workers: crash in mid-upload': 'SIGSEGV makes a report'
}
ROWS = f'^(?!{"|".join(map(re.escape, NO_ROWS))})'

# nginx copies and adds nothing to NULL in many places; the module does not
SANITIZE = '-fsanitize=address,undefined'
NGINX_HAS = 'nonnull-attribute,pointer-overflow'
CC_OPT = f'-g -O1 -fno-omit-frame-pointer {SANITIZE}' \
         f' -fno-sanitize={NGINX_HAS}' \
         ' -DNGX_DEBUG_PALLOC=1 -DNGX_HAVE_NONALIGNED=0'
# the optimizer would have the most to do with the module
OURS = f'objs/addon/%: CFLAGS += -O1 -fsanitize={NGINX_HAS}'
SWITCHES = ['--with-debug', '--with-threads', '--with-pcre-jit',
            '--with-http_ssl_module', '--with-http_v2_module',
            '--with-http_auth_request_module', '--with-http_gunzip_module',
            '--with-http_realip_module', '--with-http_sub_module']


def run(*command, cwd=TOP, **env):
    own = {'MAKEFLAGS': '', 'MAKELEVEL': '0', 'MFLAGS': ''}
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors='backslashreplace',
                          env=dict(os.environ, **own, **env))
    return done.returncode, done.stdout


def source():
    src = os.environ.get('LLM_CAPTURE_NGINX_SRC', '')
    if os.path.exists(src + '/src/core/nginx.c'):
        return src
    return debian('nginx', 'bookworm', tar=True)


def step(name, *command, cwd=TOP):
    code, text = run(*command, cwd=cwd)
    if not ok(code == 0, name, text[-3000:]):
        sys.exit(1)


def build(src):
    shutil.rmtree(TREE, ignore_errors=True)
    shutil.copytree(src, TREE, ignore=lambda d, names: [
        n for n in names if n in ('.git', 'objs', 'Makefile')])
    step('what the sanitizers are to do is compiled', 'clang', '-c', '-o',
         OUT + '/options.o', f'-DREPORTS="{REPORTS}"',
         't/check/sanitizers.c')
    conf = './configure' if os.path.exists(TREE + '/configure') \
        else 'auto/configure'
    step('nginx is configured', conf, '--with-cc=clang', *SWITCHES,
         f'--add-module={TOP}', f'--with-cc-opt={CC_OPT}',
         f'--with-ld-opt={OUT}/options.o {SANITIZE}', cwd=TREE)

    with open(TREE + '/objs/Makefile', 'a') as f:
        f.write(f'\n{OURS}\n')
    step('nginx is built', 'make', '-s', '-j2', cwd=TREE)


def reports():
    """Of any process, also of one whose output nobody looks at."""
    found = []
    for path in glob.glob(REPORTS + '/*'):
        with open(path, errors='replace') as f:
            found.append(f.read())
    return found


def check_filter():
    """A test never takes what is found in our files for nginx's own."""
    what = 'runtime error: null pointer passed as argument 2'
    ours = [f'{TOP}/src/ngx_http_llm_capture_ring.c:1:1: {what}',
            f'src/http/ngx_http_llm_capture_ring.c:1:1: {what}',
            '==7==ERROR: AddressSanitizer: heap-use-after-free']
    ng = Nginx(start=False)
    with open(ng.dir + '/stderr', 'w') as f:
        f.write('\n'.join([*ours, f'src/core/ngx_string.c:84:5: {what}']))
    is_(ng.alerts(), ours, 'the filter of each test')
    ng.finish()


def test(path):
    return run(sys.executable, path, LLM_CAPTURE_MODULE='',
               LLM_CAPTURE_NGINX=TREE + '/objs/nginx',
               LLM_CAPTURE_SANITIZED='1', LLM_CAPTURE_ROWS=ROWS)


def report(path, code, text):
    plan = re.findall(r'^1\.\.\d+.*', text, re.M)
    if plan and '# SKIP' in plan[0]:
        skip(path, plan[0].partition('# SKIP ')[2])
        return
    said = text.splitlines()
    bad = [i for i, line in enumerate(said) if line.startswith('not ok')]
    ok(code == 0 and plan and not bad, f'{path}: {" ".join(plan)}',
       '\n'.join(line for i in bad for line in said[i:i + 8])
       or '\n'.join(said[-20:]))


names = sys.argv[1:] or [path for path in sorted(glob.glob('t/faults/*.t'))
                         + sorted(glob.glob('t/*.t'))
                         if os.path.basename(path) not in NOT_HERE]
for name, why in [*NOT_HERE.items(), *NO_ROWS.items()]:
    skip(name, why)

os.makedirs(REPORTS, exist_ok=True)
os.chmod(REPORTS, 0o1777)
for path in glob.glob(REPORTS + '/*'):
    os.remove(path)

with case('filter'):
    check_filter()

build(source())

with ThreadPoolExecutor(2) as pool:
    for path, (code, text) in zip(names, pool.map(test, names)):
        report(path, code, text)

found = reports()
ok(not found, 'no report', '\n'.join(found[:5]))
