"""A Kubernetes API server with its etcd, of Go modules, on loopback.

    with ApiServer() as api:
        api.create(manifest, 'namespace', dry=True)     (status, answer)

They are built once into build/check/bin: it takes long, and Go's cache keeps
the parts.
"""

import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(__file__))
from roots import must                      # noqa: E402
from procs import free_port, wait_for       # noqa: E402
from sources import DIR, Unavailable        # noqa: E402

MODULES = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                       'kubernetes')
PROGRAMS = {'kube-apiserver': 'k8s.io/kubernetes/cmd/kube-apiserver',
            'etcd': 'go.etcd.io/etcd/server/v3'}
TOKEN = 'test'

# kind -> where its API is
CORE = '/api/v1'
GROUPS = {'Namespace': (CORE, 'namespaces'), 'Pod': (CORE, 'pods'),
          'Service': (CORE, 'services'), 'ConfigMap': (CORE, 'configmaps'),
          'PersistentVolumeClaim': (CORE, 'persistentvolumeclaims'),
          'Deployment': ('/apis/apps/v1', 'deployments'),
          'Job': ('/apis/batch/v1', 'jobs'),
          'Ingress': ('/apis/networking.k8s.io/v1', 'ingresses'),
          'CustomResourceDefinition': ('/apis/apiextensions.k8s.io/v1',
                                       'customresourcedefinitions'),
          'Gateway': ('/apis/gateway.networking.k8s.io/v1', 'gateways'),
          'HTTPRoute': ('/apis/gateway.networking.k8s.io/v1', 'httproutes'),
          'NginxProxy': ('/apis/gateway.nginx.org/v1alpha2', 'nginxproxies'),
          'SnippetsFilter': ('/apis/gateway.nginx.org/v1alpha1',
                             'snippetsfilters')}


def go(*args, **env):
    if not shutil.which('go'):
        raise Unavailable('go is not installed')
    try:
        return must('go', *args, cwd=MODULES, timeout=3600,
                    env={**os.environ, **env})
    except RuntimeError as e:
        raise Unavailable(str(e)) from None


def programs():
    os.makedirs(DIR + '/bin', exist_ok=True)
    for name, package in PROGRAMS.items():
        if not os.path.exists(f'{DIR}/bin/{name}'):
            go('build', '-p', '2', '-ldflags', '-s -w',
               '-o', f'{DIR}/bin/{name}.new', package)
            os.rename(f'{DIR}/bin/{name}.new', f'{DIR}/bin/{name}')


def built():
    return all(os.path.exists(f'{DIR}/bin/{name}') for name in PROGRAMS)


def module(name):
    """The directory of one that go.mod names."""
    go('mod', 'download', name)
    return go('list', '-m', '-f', '{{.Dir}}', name).strip()


class ApiServer:
    def __init__(self):
        programs()
        self.dir = tempfile.mkdtemp(prefix='llm-capture-api-')
        self.port = free_port()
        self.running = []
        try:
            self.start()
            wait_for(lambda: self.ask('/readyz')[0] == 200, 'the API', 120)
        except BaseException:
            self.stop()
            raise

    def start(self):
        store, peer = free_port(), free_port()
        must('openssl', 'genrsa', '-out', self.dir + '/key', '2048')
        with open(self.dir + '/tokens', 'w') as f:
            f.write(f'{TOKEN},admin,1,system:masters\n')
        self.spawn('etcd', f'--data-dir={self.dir}/etcd',
                   f'--listen-client-urls=http://127.0.0.1:{store}',
                   f'--advertise-client-urls=http://127.0.0.1:{store}',
                   f'--listen-peer-urls=http://127.0.0.1:{peer}',
                   f'--initial-advertise-peer-urls=http://127.0.0.1:{peer}',
                   f'--initial-cluster=default=http://127.0.0.1:{peer}')
        self.spawn('kube-apiserver',
                   f'--etcd-servers=http://127.0.0.1:{store}',
                   f'--secure-port={self.port}', '--bind-address=127.0.0.1',
                   # it is told to nobody, and loopback is not allowed
                   '--endpoint-reconciler-type=none',
                   f'--cert-dir={self.dir}/certs',
                   f'--token-auth-file={self.dir}/tokens',
                   '--authorization-mode=AlwaysAllow',
                   '--service-account-issuer=https://test.example',
                   f'--service-account-key-file={self.dir}/key',
                   f'--service-account-signing-key-file={self.dir}/key',
                   '--service-cluster-ip-range=10.0.0.0/24',
                   # nothing here makes the accounts that it looks for
                   '--disable-admission-plugins=ServiceAccount')

    def spawn(self, name, *args):
        with open(f'{self.dir}/{name}.log', 'w') as log:
            self.running.append(subprocess.Popen(
                [f'{DIR}/bin/{name}', *args], cwd=self.dir, stdout=log,
                stderr=log, stdin=subprocess.DEVNULL))

    def ask(self, path, data=None):
        """(status, what it answered); (0, why) while it does not."""
        call = urllib.request.Request(
            f'https://127.0.0.1:{self.port}{path}',
            json.dumps(data).encode() if data is not None else None,
            {'Authorization': 'Bearer ' + TOKEN,
             'Content-Type': 'application/json'})
        try:
            with urllib.request.urlopen(call, timeout=30, context=ssl.
                                        _create_unverified_context()) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()
        except OSError as e:
            for p in self.running:
                if p.poll() is not None:
                    with open(f'{self.dir}/{os.path.basename(p.args[0])}.log'
                              ) as f:
                        raise RuntimeError(f.read()[-3000:]) from None
            return 0, str(e)

    def create(self, what, namespace='', dry=False):
        group, plural = GROUPS[what['kind']]
        where = f'/namespaces/{namespace}' if namespace else ''
        return self.ask(f'{group}{where}/{plural}?fieldValidation=Strict'
                        + ('&dryRun=All' if dry else ''), what)

    def stop(self):
        for p in reversed(self.running):
            p.terminate()
            p.wait(60)
        shutil.rmtree(self.dir)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stop()
