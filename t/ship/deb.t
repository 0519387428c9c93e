#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The tarball and Debian's package: built, looked at by lintian, installed
# into a fresh Debian 12 beside its nginx, used once, removed, purged; and so
# the command's.

import glob
import hashlib
import os
import re
import shutil
import signal
import stat
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from roots import Root, impossible, must, run   # noqa: E402
from llmcapture import (TOP, Upstream, case, free_port, is_, ok,  # noqa: E402
                        records, request, skip_all, wait_for, wait_gone)
from procs import children                      # noqa: E402

NAME = 'libnginx-mod-http-llm-capture'
MODULE = '/usr/lib/nginx/modules/ngx_http_llm_capture_module.so'
ENABLED = '/etc/nginx/modules-enabled/50-mod-http-llm-capture.conf'
FILE = '/var/log/nginx/llm_capture/requests.chat.jsonl'

CHAT = '/v1/chat/completions'
BODY = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'

SITE = '''
server {
    listen 127.0.0.1:%d;

    location / {
        llm_capture on;
        proxy_pass http://127.0.0.1:%d;
    }
}
'''


def sha(path):
    with open(path, 'rb') as f:
        return hashlib.sha256(f.read()).hexdigest()


def make(*args):
    return must('make', '--no-print-directory', *args, cwd=TOP)


def tarball():
    with open(TOP + '/CHANGES') as f:
        version = f.readline().split()[-1]
    with open(TOP + '/debian/changelog') as f:
        is_(re.search(r'\((.*)\)', f.readline())[1], version,
            'the package has the version of CHANGES')

    path = TOP + '/' + make('dist').split()[-1]
    first = sha(path)
    os.remove(path)
    make('dist')
    is_(sha(path), first, 'the same commit makes the same tarball')


def package():
    paths = [TOP + '/' + name for name in make('deb').split()
             if name.endswith('.deb')]
    path, command = paths
    for name in glob.glob(TOP + f'/build/deb/{NAME}_*.changes'):
        code, text = run('lintian', '--allow-root', '--display-info', name)
        is_((code, text), (0, ''), 'lintian has nothing to say')
    fields = must('dpkg-deb', '-f', path)
    ok(re.search(r'^Depends: nginx-abi-1\.22\.1-\d+, libc6', fields, re.M),
       "it depends on nginx's ABI and on libc", fields)
    fields = must('dpkg-deb', '-f', command)
    ok('nginx' not in re.search(r'^Depends: (.*)', fields, re.M)[1],
       'the command needs no nginx', fields)
    return paths


def use(root):
    """One request through it, and what it left."""
    with Upstream() as up:
        port = free_port()
        root.write('/etc/nginx/conf.d/llm.conf', SITE % (port, up.port))
        code, text = root.run('nginx', '-t')
        ok(code == 0 and '[warn]' not in text, 'nginx -t with capture', text)

        nginx = root.start('nginx', '-g', 'daemon off;')
        try:
            def served():
                try:
                    return request(port, CHAT, BODY)
                except ConnectionError:
                    return None
            is_(wait_for(served, 'nginx to serve').status, 200, 'served')
            family = [p[0] for p in children(nginx.pid)]
        finally:
            nginx.send_signal(signal.SIGQUIT)
            is_(nginx.wait(30), 0, 'stopped')
        for pid in family:
            wait_gone(pid)

    path = root.path + FILE
    is_([row.payload for row in records(path)], [BODY], 'recorded as sent')
    found = os.stat(path)
    is_((stat.S_IMODE(found.st_mode), found.st_uid), (0o600, 33),
        "a file of www-data's own")


def command(root):
    """What the package of the command has, on what was recorded."""
    root.must('llm-capture', 'validate', FILE)
    found = root.path + '/usr/share/man/man1/llm-capture'
    ok(os.path.exists(found + '.1.gz')
       and os.path.exists(found + '-validate.1.gz'), 'with its manual')
    root.must('apt-get', '-qy', 'purge', 'llm-capture')
    is_(glob.glob(found + '*'), [], 'purged')


def life(root, paths):
    for path in paths:
        shutil.copy(path, root.path + '/tmp/')
    packages = ['/tmp/' + os.path.basename(path) for path in paths]

    root.must('apt-get', '-q', 'update')
    root.must('apt-get', '-qy', '--no-install-recommends', 'install',
              *packages)
    ok(root.exists(MODULE) and root.exists(ENABLED), 'installed, and enabled')
    code, text = root.run('nginx', '-t')
    ok(code == 0, 'nginx -t', text)

    os.remove(root.path + '/etc/nginx/sites-enabled/default')
    use(root)
    command(root)

    root.must('apt-get', '-qy', 'remove', NAME)
    ok(not root.exists(MODULE) and not root.exists(ENABLED),
       'removed, and no longer enabled')
    code, text = root.run('nginx', '-t')
    ok(code and 'unknown directive "llm_capture"' in text,
       'what uses it is refused', text)
    os.remove(root.path + '/etc/nginx/conf.d/llm.conf')
    code, text = root.run('nginx', '-t')
    ok(code == 0, 'nginx -t without it', text)
    is_(len(records(root.path + FILE)), 1, 'what was recorded stays')

    root.must('apt-get', '-qy', 'purge', NAME)
    is_([name for name in glob.glob(root.path + '/etc/**', recursive=True)
         if 'llm' in name], [], 'purged: nothing left in /etc')


if impossible():
    skip_all(impossible())

with case('make install'):
    with tempfile.TemporaryDirectory() as work:
        make('install', 'DESTDIR=' + work)
        must(work + '/usr/bin/llm-capture', '--version')
        ok(os.path.exists(work + '/usr/share/man/man1/llm-capture-join.1'),
           'the command, with its manual')
        is_(stat.S_IMODE(os.stat(work + MODULE).st_mode), 0o644,
            "it is in nginx's directory of modules")

with case('the tarball'):
    tarball()

with case('the package'):
    built = package()
    with Root('deb') as root:
        life(root, built)
