#
# Copyright (C) the llm-capture authors
#
# What the tests of outcomes share: answers in pieces, and rows of both files.

import json
import os
import threading

from life import Lives
from llmcapture import Connection, is_, wait_for

CHAT = '/v1/chat/completions'
ON = 'llm_capture on; llm_capture_outcome on;'
PROMPT = '/v1/completions'
TRACE = 'llm_capture on; llm_capture_format mooncake_trace;'
HASHES = TRACE + 'llm_capture_hash_ids on;'
BASETEN = 'llm_capture on; llm_capture_format baseten_trace;'
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
        """Whole ones: another may just be written."""
        try:
            with open(f'{self.dir}/capture/requests.chat.{end}') as f:
                return [json.loads(line) for line in f.read().split('\n')[:-1]]
        except FileNotFoundError:
            return []

    def requests(self):
        return self.rows('jsonl')

    def wait_rows(self, n):
        def enough():
            rows = self.rows()
            return len(rows) >= n and rows
        return wait_for(enough, f'{n} outcomes')

    def answers(self):
        """The sum of the last line in the log; checks it."""
        found = [m for m in self.LINE.finditer(self.log())][-1]
        terms = dict((k, int(v)) for k, v in (
            t.rsplit(' ', 1) for t in found['outcomes'].split(' + ')))
        is_(sum(terms.values()), int(found['answers']), 'the sum of answers')
        return {k: v for k, v in terms.items() if v}

    def kill_helpers(self, s, held):
        """Three, while answers begin and end; all of them come."""
        for _ in range(3):
            pid = self.helper()
            self.signal('KILL', pid)
            s.go(len(held))
            self.new_helper(pid)
        for c in held:
            is_(c.response().complete, True, 'answered')
            c.close()

    def kill_workers(self, s, held):
        """All, with what they hold."""
        old = self.workers()
        for pid in old:
            self.signal('KILL', pid)
        for c in held:
            c.close()
        s.go(2 * len(held))
        wait_for(lambda: len(self.workers()) == len(old), 'new workers')

    def reload_resized(self):
        """Three times, once with another queue."""
        for n in range(3):
            self.reload(http=self.words['HTTP'] + (
                'llm_capture_max_queue_bytes 300m;' if n == 1 else ''))

    def begin(self, data):
        c = Connection(self.port)
        c.head(CHAT, len(data))
        c.send(data)
        return c


def talk(*texts):
    return json.dumps({'model': 'm', 'messages': [
        {'role': 'assistant' if i % 2 else 'user', 'content': text}
        for i, text in enumerate(texts)]}).encode()


def usage(prompt, completion, **more):
    """An action: an answer of these lengths."""
    made = json.dumps({'choices': [{'index': 0, 'text': 'So.', 'message': {
        'role': 'assistant', 'content': 'So.'}, 'finish_reason': 'stop'}],
        'usage': {'prompt_tokens': prompt, 'completion_tokens': completion},
        **more}).encode()

    def act(handler, seen):
        handler.read_body(seen)
        handler.reply(200, made)
    return act


class Traces(Outcomes):
    def wait_traces(self, n, name='chat'):
        def lines():
            try:
                with open(f'{self.dir}/capture/requests.{name}.jsonl') as f:
                    return f.read().split('\n')[:-1]
            except FileNotFoundError:
                return []
        return [json.loads(line) for line in wait_for(
            lambda: len(lines()) >= n and lines(), f'{n} rows')]

    def sums(self):
        """The terms of the sum that are not 0, of the one destination."""
        self.quit()
        return self.terms()

    def terms(self):
        return {k: v for k, v in self.counters().items()
                if v and k not in ('seen', 'bytes', 'write_errors')}

    def files(self):
        """All that stands on the disk below the capture directory."""
        found = b''
        for top, _, names in os.walk(self.dir + '/capture'):
            for name in names:
                with open(os.path.join(top, name), 'rb') as f:
                    found += f.read()
        return found
