#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The module with the versions of nginx that people run: in a file and in the
# binary, by gcc and clang, with musl, without --with-compat; each build is
# run.  The sources come from package registries, once, into build/check/src;
# further trees: LLM_CAPTURE_CHECK_SRC=dir:dir.

import os
import re
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '../lib'))
from builds import (CORE, SWITCHES, TOP, Build, Failed, run,    # noqa: E402
                    version)
from so import check_so                                     # noqa: E402
from sources import DIR, Unavailable, crate, debian         # noqa: E402
from tap import case, diag, is_, like, ok, skip             # noqa: E402

SMOKE = 't/check/smoke.py'
FULL = ('--with-compat', '--with-http_ssl_module', *SWITCHES)
QUIC = ('--with-http_v3_module', *FULL)
ASAN = '-fsanitize=address,undefined'


# The sources.  Debian 12's nginx is not the release: one field more.  The
# suite sid moves on, and a list of it may be older than its files.

SOURCES = (
    ('Debian 12', lambda: debian('nginx', 'bookworm')),
    ('Debian 13', lambda: debian('nginx', 'trixie', tar=True)),
    ('the crate nginx-src', lambda: crate('nginx-src', 'nginx')),
)


def sources():
    """version -> tree, oldest first."""
    found = {}
    for name, get in SOURCES:
        try:
            src = get()
            ok(True, f'{name}: nginx {version(src)}')
            found[version(src)] = src
        except Unavailable as e:
            ok(False, f'{name}: fetched', str(e))
    try:
        src = debian('nginx', 'sid')
        ok(True, f'Debian sid: nginx {version(src)}')
        found[version(src)] = src
    except Unavailable as e:
        skip('Debian sid', str(e).strip().splitlines()[-1])
    for src in filter(None, os.environ.get('LLM_CAPTURE_CHECK_SRC',
                                           '').split(':')):
        found[version(src)] = src
    return dict(sorted(found.items(),
                       key=lambda v: [int(n) for n in v[0].split('.')]))


# What is built, and run on it: [(build, what its tests said)].  The compilers
# share nginx's objects through ccache, where the switches are the same.

def dynamic(src, args, tests):
    """The binary has other switches than its second module."""
    host = Build(src, 'gcc', args=args).make()
    other = Build(src, 'clang', cc='clang', host=host,
                  args=['--with-compat']).make()
    return [(host, sum(map(host.run, [SMOKE, *tests]), [])),
            (other, other.run(SMOKE))]


def static(src, args):
    builds = [Build(src, f'static, {cc}', cc=cc, static=True, args=args)
              for cc in ('gcc', 'clang')]
    return [(b.make(), b.run(SMOKE)) for b in builds]


def plain(src):
    b = Build(src, 'without --with-compat', args=SWITCHES).make()
    return [(b, b.run(SMOKE))]


def sanitized(src, tests):
    """With a filter in front that makes odd chains of buffers."""
    b = Build(src, 'sanitized', static=True, args=QUIC, ld_opt=ASAN,
              cc_opt=f'-O1 -g {ASAN} -DNGX_DEBUG_PALLOC=1'
                     ' -DNGX_HAVE_NONALIGNED=0',
              addons=[TOP + '/t/check/odd']).make()
    return [(b, sum(map(b.run, ['t/check/odd.py', SMOKE, *tests]), []))]


def musl(src):
    """nginx, the module and what is in it; OpenSSL stays away."""
    libs = DIR + '/musl'
    if not os.path.exists(libs + '/done'):
        trees = DIR + '/musl-src'
        os.makedirs(trees, exist_ok=True)
        for name in ('pcre2', 'jansson', 'libmd', 'zlib', 'libzstd',
                     'cmocka'):
            shutil.copytree(debian(name, 'bookworm'), f'{trees}/{name}-',
                            dirs_exist_ok=True)
        code, text = run(TOP + '/t/check/musl-libs.sh', trees, libs)
        if code:
            raise Failed('the libraries for musl\n' + text[-3000:])
        open(libs + '/done', 'w').close()

    b = Build(src, 'musl', cc='musl-gcc', ld_opt=f'-L{libs}/lib',
              cc_opt=f'{CORE} -I{libs}/include').make()
    return [(b, b.run(SMOKE) + musl_units(libs))]


def copied(name, tests=()):
    """The tree without what is built, and only these tests."""
    path = f'{DIR}/{name}'
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(TOP, path, ignore=shutil.ignore_patterns(
        '.git', 'build', '__pycache__', *tests))
    return path


def musl_units(libs):
    """The sanitizers know no musl."""
    path = copied('musl-tree', ('*_asan.c', '*_tsan.c'))
    code, text = run('make', 'unit', cwd=path,
                     CC=f'ccache musl-gcc -I{libs}/include -L{libs}/lib')
    if code:
        raise Failed('the unit tests for musl\n' + text[-3000:])
    code, text = run(sys.executable, 't/unit.t', cwd=path)
    found = re.findall(r'^(not )?ok \d+ - (.*)', text, re.M)
    return [[not no, 'musl: ' + name, ''] for no, name in found] \
        + [[code == 0 and found, 'musl: unit.t ran', text[-2000:]]]


def report(future):
    """Says what a task's tests said; its builds."""
    builds = []
    try:
        for b, said in future.result():
            builds.append(b)
            if b.module:
                check_so(b.module, b.name)
            for good, name, text in said:
                if good is None:
                    skip(name, text)
                else:
                    ok(good, name) or diag(text)
    except (Failed, Unavailable) as e:
        ok(False, 'builds') or diag(str(e))
    return builds


def loads(host, module):
    """What nginx -t says to a module; '' when all is well."""
    with tempfile.TemporaryDirectory() as tmp:
        with open(tmp + '/nginx.conf', 'w') as f:
            f.write(f'load_module {module};\nevents {{}}\n'
                    f'error_log {tmp}/log;\npid {tmp}/pid;\n')
        code, text = run(host.nginx, '-t', '-p', tmp, '-e', tmp + '/log',
                         '-c', tmp + '/nginx.conf')
        return code and text


def number(text):
    a, b, c = map(int, text.split('.'))
    return a * 1000000 + b * 1000 + c


def listing(path):
    return sorted((d, sorted((n, os.stat(f'{d}/{n}').st_mtime_ns)
                             for n in names)) for d, _, names in os.walk(path))


found = sources()
versions = list(found)
newest = found[versions[-1]]

with ThreadPoolExecutor(2) as pool:
    tasks = []
    for i, v in enumerate(versions):
        src = found[v]
        last = src == newest
        args = QUIC if last else FULL
        tests = ['t/http3.t', 't/early-read.t'] if last else []
        tasks.append(pool.submit(dynamic, src, args, tests))
        if i:
            tasks.append(pool.submit(static, found[versions[i - 1]], FULL))
    tasks += [pool.submit(musl, newest), pool.submit(static, newest, QUIC),
              pool.submit(sanitized, newest, ['t/early-read.t', 't/http3.t']),
              pool.submit(plain, newest)]
    built = {b.name: b for task in tasks for b in report(task)}

with case('another version'):
    for a, b in zip(versions, versions[1:] + versions[:1]):
        host, module = built[f'{a}, gcc'], built[f'{b}, gcc'].module
        like(loads(host, module), rf'module "{module}" version {number(b)} '
             f'instead of {number(a)}', f'{b} in {a} is refused')

with case('without --with-compat'):
    name = versions[-1]
    host, other = built[name + ', gcc'], built[name +
                                               ', without --with-compat']
    like(loads(host, other.module), 'is not binary compatible',
         'refused by a binary with it')
    like(loads(other, host.module), 'is not binary compatible',
         'and the other way round')

with case('make CC=clang, from a tree that is only read'):
    src, path = found[versions[0]], copied('clang-tree', ('t',))
    before = listing(src)
    code, text = run('make', 'CC=clang', f'NGINX_SRC={src}',
                     'NGINX=/nonexistent', cwd=path)
    is_((code, [line for line in text.splitlines()
                if not re.match('configured for|built|installing', line)]),
        (0, []), 'builds and says nothing')
    is_(listing(src), before, 'the tree is left as it was')
    is_(loads(built[versions[0] + ', gcc'],
              path + '/build/ngx_http_llm_capture_module.so'), 0,
        'nginx -t loads it')
