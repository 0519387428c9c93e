"""nginx and the module, built in directories of their own.

    b = Build(src, 'static, clang', cc='clang', static=True)
    b.make()                    # b.nginx, b.module
    b.run('t/http3.t')          # the lines of its TAP, named after the build

The module's files are compiled with -Wall -Wextra -Werror, nginx's own as
nginx says.
"""

import os
import re
import subprocess
import sys

from sources import DIR, TOP

# -g0, no paths: ccache knows a file again in another build
CORE = '-O0 -g0'

STRICT = '''
objs/addon/%.o: CFLAGS += -Wall -Wextra -Wno-unused-parameter -Werror
'''

SWITCHES = ('--with-http_v2_module', '--with-threads',
            '--without-http_gzip_module')


class Failed(Exception):
    pass


def run(*command, cwd=TOP, timeout=1200, **env):
    """(exit code, what it said).  A make is not a part of an outer one."""
    own = {'MAKEFLAGS': '', 'MAKELEVEL': '0', 'MFLAGS': '',
           'CCACHE_DIR': DIR + '/ccache', 'CCACHE_NOHASHDIR': '1',
           'ASAN_OPTIONS': 'detect_leaks=0'}
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors='backslashreplace',
                          timeout=timeout,
                          env=dict(os.environ, **own, **env))
    return done.returncode, done.stdout


def version(src):
    with open(src + '/src/core/nginx.h') as f:
        return re.search(r'#define NGINX_VERSION +"(.*)"', f.read())[1]


def links(src, path):
    """The tree, as links: it is only read."""
    run('rm', '-rf', path)
    os.makedirs(path)
    for name in os.listdir(src):
        if name not in ('objs', 'Makefile', '.git'):
            os.symlink(f'{src}/{name}', f'{path}/{name}')


class Build:
    """
    static     the module in the binary; else beside it
    args       switches of configure
    host       a Build whose binary loads the module: only that is built
    addons     other modules, always static
    """

    def __init__(self, src, what, cc='gcc', static=False, host=None,
                 args=('--with-compat', *SWITCHES), cc_opt=CORE, ld_opt='',
                 addons=()):
        self.src, self.what, self.host = src, what, host
        self.name = f'{version(src)}, {what}'
        self.cc, self.cc_opt, self.ld_opt = cc, cc_opt, ld_opt
        self.static, self.args, self.addons = static, args, addons
        self.dir = DIR + '/nginx/' + re.sub('[ ,]+', '-', self.name)
        self.nginx = host.nginx if host else self.dir + '/objs/nginx'
        self.module = '' if static else \
            self.dir + '/objs/ngx_http_llm_capture_module.so'

    def make(self):
        links(self.src, self.dir)
        conf = 'configure' if os.path.exists(self.src + '/configure') \
            else 'auto/configure'
        kind = '--add-module' if self.static else '--add-dynamic-module'
        self.step('./' + conf, *self.args, f'{kind}={TOP}',
                  *[f'--add-module={a}' for a in self.addons],
                  f'--with-cc=ccache {self.cc}',
                  f'--with-cc-opt={self.cc_opt}',
                  f'--with-ld-opt={self.ld_opt}')
        with open(self.dir + '/objs/Makefile', 'a') as f:
            f.write(STRICT)
        self.step('make', '-s', '-f', 'objs/Makefile',
                  *(['modules'] if self.host else ['binary']
                    + ['modules'] * (not self.static)))
        return self

    def step(self, *command):
        code, text = run(*command, cwd=self.dir)
        if code:
            raise Failed(f'{self.name}: {command[0]}\n{text[-3000:]}')

    def run(self, script):
        """[(good, name, what it said)] of a test; good None: skipped."""
        code, text = run(
            sys.executable, TOP + '/' + script,
            LLM_CAPTURE_NGINX=self.nginx, LLM_CAPTURE_MODULE=self.module,
            LLM_CAPTURE_NGINX_SRC=self.src)
        found, said = [], []
        for line in text.splitlines():
            check = re.match(r'(not )?ok \d+ - (.*)', line)
            if check:
                found.append([not check[1], f'{self.name}: {check[2]}', ''])
            else:
                said.append(line)
                if found and not found[-1][0]:
                    found[-1][2] += line + '\n'
        skipped = re.search(r'^1\.\.0 # SKIP (.*)', text, re.M)
        ran = code == 0 and re.search(fr'^1\.\.{len(found)}\b', text, re.M)
        name = f'{self.name}: {os.path.basename(script)}'
        if skipped:
            return [[None, name, skipped[1]]]
        return found + [[bool(ran), name + ' ran', '\n'.join(said[-15:])]]
