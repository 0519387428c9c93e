"""A mock of an OpenAI-like server, for the tests and for the demo.

Answers chat and completion requests as such servers do: one JSON object, or
with "stream": true server-sent events with pauses.  Keeps what it was sent.
Only Python's own library.
"""

import hashlib
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = ['Of', ' course', ':', ' the', ' answer', ' is', ' “42”', '.']


class Seen:
    """A request as it reached the upstream."""

    def __init__(self, handler):
        self.method = handler.command
        self.path = handler.path
        self.headers = {k.lower(): v for k, v in handler.headers.items()}
        self.time = time.monotonic()
        self.body = b''
        self.complete = False           # all of the body came

    @property
    def sha256(self):
        return hashlib.sha256(self.body).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        self.up = self.server.up

    def log_message(self, *args):
        pass

    def pieces(self):
        """The body in pieces, framing removed; raises EOFError if cut."""
        if 'chunked' in self.headers.get('transfer-encoding', '').lower():
            while True:
                size = int(self.line().split(b';')[0], 16)
                if size == 0:
                    while self.line():
                        pass
                    return
                yield self.exactly(size)
                self.line()
        else:
            left = int(self.headers.get('content-length', 0))
            while left:
                piece = self.exactly(min(left, 65536))
                left -= len(piece)
                yield piece

    def line(self):
        line = self.rfile.readline(65536)
        if not line.endswith(b'\n'):
            raise EOFError
        return line.strip()

    def exactly(self, n):
        data = self.rfile.read(n)
        if len(data) < n:
            raise EOFError
        return data

    def read_body(self, seen):
        body = bytearray()
        try:
            for piece in self.pieces():
                body += piece
        finally:
            seen.body = bytes(body)
        seen.complete = True

    def serve(self):
        seen = Seen(self)
        try:
            action = self.up.action(seen)
            if action is None:
                self.read_body(seen)
                self.up.keep(seen)
                self.answer(seen)
            else:
                action(self, seen)
                self.up.keep(seen)
        except (EOFError, OSError):
            self.close_connection = True
            self.up.keep(seen)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = do_PATCH = serve

    # answers

    def reply(self, status, body=b'{}', kind='application/json', headers=()):
        self.send_response(status)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)

    def drop(self):
        """Closes the connection at once, without an answer."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def answer(self, seen):
        try:
            asked = json.loads(seen.body)
        except ValueError:
            asked = None
        if not isinstance(asked, dict):
            asked = {}

        chat = '/chat/' in seen.path
        made = {'id': 'mock-1', 'created': 1, 'model': asked.get('model', 'm'),
                'object': 'chat.completion' if chat else 'text_completion'}
        usage = {'prompt_tokens': 5, 'completion_tokens': len(WORDS),
                 'total_tokens': 5 + len(WORDS)}

        if not asked.get('stream'):
            text = ''.join(WORDS)
            one = {'message': {'role': 'assistant', 'content': text}} \
                if chat else {'text': text}
            one.update(index=0, finish_reason='stop', logprobs=None)
            self.reply(200, json.dumps(dict(made, choices=[one],
                                            usage=usage)).encode())
            return

        if chat:
            made['object'] = 'chat.completion.chunk'

        self.send_response(200)
        self.send_header('Content-Type', 'text/event-stream; charset=utf-8')
        self.send_header('Cache-Control', 'no-cache')
        self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()

        for i, word in enumerate(WORDS):
            one = {'delta': {'role': 'assistant', 'content': word}} \
                if chat else {'text': word}
            last = i == len(WORDS) - 1
            one.update(index=0, logprobs=None,
                       finish_reason='stop' if last else None)
            self.event(json.dumps(dict(made, choices=[one])))
            time.sleep(self.up.pause)

        if (asked.get('stream_options') or {}).get('include_usage'):
            self.event(json.dumps(dict(made, choices=[], usage=usage)))
        self.event('[DONE]')
        self.wfile.write(b'0\r\n\r\n')

    def event(self, text):
        data = f'data: {text}\n\n'.encode()
        self.wfile.write(b'%x\r\n%s\r\n' % (len(data), data))


class Upstream:
    """Runs in threads of this process; close() when done.

    pause    seconds between two events of a stream
    actions  path -> function(handler, seen), instead of an answer; a body
             that it wants to be read it reads with handler.read_body(seen)
    """

    def __init__(self, pause=0.002, actions=None, port=0):
        self.pause = pause
        self.actions = dict(actions or {})
        self.requests = []
        self.changed = threading.Condition()

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 512

            def handle_error(self, request, address):
                pass

        self.server = Server(('127.0.0.1', port), Handler)
        self.server.up = self
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever,
                                       args=(0.05,), daemon=True)
        self.thread.start()

    def action(self, seen):
        return self.actions.get(seen.path.split('?')[0])

    def keep(self, seen):
        with self.changed:
            self.requests.append(seen)
            self.changed.notify_all()

    def wait(self, n, timeout=20):
        """The requests, once there are n of them."""
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.requests) >= n,
                                         timeout):
                raise TimeoutError(f'upstream: {len(self.requests)} of {n}')
            return list(self.requests)

    def clear(self):
        with self.changed:
            self.requests.clear()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


# ready actions

def status(code):
    def action(handler, seen):
        handler.read_body(seen)
        handler.reply(code)
    return action


def early(code=200):
    """Answers without reading the body, and waits for the end.

    To close with bytes unread is a reset, which may overtake the answer.
    """
    def action(handler, seen):
        handler.reply(code, headers=[('Connection', 'close')])
        handler.close_connection = True
        handler.wfile.flush()
        try:
            handler.connection.settimeout(60)
            handler.connection.shutdown(socket.SHUT_WR)
            while handler.connection.recv(65536):
                pass
        except OSError:
            pass
    return action


def drop(handler, seen):
    handler.drop()


def until(event, code=200):
    """Answers when the event is set."""
    def action(handler, seen):
        handler.read_body(seen)
        event.wait(60)
        handler.reply(code)
    return action
