#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The fuzz targets of t/fuzz, two at a time, for a minute each, or half of it
# what is read of answers and of our own files and zone, from the inputs in
# t/data/fuzz, which are replayed first.
#
#     t/check/fuzz.t [TARGET...]       these only
#     LLM_CAPTURE_FUZZ_SECONDS=3600    longer
#     LLM_CAPTURE_FUZZ_KEEP=1          what was found goes to t/data/fuzz
#
# By hand: build/check/fuzz/TARGET FILE.  An input that fails is kept beside
# the program; once mended it belongs to t/data/fuzz/TARGET, as fault-WHAT.

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                '../lib'))
from tap import diag, is_, ok                               # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
os.chdir(TOP)

SECONDS = int(os.environ.get('LLM_CAPTURE_FUZZ_SECONDS') or 60)
HALF = ('zone', 'file', 'sse', 'outcome')
KEEP = os.environ.get('LLM_CAPTURE_FUZZ_KEEP')
OUT = 'build/check/fuzz'

# target: bytes of an input at most, and more inputs to begin with
TARGETS = {
    'scan': (2200, ['t/data/valid', 't/data/invalid']),
    'record': (1024, []),
    'zone': (1024, []),
    'file': (1024, []),
    'args': (512, []),
    'path': (4400, []),
    'sse': (4096, ['t/data/answers']),
    'outcome': (4096, ['t/data/answers'])
}

SANITIZE = 'address,undefined'
FLAGS = ['-std=gnu11', '-O2', '-g', '-Wall', '-Wextra', '-Werror', '-Isrc',
         '-It/unit', '-fno-sanitize-recover=all']
LIBS = ['-ljansson', '-lmd', '-lz', '-lzstd', '-lcmocka', '-lpthread']


def run(*command, **env):
    done = subprocess.run(command, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors='backslashreplace',
                          env=dict(os.environ, **env))
    return done.returncode, done.stdout


def compile_pure(name):
    return run('clang', *FLAGS, f'-fsanitize=fuzzer-no-link,{SANITIZE}', '-c',
               '-o', f'{OUT}/pure/{name}.o',
               f'src/ngx_http_llm_capture_{name}.c')


def compile_target(name):
    return run('clang', *FLAGS, f'-fsanitize=fuzzer,{SANITIZE}', '-o',
               f'{OUT}/{name}', f't/fuzz/{name}.c',
               *glob.glob(f'{OUT}/pure/*.o'), *LIBS)


def build(pool, names):
    """Every time: it takes less than to find out that it need not be."""
    shutil.rmtree(f'{OUT}/pure', ignore_errors=True)
    os.makedirs(f'{OUT}/pure')
    pure = run('sh', 'misc/sources.sh', 'pure')[1].split()
    for step, what in (compile_pure, pure), (compile_target, names):
        said = ''.join(text for code, text in pool.map(step, what) if code)
        if not ok(not said, f'{step.__name__}: {len(what)} built', said):
            sys.exit(1)


def seeds(name):
    return [d for d in [f't/data/fuzz/{name}', *TARGETS[name][1]]
            if os.path.isdir(d)]


def inputs(name):
    return [f for d in seeds(name) for f in sorted(glob.glob(d + '/*'))]


def seconds(name):
    return SECONDS // 2 if name in HALF else SECONDS


def fuzz(name):
    """(exit code, what was said) of the replay, and of what followed."""
    found = f'{OUT}/found/{name}'
    os.makedirs(found, exist_ok=True)
    options = [f'-artifact_prefix={OUT}/{name}-', '-timeout=25',
               f'-max_len={TARGETS[name][0]}', '-rss_limit_mb=2048',
               '-dict=t/fuzz/json.dict']

    if not inputs(name):                # libFuzzer would look for some
        return (1, 'no inputs'), None

    with tempfile.TemporaryDirectory() as tmp:
        replay = run(f'{OUT}/{name}', *options, *inputs(name), TMPDIR=tmp)
        if replay[0]:
            return replay, None
        return replay, run(f'{OUT}/{name}', *options, '-len_control=0',
                           '-print_final_stats=1',
                           f'-max_total_time={seconds(name)}', found, *seeds(name),
                           TMPDIR=tmp)


def explain(name, text):
    where = re.findall(r'Test unit written to (\S+)|^Running: (\S+)', text,
                       re.M)
    diag(f'{name}: again with {OUT}/{name} '
         + ''.join(where[-1] if where else ''),
         *[line for line in text.splitlines()
           if re.search(r'must be|ERROR|error:|^ +#\d', line)][:30],
         *text.splitlines()[-5:])


def report(name, replay, fresh):
    if not ok(replay[0] == 0, f'{name}: what is known, '
              f'{len(inputs(name))} inputs'):
        return explain(name, replay[1])

    stats = dict(re.findall(r'^stat::(\w+): +(\d+)', fresh[1], re.M))
    count = int(stats.get('number_of_executed_units', 0))

    if not ok(fresh[0] == 0, f'{name}: {seconds(name)} s'):
        explain(name, fresh[1])
    diag(f'{name}: {count} inputs, {stats.get("new_units_added")} of them new')
    ok(fresh[0] or count > len(inputs(name)), f'{name}: new inputs were tried')


def merge(name):
    """The fewest inputs that reach all that was reached; faults stay."""
    kept, new = f't/data/fuzz/{name}', f'{OUT}/merged/{name}'
    shutil.rmtree(new, ignore_errors=True)
    os.makedirs(new)
    os.makedirs(kept, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        code, text = run(f'{OUT}/{name}', '-set_cover_merge=1', '-timeout=25',
                         new, *seeds(name), f'{OUT}/found/{name}', TMPDIR=tmp)
    if not ok(code == 0, f'{name}: merged', text[-2000:]):
        return
    known = {open(f, 'rb').read() for d in TARGETS[name][1]
             for f in glob.glob(d + '/*')}
    for f in glob.glob(kept + '/*'):
        if not os.path.basename(f).startswith('fault-'):
            os.remove(f)
    for f in glob.glob(new + '/*'):
        if open(f, 'rb').read() not in known:
            shutil.copy(f, kept)


names = sys.argv[1:] or list(TARGETS)
is_([n for n in names if n not in TARGETS], [], 'these are targets')

with ThreadPoolExecutor(2) as pool:
    build(pool, names)
    for name, (replay, fresh) in zip(names, pool.map(fuzz, names)):
        report(name, replay, fresh)
    if KEEP:
        list(pool.map(merge, names))
