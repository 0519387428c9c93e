#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# What is seen, and what is decided: each case is a server of its own with a
# file and counters of its own; the line that $llm_capture_status,
# $llm_capture_endpoint and $status make in its access log, the counters and
# the recorded bytes are all exact.

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from llmcapture import *                    # noqa: E402,F403
from procs import processes                 # noqa: E402
from traffic import *                       # noqa: E402,F403

B = body(300, 'BODYCANARY')
CHAT = 'queued chat 200'
ON = 'location / { proxy_pass http://llm; }'
EXACT = 'location = /v1/chat/completions '

SITES = []


def site(name, conf, requests, log, seen=None, recorded=0, want=None, **why):
    """requests: whole ones, @ is the host; log: a line each; why: reasons."""
    counters = dict(why)
    if recorded:
        counters['recorded'] = recorded
    total = sum(counters.values()) if seen is None else seen
    if total:
        counters['seen'] = total
    SITES.append((name, conf, requests, log, counters,
                  [B] * recorded if want is None else want))


def up(handler, seen):
    """Switches protocols and says back what it is told, once."""
    handler.send_response(101)
    handler.send_header('Upgrade', 'websocket')
    handler.send_header('Connection', 'Upgrade')
    handler.end_headers()
    handler.wfile.write(handler.rfile.read(4))
    handler.close_connection = True


def accel(handler, seen):
    handler.read_body(seen)
    handler.reply(200, headers=[('X-Accel-Redirect', '/final')])


ACTIONS = {'/500': mock.status(500), '/401': mock.status(401),
           '/200': mock.status(200), '/accel': accel, '/up': up,
           '/drop': mock.drop}


# the path that the client asked for

site('rewrite-last',
     'location /v1/ { llm_capture off; rewrite ^ /inner last; }'
     'location /inner { proxy_pass http://llm; }',
     [whole(B)], [CHAT], recorded=1)

site('rewrite-break',
     'location /v1/ { rewrite ^ /inner break; proxy_pass http://llm; }',
     [whole(B)], [CHAT], recorded=1)

site('rewritten-to-a-match',
     'location /inner { rewrite ^ /v1/chat/completions last; }' + ON,
     [whole(B, '/inner')], ['unmatched other 200'], unmatched=1)

site('server-rewrite', 'rewrite ^ /inner;' + ON,
     [whole(B, '/v1/completions')], ['queued completions 200'], recorded=1)

site('try-files-named',
     'location / { try_files /none @app; }'
     'location @app { proxy_pass http://llm; }',
     [whole(B)], [CHAT], recorded=1)

site('try-files-uri',
     'location /v1/ { try_files /none /app; }'
     'location /app { proxy_pass http://llm; }',
     [whole(B)], [CHAT], recorded=1)

site('error-page-500-named',
     EXACT + '{ proxy_pass http://llm/500; proxy_intercept_errors on;'
     ' error_page 500 = @other; }'
     'location @other { llm_capture_path %%DIR%%/capture/other.jsonl;'
     ' proxy_pass http://llm; }',
     [whole(B)], [CHAT], recorded=1)

site('error-page-502-uri',
     EXACT + '{ proxy_pass http://llm/drop; error_page 502 = /other; }'
     'location /other { proxy_pass http://llm; }',
     [whole(B)], [CHAT], recorded=1)

site('error-page-to-off',
     EXACT + '{ proxy_pass http://llm/500; proxy_intercept_errors on;'
     ' error_page 500 = @other; }'
     'location @other { llm_capture off; proxy_pass http://llm; }',
     [whole(B)], [CHAT], recorded=1)

site('error-page-from-off',
     EXACT + '{ llm_capture off; proxy_pass http://llm/500;'
     ' proxy_intercept_errors on; error_page 500 = @other; }'
     'location @other { llm_capture on; proxy_pass http://llm; }',
     [whole(B)], ['off chat 200'])

site('x-accel-redirect',
     EXACT + '{ proxy_pass http://llm/accel; }'
     'location /final { internal; proxy_pass http://llm; }',
     [whole(B)], [CHAT], recorded=1)

site('error-page-413-named',
     'location / { client_max_body_size 100; proxy_pass http://llm;'
     ' error_page 413 = @big; }'
     'location @big { client_max_body_size 0; proxy_pass http://llm; }',
     [whole(B)], ['off chat 200'])

site('upstream-error', EXACT + '{ proxy_pass http://llm/500; }',
     [whole(B)], ['queued chat 500'], recorded=1)

# subrequests

site('auth-request',
     'location / { auth_request /auth; proxy_pass http://llm; }'
     'location = /auth { internal; proxy_pass http://llm/200;'
     ' proxy_pass_request_body off; proxy_set_header Content-Length ""; }',
     [whole(B)], [CHAT], recorded=1)

site('auth-request-denied',
     'location / { auth_request /auth; proxy_pass http://llm; }'
     'location = /auth { internal; proxy_pass http://llm/401;'
     ' proxy_pass_request_body off; proxy_set_header Content-Length ""; }',
     [whole(B)], ['off chat 401'])

site('mirror',
     'location / { mirror /m; mirror /n; proxy_pass http://llm; }'
     'location = /m { internal; proxy_pass http://llm$request_uri; }'
     'location = /n { internal; proxy_pass http://llm/500; }',
     [whole(B)], [CHAT], recorded=1)

# where it is switched on and off

site('nested',
     'llm_capture off;'
     'location / { proxy_pass http://llm; }'
     'location /v1/ { llm_capture on; proxy_pass http://llm;'
     ' location /v1/completions { llm_capture off; proxy_pass http://llm; } }',
     [whole(B), whole(B, '/v1/completions'), whole(B, '/x')],
     [CHAT, 'off completions 200', 'off other 200'], recorded=1)

site('if',
     'location / { if ($http_x_if) { set $x 1; proxy_pass http://llm; }'
     ' proxy_pass http://llm; }',
     [whole(B, PATH, 'X-If: 1'), whole(B)], [CHAT, CHAT], recorded=2)

site('variable',
     'set $cap $http_x_cap; llm_capture $cap;' + ON,
     [whole(B, PATH, 'X-Cap: ' + v)
      for v in ('', '0', 'off', '1', 'on', '00', 'OFF')] + [whole(B)],
     ['off chat 200'] * 3 + [CHAT] * 4 + ['off chat 200'], recorded=4)

site('variable-is-not-cached',
     'llm_capture $http_x_cap;'
     'location / { rewrite ^ /b last; }'
     'location /b { proxy_pass http://llm; }',
     [whole(B, PATH, 'X-Cap: on'), whole(B)], [CHAT, 'off chat 200'],
     recorded=1)

# what has no body, or whose body nobody reads

site('no-body', ON,
     [whole(b''), head(), head(PATH, 'Transfer-Encoding: chunked')
      + chunked(b''), head(method='GET'), head(method='DELETE'),
      head(method='HEAD'), head(PATH, method='GET', version='1.0')],
     ['off chat 200'] * 7)

site('body-of-any-method', ON,
     [whole(B, method=m) for m in ('GET', 'PUT', 'DELETE', 'PATCH')],
     [CHAT] * 4, recorded=4)

site('return', 'return 204;', [whole(B)], ['off chat 204'])

site('static', 'root %%DIR%%;',
     [whole(B, '/nginx.conf'), whole(B),
      whole(B, '/nginx.conf', method='GET')],
     ['off other 405', 'off chat 404', 'off other 200'])

site('upgrade',
     EXACT + '{ proxy_pass http://llm/up; proxy_set_header Upgrade $'
     'http_upgrade; proxy_set_header Connection upgrade; }',
     [head(PATH, 'Upgrade: websocket', 'Connection: Upgrade', method='GET')
      + b'ping'], ['off chat 101'])

site('body-not-passed',
     'location / { proxy_pass_request_body off; proxy_set_header'
     ' Content-Length ""; proxy_pass http://llm; }',
     [whole(B)], [CHAT], recorded=1)

site('too-large-for-nginx', 'client_max_body_size 100;' + ON,
     [whole(B)], ['off chat 413'])

site('too-large-for-nginx-chunked',
     'client_max_body_size 20000; client_body_buffer_size 1k;' + ON,
     [whole(body(40000), sizes=(500,))], ['aborted chat 413'], aborted=1)

# samples

site('sample-0', 'llm_capture_sample_rate 0;' + ON, [whole(B)] * 20,
     ['sampled_out chat 200'] * 20, sampled_out=20)
site('sample-1', 'llm_capture_sample_rate 1;' + ON, [whole(B)] * 20,
     [CHAT] * 20, recorded=20)

# the first reason wins

GZIP = 'Content-Encoding: gzip'
LIMIT = 'llm_capture_max_request_bytes 299;'

site('first-unmatched', 'llm_capture_sample_rate 0;' + LIMIT + ON,
     [whole(B, '/x', GZIP)], ['unmatched other 200'], unmatched=1)
site('then-skipped', 'llm_capture_sample_rate 0; llm_capture_skip 1;' + ON,
     [whole(B, PATH, GZIP)], ['skipped chat 200'], skipped=1)
site('then-sampled-out', 'llm_capture_sample_rate 0;' + LIMIT + ON,
     [whole(B, PATH, GZIP)], ['sampled_out chat 200'], sampled_out=1)
site('then-encoded', LIMIT + ON, [whole(B, PATH, GZIP)],
     ['encoded chat 200'], encoded=1)
site('then-too-large', LIMIT + ON, [whole(B), whole(B, sizes=(9,))],
     ['too_large chat 200'] * 2, too_large=2)
site('exactly-the-limit', 'llm_capture_max_request_bytes 300;' + ON,
     [whole(B), whole(B, sizes=(300,))], [CHAT] * 2, recorded=2)

# who does not want to be recorded

site('skip', 'llm_capture_skip $http_x_no_capture $arg_private;' + ON,
     [whole(B), whole(B, PATH, 'X-No-Capture: 0'),
      whole(B, PATH, 'X-No-Capture: yes'), whole(B, PATH + '?private=1')],
     [CHAT] * 2 + ['skipped chat 200'] * 2, skipped=2, recorded=2)
site('replay', ON,
     [whole(B, PATH, f'User-Agent: {name}') for name in (
         'aiperf/0.13.0', 'aiperf', 'AIPerf/1', 'x aiperf/0.13.0', '')],
     ['skipped chat 200'] + [CHAT] * 4, skipped=1, recorded=4)
site('replay-recorded', 'llm_capture_skip_replay off;' + ON,
     [whole(B, PATH, 'User-Agent: aiperf/0.13.0')], [CHAT], recorded=1)

site('content-encoding', ON,
     [whole(B, PATH, *h) for h in (
         ['Content-Encoding: identity'], ['content-encoding: IDENTITY'],
         ['Content-Encoding:'], ['Content-Encoding: br'],
         ['content-ENCODING: zstd'], ['Content-Encoding: identity, gzip'],
         ['Content-Encoding: identity', 'Content-Encoding: gzip'],
         ['Content-Encodings: gzip'])],
     [CHAT] * 3 + ['encoded chat 200'] * 4 + [CHAT], encoded=4, recorded=4)

# valid for HTTP, not for the file

site('invalid', ON,
     [whole(b'{"BODYCANARY"'), whole(b'["BODYCANARY"]'),
      whole(b'{"BODYCANARY":"\xff"}'), whole(b'{"BODYCANARY":1e400}'),
      whole(b'{}'), whole(b' ')],
     [CHAT] * 6, invalid_json=2, invalid_not_object=1, invalid_utf8=1,
     invalid_number=1, invalid_empty=1)

site('raw-payload', 'llm_capture_format raw_payload;' + ON,
     [whole(B), whole(b'{"prompt":"BODYCANARY"}')], [CHAT] * 2,
     invalid_no_messages=1, recorded=1)

# endpoints

ENDPOINTS = [('/v1/chat/completions', 'chat'), ('/x/completions',
             'completions'), ('/v1/responses', 'responses'),
             ('/v1/messages', 'messages'), ('/v1/embeddings', 'embeddings'),
             ('/v1/messages/count_tokens', 'other'), ('/', 'other')]

site('endpoints', 'llm_capture_endpoint_pattern .*;' + ON,
     [whole(B, path) for path, _ in ENDPOINTS],
     [f'queued {e} 200' for _, e in ENDPOINTS], recorded=len(ENDPOINTS))

# paths as written, and what they ask for: the same after a rewrite

PATHS = [
    ('/v1/chat/completions?a=b', CHAT),
    ('/v1/%63hat/completions', CHAT),
    ('/%76%31/chat%2Fcompletions', CHAT),
    ('//v1///chat/completions', CHAT),
    ('/a/../v1/./chat/completions', CHAT),
    ('/v1/chat/completions#part', CHAT),
    ('/v1/embeddings/..%2fcompletions', 'queued completions 200'),
    ('http://@/v1/chat/completions', CHAT),
    ('HTTP://@:80/v1/completions?x', 'queued completions 200'),
    ('http://@?x=1', 'unmatched other 200'),
    ('http://@', 'unmatched other 200'),
    ('/v1/chat/completions/', 'unmatched other 200'),
    ('/V1/chat/completions', 'unmatched chat 200'),
    ('/v1/chat/Completions', 'unmatched other 200'),
    ('/v1/chat/completions%0A', 'unmatched other 200'),
    ('/v1/chat/completions%20', 'unmatched other 200'),
    ('/v1/chat/completions%3Fa', 'unmatched other 200'),
    ('/x/v1/chat/completions', 'unmatched chat 200'),
    ('/v1/chat/completions/../../x', 'unmatched other 200'),
]
MATCHED = sum(line.startswith('queued') for _, line in PATHS)

for name, conf in (('paths', ON), ('paths-rewritten',
                   'location / { rewrite ^ /in last; }'
                   'location /in { proxy_pass http://llm; }')):
    site(name, conf, [whole(B, p) for p, _ in PATHS], [s for _, s in PATHS],
         recorded=MATCHED, unmatched=len(PATHS) - MATCHED)

# the last path's match is remembered, up to 64 bytes of it

TURNS = ['/v1/completions'] * 2 + ['/v1/completionz'] * 2 \
    + ['/v1/completions', '/v1/completions' + 'x' * 49,
       '/v1/completions' + 'x' * 50, '/v1/completions']

site('paths-in-turn', ON, [whole(B, path) for path in TURNS],
     ['queued completions 200' if path == TURNS[0] else 'unmatched other 200'
      for path in TURNS], recorded=4, unmatched=4)


SPECIAL = server('half', 'llm_capture_sample_rate 0.5;' + ON) \
    + server('gone', ON)


def lines(ng, name, n):
    """The access log, once it has n lines."""
    wait_for(lambda: len(log_lines(ng, name)) >= n, f'{n} lines of {name}.log')
    return log_lines(ng, name)


def drive(ng, name, requests):
    for data in requests:
        data = data.replace(b'Host: localhost', b'Host: ' + name.encode())
        data = data.replace(b'http://@', b'http://' + name.encode())
        data = data.replace(b'HTTP://@', b'HTTP://' + name.encode())
        data = data.replace(b'\r\n\r\n', b'\r\nAuthorization: Bearer '
                            b'TOKENCANARY\r\nCookie: a=TOKENCANARY\r\n\r\n', 1)
        with Client(ng.port) as c:
            c.say(data)
            if b'Upgrade: websocket' not in data:
                c.response(data.split(b' ', 1)[0].decode())
                continue
            while c.file.readline() != b'\r\n':
                pass
            is_(c.file.read(4), b'ping', f'{name}: the tunnel works')


def run_sites(sites):
    http = WHAT + ''.join(server(name, conf) for name, conf, *_ in sites)

    with Upstream(actions=ACTIONS) as upstream, \
            Nginx(upstream, http=http + SPECIAL, path='', level='debug') as ng:

        for name, _, requests, log, _, _ in sites:
            with case(name):
                drive(ng, name, requests)
                is_(lines(ng, name, len(log)), log, f'{name}: status')

        with case('half of a sample'), Client(ng.port) as c:
            for _ in range(400):
                c.ask(whole(B, host='half'))

        with case('a client that goes'), Client(ng.port) as c:
            c.say(whole(B, host='gone')[:-1])
            c.reset()
            is_(lines(ng, 'gone', 1), ['aborted chat 400'], 'gone: status')

        is_([t for _, _, t in processes() if 'CANARY' in t], [],
            'no body in a title')
        ng.quit()

        for name, _, _, _, counters, want in sites:
            with case(name):
                is_(counted(ng, ng.path(name + '.jsonl')), counters,
                    f'{name}: counted')
                is_(payloads(ng, name) if name != 'raw-payload' else
                    [r.line for r in ng.records(name + '.jsonl')],
                    want, f'{name}: recorded')

        with case('half of a sample'):
            got = counted(ng, ng.path('half.jsonl'))
            ok(140 < got['recorded'] < 260, 'about half is kept', got)
            is_(got, {'seen': 400, 'recorded': got['recorded'],
                      'sampled_out': 400 - got['recorded']},
                'half: the sum is exact')
            is_(len(ng.records('half.jsonl')), got['recorded'], 'half: rows')

        is_(counted(ng, ng.path('gone.jsonl')), {'seen': 1, 'aborted': 1},
            'gone: counted')

        with case('nothing of a body or a header is logged'):
            log = ng.log()
            ours = [s for s in log.splitlines() if 'llm capture' in s]
            ok(ours, 'the log has lines of ours')
            ok('[debug]' in log or 'with-debug' not in ng.run('-V')[1],
               'the log has debug lines')
            ok('BODYCANARY' not in log, 'no body in the error log')
            ok(not [s for s in ours if 'CANARY' in s], 'no token in our lines')
            ok(not os.path.exists(ng.path('other.jsonl')),
               'no record for the location of an error page')


run_sites(SITES)


with case('many slashes are merged as nginx merged them'), \
        Upstream() as upstream:
    # the default server of the address decides, whatever the Host

    for merged in ('on', 'off'):
        other = 'off' if merged == 'on' else 'on'
        http = f'''
    server {{
        listen 127.0.0.1:%%PORT%%;
        server_name direct;
        merge_slashes {other};
        location / {{ llm_capture on; proxy_pass http://llm;
            llm_capture_path %%DIR%%/capture/direct.jsonl; }}
    }}
    server {{
        listen 127.0.0.1:%%PORT%%;
        server_name rewritten;
        merge_slashes {other};
        location / {{ rewrite ^ /in last; }}
        location /in {{ llm_capture on; proxy_pass http://llm;
            llm_capture_path %%DIR%%/capture/rewritten.jsonl; }}
    }}'''
        conf = CONF.replace('%%HTTP%%', '').replace(
            '        }\n    }\n}', '        }\n    }\n%%HTTP%%\n}')
        want = {'seen': 1, 'recorded' if merged == 'on' else 'unmatched': 1}

        with Nginx(upstream, server=f'merge_slashes {merged};', http=http,
                   path='', conf=conf) as ng:
            for host in ('direct', 'rewritten'):
                ask(ng.port, whole(B, '//v1//chat/completions', host=host))
            ng.quit()
            for host in ('direct', 'rewritten'):
                is_(counted(ng, ng.path(host + '.jsonl')), want,
                    f'merge_slashes {merged}, {host}')


with case('tenants in the name of the file'), Upstream() as upstream, \
        Nginx(upstream, location='llm_capture on;', path='llm_capture_path '
              '%%DIR%%/capture/t.$http_x_tenant.jsonl;') as ng:

    TENANTS = ['a', 'b', 'A', 'a/b', 'a_b', 'a\\b', '..', '../../x', '.', '.a',
               'a.', '\xe9', '\xe8', 'x' * 64, 'x' * 65, 'x' * 66,
               'x' * 1000 + '1', 'x' * 1000 + '2', 'a b', 'a%00b', '-', 'a;b',
               '$uri', '~']

    for i, tenant in enumerate(TENANTS):
        ask(ng.port, whole(body(200, f'tenant{i}'), PATH,
                           'X-Tenant: ' + tenant))
    ask(ng.port, whole(body(200, 'absent')))
    ask(ng.port, whole(body(200, 'empty'), PATH, 'X-Tenant:'))

    before = sorted(os.listdir(ng.dir))
    ng.quit()

    files = [f for f in os.listdir(ng.dir + '/capture')
             if f.endswith('.jsonl')]
    is_(len(files), len(TENANTS) + 1, 'no two tenants share a file')
    is_([r.payload for r in ng.records('t.none.jsonl')],
        [body(200, 'absent'), body(200, 'empty')], 'none without a tenant')
    is_([r.payload for r in ng.records('t.a.jsonl')], [body(200, 'tenant0')],
        'a plain name stays as it is')
    is_(sorted(r.payload for f in files for r in ng.records(f)),
        sorted([body(200, f'tenant{i}') for i in range(len(TENANTS))]
               + [body(200, 'absent'), body(200, 'empty')]),
        'all are recorded')
    bad = [f for f in files
           if not re.fullmatch(r't\.[A-Za-z0-9_-][A-Za-z0-9._-]{0,95}\.jsonl',
                               f)]
    is_(bad, [], 'plain names only')
    is_([f for f in os.listdir(ng.dir) if f not in before], [],
        'nothing outside the directory')

    made = [f for f in files if re.search(r'[0-9a-f]{16}\.jsonl$', f)][0]


with case('a tenant who claims the name of another'), \
        Upstream() as upstream, \
        Nginx(upstream, location='llm_capture on;', path='llm_capture_path '
              '%%DIR%%/capture/t.$http_x_tenant.jsonl;') as ng:
    ask(ng.port, whole(body(200, 'first'), PATH, 'X-Tenant: a/b'))
    ng.wait_records(wait_for(lambda: [
        f for f in os.listdir(ng.dir + '/capture')
        if f.endswith('.jsonl')], 'a file')[0], 1)
    name = [f for f in os.listdir(ng.dir + '/capture')
            if f.endswith('.jsonl')][0]
    ask(ng.port, whole(body(200, 'second'), PATH,
                       'X-Tenant: ' + name[2:-6]))
    ng.quit()
    is_([r.payload for r in ng.records(name)], [body(200, 'first')],
        'gets a file of his own')


with case('http level'), Upstream() as upstream, \
        Nginx(upstream, http='llm_capture on; llm_capture_endpoint_pattern '
              '^/a$;', location='llm_capture_endpoint_pattern ^/b$;',
              server='location /a { proxy_pass http://llm; } '
              'location /c { llm_capture off; proxy_pass http://llm; '
              'location /c/d { llm_capture on; proxy_pass http://llm; } }'
              ) as ng:
    for path in ('/a', '/b', '/c', '/c/d'):
        ask(ng.port, whole(B, path))
    ng.quit()
    template = ng.dir + '/capture/requests.$llm_capture_endpoint.jsonl'
    is_(counted(ng, template), {'seen': 3, 'recorded': 2, 'unmatched': 1},
        'inherited, overridden, and off below on')


with case('client_body_early_read'), Upstream() as upstream, \
        Nginx(upstream, path='', start=False, allow='early_read') as ng:

    if ng.test(http='client_body_early_read 1;')[0]:
        skip('client_body_early_read', 'this nginx has none')
        ng.configure(http='')
    else:
        # the body is read before a location is known: the server decides
        early = 'client_body_early_read 1;'
        ng.configure(http=WHAT + ''.join(server(name, early + conf)
                     for name, conf in (
            ('early-server', ON),
            ('early-rewritten', 'location / { rewrite ^ /in last; }'
             'location /in { llm_capture off; proxy_pass http://llm; }'),
            ('early-location', 'llm_capture off; location / {'
             ' llm_capture on; proxy_pass http://llm; }'))))
        ng.start()
        for name in ('early-server', 'early-rewritten', 'early-location'):
            for sizes in (None, (70,)):
                drive(ng, name, [whole(B, sizes=sizes)])
        ng.quit()
        for name in ('early-server', 'early-rewritten'):
            is_(counted(ng, ng.path(name + '.jsonl')),
                {'seen': 2, 'recorded': 2}, f'{name}: counted')
            is_(payloads(ng, name), [B, B], f'{name}: recorded')
        is_(counted(ng, ng.path('early-location.jsonl')), {},
            'early-location: not seen')
