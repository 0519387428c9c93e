#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# The images, built and run: Debian's nginx, a release of nginx as the official
# images have it, the module for ingress-nginx, a controller with the module.
# Containers run as uid 101 with a read-only root and no capabilities.
# LLM_CAPTURE_SHORT: Debian's nginx alone.

import contextlib
import glob
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(__file__))
from podman import DEBIAN, Podman               # noqa: E402
from roots import impossible, must                      # noqa: E402
from builds import version                      # noqa: E402
from llmcapture import (TOP, Upstream, case, free_port, is_,  # noqa: E402
                        like, ok, records, request, skip, skip_all, wait_for)
from manifests import segments                  # noqa: E402
from sources import DIR, Unavailable, debian    # noqa: E402
from tour import Tour                           # noqa: E402

import yaml                                     # noqa: E402

CHAT, PROMPT = '/v1/chat/completions', '/v1/completions'
VOLUME = '/opt/nim/captures'
HEALTH = '/usr/share/llm-capture/entrypoint.sh', 'health'
SHORT = os.environ.get('LLM_CAPTURE_SHORT')
TESTS = {'tests': 't/check/smoke.py'} if SHORT else {}
HARD = ('--read-only', '--read-only-tmpfs=false', '--cap-drop', 'ALL',
        '--security-opt', 'no-new-privileges')

# like the official images: their paths, their user, --with-compat
OFFICIAL = '''
FROM %s
COPY nginx /src
RUN apt-get -q update && DEBIAN_FRONTEND=noninteractive \\
    apt-get -qy install --no-install-recommends gcc libc6-dev make libpcre2-dev \\
    libssl-dev
RUN cd /src && ./configure --prefix=/etc/nginx --sbin-path=/usr/sbin/nginx \\
    --modules-path=/usr/lib/nginx/modules --conf-path=/etc/nginx/nginx.conf \\
    --http-log-path=/var/log/nginx/access.log --pid-path=/run/nginx.pid \\
    --user=nginx --group=nginx --with-compat --with-threads \\
    --with-http_ssl_module --without-http_gzip_module > /dev/null \\
    && make -s > /dev/null && make -s install > /dev/null \\
    && groupadd -g 101 nginx && useradd -u 101 -g 101 nginx
''' % DEBIAN

LOAD = '''
load_module %s/ngx_http_llm_capture_module.so;
pid /tmp/nginx.pid;
events {}
http { server { listen 127.0.0.1:9; location / { llm_capture on;
    llm_capture_path /captures/requests.jsonl; proxy_pass http://[::1]; } } }
'''


def body(n):
    return b'{"model":"m","n":%d,"messages":[{"role":"user","content":"x"}]}' \
        % n


class Place:
    """A volume's directory of uid 101, an upstream, a port."""

    def __init__(self, up):
        self.dir = tempfile.mkdtemp(prefix='llm-capture-volume-')
        os.chown(self.dir, 101, 101)
        self.port = free_port()
        self.env = {'UPSTREAM': f'http://127.0.0.1:{up.port}/',
                    'PORT': self.port, 'NIM_CAPTURE_ENABLE': 1}
        self.options = (*HARD, '-v', f'{self.dir}:{VOLUME}')

    def __enter__(self):
        return self

    def __exit__(self, *error):
        shutil.rmtree(self.dir)

    def post(self, n, path=CHAT):
        try:
            return request(self.port, path, body(n)).status
        except (ConnectionError, EOFError):
            return None

    def first(self, c):
        """Its first request, once it serves."""
        try:
            is_(wait_for(lambda: self.post(0), 'nginx to serve'), 200,
                'served')
        except TimeoutError:
            raise RuntimeError(c.log()) from None

    def rows(self, name='requests.jsonl'):
        path = f'{self.dir}/{name}'
        return records(path) if os.path.exists(path) else []


@contextlib.contextmanager
def wheels():
    """What the stage of the tests needs of Python, brought along."""
    sources = TOP + '/packaging/sources'
    with open(TOP + '/t/lib/requirements.txt') as f:
        needed = re.findall(r'^(?:orjson|h2)==\S+', f.read(), re.M)
    must(sys.executable, '-m', 'pip', '-q', '--disable-pip-version-check',
         'download', '-d', sources, *needed)
    try:
        yield
    finally:
        for path in glob.glob(sources + '/*.whl'):
            os.remove(path)


def says_itself(pod, tag):
    c = pod.config(tag)['Config']
    is_((c['User'], c['StopSignal'], list(c['Volumes'])),
        ('101:101', 'SIGQUIT', [VOLUME]), f'{tag}: user, signal, volume')
    ok(pod.config(tag).get('Healthcheck') or c.get('Healthcheck'),
       f'{tag}: has a healthcheck')


def lives(pod, tag, up):
    """Served, recorded, looked at, stopped while requests come."""
    with Place(up) as here, pod.run(tag, *here.options, env=here.env) as c:
        here.first(c)

        code, text = c.exec('sh', '-c', 'id -u; touch /x /tmp/x /etc/x')
        ok(text.startswith('101') and text.count('Read-only') == 3,
           f'{tag}: uid 101, nothing to write to', text)
        code, text = c.exec(*HEALTH)
        is_(code, 0, f'{tag}: healthy') or print('#', text)

        done = []

        def push():
            n = 1
            while here.post(n) == 200:
                done.append(n)
                n += 1

        client = threading.Thread(target=push)
        client.start()
        wait_for(lambda: len(done) > 50, 'traffic')
        is_(c.stop(), 0, f'{tag}: stopped')
        client.join()

        log = c.log()
        rows = here.rows()
        got = sorted(row.value['payload']['n'] for row in rows)
        is_(got, [0] + done, f'{tag}: {len(done)} answered, each recorded')
        like(log, rf'seen {len(got)} = .* recorded {len(got)} \+ pending 0',
             f'{tag}: counted')
        ok('alert' not in log and 'emerg' not in log, f'{tag}: no alert', log)
        found = os.stat(here.dir + '/requests.jsonl')
        is_((stat.S_IMODE(found.st_mode), found.st_uid), (0o600, 101),
            f'{tag}: a file of its user alone')


def tour(pod, up):
    """What docs/tour.md shows of it, by a podman as anybody has it."""
    with tempfile.TemporaryDirectory(prefix='llm-capture-tour-') as here:
        os.chmod(here, 0o755)
        os.makedirs(here + '/bin')
        os.makedirs(here + '/captures')
        os.chown(here + '/captures', 101, 101)
        with open(here + '/bin/podman', 'w') as f:
            f.write(pod.wrapper())
        os.chmod(here + '/bin/podman', 0o755)
        try:
            Tour('image', here, {'8080': free_port(), '8000': up.port,
                                 '/srv/tour': here},
                 {'PATH': here + '/bin:' + os.environ['PATH'],
                  'LLM_CAPTURE_PODMAN': shutil.which('podman')}).run()
        finally:
            pod.say('rm', '-f', '-t', '5', 'capture')


def variables(pod, tag, up):
    args = {'path': VOLUME + '/a b "c".jsonl', 'sample_rate': 1.0,
            'endpoint_pattern': '^/v1/(chat/completions|\\w+)$'}

    with Place(up) as here, pod.run(tag, *here.options, env={
            **here.env, 'NIM_CAPTURE_ARGS': json.dumps(args)}) as c:
        here.first(c)
        c.stop()
        is_(len(here.rows('a b "c".jsonl')), 1,
            'NIM_CAPTURE_ARGS as it came, with quotes and backslashes')

    with Place(up) as here, pod.run(tag, *here.options, env={
            **here.env, 'LLM_CAPTURE_PATH':
            VOLUME + '/requests.$llm_capture_endpoint.jsonl'}) as c:
        here.first(c)
        here.post(1, PROMPT)
        c.stop()
        is_([len(here.rows(f'requests.{name}.jsonl'))
             for name in ('chat', 'completions')], [1, 1],
            'LLM_CAPTURE_PATH: a file per endpoint')

    with Place(up) as here, pod.run(tag, *here.options, env={
            **here.env, 'LLM_CAPTURE_ROTATE': 'size=1k keep=20 compress=gzip',
            'LLM_CAPTURE_MAX_DISK': '10m drop_oldest'}) as c:
        here.first(c)
        for n in range(30):
            here.post(n)
        live = f'{here.dir}/requests.jsonl'
        wait_for(lambda: [p for p in segments(live) if p.endswith('.gz')],
                 'a segment', 60)
        is_(c.stop(), 0, 'LLM_CAPTURE_ROTATE: segments, within a budget')

    for off in '0', 'false', '':
        with Place(up) as here, pod.run(tag, *here.options, env={
                **here.env, 'NIM_CAPTURE_ENABLE': off}) as c:
            here.first(c)
            c.stop()
            is_(here.rows(), [], f'NIM_CAPTURE_ENABLE={off}: only serves')

    with Place(up) as here:
        os.chown(here.dir, 0, 0)
        with pod.run(tag, *here.options, env=here.env) as c:
            here.first(c)
            like(c.log(), 'cannot be written: nothing is captured',
                 'a volume that is not its own: said')

    with Place(up) as here:
        os.chown(here.dir, 0, 101)      # as fsGroup leaves it
        os.chmod(here.dir, 0o2770)
        with pod.run(tag, *here.options, env=here.env) as c:
            here.first(c)
            c.stop()
            is_(len(here.rows()), 1, 'a volume of its group')
            ok('cannot' not in c.log() and 'writable' not in c.log(),
               'a volume of its group: no warning', c.log())

    for name, value in (('UPSTREAM', ''), ('UPSTREAM', 'a; } #'),
                        ('UPSTREAM', 'a\nb'), ('PORT', '80;'),
                        ('MAX_BODY', '1m; #'), ('WORKERS', '1|e'),
                        ('LLM_CAPTURE_PATH', '/x; deny all'),
                        ('LLM_CAPTURE_ROTATE', 'size=1k; deny all'),
                        ('LLM_CAPTURE_MAX_DISK', '1m}')):
        code, text = pod.once(tag, options=HARD, env={
            'UPSTREAM': 'a', name: value})
        ok(code and name in text, f'{name}={value!r} is refused', text)


def sidecar(pod, tag, up):
    """As conf-examples/kubernetes/sidecar.yaml has it."""
    with open(TOP + '/conf-examples/kubernetes/sidecar.yaml') as f:
        pods = next(yaml.safe_load_all(f))['spec']['template']['spec']
    c = next(c for c in pods['containers'] if c['name'] == tag)
    s = c['securityContext']
    options = {
        'readOnlyRootFilesystem': ('--read-only', '--read-only-tmpfs=false'),
        'runAsUser': ('--user', f'{s["runAsUser"]}:{s["runAsGroup"]}'),
        'capabilities': ('--cap-drop', *s['capabilities']['drop']),
        'allowPrivilegeEscalation': ('--security-opt', 'no-new-privileges')}
    is_(s['allowPrivilegeEscalation'], False, 'sidecar: no new privileges')

    with Place(up) as here:
        os.chown(here.dir, 0, pods['securityContext']['fsGroup'])
        os.chmod(here.dir, 0o2770)
        mount = c['volumeMounts'][0]['mountPath']
        with pod.run(tag, *sum(options.values(), ()),
                     '-v', f'{here.dir}:{mount}',
                     env={**{e['name']: e['value'] for e in c['env']},
                          'UPSTREAM': here.env['UPSTREAM'],
                          'PORT': here.port}) as c:
            here.first(c)
            here.post(1, PROMPT)
            is_(c.exec(*HEALTH)[0], 0, 'sidecar: healthy')
            c.stop()
            is_([len(here.rows(f'requests.{name}.jsonl'))
                 for name in ('chat', 'completions')], [1, 1],
                'sidecar: a file per endpoint')


def release():
    """A release of nginx into the images' context: its version."""
    src = debian('nginx', 'trixie', tar=True)
    v = version(src)
    path = f'{TOP}/packaging/sources/nginx-{v}.tar.gz'
    must('tar', '-C', os.path.dirname(src), '-czf', path, '--transform',
         f's,^{os.path.basename(src)},nginx-{v},', os.path.basename(src))
    return src, v, path


def official(pod, src, up):
    work = DIR + '/official'
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(src, work + '/nginx')
    with open(work + '/Dockerfile', 'w') as f:
        f.write(OFFICIAL)
    pod.build('official', work)
    pod.build('llm-capture-official', TOP, base='localhost/official')
    lives(pod, 'llm-capture-official', up)


def loads(pod, tag, where, *options):
    with tempfile.NamedTemporaryFile('w') as f:
        f.write(LOAD % where)
        f.flush()
        return pod.once(tag, 'nginx', '-t', '-c', '/my.conf', options=(
            '-v', f'{f.name}:/my.conf', '--tmpfs', '/tmp', *options))


def examples(pod, v):
    path = TOP + '/conf-examples/docker/'
    words = {'build': DEBIAN, 'nginx_version': v}

    pod.build('module', '-f', path + 'init-module/Dockerfile', TOP, **words)
    with tempfile.TemporaryDirectory(prefix='llm-capture-mods-') as mount:
        os.chmod(mount, 0o777)
        volume = ('-v', mount + ':/modules_mount')
        code, text = loads(pod, 'official', '/modules_mount', *volume)
        ok(code, 'not there before the init container', text)
        code, text = pod.once('module', options=(*HARD, *volume))
        is_((code, text), (0, ''), 'the init container copies it')
        is_(os.listdir(mount), ['ngx_http_llm_capture_module.so'],
            'just the module')
        code, text = loads(pod, 'official', '/modules_mount', *volume)
        is_(code, 0, 'a release of nginx loads it') or print('#', text)

    pod.build('controller', '-f', path + 'controller/Dockerfile', TOP,
              controller='localhost/official', **words)
    code, text = loads(pod, 'controller', '/opt/llm-capture')
    is_(code, 0, "a controller's image loads it") or print('#', text)


if impossible():
    skip_all(impossible())

with Podman() as pod, Upstream() as up:
    pod.base()

    # the stage in front of both is made once
    with wheels():
        with case('the stage of the tests'):
            text = pod.build('test', '--target', 'test', TOP, **TESTS)
            like(text, 'All tests successful', 'the tests in the image')
        pod.build('llm-capture', TOP)

    with case("Debian's nginx"):
        says_itself(pod, 'llm-capture')
        lives(pod, 'llm-capture', up)
        tour(pod, up)
        variables(pod, 'llm-capture', up)
        sidecar(pod, 'llm-capture', up)

    if not SHORT:
        try:
            src, v, tarball = release()
        except Unavailable as e:
            skip('a release of nginx', e)
        else:
            with case('a release of nginx'):
                official(pod, src, up)
                examples(pod, v)
            os.remove(tarball)
