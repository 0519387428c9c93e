#
# Copyright (C) the llm-capture authors
#
# What the tests of outcomes share: answers in pieces, and rows of both files.

import json
import threading

from life import Lives
from llmcapture import Connection, is_, wait_for

CHAT = '/v1/chat/completions'
ON = 'llm_capture on; llm_capture_outcome on;'
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n'
THINKS = b'data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}\n\n'
LAST = (b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":7,"completion_tokens":9}}\n\n'
        b'data: [DONE]\n\n')


def body(n=0, **more):
    return json.dumps({'model': 'm', 'n': n, **more, 'messages': [
        {'role': 'user', 'content': 'Hi'}]}).encode()


class Stream:
    """An action: pieces of a stream, each when it is asked for."""

    def __init__(self, *pieces, cut=False, kind='text/event-stream',
                 headers=()):
        self.pieces, self.cut = pieces, cut
        self.kind, self.headers = kind, headers
        self.gate = threading.Semaphore(0)
        self.begun = []                 # requests

    def __call__(self, handler, seen):
        handler.read_body(seen)
        self.begun.append(seen)
        handler.send_response(200)
        handler.send_header('Content-Type', self.kind)
        handler.send_header('Transfer-Encoding', 'chunked')
        for name, value in self.headers:
            handler.send_header(name, value)
        handler.end_headers()
        for piece in self.pieces:
            self.gate.acquire(timeout=60)
            handler.wfile.write(b'%x\r\n%s\r\n' % (len(piece), piece))
        self.gate.acquire(timeout=60)
        if self.cut:
            handler.drop()
        else:
            handler.wfile.write(b'0\r\n\r\n')

    def go(self, n=1):
        self.gate.release(n)


class Outcomes(Lives):
    """An nginx that records requests and outcomes of /v1/chat/completions."""

    def __init__(self, up, location=ON, **kw):
        super().__init__(up, location=location, **kw)

    def rows(self, end='outcomes'):
        try:
            with open(f'{self.dir}/capture/requests.chat.{end}') as f:
                return [json.loads(line) for line in f]
        except FileNotFoundError:
            return []

    def requests(self):
        return self.rows('jsonl')

    def wait_rows(self, n):
        return wait_for(lambda: len(self.rows()) >= n and self.rows(),
                        f'{n} outcomes')

    def answers(self):
        """The sum of the last line in the log; checks it."""
        found = [m for m in self.LINE.finditer(self.log())][-1]
        terms = dict((k, int(v)) for k, v in (
            t.rsplit(' ', 1) for t in found['outcomes'].split(' + ')))
        is_(sum(terms.values()), int(found['answers']), 'the sum of answers')
        return {k: v for k, v in terms.items() if v}

    def begin(self, data):
        c = Connection(self.port)
        c.head(CHAT, len(data))
        c.send(data)
        return c
