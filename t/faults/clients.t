#!/usr/bin/env python3
#
# Copyright (C) the llm-capture authors
#
# Clients that go away, fall silent, or send as nobody should.
#
# What they began and did not end is counted as aborted, to the last one.  The
# rows over HTTP/2 need the h2 of build/venv.

import os
import socket
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from driver import *                        # noqa: E402,F403
from ledger import size                     # noqa: E402

CHAT = '/v1/chat/completions'
H2PORT = free_port()

# a queue of 5m for each worker
SMALL = CAPTURE_PATH + 'llm_capture_max_queue_bytes 90m;'
ONE_FILE = 'llm_capture_path %%DIR%%/capture/requests.jsonl;'

AWAY = {'cuts': True, 'drops': ('aborted',)}


def chat(conf):
    """A location beside that of the load; the mode is that of the server."""
    return f'location = {CHAT} {{ proxy_pass http://llm; llm_capture on;' \
           f'{conf} }}'


def mode_of_server(s):
    s.configure(server=s.words['SERVER'] + MODES[s.mode])


def gone(s, c, why='reset'):
    s.ledger.no_answer(c.n, why)
    if why == 'reset':
        c.reset()
    else:
        c.close()


def many(s, n, crew=20, **kw):
    """n uploads that have begun, in groups."""
    while n:
        group = [s.hold(wait=False, **kw) for _ in range(min(n, crew))]
        s.handled(group)
        yield from group
        n -= len(group)


# gone in the middle

@row('client: RST in mid-body', '300 uploads', **AWAY)
def reset(s):
    for c in many(s, 100):
        gone(s, c)
    for c in many(s, 100, chunked=True):
        gone(s, c)
    # some of it later
    for c in many(s, 100, length=40000, part=0.2):
        c.send(c.rest[:1 << 14])
        gone(s, c)
    s.load.more(50)
    s.exact = {'aborted': 300}


@row('client: FIN in mid-body', '100 closed, 100 half closed', **AWAY)
def closed(s):
    for c in many(s, 100):
        gone(s, c, 'closed')
    for c in many(s, 100, chunked=True):
        c.sock.shutdown(socket.SHUT_WR)
        try:
            c.response()
        except ConnectionResetError:
            pass
        gone(s, c, 'half closed')
    s.exact = {'aborted': 200}


@row('client: gone where the body is valid JSON', '100 uploads of which a byte '
     'is to come, 100 without the last chunk', **AWAY)
def valid(s):
    for i, c in enumerate(many(s, 100, part=1, more=1)):
        gone(s, c, ('reset', 'closed')[i % 2])
    for i, c in enumerate(many(s, 100, part=1, chunked=True)):
        gone(s, c, ('reset', 'closed')[i % 2])
    s.load.more(50)
    s.exact = {'aborted': 200}


@row('client: silent', 'until client_body_timeout, 40 uploads', **AWAY,
     prepare=mode_of_server, server=chat('client_body_timeout 1s;'))
def silent(s):
    held = list(many(s, 20, path=CHAT, crew=20)) \
        + list(many(s, 20, path=CHAT, chunked=True))
    said = set()
    for c in held:
        said.add(c.response().status)
        gone(s, c, 'timed out')
    is_(said, {0}, 'they are closed')
    s.load.more(50)
    s.exact = {'aborted': 40}


def expect(n):
    def function(s):
        begun = 0
        while n > begun:
            for c in many(s, 45, crew=45, part=0):
                gone(s, c)
            for c in many(s, 5):
                gone(s, c)
            begun += 50
        s.load.more(50)
        # the others sent no body
        s.exact = {'aborted': n // 10}
    return function


for n, kw in ((1000, {}), (4000, {'long': True})):
    row('client: Expect, RST', f'{n} times, one in 10 with half a body', **AWAY,
        **kw)(expect(n))


def again(n):
    def function(s):
        def resident():
            return max(int(status(p, 'RssShmem')[0])
                       for p in s.workers() + s.helpers())

        for i, c in enumerate(many(s, n, length=40000)):
            gone(s, c)
            if i == 200:
                first = resident()
        s.load.more(50)
        s.exact = {'aborted': n, 'queue_full': 0}
        diag(f'shared memory: {first} -> {resident()} KiB')
        ok(resident() <= first + 3072, 'shared memory is flat')
    return function


# what is not given back is full soon, and several times

for n, kw in ((1000, {'path': SMALL}), (10000, {'long': True})):
    row('client: RST in mid-body, again and again', f'{n} uploads of 20 KB, '
        f'queue of {"5m" if "path" in kw else "14m"}', **AWAY, **kw)(again(n))


# refused, and answered early

@row('client: 413', '60 chunked uploads beyond client_max_body_size',
     prepare=mode_of_server, server=chat('client_max_body_size 30k;'), **AWAY)
def too_large(s):
    for c in many(s, 60, path=CHAT, chunked=True, length=50000, part=0.4):
        c.chunk(c.rest)
        if c.response().status != 413:
            ok(False, 'refused')
        gone(s, c, '413')
    # those with a length are refused before anything of them is read
    for _ in range(20):
        with Connection(s.port) as c:
            c.n = s.ledger.next()
            c.head(CHAT, 50000, numbered(c.n))
            if c.response().status != 413:
                ok(False, 'refused')
            gone(s, c, '413')
    s.exact = {'aborted': 60}


@row('upstream: answers before the body has come', '60 uploads', **AWAY,
     path=ONE_FILE,
     prepare=mode_of_server, server=chat('').replace('http://llm',
                                                     'http://llm/early'))
def early(s):
    for c in many(s, 60, path=CHAT):
        if s.mode == BUFFERED:
            c.send(c.rest)
        if c.response().status != 200:
            ok(False, 'answered')
        gone(s, c, 'answered early')
    s.exact = {'aborted': 60 if s.mode == UNBUFFERED else 0}


# in pieces

class Wire(Connection):
    """Keeps what would be sent."""

    def __init__(self):
        self.wire = b''

    def send(self, data):
        self.wire += data


def wire(n):
    w = Wire()
    send(w, n)
    return w.wire


def answers(s, c, numbers):
    for n in numbers:
        s.ledger.answer(n, c.response())


@row('client: pipelined', '60 connections of 6 requests, the head of the next '
     'one in the packet of the last bytes')
def pipelined(s):
    for i in range(60):
        with Connection(s.port) as c:
            numbers = [s.ledger.next() for _ in range(6)]
            wires = [wire(n) for n in numbers]
            if i % 2:
                c.send(b''.join(wires))
            else:
                for last, first in zip([b''] + wires, wires + [b'']):
                    c.send(last[len(last) // 2:] + first[:len(first) // 2])
            answers(s, c, numbers)


@row('client: 1-byte writes', '30 requests; larger ones in 100-byte writes')
def bytewise(s):
    with Connection(s.port) as c:
        for _ in range(30):
            n = s.ledger.next()
            data, step = wire(n), 1 if size(n) < 1000 else 100
            for i in range(0, len(data), step):
                c.send(data[i:i + step])
            answers(s, c, [n])


# HTTP/2

def streams(s, hold, n):
    """Connections with n whole requests each, and as many that are reset.

    Frames are handled in their order: once a request that came later has
    been answered, nginx has looked at the others.
    """
    for _ in range(n):
        with H2(H2PORT) as c:
            half = [hold(s, c, s.ledger.next()) for _ in range(5)]
            for _ in range(2):
                m = s.ledger.next()
                got = c.request(PATH, body(m), headers=numbered(m))
                if got.status != 200:
                    ok(False, 'served')
                s.ledger.no_answer(m, 'over h2')
            for stream in half:
                c.reset(stream)
            # and the connection lives
            m = s.ledger.next()
            is200 = c.request(PATH, body(m), headers=numbered(m)).status
            if is200 != 200:
                ok(False, 'served')
            s.ledger.no_answer(m, 'over h2')


def half(s, c, n):
    data = body(n, 9000)
    stream = c.start(PATH, len(data), headers=numbered(n))
    c.data(stream, data[:len(data) // 2])
    s.ledger.no_answer(n, 'reset')
    return stream


@row('client: h2 RST_STREAM in mid-body', '200 streams between others', **AWAY,
     server=f'listen 127.0.0.1:{H2PORT} http2;')
def h2_reset(s):
    streams(s, half, 40)
    s.load.more(50)
    s.exact = {'aborted': 200}


run()
