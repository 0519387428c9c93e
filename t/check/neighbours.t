#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Beside other modules that read, keep, change or answer request bodies, in
# both orders of load_module: the same answers, and the same requests at the
# server, as with capture off; each body that is to be recorded is, once.

import glob
import grp
import gzip
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '../lib'))
from life import KILLED, Life              # noqa: E402
from llmcapture import *                    # noqa: E402,F403
from llmcapture import MODULE, NGINX, TOP   # noqa: E402
from manifests import manifest              # noqa: E402
from traffic import *                       # noqa: E402,F403

PASS = 'location / { proxy_pass http://llm; }'
SRC = os.environ.get('LLM_CAPTURE_NGINX_SRC') or '/usr/share/nginx/src'
MODULES = '/usr/lib/nginx/modules/'

EVIL = body(400, 'EVIL')
BODIES = [body(300, 'small'), body(20000, 'buffer'), body(200000, 'large'),
          EVIL]
SENT = BODIES * 2
SOME = 'those that were read to their end'
SWAPPED = b'{"swapped":1}'


def before(want):
    """What is recorded if our module is loaded before, so comes behind."""
    return lambda ours_last: SENT if ours_last else want


LUA = 'ngx.req.read_body() local d = ngx.req.get_body_data() '

# name: (modules, http block, {server: (its configuration, what is recorded)})

NEIGHBOURS = {
    'nginx': ((), '''
        proxy_cache_path %%DIR%%/cache keys_zone=c:1m;
        ''', {
        'mirror': ('''location / { mirror /m; proxy_pass http://llm; }
            location = /m { internal; proxy_pass http://llm/mirrored; }''',
                   SENT),
        'auth': ('''location / { auth_request /a; proxy_pass http://llm; }
            location = /a { internal; proxy_pass_request_body off;
                proxy_set_header Content-Length "";
                proxy_pass http://llm/auth; }''', SENT),
        # answered out of the cache from the second time on
        'cache': ('''location / { proxy_cache c; proxy_cache_methods POST;
            proxy_cache_key $http_x_key; proxy_cache_valid 200 10m;
            add_header X-Got $upstream_cache_status;
            proxy_pass http://llm; }''', SENT),
        'cache-unbuffered': ('''location / { proxy_cache c;
            proxy_cache_methods POST; proxy_request_buffering off;
            proxy_cache_key u$http_x_key; proxy_cache_valid 200 10m;
            add_header X-Got $upstream_cache_status;
            proxy_pass http://llm; }''', SOME),
    }),

    'lua': (('ndk_http_module', 'ngx_http_lua_module'), '', {
        'lua-read': ('location / { access_by_lua_block { ' + LUA + '''
                ngx.ctx.got = d and #d or ngx.req.get_body_file() and "file" }
            header_filter_by_lua_block { ngx.header["X-Got"] = ngx.ctx.got }
            log_by_lua_block { local d = ngx.var.request_body }
            proxy_pass http://llm; }''', SENT),
        'lua-set': ('location / { access_by_lua_block { ' + LUA + '''
                ngx.req.set_body_data('{"set":1}') }
            proxy_pass http://llm; }''', SENT),
        'lua-answer': ('location / { content_by_lua_block { ' + LUA + '''
            ngx.say(d and #d or "file") } }''', SENT),
        'lua-capture': ('location / { content_by_lua_block { ' + LUA + '''
                local r = ngx.location.capture("/up", {
                    method = ngx.HTTP_POST, body = '{"sub":1}' })
                ngx.status = r.status ngx.print(r.body) } }
            location = /up { internal; proxy_pass http://llm; }''', SENT),
        # what is not read by nginx is not seen
        'lua-discard': ('''location / { content_by_lua_block {
            ngx.req.discard_body() ngx.say("none") } }''', []),
        'lua-socket': ('''location / { content_by_lua_block {
            local s = ngx.req.socket()
            local n = tonumber(ngx.var.http_content_length)
            ngx.say(s and n and #s:receive(n) or "none") } }''', []),
    }),

    'njs': (('ngx_http_js_module',), '''
        js_path %%DIR%%; js_import t from t.js; js_set $want t.want;
        ''', {
        'js-answer': ('location / { js_content t.answer; }', SENT),
        'js-pass': ('''location / { js_content t.pass; }
            location = /up { internal; proxy_pass http://llm; }''', SENT),
        'js-variable': ('llm_capture $want;' + PASS, [EVIL] * 2),
    }),

    'modsecurity': (('ndk_http_module', 'ngx_http_modsecurity_module'), '''
        modsecurity on;
        modsecurity_rules '
            SecRuleEngine On
            SecRequestBodyAccess On
            SecRequestBodyLimit 100000
            SecRequestBodyLimitAction ProcessPartial
            SecRule REQUEST_BODY "@contains EVIL" "id:1,phase:2,deny,status:403"
        ';''', {
        # what it refuses has been read
        'modsecurity': (PASS, SENT),
    }),

    'filters': (('ngx_http_test_hold_module', 'ngx_http_test_swap_module'),
                '', {
        'hold': ('test_hold on;' + PASS, SENT),
        'hold-unbuffered': ('test_hold on; proxy_request_buffering off;'
                            + PASS, SENT),
        'swap': ('location / { test_swap \'{"swapped":1}\';'
                 ' proxy_pass http://llm; }', before([SWAPPED] * len(SENT))),
        'swallow': ('location / { test_swap ""; proxy_pass http://llm; }',
                    before([])),
        'both': ('location / { test_hold on; test_swap \'{"swapped":1}\';'
                 ' proxy_pass http://llm; }', before([SWAPPED] * len(SENT))),
    }),
}

SCRIPT = '''
function answer(r) {
    r.return(200, r.requestText ? String(r.requestText.length) : 'file');
}

async function pass(r) {
    let reply = await r.subrequest('/up', { method: 'POST',
                                            body: r.requestText || '{}' });
    r.return(reply.status, reply.responseText);
}

function want(r) {
    return r.headersIn['X-Evil'] ? 'on' : 'off';
}

export default { answer, pass, want };
'''


def hashed(arrived):
    """Answers with what it got, and notes it before."""
    def action(handler, seen):
        handler.read_body(seen)
        arrived.append((seen.headers.get('x-key', ''), seen.path, seen.sha256))
        handler.reply(200, seen.sha256.encode())
    return action


def drive(ng, host):
    """All answers: status, body, and what the neighbour says."""
    answers = []
    for b in BODIES:
        for sizes in (None, (7000,)):
            got = ask(ng.port, whole(
                b, PATH, f'X-Key: {host}:{sha(b)[:8]}',
                *(['X-Evil: 1'] if b == EVIL else []), host=host,
                sizes=sizes))
            answers.append((got.status, got.body, got.headers.get('x-got')))
    return answers


def run_beside(modules, http, sites, on, ours_last):
    """server -> (answers, requests at the server, counters, payloads)"""
    load = [f'load_module {m};' for m in modules]
    if MODULE:
        load.insert(len(load) if ours_last else 0, f'load_module {MODULE};')
    http = WHAT + http + ''.join(server(n, conf)
                                 for n, (conf, _) in sites.items())
    if not on:
        http = http.replace('llm_capture on;', 'llm_capture off;') \
            .replace('llm_capture $want;', 'llm_capture off;')

    arrived = []

    with Upstream(actions=dict.fromkeys(
            (PATH, '/up', '/auth', '/mirrored'), hashed(arrived))) as up, \
            Nginx(up, path='', http=http, start=False) as ng:
        with open(ng.dir + '/t.js', 'w') as f:
            f.write(SCRIPT)
        ng.configure(load='\n'.join(load))
        ng.start()
        answers = {n: drive(ng, n) for n in sites}
        ng.quit()
        return {n: (answers[n], sorted(a for a in arrived
                                       if a[0].startswith(n + ':')),
                    counted(ng, ng.path(n + '.jsonl')), payloads(ng, n))
                for n in sites}


def beside(modules, http, sites, ours_last):
    off = run_beside(modules, http, sites, False, ours_last)
    on = run_beside(modules, http, sites, True, ours_last)
    where = 'loaded last' if ours_last else 'loaded first'

    for site, (_, want) in sites.items():
        what = f'{site}, {where}'
        if callable(want):
            want = want(ours_last)
        is_(on[site][0], off[site][0], f'{what}: the same answers')
        is_(on[site][1], off[site][1], f'{what}: the same at the server')
        row, got = on[site][2:]
        if want == SOME:
            is_(row, {'seen': len(SENT), 'recorded': len(got),
                      **({'aborted': len(SENT) - len(got)}
                         if len(got) < len(SENT) else {})},
                f'{what}: counted')
            ok(set(got) == set(SENT), f'{what}: recorded when it was read')
            continue
        is_(row, {'seen': len(want), 'recorded': len(want)} if want else {},
            f'{what}: counted')
        is_(sorted(map(sha, got)), sorted(map(sha, want)),
            f'{what}: recorded')

    return on


def build_filters(into):
    done = subprocess.run(
        f"'{TOP}/misc/configure.sh' '{SRC}' '{NGINX}' '{into}'"
        f" '{TOP}/t/check/filters' &&"
        f" make -s -C '{into}' -f objs/Makefile modules", shell=True,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=dict(os.environ, CC_OPT='-g -O2', LD_OPT='', MAKEFLAGS=''))
    return ok(done.returncode == 0, 'the filters of the tests are built',
              done.stdout)


def loads(modules):
    """Were they built for this nginx?"""
    ng = Nginx(path='', start=False)
    try:
        return ng.test(load='\n'.join(f'load_module {m};' for m in modules))[
            0] == 0
    finally:
        ng.finish()


tree = tempfile.mkdtemp(prefix='llm-capture-filters-')
try:
    build_filters(tree)
    for name, (modules, http, sites) in NEIGHBOURS.items():
        at = tree + '/objs/' if name == 'filters' else MODULES
        modules = [f'{at}{m}.so' for m in modules]
        if not loads(modules):
            skip(f'beside {name}', 'not there, or for another nginx')
            continue
        for ours_last in (False, True) if modules else (False,):
            with case(f'beside {name}'):
                on = beside(modules, http, sites, ours_last)
                if name == 'nginx':
                    is_([got for _, _, got in on['cache'][0]],
                        ['MISS', 'HIT'] * len(BODIES),
                        'the second answer came out of the cache')
                if name == 'modsecurity':
                    is_([s for s, _, _ in on['modsecurity'][0]],
                        [200] * 6 + [403] * 2, 'one is refused')
finally:
    shutil.rmtree(tree)


# the same file for two, and for one who moves it away

def together(*work):
    """All at once; what one of them raises is raised here."""
    failed = []

    def run(f):
        try:
            f()
        except Exception as e:
            failed.append(e)

    crew = [threading.Thread(target=run, args=(f,)) for f in work]
    for t in crew:
        t.start()
    for t in crew:
        t.join()
    if failed:
        raise failed[0]


def numbers(paths):
    """All rows of these files, .gz too; each line is whole."""
    found = []
    for path in paths:
        if path.endswith('.gz'):
            with gzip.open(path) as f, open(path[:-3], 'xb') as out:
                out.write(f.read())
            path = path[:-3]
        found += [row.value['payload']['n'] for row in records(path)]
    return found


with case('two nginxes and one file'), Life(allow=KILLED) as a, \
        Life(allow=KILLED, start=False) as b:
    b.configure(http=b.words['HTTP'].replace('%%DIR%%', a.dir))
    b.start()
    b.sent = 100000
    at = a.path('completions')

    def busy(ng):
        for _ in range(3):
            ng.push(1000)
            old = ng.helper()
            ng.reload()
            ng.new_helper(old)
            ng.push(1000)
            ng.signal('KILL', ng.backlog(300))
        ng.push(1000)

    together(lambda: busy(a), lambda: busy(b))
    for ng in a, b:
        wait_for(lambda: len(ng.helpers()) == 1, 'a helper')
    a.quit()
    b.quit()
    got = sorted(numbers([at]))
    ok(got == [*range(1, a.sent + 1), *range(100001, b.sent + 1)],
       f'two nginxes: {len(got)} rows, each once',
       (len(got), len(set(got)), a.sent, b.sent))
    for name, ng, n in (('one', a, a.sent), ('other', b, b.sent - 100000)):
        row = ng.counters()
        is_((row['seen'], row['recorded'], row['pending']), (n, n, 0),
            f'two nginxes: the {name} has counted its own')
    row = records(at)
    ok(min(r.timestamp for r in row) == 0, 'two nginxes: one clock')


def rotation(ng, *changes):
    """conf-examples/logrotate for this nginx; returns what rotates once."""
    group = grp.getgrgid(pwd.getpwnam(USER).pw_gid).gr_name
    with open(TOP + '/conf-examples/logrotate') as f:
        text = f.read()
    for old, new in (('/var/log/nginx/llm_capture', ng.dir + '/capture'),
                     ('/run/nginx.pid', ng.dir + '/nginx.pid'),
                     ('www-data www-data', f'{USER} {group}'), *changes):
        if old not in text:
            raise ValueError(old)
        text = text.replace(old, new)
    conf = ng.dir + '/logrotate'
    with open(conf, 'w') as f:
        f.write(text)

    def rotate():
        done = subprocess.run(
            ['logrotate', '-f', '-s', ng.dir + '/logrotate.state', conf],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise RuntimeError(done.stdout)
    return rotate


def files(ng):
    return [p for p in glob.glob(ng.path('completions') + '*')
            if not p.endswith(('.epoch', '.json'))]


def rotate_busy(ng, rotate):
    """Five times under traffic."""
    done = threading.Event()

    def push():
        while not done.is_set():
            ng.push(200)

    def turn():
        try:
            for _ in range(5):
                sent = ng.sent
                wait_for(lambda: ng.sent > sent + 400
                         and os.path.exists(ng.path('completions'))
                         and os.path.getsize(ng.path('completions')),
                         'traffic')
                rotate()
        finally:
            done.set()

    together(push, turn)


CREATE = ('    nocreate\n', f'    create 0600 {USER} '
          f'{grp.getgrgid(pwd.getpwnam(USER).pw_gid).gr_name}\n')
def days(ng, rotate):
    """Four rotations: the newest two stay, each with its manifest."""
    for _ in range(4):
        before = ng.sent
        ng.push(10)
        live = ng.path('completions')
        wait_for(lambda: (manifest(live) or {}).get('recorded')
                 == ng.sent - before, 'the manifest')
        second = time.time()
        rotate()
        wait_for(lambda: time.time() > second + 1, 'the next second')
    ng.push(1)
    ng.quit()
    left = sorted(p for p in files(ng) if p != live)
    is_([p.endswith('.gz') for p in left], [True, False],
        'two stay, one is compressed')
    is_(sorted(glob.glob(live + '.*.manifest.json')),
        sorted(re.sub(r'\.gz$', '', p) + '.manifest.json' for p in left),
        'each has its manifest, those of the others are gone')
    is_([manifest(p)['recorded'] for p in left], [10, 10],
        'which tells of it')
    is_(sorted(numbers(left)), list(range(21, 41)), 'their rows')


# more than once a second
NUMBERS = ('    dateext\n    dateformat .%Y%m%dT%H%M%S\n', '')
CUT = [NUMBERS, ('    nocreate\n', '    copytruncate\n'),
       ('    compress\n    delaycompress\n', ''),
       ('rotate 7', 'rotate 20'), ('kill -USR1', ': kill -USR1')]

if not ROOT or not shutil.which('logrotate'):
    skip('logrotate', 'not there, or not root')
else:
    with case('logrotate, days'), Life() as ng:
        days(ng, rotation(ng, ('rotate 7', 'rotate 2')))

    for name, changes in (('nocreate', (NUMBERS,)),
                          ('create', (NUMBERS, CREATE))):
        with case(f'logrotate, {name}'), Life() as ng:
            ng.push(100)
            rotate_busy(ng, rotation(ng, *changes))
            ng.push(100)
            ng.quit()
            left = files(ng)
            ok(len(left) == 6, f'{name}: five were rotated', left)
            got = sorted(numbers(left))
            ok(got == [*range(1, ng.sent + 1)],
               f'{name}: {ng.sent} rows, each once', len(got))
            ng.counted(f'logrotate, {name}')
            is_({oct(os.stat(p).st_mode & 0o777) for p in left}, {'0o600'},
                f'{name}: all are private')

    with case('logrotate, copytruncate'), Life() as ng:
        rotate = rotation(ng, *CUT)
        for _ in range(3):
            ng.push(200)
            wait_for(lambda: sum(len(open(p, 'rb').readlines())
                                 for p in files(ng)) == ng.sent, 'all rows')
            rotate()
        ng.push(50)
        wait_for(lambda: len(ng.records('completions')) == 50, 'the rest')
        is_(sorted(numbers(files(ng))), [*range(1, ng.sent + 1)],
            'copytruncate, and nobody writes: all is there')
        is_(ng.records('completions')[0].timestamp, 0,
            'copytruncate: a file that was cut begins anew')

        # what comes between its copy and its cut is lost by logrotate
        rotate_busy(ng, rotate)
        ng.quit()
        got = []
        for path in files(ng):
            with open(path, 'rb') as f:
                data = f.read()
            if path != ng.path('completions'):
                data = data[:data.rfind(b'\n') + 1]   # a copy under way
            ok(b'\0' not in data and (not data or data.endswith(b'\n')),
               f'copytruncate: no hole in {os.path.basename(path)}')
            got += [int(n) for n in re.findall(rb'"n":(\d+)}}\n', data)]
            is_(data.count(b'\n'), len(re.findall(
                rb'(?m)^{"timestamp":\d+,"payload":{.*"n":\d+}}$', data)),
                'copytruncate: whole lines')
        is_(len(set(got)), len(got), 'copytruncate: none twice')
        diag(f'{ng.sent - len(got)} of {ng.sent} were lost by logrotate')
        ng.counted('logrotate, copytruncate')
