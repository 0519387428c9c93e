"""Root file systems of Debian 12, to install packages and make images in.

    with Root('deb') as root:
        root.run('apt-get', '-y', 'install', 'nginx')
        process = root.start('nginx', '-g', 'daemon off;')

A Root is a copy of what debootstrap made once, in build/check/roots.  Its
commands run in a mount namespace of their own and with the machine's network.
"""

import fcntl
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '../lib'))
from sources import DIR, archive            # noqa: E402

SUITE = 'bookworm'
ROOTS = DIR + '/roots'

ENTER = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
ENV = {'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'HOME': '/root', 'LANG': 'C',
       'DEBIAN_FRONTEND': 'noninteractive'}


def run(*command, timeout=1200, **more):
    """(exit code, what it said).  A make is not a part of an outer one."""
    env = {k: v for k, v in os.environ.items()
           if k not in ('MAKEFLAGS', 'MAKELEVEL', 'MFLAGS')}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          errors='backslashreplace', timeout=timeout,
                          **{'env': env, **more})
    return done.returncode, done.stdout


def must(*command, **more):
    code, text = run(*command, **more)
    if code:
        raise RuntimeError(f'{" ".join(command)}: {text[-3000:]}')
    return text


def impossible():
    """Why there can be no roots here, if so."""
    if os.geteuid():
        return 'needs root, for chroots'
    code, text = run('unshare', '--mount', 'true')
    return f'needs mount namespaces: {text}' if code else ''


def base():
    """What debootstrap makes, once."""
    path = f'{ROOTS}/{SUITE}'
    os.makedirs(ROOTS, exist_ok=True)
    with open(path + '.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            bootstrap(path)
    return path


def bootstrap(path):
    new = path + '.new'
    shutil.rmtree(new, ignore_errors=True)
    must('debootstrap', '--variant=minbase', SUITE, new, archive())
    # installing a server does not start it
    with open(new + '/usr/sbin/policy-rc.d', 'w') as f:
        f.write('#!/bin/sh\nexit 101\n')
    os.chmod(new + '/usr/sbin/policy-rc.d', 0o755)
    os.rename(new, path)


class Root:
    def __init__(self, name):
        self.path = f'{ROOTS}/{name}.{os.getpid()}'

    def __enter__(self):
        must('cp', '-a', base(), self.path)
        shutil.copy('/etc/resolv.conf', self.path + '/etc/resolv.conf')
        return self

    def __exit__(self, *error):
        shutil.rmtree(self.path, ignore_errors=True)

    def command(self, *args):
        return ('unshare', '--mount', 'sh', '-c', ENTER, self.path, *args)

    def run(self, *args):
        return run(*self.command(*args), env=ENV)

    def must(self, *args):
        return must(*self.command(*args), env=ENV)

    def start(self, *args):
        """Its pid is the program's own."""
        return subprocess.Popen(self.command(*args), env=ENV,
                                stdin=subprocess.DEVNULL,
                                start_new_session=True)

    def write(self, name, text):
        with open(self.path + name, 'w') as f:
            f.write(text)

    def exists(self, name):
        return os.path.lexists(self.path + name)
