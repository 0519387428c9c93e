#!/usr/bin/env python3
"""The build: what the .so needs and shows; a read-only tree; a static one.

Names that a shared object shows can be taken by another module's, and what it
needs must be on the user's machine.
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
import llmcapture                                           # noqa: E402
from llmcapture import (MODULE, NGINX, TOP, Nginx, Upstream, case,
                        is_, ok, request, skip)             # noqa: E402
from so import check_so                                     # noqa: E402

SRC = os.environ.get('LLM_CAPTURE_NGINX_SRC') or '/usr/share/nginx/src'
BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'


def run(*command, cwd=TOP, env=None):
    # below "make test" a make would think it is a part of that one, and say so
    outer = {'MAKEFLAGS': '', 'MAKELEVEL': '0', 'MFLAGS': ''}

    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          env=dict(os.environ, **outer, **(env or {})))
    return done.returncode, done.stdout


def make(src, build, *words):
    """make in a copy of the tree, so that build/ stays as it is."""
    shutil.copytree(TOP, build, ignore=lambda d, n: [
        x for x in n if x in ('.git', 'build', 't', '__pycache__')])
    os.mkdir(build + '/t')
    return run('make', f'NGINX_SRC={src}', *words, cwd=build)


def read_only(src, into):
    """A copy of src as git has it, with auto/configure, not to be written."""
    shutil.copytree(src, into, symlinks=False, ignore=lambda d, n: [
        x for x in n if x in ('.git', 'objs', 'Makefile', 'docs', 'contrib')])
    if os.path.exists(into + '/configure'):
        if not os.path.exists(into + '/auto/configure'):
            shutil.move(into + '/configure', into + '/auto/configure')
    for path, _, files in os.walk(into):
        os.chmod(path, 0o555)


def snapshot(path):
    return sorted((d, sorted(f)) for d, _, f in os.walk(path))


with case('the module as built'):
    if MODULE:
        check_so(MODULE, 'the .so')
    else:
        skip('the .so', 'a static build is under test')

with tempfile.TemporaryDirectory() as tmp:
    try:
        with case('a read-only tree in the shape of a git checkout'):
            read_only(SRC, tmp + '/tree')
            before = snapshot(tmp + '/tree')
            code, text = make(tmp + '/tree', tmp + '/a')
            ok(code == 0, 'builds', text)
            is_(snapshot(tmp + '/tree'), before, 'the tree is left as it was')
            check_so(tmp + '/a/build/ngx_http_llm_capture_module.so', 'there')

            code, text = run('make', f'NGINX_SRC={tmp}/tree', cwd=tmp + '/a')
            is_((code, text), (0, ''), 'made again: nothing to do')

        with case('not a source tree'):
            code, text = run('make', f'NGINX_SRC={tmp}', cwd=tmp + '/a')
            ok(code != 0 and 'no nginx source tree' in text, 'is told', text)

        with case('a library is missing'):
            # a header without anything in front of its own
            for name, header in (('jansson', 'jansson.h'),
                                 ('zstd', 'zstd.h')):
                inc = f'{tmp}/{name}'
                os.makedirs(inc)
                with open(f'{inc}/{header}', 'w') as f:
                    f.write('#error not here\n')
                code, text = run('make', f'NGINX_SRC={SRC}', cwd=tmp + '/a',
                                 env={'CC_OPT': f'-I{inc}'})
                ok(code != 0 and f'cannot be linked with\nlib{name}.' in text
                   and 'libmd-dev' in text,
                   f'lib{name} is named, and the packages', text)

        with case('static'):
            if not glob.glob(SRC + '/src/core/nginx.c'):
                skip('static build', f'{SRC} has headers only; '
                     'make test NGINX_SRC=dir builds it')
            else:
                shutil.copytree(SRC, tmp + '/static', ignore=lambda d, n: [
                    x for x in n if x in ('.git', 'objs', 'Makefile')])
                conf = './configure' if os.path.exists(
                    tmp + '/static/configure') else 'auto/configure'
                code, text = run(conf, '--with-compat', f'--add-module={TOP}',
                                 '--with-http_v2_module', cwd=tmp + '/static')
                ok(code == 0, 'configures', text[-2000:])
                code, text = run('make', '-s', '-j2', cwd=tmp + '/static')
                ok(code == 0, 'builds', text[-2000:])

                llmcapture.NGINX = tmp + '/static/objs/nginx'
                llmcapture.MODULE = ''
                with Upstream() as up, Nginx(up, location='llm_capture on;') \
                        as ng:
                    ng.words['LOAD'] = ''
                    is_(request(ng.port, '/v1/chat/completions', BODY).status,
                        200, 'serves')
                    is_(ng.wait_records('chat', 1)[0].payload, BODY,
                        'records')
                llmcapture.NGINX = NGINX
    finally:
        for path, _, _ in os.walk(tmp):
            os.chmod(path, 0o755)
