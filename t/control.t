#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# llm_capture_control: capture switched by a POST, for all workers and across
# reloads, and by nobody else.

import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                'lib'))
from life import KILLED, Life                               # noqa: E402
from llmcapture import *                                    # noqa: E402,F403
from status import (CONTROL, STATUS, ask, control, samples,  # noqa: E402
                    say, status)

PROMPT, CHAT = '/v1/completions', '/v1/chat/completions'
SERVER = STATUS + CONTROL
BODY = b'{"prompt":"0123456789"}'
OFF = {'capture': 'off', 'ended': None, 'until': None, 'sample_rate': None,
       'records': None, 'bytes': None, 'match': None}
OTHER = 'location /other/ { llm_capture on;' \
        ' llm_capture_path %%DIR%%/capture/other.jsonl;' \
        ' llm_capture_endpoint_pattern ^/other/; proxy_pass http://llm; }'
SMALL = 'llm_capture on; llm_capture_max_request_bytes 150;'
STREAMS = 'server { listen 127.0.0.1:%d http2; location / {' \
          ' proxy_pass http://llm; %s } }'
NONE = {'all': None, 'destinations': []}


def without(said, *names):
    return {k: v for k, v in said.items() if k not in ('since', *names)}


def terms(ng, **words):
    """The sum, once nothing is pending: those that are not 0."""
    got = wait_for(lambda: (x := status(ng)['total']['requests'])
                   ['pending'] == 0 and x, 'nothing to be pending')
    return {k: v for k, v in got.items() if v}


def send(ng, n=1, path=PROMPT, body=BODY, **kw):
    for _ in range(n):
        if request(ng.port, path, body, **kw).status != 200:
            raise AssertionError('not served')


def crowd(ng, n, each, body=BODY):
    """n clients at the same time."""
    threads = [threading.Thread(target=send, args=(ng, each),
                                kwargs={'body': body}) for _ in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


with case('on, off, reset'), Upstream() as up, \
        Nginx(up, server=SERVER + OTHER, location='llm_capture on;') as ng:
    is_(status(ng)['control'], NONE, 'nothing was said')
    send(ng)
    got = say(ng, 'capture=off')
    is_((without(got['all']), got['destinations']), (OFF, []), 'off')
    near = abs(got['all']['since'] - time.time() * 1000)
    ok(near < 5000, 'since now', near)
    send(ng, 2)
    send(ng, 1, '/other/1')
    is_(terms(ng), {'seen': 4, 'recorded': 1, 'paused': 3}, 'paused')
    send(ng, 1, '/v1/models')
    is_(terms(ng)['unmatched'], 1, 'what would not be recorded is not paused')
    say(ng, 'capture=on')
    send(ng)
    is_(terms(ng)['recorded'], 2, 'on')
    say(ng, 'capture=off')
    is_(say(ng, 'capture=reset'), NONE, 'as if nothing was said')
    send(ng)
    is_(terms(ng), {'seen': 7, 'recorded': 3, 'paused': 3, 'unmatched': 1},
        'as configured')

    path = ng.path('requests.$llm_capture_endpoint.jsonl')
    got = say(ng, 'capture=off&path=' + path.replace('$', '%24'))
    is_((got['all'], [without(d) for d in got['destinations']]),
        (None, [{**OFF, 'path': path}]), 'one path')
    found = samples(ask(ng, '?format=prometheus').body)
    is_({dict(k[1])['path']: v for k, v in found.items()
         if k[0] == 'llm_capture_controlled'},
        {path: 1, ng.path('other.jsonl'): 0}, 'Prometheus is told')
    send(ng)
    send(ng, 1, '/other/1')
    is_((terms(ng)['paused'], terms(ng)['recorded']), (4, 4), 'that one')
    say(ng, 'capture=off')
    is_(status(ng)['control']['destinations'], [], 'all of them: it is in it')
    say(ng, 'capture=reset&path=' + path)
    send(ng)
    send(ng, 1, '/other/1')
    is_((terms(ng)['paused'], terms(ng)['recorded']), (5, 5),
        'one as configured, the others off')
    ng.quit()
    is_(ng.counters(path), {**ng.counters(path), 'seen': 8, 'paused': 3,
                            'recorded': 4}, 'the log has the sum')
    log = [line for line in ng.log().splitlines() if 'control said' in line]
    ok(len(log) == 7 and '"capture=off"' in log[0] and '[notice]' in log[0]
       and 'client: 127.0.0.1' in log[0], 'and who said what', log)


with case('paused at first'), Upstream() as up, \
        Nginx(up, server=SERVER + 'location /off/ { llm_capture off;'
              ' llm_capture_endpoint_pattern .; proxy_pass http://llm; }'
              ' location /var/ { llm_capture $arg_on;'
              ' llm_capture_endpoint_pattern .; proxy_pass http://llm; }',
              location='llm_capture paused;') as ng:
    send(ng)
    is_(terms(ng), {'seen': 1, 'paused': 1}, 'until told')
    say(ng, 'capture=on')
    send(ng)
    send(ng, 1, '/off/')
    send(ng, 1, '/var/?on=0')
    is_(terms(ng), {'seen': 2, 'paused': 1, 'recorded': 1},
        'on is for where capture is configured')
    say(ng, 'capture=reset')
    send(ng)
    is_(terms(ng)['paused'], 2, 'paused as configured')


with case('limits'), Life(server=SERVER, location=SMALL,
                          http=STREAMS % (h2 := free_port(), SMALL)) as ng:
    say(ng, 'capture=on&sample_rate=0')
    send(ng, 3)
    is_(terms(ng), {'seen': 3, 'sampled_out': 3}, 'a rate')
    got = say(ng, 'capture=on&sample_rate=0.25')
    is_(got['all']['sample_rate'], 0.25, 'told')
    crowd(ng, 4, 100)
    n = terms(ng)
    ok(50 < n['recorded'] < 160, 'about a quarter', n)

    before = terms(ng)['recorded']
    say(ng, 'capture=on&records=50')
    crowd(ng, 8, 20)
    now = status(ng)['control']['all']
    is_((now['capture'], now['ended'], now['records']),
        ('on', 'records', {'limit': 50, 'left': 0}), 'ended by itself')
    is_(terms(ng)['recorded'] - before, 50, 'so many, over two workers')
    is_(terms(ng)['paused'], 110, 'and no more')

    before = terms(ng)['recorded']
    size = len(BODY)
    say(ng, f'capture=on&bytes={size * 30 + 5}')
    crowd(ng, 8, 10)
    is_(terms(ng)['recorded'] - before, 30, 'so many bytes')
    now = status(ng)['control']['all']
    is_((now['ended'], now['bytes']),
        ('bytes', {'limit': size * 30 + 5, 'left': 0}), 'ended by itself')

    before = terms(ng)
    say(ng, 'capture=on&bytes=100')
    with Connection(ng.port) as c:
        c.head(PROMPT)
        for piece in (b'{"prompt":"', b'x' * 60, b'y' * 60, b'"}'):
            c.chunk(piece)
        c.last_chunk()
        is_(c.response().status, 200, 'chunks beyond it are served')
    send(ng)
    now = terms(ng)
    is_((now['recorded'], now['paused'] - before['paused']),
        (before['recorded'], 2), 'but not recorded, nor what follows')
    say(ng, 'capture=on&bytes=100')
    with Connection(ng.port) as c:
        c.head(PROMPT)
        c.chunk(b'{"prompt":"')
        c.chunk(b'x"}')
        c.last_chunk()
        c.response()
    is_(terms(ng)['recorded'], before['recorded'] + 1, 'fewer are')
    is_(status(ng)['control']['all']['bytes']['left'], 86, 'and counted')

    before = terms(ng)['paused']
    say(ng, 'capture=on&records=5&bytes=1g')
    send(ng, 3, headers={'Content-Encoding': 'gzip'})
    with H2(h2) as c:
        # its length is not known before
        is_(c.request(PROMPT, b'x' * 200, length=False).status, 200, 'served')
    is_(terms(ng)['too_large'], 1, 'too large')
    now = status(ng)['control']['all']
    is_((now['records']['left'], now['bytes']['left']), (5, 1 << 30),
        'what is refused takes nothing')
    ng.quit()
    ng.counters()


with case('a time'), Life(server=SERVER, location='llm_capture paused;') as ng:
    got = say(ng, 'capture=on&duration=1s')
    is_(got['all']['until'] - got['all']['since'], 1000, 'its end is told')
    send(ng)
    wait_for(lambda: status(ng)['control']['all']['ended'] == 'duration',
             'its end')
    send(ng)
    is_(terms(ng), {'seen': 2, 'recorded': 1, 'paused': 1}, 'off by itself')
    ng.reload(location='llm_capture on;')
    say(ng, 'capture=off&duration=1000ms')
    send(ng)
    wait_for(lambda: status(ng)['control'] == NONE, 'its end')
    send(ng)
    is_(terms(ng), {'seen': 4, 'recorded': 2, 'paused': 2},
        'then as configured')


with case('a value'), Upstream() as up, \
        Nginx(up, server=SERVER + 'set $kind "a:b";',
              http='map $arg_t $tier { default free; gold paid; }',
              location='llm_capture on;') as ng:
    got = say(ng, 'capture=on&match=$HTTP_x_tenant:ac%6De%20x')
    is_(got['all']['match'], '$http_x_tenant:acme x', 'told')
    send(ng, headers={'X-Tenant': 'acme x'})
    for other in ({}, {'X-Tenant': 'acme'}, {'X-Tenant': 'acme x '[:6] + 'y'}):
        send(ng, headers=other)
    is_(terms(ng), {'seen': 4, 'recorded': 1, 'paused': 3}, 'exactly it')
    say(ng, 'capture=on&records=2&match=$tier:paid')
    send(ng, 2)
    send(ng, 3, PROMPT + '?t=gold')
    is_(terms(ng), {'seen': 9, 'recorded': 3, 'paused': 6}, 'of a map')
    say(ng, 'capture=on&match=$kind:a:b')
    send(ng)
    say(ng, 'capture=on&match=$arg_none:')
    send(ng)
    is_(terms(ng)['recorded'], 5, 'with a colon, or empty')


def browser(ng, host, headers, where='control'):
    with Connection(ng.port) as c:
        c.send(f'POST /{where}?capture=off HTTP/1.1\r\nHost: {host}\r\n'
               f'{headers}\r\nContent-Length: 0\r\n\r\n'.encode())
        return c.response()


ARGS = (
    ('', 'capture: it must be on, off or reset'),
    ('records=5', 'capture: '), ('capture=', 'capture: '),
    ('capture', 'capture: '), ('capture=ON', 'capture: '),
    ('capture=on&capture=off', 'capture: given twice'),
    ('capture=on&sample_rate=1.5', 'sample_rate: it must be a number from 0'),
    ('capture=on&records=0', 'records: '), ('capture=on&records=5k',
                                            'records: '),
    ('capture=on&bytes=x', 'bytes: '), ('capture=on&duration=5y',
                                        'duration: '),
    ('capture=on&match=x_tenant:acme', 'match: '),
    ('capture=on&match=$nowhere:x', 'match: there is no such variable'),
    ('capture=on&path=/nowhere.jsonl', 'path: nothing is captured to it'),
    ('capture=off&records=5', 'records: only with capture=on'),
    ('capture=reset&duration=5s', 'duration: only with capture=on or'),
    ('capture=on&s%3Cscript%3E=1', 's?3Cscript?3E: no such argument'),
    ('capture=on&records=5&bytes=%zz', 'bytes: '))


with case('who may not, and what'), Upstream() as up, \
        Nginx(up, location='llm_capture on;', server=SERVER +
              'location = /allowed { llm_capture_control;'
              ' allow 127.0.0.1; deny all; }'
              'location = /denied { llm_capture_control;'
              ' allow 192.0.2.1; deny all; }') as ng:
    say(ng, 'capture=on&records=77')
    before = status(ng)['control']

    def refused(answer, code, what):
        is_((answer.status, status(ng)['control']), (code, before), what)

    for method in ('GET', 'HEAD', 'PUT', 'OPTIONS'):
        answer = control(ng, 'capture=off', method)
        refused(answer, 405, method)
        is_(answer.headers['allow'], 'POST', f'{method}: what is allowed')
    refused(control(ng, '', body=b'capture=off'), 400, 'in a body')
    refused(request(ng.port, '/denied?capture=off'), 403, 'deny')
    here = f'admin.example:{ng.port}'
    for headers in (
            'Origin: http://evil.example', 'Origin: null', 'Origin:',
            'Origin: http://admin.example', f'Origin: http://{here}0',
            f'Origin: http://admin.example:{ng.port + 1}',
            f'Origin: http://evil.example/?://{here}',
            f'Origin: http:{here}', f'Origin: {here}',
            f'Origin: http://{here}\r\nOrigin: http://evil.example',
            f'Origin: http://{here}\r\nSec-Fetch-Site: cross-site',
            'Sec-Fetch-Site: same-site', 'Sec-Fetch-Site:'):
        refused(browser(ng, here, headers), 403, headers.replace('\r\n', ' '))
    for args, why in ARGS:
        answer = control(ng, args)
        refused(answer, 400, args)
        ok(answer.body.decode().startswith(why)
           and answer.body.count(b'\n') == 1, why, answer.body)
    is_(answer.headers['content-type'], 'text/plain; charset=utf-8', 'as text')
    ok('another origin was refused' in ng.log(), 'told in the log')

    answer = browser(ng, here, 'Sec-Fetch-Site: same-origin\r\n'
                     f'Origin: http://{here.upper()}', 'allowed')
    is_((answer.status, answer.headers['content-type'],
         answer.headers['cache-control']),
        (200, 'application/json', 'no-store'), 'a page of its own may')
    is_(json.loads(answer.body), status(ng)['control'], 'told what holds')
    is_(control(ng, 'capture=reset', body=b'x' * 100,
                headers={'Sec-Fetch-Site': 'none'}).status, 200, 'with a body')
    is_(status(ng)['total']['requests']['seen'], 0, 'which is not seen')


with case('nothing captures'), Upstream() as up, Nginx(up, server=CONTROL) as ng:
    answer = control(ng, 'capture=on')
    is_((answer.status, answer.body), (400, b'capture: nothing is configured to '
                                       b'be captured\n'), 'and says so')


QUEUE = 'llm_capture_max_queue_bytes %dm;'


with case('reloads'), Life(server=SERVER + OTHER.replace('proxy_pass http://llm',
                                                         'return 200'),
                           http=QUEUE % 20) as ng:
    http = ng.words['HTTP']
    path = ng.path('requests.$llm_capture_endpoint.jsonl')
    say(ng, 'capture=off')
    before = say(ng, f'capture=on&records=20&bytes=1m&duration=1h&path={path}')
    send(ng, 5)
    ng.reload()
    is_([without(d, 'records', 'bytes')
         for d in status(ng)['control']['destinations']],
        [without(d, 'records', 'bytes') for d in before['destinations']],
        'one that keeps the queue')
    send(ng, 5)
    is_(terms(ng)['recorded'], 10, 'recorded')
    zone = status(ng)['zone']
    held = ng.hold()
    ng.reload(http=http.replace('20m', '24m'))
    got = status(ng)
    ok(got['zone'] != zone, 'another queue')
    is_(got['control']['all']['capture'], 'off', 'what was said of all')
    d, = got['control']['destinations']
    is_((d['path'], d['records']['limit'], d['records']['left'] in (9, 10)),
        (path, 20, True), 'and of one, with what is left')
    is_(d['until'] - d['since'], 3600000, 'until then')
    left = d['records']['left']
    crowd(ng, 4, 10)
    is_(terms(ng), {'seen': 40, 'recorded': left, 'paused': 40 - left},
        'no record more than were allowed')
    ng.let_go(held)
    wait_for(lambda: not status(ng)['helper']['draining'], 'the old queue')
    ng.reload(http=http.replace('20m', '28m').replace('requests.', 'new.'))
    is_(status(ng)['control']['destinations'], [], 'a path that is gone')
    say(ng, 'capture=reset')
    send(ng)
    ng.wait_records('new.completions.jsonl', 1)


with case('many at the same time'), Life(server=SERVER, workers=4,
                                         allow=KILLED) as ng:
    failed, done = [], threading.Event()

    def switch(n):
        while not done.is_set():
            try:
                answer = control(ng, f'capture=on&records={n}{n}&bytes={n}k'
                                 f'&match=$arg_n:{n}')
            except OSError:             # its worker was killed
                continue
            if answer.status not in (200, 0):       # 0: as well
                failed.append(answer)

    threads = [threading.Thread(target=switch, args=(n,)) for n in range(1, 5)]
    for t in threads:
        t.start()
    for _ in range(8):
        for _ in range(20):
            now = status(ng)['control']['all']
            n = now and now['match'][-1]
            if now and (now['match'], now['records']['limit'],
                        now['bytes']['limit']) != (
                    f'$arg_n:{n}', int(n) * 11, int(n) * 1024):
                failed.append(now)
        pid = wait_for(ng.all_workers, 'all workers')[0]
        ng.signal('KILL', pid)
        wait_for(lambda: pid not in ng.workers() and ng.all_workers(),
                 'another worker')
    done.set()
    for t in threads:
        t.join()
    is_(failed, [], 'one or the other, whole, and none waits for the dead')
    say(ng, 'capture=on&records=9')
    crowd(ng, 4, 10)
    is_(status(ng)['control']['all']['ended'], 'records', 'and it works on')


with case('a change that stands still'), Life(server=SERVER) as ng:
    # who holds the lock is any process that has the memfd: this one
    import fcntl
    fd = next(f'/proc/{ng.master}/fd/{n}' for n, to in
              ((n, os.readlink(f'/proc/{ng.master}/fd/{n}'))
               for n in os.listdir(f'/proc/{ng.master}/fd'))
              if 'memfd:llm_capture' in to)
    with open(fd, 'r+b', buffering=0) as f:
        fcntl.lockf(f, fcntl.LOCK_EX, 1, 2 + 18)
        before = status(ng)['control']
        is_(control(ng, 'capture=off').status, 503, 'is not waited for')
        is_(status(ng)['control'], before, 'and nothing has changed')
    is_(control(ng, 'capture=off').status, 200, 'then it is')


with case('master_process off'), \
        Life(server=SERVER, main='master_process off;', workers=1) as ng:
    say(ng, 'capture=on&records=2')
    send(ng, 3)
    is_(terms(ng), {'seen': 3, 'recorded': 2, 'paused': 1}, 'too')
