#
# Copyright (C) the llm-capture authors
#
# Clients that send request after request while a fault is staged.

import threading
import time

from client import Connection
from ledger import PATH, body, chunked

PIECE = 7000


def numbered(n, headers=()):
    return dict(headers, **{'X-N': f'{n:08d}'})


def send(c, n, path=PATH, headers=(), data=None):
    """Request n over c: its head, and its body in the way that n says."""
    data = data or body(n)
    head = numbered(n, headers)
    if chunked(n):
        c.head(path, None, head)
        for i in range(0, len(data), PIECE):
            c.chunk(data[i:i + PIECE])
        c.last_chunk()
    else:
        c.head(path, len(data), head)
        c.send(data)


class Client(threading.Thread):
    """Up to 50 requests on a connection, then another.

    A connection that was used before may be closed by nginx at any time, as
    at a reload: that request got no answer, and none is due.  One that is
    new may not, but for faults that cut connections.
    """

    def __init__(self, load):
        super().__init__(daemon=True)
        self.load, self.c, self.used = load, None, 0

    def run(self):
        while not self.load.stopping.wait(self.load.pause):
            self.one(self.load.ledger.next())
        self.close()

    def one(self, n):
        ledger = self.load.ledger
        try:
            if self.c is None:
                self.c, self.used = Connection(self.load.port()), 0
            began = time.monotonic()
            send(self.c, n, self.load.path(n), self.load.headers(n),
                 data=ledger.body(n))
            response = self.c.response()
            self.load.took.append(time.monotonic() - began)
        except (OSError, ValueError, IndexError) as e:
            response = e
        if getattr(response, 'status', 0) == 0 or not response.complete:
            ledger.no_answer(n, 'reused' if self.used else f'{response!r}')
            self.close()
            return
        ledger.answer(n, response)
        self.used += 1
        if response.headers.get('connection') == 'close' or self.used == 50:
            self.close()

    def close(self):
        if self.c:
            self.c.close()
        self.c = None


class Load:
    """
    clients   that send at a time
    pause     seconds of each between an answer and the next request
    headers   n -> more headers of request n
    path      n -> its path
    took      seconds of each answer
    """

    def __init__(self, stage, clients=3, pause=0.002, headers=lambda n: {},
                 path=lambda n: PATH):
        self.ledger, self.port = stage.ledger, lambda: stage.port
        self.pause, self.headers, self.path = pause, headers, path
        self.stopping, self.took = threading.Event(), []
        self.threads = [Client(self) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def more(self, n=100, timeout=60):
        self.ledger.wait_more(n, timeout)

    def stop(self, timeout=60):
        """Until the last answers have come."""
        self.stopping.set()
        for thread in self.threads:
            thread.join(timeout)
            if thread.is_alive():
                raise TimeoutError('a client waits for its answer')
