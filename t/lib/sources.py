"""Sources from package registries, once, into build/check/src.

    debian('nginx', 'bookworm')             a source package, patches applied
    debian('nginx', 'trixie', tar=True)     its upstream release alone
    crate('nginx-src', 'nginx')             a folder of a crate, the newest

Each returns the path of a tree, and raises Unavailable with what the client
said.  Debian's other suites are read from where the machine's own one comes
from, with lists of our own; the machine's settings are left alone.
"""

import glob
import os
import re
import shutil
import subprocess

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
DIR = TOP + '/build/check'
SUITES = ('bookworm', 'trixie', 'sid')
KEYS = '/usr/share/keyrings/debian-archive-keyring.gpg'


class Unavailable(Exception):
    pass


def client(*command, cwd=None):
    """What it said; Unavailable if it failed."""
    try:
        done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=600)
    except FileNotFoundError:
        raise Unavailable(f'{command[0]} is not installed') from None
    if done.returncode:
        raise Unavailable(' '.join(command[-2:]) + ': ' + done.stdout[-2000:])
    return done.stdout


def once(name, fill):
    """fill(directory) the first time: all of it, or nothing."""
    path = f'{DIR}/src/{name}'
    if not os.path.exists(path):
        new = path + '.new'
        shutil.rmtree(new, ignore_errors=True)
        os.makedirs(new)
        fill(new)
        os.rename(new, path)
    return path


# Debian

def apt(*args, cwd=None):
    return client(
        'apt-get', '-q', '-o', f'Dir::Etc::SourceList={DIR}/apt/sources.list',
        '-o', 'Dir::Etc::SourceParts=/dev/null',
        '-o', f'Dir::State::Lists={DIR}/apt/lists',
        '-o', f'Dir::Cache={DIR}/apt/cache', '-o', 'APT::Sandbox::User=root',
        '-o', 'APT::Update::Error-Mode=any', *args, cwd=cwd)


def archive():
    """Where the machine's own suite comes from."""
    with open('/etc/os-release') as f:
        suite = re.search(r'^VERSION_CODENAME=(\w+)', f.read(), re.M)[1]
    for update in (False, True):
        if update:                      # it shows only what has been read
            client('apt-get', '-q', 'update')
        for line in client('apt-get', 'indextargets', '--format',
                           '$(REPO_URI) $(RELEASE) $(COMPONENT)',
                           'Created-By: Packages').splitlines():
            uri, release, component = line.split()
            if (release, component) == (suite, 'main'):
                return uri
    raise Unavailable(f'apt has no source of {suite}')


def suites():
    """The lists of the suites, read once."""
    if os.path.exists(DIR + '/apt/done'):
        return
    for path in ('lists/partial', 'cache/archives/partial'):
        os.makedirs(f'{DIR}/apt/{path}', exist_ok=True)
    signed = f'[signed-by={KEYS}] ' if os.path.exists(KEYS) else ''
    uri = archive()
    with open(DIR + '/apt/sources.list', 'w') as f:
        f.writelines(f'deb-src {signed}{uri} {suite} main\n'
                     for suite in SUITES)
    apt('update')
    open(DIR + '/apt/done', 'w').close()


def unpacked(path):
    """The one directory in it."""
    found = [e.path for e in os.scandir(path) if e.is_dir()]
    if len(found) != 1:
        raise Unavailable(f'{path} has {len(found)} directories')
    return found[0]


def debian(name, suite, tar=False):
    def fill(path):
        suites()
        if tar:
            apt('--tar-only', 'source', f'{name}/{suite}', cwd=path)
            client('tar', 'xf', *os.listdir(path), cwd=path)
        else:
            apt('source', f'{name}/{suite}', cwd=path)
    return unpacked(once(f'{name}-{suite}', fill))


# crates.io

def crate(name, folder):
    """cargo unpacks a crate, alone, that it is asked about."""
    def fill(path):
        said = client('cargo', 'info', name, cwd=path)
        version = re.search(r'^version: (\S+)', said, re.M)
        home = os.environ.get('CARGO_HOME') or os.path.expanduser('~/.cargo')
        found = version and glob.glob(
            f'{home}/registry/src/*/{name}-{version[1]}/{folder}')
        if not found:
            raise Unavailable('cargo info said no version: ' + said)
        shutil.copytree(found[0], f'{path}/{name}-{version[1]}')
    return unpacked(once(name, fill))
