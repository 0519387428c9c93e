#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# What llm_capture_status says: the truth, in three formats, to those who may
# ask, and not a byte of a body.

import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                'lib'))
from life import KILLED, Life, status as proc               # noqa: E402
from llmcapture import *                                    # noqa: E402,F403
from llmcapture import NGINX, TOP                           # noqa: E402
from outcomes import Outcomes, body                         # noqa: E402
from status import (KIND, STATUS, ask, by_path, samples,    # noqa: E402
                    schema, status)

CHAT, PROMPT = '/v1/chat/completions', '/v1/completions'
SECRET = 'the-password-is-swordfish'
PLACE = 'llm_capture on; llm_capture_outcome on;' \
        'llm_capture_max_request_bytes 4k;'
RAW = 'location /raw/ { llm_capture on; llm_capture_format raw_payload;' \
      ' llm_capture_path "%%DIR%%/capture/a\\"b\\\\ü.$arg_n.jsonl";' \
      ' llm_capture_endpoint_pattern ^/raw/; proxy_pass http://llm; }'


def settled(ng):
    """Once nothing is under way."""
    def look():
        got = status(ng)
        t = got['total']
        return not t['requests']['pending'] and not t['answers']['to_come'] \
            and got
    return wait_for(look, 'nothing to be under way')


def traffic(ng):
    secret = body(1, secret=SECRET)
    for _ in range(5):
        request(ng.port, CHAT, secret)
    request(ng.port, CHAT, body(1, stream=True))
    request(ng.port, PROMPT, b'{"model":"m","prompt":"%s"}' % SECRET.encode())
    request(ng.port, CHAT, b'{"no": json ' + SECRET.encode())
    request(ng.port, CHAT, b'{"x":1e999}')
    request(ng.port, CHAT, b'"' + b'x' * 5000 + b'"')
    request(ng.port, CHAT, secret, headers={'Content-Encoding': 'gzip'})
    request(ng.port, '/v1/models', secret)
    request(ng.port, '/raw/1?n=' + 'one', secret)
    request(ng.port, '/raw/1?n=two', b'{}')


def same_as_log(ng, got):
    """Each counter of each destination, as the helper leaves it in the log."""
    for d in got['destinations']:
        row = ng.counters(d['path'])
        is_({**d['requests'], 'bytes': d['bytes'],
             'write_errors': d['write_errors']}, row, f'{d["format"]}: the sum')
        line = [m for m in ng.LINE.finditer(ng.log()) if m[1] == d['path']][-1]
        terms = re.findall(r'(\w[\w ]*) (\d+)', line['outcomes'] or '')
        is_({k: v for k, v in d['answers'].items() if v},
            {'answers': int(line['answers'] or 0),
             **{k: int(v) for k, v in terms if int(v)}}
            if terms else {}, f'{d["format"]}: the sum of answers')
    for name, n in got['total']['requests'].items():
        if n != sum(d['requests'][name] for d in got['destinations']):
            ok(False, f'the total of {name}')


def near(got, want, most, name):
    """Two clocks are read, each in whole ms."""
    ok(abs(got - want) <= most, name, (got, want))


def same_numbers(got, text):
    found = samples(text)

    def one(name, **labels):
        return found['llm_capture_' + name, tuple(sorted(labels.items()))]

    for d in got['destinations']:
        place = {'path': d['path'], 'format': d['format'] or ''}
        r, a = dict(d['requests']), dict(d['answers'])
        want = {k: r.pop(k) for k in ('seen', 'pending')}
        is_({'seen': one('seen_total', **place),
             'pending': one('pending', **place)}, want, 'seen and pending')
        is_({k: one('requests_total', result=k, **place) for k in r}, r,
            'what became of them')
        is_((one('answers_total', **place),
             one('outcomes_to_come', **place)),
            (a.pop('answers'), a.pop('to_come')), 'answers')
        is_({k: one('outcomes_total', result=k, **place) for k in a}, a,
            'what became of these')
        is_((one('written_bytes_total', **place),
             one('write_errors_total', **place), one('files', **place),
             one('file_size_bytes', **place)),
            (d['bytes'], d['write_errors'], d['files'],
             d['file']['size'] if d['file'] else 0), 'files')
        near(one('last_line_timestamp_seconds', **place),
             d['last_line'] / 1000, 1, 'the last line')
    is_((one('helper_up'), one('helper_starts_total')),
        (1, got['helper']['starts']), 'the helper')
    near(one('helper_start_time_seconds'), got['helper']['started'] / 1000,
         0.01, 'when it came')
    is_([one('ring_used_bytes', ring=str(i))
         for i in range(len(got['queue']['rings']))],
        [r['used'] for r in got['queue']['rings']], 'the queues')
    with open(TOP + '/docs/directives.md') as f:
        names = re.findall(r'^(?:\w+\()?(llm_capture_\w+)(?:\{.*)? ?',
                           f.read().split('To be told of trouble')[1]
                           .split('```')[1], re.M)
    ok(len(names) == 3 and {*names} <= {name for name, _ in found},
       'those of the documents', names)
    is_(one('build_info', version=got['version'], nginx=got['nginx']), 1,
        'the versions')


with case('the numbers'), Upstream() as up, \
        Outcomes(up, PLACE, server=STATUS + RAW) as ng:
    before = status(ng)
    is_((before['total']['requests']['seen'], before['lag_ms'],
         [d['file'] for d in before['destinations']]),
        (0, None, [None, None]), 'nothing yet')
    begun = time.time() * 1000
    traffic(ng)
    got = settled(ng)
    text = ask(ng, '?format=prometheus').body
    r = got['total']['requests']
    is_({k: v for k, v in r.items() if v},
        {'seen': 14, 'recorded': 8, 'invalid_json': 1, 'invalid_number': 1,
         'too_large': 1, 'encoded': 1, 'unmatched': 1, 'invalid_empty': 1},
        'what was sent')
    is_(got['total']['answers']['outcomes'], 7, 'outcomes')
    d = by_path(got, 'ü.$arg_n.jsonl')
    ok(d['path'].endswith('/a"b\\ü.$arg_n.jsonl'), 'a path as configured')
    is_((d['format'], d['files']), ('raw_payload', 1), 'its format and files')
    is_((d['file']['path'], d['file']['size']),
        (p := ng.path('a"b\\ü.one.jsonl'), os.path.getsize(p)), 'its file')
    d = by_path(got, 'requests.$llm_capture_endpoint.jsonl')
    is_((d['files'], d['file']['path']), (2, ng.path('completions')),
        'two files, and the last one')
    ok(begun - 2000 < d['last_line'] <= got['time'], 'the last line',
       (begun, d['last_line'], got['time']))
    ok(0 <= got['lag_ms'] < 5000 and got['waiting_ms'] == 0, 'the lag',
       (got['lag_ms'], got['waiting_ms']))
    is_(got['helper']['pid'], ng.helper(), 'the helper')
    is_([x['owner'] for x in got['queue']['rings'] if x['owner']],
        ng.workers(), 'the worker has a queue')
    is_((got['helper']['starts'], got['helper']['draining'],
         got['helper']['last_error']), (1, 0, None), 'one start')
    same_numbers(got, text)
    for args in ('', '?format=json', '?format=prometheus', '?format=html'):
        answer = ask(ng, args)
        said = answer.body + repr(answer.headers).encode()
        ok(len(said) > 500 and SECRET.encode() not in said
           and SECRET[4:12].encode() not in said, f'"{args}": nothing of a body')

    # 8 of them within the last 10 whole seconds, once these are over
    rate = wait_for(lambda: (x := status(ng)['total']['rate'])
                    ['records_per_second'] == 0.8 and x, 'the rate')
    is_(rate['bytes_per_second'], got['total']['bytes'] / 10, 'and of bytes')
    ng.quit()
    same_as_log(ng, got)


with case('who asks, and how'), Upstream() as up, \
        Nginx(up, server=STATUS + 'location = /closed {'
              ' llm_capture_status; deny all; }',
              location='llm_capture on;') as ng:
    for method in ('POST', 'PUT', 'DELETE', 'PATCH'):
        is_(ask(ng, method=method, body=b'{"a":1}').status, 405,
            f'{method} is not allowed')
    is_(status(ng)['total']['requests']['seen'], 0, 'nor seen')
    is_(ask(ng, body=b'x' * 100).status, 200, 'a GET with a body')
    is_(request(ng.port, '/closed', method='GET').status, 403, 'deny')
    for kind, mime in KIND.items():
        answer = ask(ng, '?format=' + kind)
        is_((answer.status, answer.headers['content-type']), (200, mime), kind)
        is_({k: v for k, v in answer.headers.items() if k in
             ('cache-control', 'expires', 'last-modified', 'etag')},
            {'cache-control': 'no-store'}, f'{kind}: not to be kept')
        head = ask(ng, '?format=' + kind, method='HEAD')
        is_((head.status, head.body, head.headers['content-type']),
            (200, b'', mime), f'{kind}: HEAD')
    is_(ask(ng, '?format=xml').status, 400, 'no such format')
    for accept, want in (
            ('', 'json'), ('*/*', 'json'), ('application/json', 'json'),
            ('text/html,application/xhtml+xml,*/*;q=0.8', 'json'),
            ('text/plain', 'prometheus'),
            ('TEXT/Plain ; version=0.0.4', 'prometheus'),
            ('application/openmetrics-text;version=1.0.0;q=0.5,'
             'text/plain;version=0.0.4;q=0.3,*/*;q=0.1', 'prometheus'),
            ('application/json, text/plain', 'json'),
            ('text/plain;q=0.5, application/json', 'json'),
            ('text/plain;q=0.5, application/json;q=0.4', 'prometheus'),
            ('text/plain;q=0, image/png', 'json'),
            (',;,;q=,text/plain;q', 'prometheus')):
        answer = ask(ng, headers={'Accept': accept})
        is_(answer.headers['content-type'], KIND[want], f'Accept: {accept}')
    for kind in ('html', 'json'):
        answer = ask(ng, '?format=' + kind,
                     headers={'Accept': 'text/plain'})
        is_(answer.headers['content-type'], KIND[kind], 'the argument wins')


with case('a helper that is killed'), Life(server=STATUS, allow=KILLED) as ng:
    ng.push(5)
    ng.settled('before')
    first = status(ng)
    pid = ng.helper()
    ng.signal('KILL', pid)
    new = ng.new_helper(pid)
    got = wait_for(lambda: (x := status(ng))['helper']['pid'] == new and x,
                   'the new helper')
    is_(got['helper']['starts'], first['helper']['starts'] + 1, 'one start more')
    ok(got['helper']['started'] > first['helper']['started'], 'a later one')
    is_(got['destinations'][0]['file'], first['destinations'][0]['file'],
        'the file is still told')
    ng.push(5)
    ng.settled('after')
    got = settled(ng)
    is_(got['total']['requests']['recorded'], 10, 'counted on')

    def switches():
        return int(proc(new, 'voluntary_ctxt_switches')[0])

    before = switches()
    for _ in range(200):
        ask(ng)
    ok(switches() - before <= 2, 'nobody who asks wakes the helper')


with case('a helper that stands still'), \
        Life(server=STATUS, workers=1,
             http='llm_capture_max_queue_bytes 20m;') as ng:
    ng.push(1)
    ng.settled('before')
    pid = ng.freeze()
    data = b'{"x":"' + b'x' * 100000 + b'"}'
    while not status(ng)['total']['requests']['queue_full']:
        request(ng.port, PROMPT, data)
    got = status(ng)
    full, = [r for r in got['queue']['rings'] if r['owner']]
    ok(full['capacity'] - 200000 < full['used'] <= full['capacity'],
       'the queue is nearly full', full)
    is_(got['queue']['used'], full['used'], 'one of them')
    wait_for(lambda: status(ng)['waiting_ms'] > got['waiting_ms'] + 500,
             'time to go by')
    is_(got['helper']['pid'], pid, 'it is still there')
    ng.thaw(pid)
    got = settled(ng)
    is_((got['queue']['used'], got['waiting_ms']), (0, 0), 'then empty')
    ok(got['lag_ms'] > 500, 'the lag tells of it', got['lag_ms'])


with case('a file that cannot be written'), Upstream() as up, \
        Outcomes(up, 'llm_capture on;', server=STATUS,
                 path='llm_capture_path %%DIR%%/capture/$arg_n;',
                 allow='.') as ng:
    os.mkdir(ng.path('private.name'))
    request(ng.port, CHAT + '?n=private.name', body())
    got = wait_for(lambda: (x := status(ng))['helper']['last_error'] and x,
                   'the error')
    error = got['helper']['last_error']
    is_(error['errno'], 'EISDIR', 'its name')
    is_(error['path'], ng.path('$arg_n.')[:-1], 'the path as configured')
    ok(0 <= got['time'] - error['time'] < 20000, 'when')
    is_(got['destinations'][0]['file'], None, 'no file')
    text = ask(ng, '?format=prometheus').body
    ok(b'private' not in ask(ng).body + text, 'not the name a client chose')
    is_([k[1] for k in samples(text) if 'last_error' in k[0]],
        [(('errno', 'EISDIR'), ('path', error['path']))], 'a sample of it')


with case('slow uploads and reloads'), \
        Life(server=STATUS, workers=1,
             http='llm_capture_max_queue_bytes 20m;') as ng:
    zone = status(ng)['zone']
    held = ng.hold()
    wait_for(lambda: status(ng)['total']['requests']['pending'] == 1, 'it')
    ng.reload(http=ng.words['HTTP'].replace('20m', '40m'))
    got = wait_for(lambda: (x := status(ng))['helper']['draining'] == 1 and x,
                   'an old queue that drains')
    ok(got['zone'] != zone, 'another queue')
    is_((got['total']['requests']['seen'], got['helper']['starts']), (0, 1),
        'which counts anew')
    ng.let_go(held)
    wait_for(lambda: status(ng)['helper']['draining'] == 0, 'its end')
    ng.reload()
    wait_for(lambda: status(ng)['helper']['starts'] == 2,
             'a reload that keeps the queue')


with case('nothing captures'), Upstream() as up, Nginx(up, server=STATUS) as ng:
    got = status(ng)
    is_(got, {'capturing': False, 'version': got['version'],
              'nginx': got['nginx'], 'time': got['time']}, 'and says so')
    found = samples(ask(ng, '?format=prometheus').body)
    is_({k[0]: v for k, v in found.items()},
        {'llm_capture_capturing': 0, 'llm_capture_build_info': 1}, 'so too')
    is_(ask(ng, '?format=html').status, 200, 'the page')
    with open(TOP + '/CHANGES') as f:
        is_(f.readline().split()[-1], got['version'], 'the version of CHANGES')
    said = subprocess.run([NGINX, '-v'], stderr=subprocess.PIPE, text=True)
    ok(f'/{got["nginx"]}' in said.stderr, 'and of nginx', said.stderr)


with case('master_process off'), \
        Life(server=STATUS, main='master_process off;', workers=1) as ng:
    ng.push(10)
    ng.settled('recorded')
    got = settled(ng)
    is_((got['helper']['pid'], got['helper']['starts']), (ng.master, 1),
        'the one process')
    is_(got['total']['requests']['recorded'], 10, 'counted')


with case('while it works'), Life(server=STATUS, workers=2) as ng:
    pid = ng.backlog(1000)
    ng.thaw(pid)
    told = [0]
    while told[-1] < ng.sent:
        told.append(status(ng)['total']['requests']['recorded'])
    is_(told, sorted(told), 'never less than before')
    ng.settled('all')


with case('what nginx -t says'), Nginx(start=False, allow='emerg') as ng:
    for where, text, what in (
            ('server', 'location /s { llm_capture_status;'
             ' llm_capture_status; }', 'is duplicate'),
            ('server', 'location /s { llm_capture_status on; }',
             'invalid number of arguments'),
            ('http', 'llm_capture_status;', 'not allowed here')):
        code, said = ng.test(**{'http': '', 'server': '', where: text})
        ok(code and what in said, what, said)
    is_(ng.test(http='', server='llm_capture_status;')[0], 0, 'in a server')


with case('the page'):
    page = subprocess.run([sys.executable, TOP + '/misc/page.py', '--print'],
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    with open(TOP + '/src/ngx_http_llm_capture_page.h') as f:
        ok(f.read() == page, 'is that of misc/status.html: misc/page.py')
    with open(TOP + '/misc/status.html') as f:
        page = f.read()
    is_(re.findall(r'(?:src|href)=(?!"data:)|url\(|@import|https?://', page),
        [], 'needs nothing from elsewhere')


with case('the schema'):
    with open(TOP + '/src/ngx_http_llm_capture_zone.h') as f:
        names = re.findall(r'^    X\((\w+)\)', f.read(), re.M)
    defs = schema()['$defs']
    is_(sorted({*defs['requests']['required'], *defs['answers']['required'],
                'bytes', 'write_errors'}),
        sorted({*names, 'pending', 'to_come'}), 'has every counter')
