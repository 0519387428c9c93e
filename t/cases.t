#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Cases from public bug reports of people who log or relay request bodies.
# The number is that of the case; what must hold is in the name of a check.

import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))
from llmcapture import *                    # noqa: E402,F403
from traffic import *                       # noqa: E402,F403

PASS = 'location / { proxy_pass http://llm; }'
FIRST = threading.Event()


def data(name):
    for kind in ('valid', 'invalid'):
        path = os.path.join(os.path.dirname(__file__), 'data', kind, name)
        if os.path.exists(path):
            with open(path, 'rb') as f:
                return f.read()
    raise FileNotFoundError(name)


def line(sent):
    """The payload of a body that is recorded: only white space changes."""
    text = sent.replace(b'\r', b' ').replace(b'\n', b' ').strip(b' \t')
    return b'{' + text[1:].lstrip(b' \t')


def begun(got, piece):
    """Only the first one tells: a next request may be waited for by then."""
    if not got:
        FIRST.set()
    got += piece


def telling(handler, seen):
    """Says when the first bytes are here; answers with what it got."""
    got = bytearray()
    if 'chunked' in seen.headers.get('transfer-encoding', ''):
        for piece in handler.pieces():
            begun(got, piece)
    else:
        left = int(seen.headers['content-length'])
        while left:
            piece = handler.rfile.read1(min(left, 65536))
            if not piece:
                raise EOFError
            begun(got, piece)
            left -= len(piece)
    seen.body, seen.complete = bytes(got), True
    handler.reply(200, sha(seen.body).encode())


def site(ng_name, conf=PASS, **kw):
    return server(ng_name, 'llm_capture_max_request_bytes 4m;' + conf, **kw)


def check(ng, name, sent, **why):
    """What a server counted and recorded, after the end of nginx."""
    want = {k: n for k, n in why.items() if n}
    if sent:
        want['recorded'] = len(sent)
    if want:
        want['seen'] = sum(want.values())
    is_(counted(ng, ng.path(name + '.jsonl')), want, f'{name}: counted')
    is_([sha(p) for p in payloads(ng, name)], [sha(s) for s in sent],
        f'{name}: recorded as sent')


with case('case 1: bodies that are spooled to a file'), \
        Upstream() as upstream:

    KINDS = {
        'memory': '',
        'small': 'client_body_buffer_size 1k;',
        'in-file': 'client_body_in_file_only on;',
        'in-file-clean': 'client_body_in_file_only clean;',
        'single': 'client_body_in_single_buffer on;',
    }
    SENT = [body(1000), body(20000), body(3000000)]

    http = WHAT
    for kind, conf in KINDS.items():
        for on in ('on', 'off'):
            http += site(f'{kind}-{on}', f'{conf} llm_capture {on};'
                         f'client_body_temp_path %%DIR%%/{kind}-{on};' + PASS)

    with Nginx(upstream, http=http, path='') as ng:
        for kind in KINDS:
            for on in ('on', 'off'):
                upstream.clear()
                for b in SENT:
                    ask(ng.port, whole(b, host=f'{kind}-{on}'))
                is_([s.sha256 for s in upstream.requests],
                    [sha(b) for b in SENT], f'1: {kind}, {on}: passed on')
        ng.quit()
        for kind in KINDS:
            check(ng, f'{kind}-on', SENT)
            files = [len(os.listdir(f'{ng.dir}/{kind}-{on}'))
                     for on in ('on', 'off')]
            is_(files, [3, 3] if kind == 'in-file' else [0, 0],
                f'1: {kind}: as many temporary files as without capture')


with case('case 2: nothing is missing with proxy_request_buffering off'), \
        Upstream(actions={PATH: telling}) as upstream, \
        Nginx(upstream, http=WHAT + site(
            'two', 'proxy_request_buffering off;' + PASS), path='',
            server='client_max_body_size 0;') as ng:

    SENT = [body(65536), body(1 << 20), body(12 << 20)]

    for b in SENT:
        for sizes in (None, (16000, 1, 70000)):
            for slow in (False, True):
                name = f'2: {len(b)} bytes' + (', chunked' if sizes else '') \
                    + (', slow' if slow else '')
                wire = whole(b, sizes=sizes, host='two')
                half = len(wire) // 2 if slow else len(wire)
                FIRST.clear()
                with Client(ng.port) as c:
                    c.say(wire[:half])
                    if slow:
                        ok(FIRST.wait(20), f'{name}: passed on meanwhile')
                    c.say(wire[half:])
                    is_(c.response().body, sha(b).encode(), name)
    ng.quit()
    check(ng, 'two', [b for b in SENT[:2] for _ in range(4)], too_large=4)


with case('case 4: a body that is handed over twice'), \
        Upstream() as good, Upstream() as bad:

    http = WHAT + f'''
    upstream pair {{
        server 127.0.0.1:{bad.port} max_fails=0;
        server 127.0.0.1:{good.port} backup;
    }}
    ''' + ''.join(site(f'retry-{buffering}', f'''
        proxy_request_buffering {buffering};
        proxy_next_upstream error http_502 non_idempotent;
        location / {{ proxy_pass http://pair; }}''')
                  for buffering in ('on', 'off'))

    def read_and_drop(handler, seen):
        handler.read_body(seen)
        handler.drop()

    b = body(1200000, 'agent')

    with Nginx(good, http=http, path='') as ng:
        for what in (mock.drop, read_and_drop, mock.status(502)):
            bad.action = lambda seen: what
            good.clear()
            is_(ask(ng.port, whole(b, host='retry-on')).status, 200,
                '4: the second server answers')
            is_([s.sha256 for s in good.requests], [sha(b)],
                '4: it gets the whole body')

        for what in (read_and_drop, mock.status(502)):
            bad.action = lambda seen: what
            is_(ask(ng.port, whole(b, host='retry-off')).status, 502,
                '4: unbuffered, there is no second try')
        ng.quit()
        check(ng, 'retry-on', [b] * 3)
        check(ng, 'retry-off', [b] * 2)


with case('case 7: mirror'), Upstream() as upstream, \
        Nginx(upstream, path='', http='llm_capture on;' + WHAT + site(
            'seven', 'location / { mirror /m; mirror_request_body on;'
            ' proxy_pass http://llm; }'
            'location = /m { internal; proxy_pass http://llm$request_uri; }'
        )) as ng:
    SENT = [body(900 + i, str(i)) for i in range(50)]
    with Client(ng.port) as c:
        for b in SENT:
            c.ask(whole(b, host='seven'))
    ng.quit()
    is_(sorted(s.sha256 for s in upstream.requests),
        sorted(sha(b) for b in SENT * 2), '7: 100 requests reach upstreams')
    check(ng, 'seven', SENT)


def with_include(handler, seen):
    handler.read_body(seen)
    handler.reply(200, b'<!--# include virtual="/v1/completions" -->',
                  'text/html')


with case('case 9: requests without a body'), \
        Upstream(actions={'/ssi': with_include}) as upstream, \
        Nginx(upstream, path='', http='llm_capture on;' + WHAT + site(
            'nine', '''
            location / { auth_request /auth; proxy_pass http://llm; }
            location = /auth { internal; llm_capture on;
                proxy_pass_request_body off;
                proxy_set_header Content-Length "";
                proxy_pass http://llm/v1/completions; }
            location = /page { ssi on; proxy_pass http://llm/ssi; }
            llm_capture_endpoint_pattern .*;''')) as ng:
    pid = wait_for(ng.workers, 'a worker')
    for method in ('GET', 'HEAD', 'DELETE', 'POST'):
        for path in (PATH, '/page'):
            is_(ask(ng.port, head(path, method=method, host='nine'),
                    method=method).status, 200, f'9: {method} {path}')
    is_(ng.workers(), pid, '9: the worker lives')
    b = body(500)
    for path in (PATH, '/page'):
        is_(ask(ng.port, whole(b, path, host='nine')).status, 200,
            f'9: {path} with a body')
    ng.quit()
    check(ng, 'nine', [b, b])


with case('case 10: the last chunk comes later'), \
        Upstream(actions={PATH: telling}) as upstream:

    b = body(300)
    one = chunked(b)
    end = len(one) - 5
    SHAPES = {
        'last chunk apart': [one[:end], one[end:]],
        'last chunk cut': [one[:end + 1], one[end + 1:end + 2],
                           one[end + 2:end + 4], one[end + 4:]],
        'size line cut': [one[:1], one[1:2], one[2:4], one[4:]],
        'chunks of one byte': [chunked(b, (1,))],
        'packets of one byte': [one[i:i + 1] for i in range(len(one))],
        'extensions': [chunked(b, (7, 50), b';a=b;c="d"')],
        'trailer': [chunked(b, (99,), trailer=b'X-Sum: 1\r\nX-T: 2\r\n')],
        'trailer apart': [one[:-2], b'X-Sum: 1\r\n', b'\r\n'],
    }

    with Nginx(upstream, path='', http=WHAT + ''.join(
            site(f'ten-{v}', f'proxy_request_buffering {v};' + PASS)
            for v in ('on', 'off'))) as ng:
        for v in ('on', 'off'):
            for name, parts in SHAPES.items():
                with Client(ng.port) as c:
                    c.say(head(PATH, 'Transfer-Encoding: chunked',
                               host=f'ten-{v}'))
                    for part in parts:
                        c.taken()
                        c.say(part)
                    is_(c.response().body, sha(b).encode(),
                        f'10: buffering {v}: {name}')
        ng.quit()
        for v in ('on', 'off'):
            check(ng, f'ten-{v}', [b] * len(SHAPES))


with case('case 11: Expect: 100-continue and a reset'), \
        Upstream() as upstream, \
        Nginx(upstream, path='', http=WHAT + ''.join(
            site(f'eleven-{v}', f'proxy_request_buffering {v};' + PASS)
            for v in ('on', 'off')) + site('good')) as ng:

    pid = wait_for(ng.workers, 'a worker')
    b = body(1000)
    bad = statuses = 0

    with Client(ng.port) as c:
        for i in range(4000):
            v = 'on' if i & 1 else 'off'
            with Client(ng.port) as gone:
                gone.say(head(PATH, 'Expect: 100-continue',
                              'Content-Length: 1000', host=f'eleven-{v}'))
                if i % 4 > 1:
                    statuses += gone.file.readline() \
                        == b'HTTP/1.1 100 Continue\r\n'
                if i % 40 == 2:
                    # some begin a body
                    gone.say(b[:500])
                    gone.taken()
                    bad += 1
                gone.reset()
            if i % 10 == 0:
                c.ask(whole(b, host='good'))
        with Client(ng.port) as late:
            # the same for a client that stays
            late.say(head(PATH, 'Expect: 100-continue',
                          'Content-Length: 1000', host='good'))
            is_(late.file.readline() + late.file.readline(),
                b'HTTP/1.1 100 Continue\r\n\r\n', '11: 100 Continue')
            is_(late.ask(b).status, 200, '11: and an answer')
    is_(statuses, 2000, '11: 2000 were told to continue')
    is_(ng.workers(), pid, '11: the worker lives')
    ng.quit()
    check(ng, 'good', [b] * 401)
    check(ng, 'eleven-on', [])
    check(ng, 'eleven-off', [], aborted=bad)


with case('case 13: a client that gives up is no request'), \
        Upstream(actions={PATH: telling}) as upstream:

    # what has come is a valid object at any cut
    b = b'{"a":1}' + b' ' * (1000000 - 7)
    cut = 300000
    h2 = free_port()
    http = WHAT + 'client_body_timeout 1s;'
    for v in ('on', 'off'):
        http += site(f'thirteen-{v}', f'proxy_request_buffering {v};' + PASS)
        http += site(f'thirteen-h2-{v}', f'proxy_request_buffering {v};'
                     + PASS, listen=f'127.0.0.1:{h2} http2')

    def gives_up(ng, v, sizes, how):
        c = Client(ng.port)
        c.say(whole(b, sizes=sizes, host=f'thirteen-{v}')[:cut])
        c.taken()
        if how == 'silence':
            c.gone()
        elif how == 'reset':
            c.reset()
        else:
            c.close()

    with Nginx(upstream, path='', http=http) as ng:
        for v in ('on', 'off'):
            for sizes in (None, (10000,)):
                for how in ('close', 'reset', 'silence'):
                    gives_up(ng, v, sizes, how)

            def begins(c, length):
                FIRST.clear()
                stream = c.start(PATH, length, host=f'thirteen-h2-{v}')
                c.data(stream, b[:65000])
                if v == 'off':
                    # else no byte of it may have been looked at
                    ok(FIRST.wait(20), '13: http/2: passed on meanwhile')
                return stream

            with H2(h2) as c:
                for length in (len(b), None):
                    c.reset(begins(c, length))
                is_(c.request(PATH, b, host=f'thirteen-h2-{v}').body,
                    sha(b).encode(), '13: http/2: the connection serves on')
                begins(c, len(b))

        for v in ('on', 'off'):
            wait_for(lambda: len(log_lines(ng, f'thirteen-{v}')) == 6, 'logs')
            wait_for(lambda: len(log_lines(ng, f'thirteen-h2-{v}')) == 4,
                     'logs')
        ng.quit()
        for v in ('on', 'off'):
            check(ng, f'thirteen-{v}', [], aborted=6)
            check(ng, f'thirteen-h2-{v}', [b'{"a":1}'], aborted=3)


AUDIO = '/v1/audio/transcriptions'

FILES = [
    # case, file, headers, recorded or the reason
    (17, 'hand-17-plain-json-no-content-type.json', [], True),
] + [
    (17, 'hand-17-plain-json-no-content-type.json',
     ['Content-Type: ' + t for t in types], True)
    for types in (['application/x-www-form-urlencoded'], ['text/plain'],
                  ['application/json; charset=UTF-8'], ['application/JSON'],
                  ['application/vnd.api+json'], ['text/plain', 'a/b'])
] + [
    (18, 'hand-18-gzip.json.gz', ['Content-Encoding: gzip'], 'encoded'),
    (18, 'hand-18-zstd.json.zst', ['Content-Encoding: zstd'], 'encoded'),
    (18, 'hand-18-gzip.json.gz', [], 'invalid_json'),
    (18, 'hand-18-zstd.json.zst', [], 'invalid_json'),
    (20, 'hand-20-bom.json', [], 'invalid_json'),
    (22, 'hand-22-lone-surrogate-escape.json', [], 'invalid_utf8'),
    (22, 'hand-22-cp1252-byte.json', [], 'invalid_utf8'),
    (22, 'hand-22-good-surrogate-pair.json', [], True),
    (23, 'hand-23-nan.json', [], 'invalid_json'),
    (23, 'hand-23-infinity.json', [], 'invalid_json'),
    (25, 'hand-25-number-spelling.json', [], True),
    (25, 'hand-25-seed-2p53-plus-1.json', [], True),
    (25, 'hand-25-seed-2p64.json', [], True),
    (25, 'hand-25-seed-u64-max.json', [], True),
    (26, 'hand-26-u2028.json', [], True),
    (29, 'hand-29-multipart-audio.bin',
     ['Content-Type: multipart/form-data; boundary=BOUND7'], 'invalid_json'),
    (30, 'hand-30-tool-call-null-content.json', [], True),
    (31, 'hand-31-limit-4096-exact.json', [], True),
    (31, 'hand-31-limit-4097-over.json', [], 'too_large'),
    (0, 'hand-00-control.json', [], True),
    (0, 'hand-00-control-pretty.json', [], True),
    (0, 'hand-00-empty.json', [], None),
]

with case('cases 17 to 31: shapes of a body'), Upstream() as upstream, \
        Nginx(upstream, path='', http=WHAT + ''.join(
            server(f'file-{i}', 'llm_capture_max_request_bytes 4096;'
                   f'llm_capture_endpoint_pattern {AUDIO}$|{PATH}$;' + PASS)
            for i in range(len(FILES)))) as ng:

    for i, (number, name, headers, want) in enumerate(FILES):
        sent = data(name)
        path = AUDIO if number == 29 else PATH
        upstream.clear()
        for sizes in (None, (100, 3)):
            ask(ng.port, whole(sent, path, *headers, sizes=sizes,
                               host=f'file-{i}'))
        seen = upstream.wait(2)
        is_([s.sha256 for s in seen], [sha(sent)] * 2,
            f'{number}: {name} is passed on')
        if number == 17:
            last = headers[-1].split(': ')[1] if headers else None
            is_([s.headers.get('content-type') for s in seen], [last] * 2,
                f'17: its type is passed on: {last}')
    ng.quit()

    for i, (number, name, _, want) in enumerate(FILES):
        sent = data(name)
        diag(f'{number}: {name}')
        if want is True:
            check(ng, f'file-{i}', [line(sent)] * 2)
        else:
            check(ng, f'file-{i}', [], **({want: 2} if want else {}))


with case('case 31: a limit'), Upstream() as upstream, \
        Nginx(upstream, path='', server='client_max_body_size 0;',
              allow='max_request_bytes',
              http=WHAT + server('limit', 'client_max_body_size 0;'
              'llm_capture_max_request_bytes 4096;' + PASS)
              + server('one', 'llm_capture_max_request_bytes 1;' + PASS)
              ) as ng:
    image = body(40 << 20, 'data:image/png;base64,')
    pid = wait_for(ng.workers, 'a worker')
    for sizes in (None, (100000,)):
        upstream.clear()
        ask(ng.port, whole(image, sizes=sizes, host='limit'))
        is_(upstream.wait(1)[0].sha256, sha(image), '31: 40 MB are passed on')
    late = body(4097)
    upstream.clear()
    ask(ng.port, whole(late, sizes=(4095, 1), host='limit'))
    is_(upstream.wait(1)[0].sha256, sha(late), '31: one byte too many, late')
    exact = body(4096)
    ask(ng.port, whole(exact, sizes=(4095, 1), host='limit'))
    ask(ng.port, whole(b'{}', host='one'))
    ask(ng.port, whole(b'7', host='one'))
    ng.quit()
    check(ng, 'limit', [exact], too_large=3)
    check(ng, 'one', [], too_large=1, invalid_not_object=1)

    for value in ('0', '1t', '100g', ''):
        code, said = ng.test(http=f'llm_capture_max_request_bytes {value};'
                             'llm_capture on;')
        ok(code == 1 and 'llm_capture' in said,
           f'31: "{value}" is refused before nginx starts', said)
