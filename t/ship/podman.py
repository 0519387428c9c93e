"""Images and containers without an engine, in a store of the tests' own.

    pod = Podman()
    pod.base()                          debian:bookworm-slim, by debootstrap
    pod.build('name', '-f', 'Dockerfile', TOP)
    with pod.run('name', '--read-only', env={'UPSTREAM': ...}) as c:
        c.stop()

RUN steps are chroots of buildah, containers are podman's and runc's, in
namespaces of their own but for the network.  What a sandbox may lack is told
around: systemd, cgroups v2, higher limits than one's own.
"""

import json
import os
import subprocess
import sys
import zlib

sys.path.insert(0, os.path.dirname(__file__))
from roots import base, must, run           # noqa: E402
from sources import DIR                     # noqa: E402

# short, and the same for a store each time: podman insists
RUN = f'/run/llm-capture-check.{zlib.crc32(DIR.encode()):x}'
STORE = ('--root', DIR + '/containers', '--runroot', RUN,
         '--storage-driver', 'overlay')
LIMITS = ('--ulimit', 'nofile=1024:1024', '--ulimit', 'nproc=4096:4096')
DEBIAN = 'docker.io/library/debian:bookworm-slim'


class Podman:
    ENGINE = ('podman', *STORE, '--runtime', 'runc', '--cgroup-manager',
              'cgroupfs', '--events-backend', 'file')
    BUILD = ('buildah', *STORE, 'bud', '--isolation', 'chroot', '--network',
             'host', '--pull=never', '--format', 'docker', '--layers')

    def __init__(self):
        os.makedirs(DIR + '/containers', exist_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.say('rm', '-af')
        self.say('rmi', '-af')

    def wrapper(self):
        """A script that is podman with this store, and what a run needs."""
        engine = ' '.join(self.ENGINE[1:])
        return f'''#!/bin/sh
command=$1
shift
test $command != run || set -- --log-driver k8s-file {' '.join(LIMITS)} "$@"
exec $LLM_CAPTURE_PODMAN {engine} $command "$@"
'''

    def say(self, *args):
        return run(*self.ENGINE, *args)

    def base(self):
        tar = subprocess.Popen(('tar', '-C', base(), '-c', '.'),
                               stdout=subprocess.PIPE)
        subprocess.run((*self.ENGINE, 'import', '-q', '-', DEBIAN),
                       stdin=tar.stdout, check=True, timeout=600,
                       stdout=subprocess.DEVNULL)
        if tar.wait():
            raise RuntimeError('tar')

    def build(self, tag, *args, **words):
        words = [x for k, v in words.items()
                 for x in ('--build-arg', f'{k.upper()}={v}')]
        return must(*self.BUILD, '-t', 'localhost/' + tag, *words, *args,
                    timeout=1800)

    def config(self, tag):
        """As the image says it."""
        return json.loads(must(*self.ENGINE, 'image', 'inspect',
                               'localhost/' + tag))[0]

    def once(self, tag, *args, env=(), options=()):
        """Runs until it ends: (exit code, what it said)."""
        return self.say('run', '--rm', *self.options(env), *options,
                        'localhost/' + tag, *args)

    def run(self, tag, *options, env=()):
        return Container(self, must(*self.ENGINE, 'run', '-d',
                                    *self.options(env), *options,
                                    'localhost/' + tag).split()[-1])

    @staticmethod
    def options(env):
        return ('--network', 'host', '--log-driver', 'k8s-file', *LIMITS,
                *[x for k, v in dict(env).items()
                  for x in ('-e', f'{k}={v}')])


class Container:
    def __init__(self, pod, name):
        self.pod, self.name = pod, name

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.pod.say('rm', '-f', '-t', '5', self.name)

    def exec(self, *args):
        return self.pod.say('exec', self.name, *args)

    def log(self):
        return self.pod.say('logs', self.name)[1]

    def stop(self):
        """By the image's own signal; its exit code."""
        must(*self.pod.ENGINE, 'stop', '-t', '30', self.name)
        return int(must(*self.pod.ENGINE, 'inspect', '-f',
                        '{{.State.ExitCode}}', self.name).split()[-1])
