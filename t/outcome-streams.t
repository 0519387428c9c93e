#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Streams whose outcome is recorded, through clients that people use: no chunk
# is held up, over HTTP/2 either, nor do a thousand of them take memory.

import asyncio
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                'lib'))
from life import status                                 # noqa: E402
from llmcapture import *                                # noqa: E402,F403
from outcomes import *                                  # noqa: E402,F403

import openai                                           # noqa: E402

STREAMS = 1000
SLACK = 3072                            # KiB: heaps do not shrink


def client(ng):
    return openai.OpenAI(base_url=f'http://127.0.0.1:{ng.port}/v1',
                         api_key='k', max_retries=0)


for location in 'llm_capture off;', ON:
    for buffering in 'on', 'off':
        what = f'openai, {location.split(";")[-2]}, buffering {buffering}'
        with case(what), mock.Upstream() as up, Outcomes(
                up, location + f'proxy_buffering {buffering};') as ng:
            s = up.actions[CHAT] = Stream(
                *(EVENT % n for n in range(20)), LAST)
            got = []
            s.go()
            for chunk in client(ng).chat.completions.create(
                    model='m', stream=True,
                    messages=[{'role': 'user', 'content': 'Hi'}]):
                # the next one is not even sent before this one is here
                got.append(chunk.choices[0].delta.content)
                s.go()
            is_(got, [str(n) for n in range(20)] + [None], 'each chunk')
            s.go()
            if location == ON:
                is_(ng.wait_rows(1)[0]['events'], 21, 'the outcome')


with case('HTTP/2'), mock.Upstream() as up, \
        Outcomes(up, ON + 'proxy_buffering off;', listen='http2') as ng:
    events = [EVENT % n for n in range(200)] + [LAST]
    s = up.actions[CHAT] = Stream(*events)
    with H2(ng.port) as c:
        first, second = (c.start(CHAT, len(body(n))) for n in range(2))
        for n, stream in enumerate((first, second)):
            c.data(stream, body(n), end=True)
        while not (c.body.get(first) and c.body.get(second)):
            s.go()
            c.read()
        c.reset(second)
        row = ng.wait_rows(1)[0]
        is_(row.get('aborted'), True, 'one that was reset')
        s.go(500)
        is_(c.response(first).body, b''.join(events), 'the other')
    is_([r.get('aborted') for r in ng.wait_rows(2)], [True, None], 'goes on')
    is_(ng.rows()[1]['completion_tokens'], 9, 'to its end')


class Crowd:
    """A server of slow streams in one thread, and clients in it too."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.go = asyncio.Event()
        self.server = self.loop.run_until_complete(asyncio.start_server(
            self.serve, '127.0.0.1', 0, backlog=STREAMS))
        self.port = self.server.sockets[0].getsockname()[1]

    async def serve(self, reader, writer):
        try:
            await reader.readuntil(b'"Hi"}]}')
            writer.write(b'HTTP/1.1 200 OK\r\nContent-Type: '
                         b'text/event-stream\r\nConnection: close\r\n\r\n')
            for n in range(20):
                writer.write(EVENT % n)
            await writer.drain()
            await self.go.wait()
            writer.write(LAST)
            await writer.drain()
        finally:
            writer.close()

    async def ask(self, port):
        reader, writer = await asyncio.open_connection('127.0.0.1', port)
        data = body()
        writer.write(b'POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n'
                     b'Content-Type: application/json\r\n'
                     b'Content-Length: %d\r\n\r\n%s'
                     % (CHAT.encode(), len(data), data))
        await reader.readuntil(EVENT % 19)
        self.begun += 1
        got = await reader.read()
        writer.close()
        return b'[DONE]' in got

    async def wave(self, port, look):
        """All at once; looks while all are open."""
        self.go.clear()
        self.begun = 0
        tasks = [asyncio.ensure_future(self.ask(port))
                 for _ in range(STREAMS)]
        while self.begun < STREAMS:
            await asyncio.sleep(0.02)
        looked = look()
        self.go.set()
        return sum(await asyncio.gather(*tasks)), looked


def memory(ng):
    """KiB of the worker and the helper that are theirs alone."""
    return [int(status(pid, 'RssAnon')[0])
            for pid in (ng.workers()[0], ng.helper())]


crowd = Crowd()
# the answers of t/data/answers, and what is said of each in the table of the
# unit tests

SHAPE = re.compile(r'\{ "(?P<name>[\w-]+)", (?P<events>\d+), \d+, [\w|]+, '
                   r'(?P<content>-?\d+), (?P<reasoning>-?\d+), '
                   r'(?P<prompt_tokens>-?\d+), (?P<completion_tokens>-?\d+), '
                   r'(?P<cached_tokens>-?\d+), (?P<reasoning_tokens>-?\d+), '
                   r'(?P<estimated>\d), (?P<error>\d), \d,\s*'
                   r'"(?P<reasons>[^"]*)", (?P<broken>\d) \}')


def shapes():
    with open(TOP + '/t/unit/answers.h') as f:
        streams, plain = f.read().split('answers[] =')
    for kind, text in (('sse', streams), ('json', plain)):
        for m in SHAPE.finditer(text):
            with open(f'{TOP}/t/data/answers/{m["name"]}.{kind}', 'rb') as f:
                yield m, kind, f.read()


def wanted(m, kind):
    want = {k: int(m[k]) for k in ('prompt_tokens', 'completion_tokens',
                                   'cached_tokens', 'reasoning_tokens')
            if int(m[k]) >= 0}
    want.update((k, True) for k in ('estimated', 'error') if m[k] == '1')
    if m['broken'] == '1':
        want['upstream_failed'] = True
    reasons = m['reasons'].split(',')
    if reasons[0]:
        want['finish_reason'] = reasons[0]
    if len(reasons) > 1:
        want['finish_reasons'] = reasons
    if kind == 'sse':
        want.update(stream=True, events=int(m['events']))
        want.update((f'first_{k}_ms', True) for k in ('content', 'reasoning')
                    if int(m[k]) >= 0)
    return want


def said(row):
    """Without what every row has, and times as what they are: there."""
    return {k: True if k.startswith('first_') else v for k, v in row.items()
            if k not in ('id', 'timestamp', 'status', 'upstream_status',
                         'bytes', 'first_byte_ms', 'last_byte_ms')}


class Pieces:
    """An action: some bytes at a time."""

    def __init__(self, kind, data, broken):
        self.kind, self.data, self.broken = kind, data, broken

    def __call__(self, handler, seen):
        handler.read_body(seen)
        handler.send_response(200)
        handler.send_header('Content-Type', {
            'sse': 'text/event-stream', 'json': 'application/json'}[self.kind])
        handler.send_header('Transfer-Encoding', 'chunked')
        handler.end_headers()
        for i in range(0, len(self.data), 7):
            piece = self.data[i:i + 7]
            handler.wfile.write(b'%x\r\n%s\r\n' % (len(piece), piece))
        if self.broken:
            handler.drop()
        else:
            handler.wfile.write(b'0\r\n\r\n')


for buffering in ('on', 'off'):
    with case(f'the shapes of servers, proxy_buffering {buffering}'), \
            mock.Upstream() as up, \
            Outcomes(up, ON + f'proxy_buffering {buffering};',
                     allow='upstream prematurely closed') as ng:
        known = list(shapes())
        ok(len(known) == len(os.listdir(TOP + '/t/data/answers')),
           f'{len(known)} answers')
        for n, (m, kind, data) in enumerate(known, 1):
            up.actions[CHAT] = Pieces(kind, data, m['broken'] == '1')
            is_(request(ng.port, CHAT, body(n)).body, data,
                f'{m["name"]}.{kind} passes')
            is_(said(ng.wait_rows(n)[-1]), wanted(m, kind), 'is understood')


with case('a thousand streams at once'), Outcomes(
        crowd, ON + 'proxy_buffering off;', main='worker_rlimit_nofile 8192;',
        conf=CONF.replace('worker_connections 512', 'worker_connections 4096')
) as ng:
    waves = [crowd.loop.run_until_complete(
        crowd.wave(ng.port, lambda: memory(ng))) for _ in range(3)]
    is_([n for n, _ in waves], [STREAMS] * 3, 'each has all of its answer')
    rows = ng.wait_rows(3 * STREAMS)
    is_(len({r['id'] for r in rows}), 3 * STREAMS, 'each has its outcome')
    is_({r['completion_tokens'] for r in rows}, {9}, 'all of it')
    (worker, helper), last = waves[1][1], waves[2][1]
    # a sanitizer keeps what was freed
    if not os.environ.get('LLM_CAPTURE_SANITIZED'):
        ok(last[0] < worker + SLACK, 'the worker is no larger than before',
           f'{worker} and {last[0]} KiB')
        ok(last[1] < helper + SLACK, 'nor is the helper',
           f'{helper} and {last[1]} KiB')
    ng.quit()
    is_(ng.answers(), {'outcomes': 3 * STREAMS}, 'the sum')
