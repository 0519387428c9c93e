#
# Copyright (C) the llm-capture authors
#
# More requests than one interpreter sends: loads in processes of their own,
# at a rate, whose ledgers become one.

import multiprocessing
import threading
import time

from ledger import Ledger
from load import Load

FORK = multiprocessing.get_context('fork')


class Part(Ledger):
    """Numbers are those of all parts together."""

    def __init__(self, whole, counter):
        super().__init__(whole.control, whole.length)
        self.counter = counter

    def next(self):
        with self.counter.get_lock():
            self.counter.value += 1
            n = self.counter.value
        self.times[n] = [time.monotonic()]
        return n


class Paced(Load):
    """Requests fall due at even distances, whatever the answers do."""

    def __init__(self, stage, rate, **kw):
        self.lock, self.step = threading.Lock(), 1 / rate
        self.due = time.monotonic()
        super().__init__(stage, **kw)

    @property
    def pause(self):
        now = time.monotonic()
        with self.lock:
            self.due = max(self.due + self.step, now - 1)
            return max(self.due - now, 0)

    @pause.setter
    def pause(self, value):
        pass


class Crowd:
    """Begun while no thread of ours sends: fork() would copy it half."""

    def __init__(self, stage, rate, parts=4, clients=8):
        self.whole = stage.ledger
        self.counter = FORK.Value('Q', self.whole.sent)
        self.stopping, self.parts = FORK.Event(), []
        for _ in range(parts):
            ours, theirs = FORK.Pipe(False)
            p = FORK.Process(target=self.send, daemon=True, args=(
                stage, theirs, rate / parts, clients))
            p.start()
            theirs.close()
            self.parts.append((p, ours))

    def send(self, stage, pipe, rate, clients):
        stage.ledger = part = Part(self.whole, self.counter)
        load = Paced(stage, rate, clients=clients)
        self.stopping.wait()
        load.stop()
        pipe.send((part.answered, part.cut, part.refused, part.verdicts,
                   part.wrong))

    def stop(self):
        """All they know stands in the stage's ledger then."""
        self.stopping.set()
        for p, pipe in self.parts:
            answered, cut, refused, verdicts, wrong = pipe.recv()
            p.join()
            self.whole.answered |= answered
            self.whole.cut.update(cut)
            self.whole.refused.update(refused)
            self.whole.verdicts.update(verdicts)
            self.whole.wrong += wrong
        self.whole.sent = self.counter.value
