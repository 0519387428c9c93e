#
# Copyright (C) the llm-capture authors
#
# Requests by number, and what became of each.
#
# The body of request n follows from n alone: its size, the way it is sent and
# each of its bytes.  So a file is compared with what was sent without keeping
# that, and a lost, torn, doubled or changed line shows.

import os
import re
import threading
import time
from collections import Counter

from manifests import content

PATH = '/v1/completions'
VERDICT = 'x-capture'
LATE = re.compile('failed|uncertain|lost|invalid_')     # by the helper

# what nginx does with a body depends on its size: with the head, in one
# buffer, in a file (above client_body_buffer_size), and in many reads
SIZES = (60, 3000, 200, 12000, 90, 40000, 700)
LARGE = 300000
SHAPES = 5 * len(SIZES)

NUMBER = re.compile(rb'"n":(\d+)[,}]')


def size(n):
    return LARGE if n % 101 == 0 else SIZES[n % len(SIZES)]


def chunked(n):
    return n % 5 == 0


def body(n, length=None):
    """{"n":12,"prompt":"...12.13.14..."}: the text differs from n to n."""
    text = b'{"n":%d,"model":"m","prompt":"' % n
    room = max((length or size(n)) - len(text) - 2, 8)
    unit = b'%x\xc3\xa4\\n' % n
    text += unit * (room // len(unit)) + b'x' * (room % len(unit))
    return text + b'"}'


class Ledger:
    """
    length     of all bodies; None: as n says
    sent       numbers given out
    answered   those nginx answered with what it answers without capture
    cut        number -> why: no answer came, or none was wanted
    refused    number -> status other than 2xx
    verdicts   number -> $llm_capture_status of an answer; none: not captured
    wrong      what differs from a run without capture
    times      number -> when it was given out, and answered: monotonic, s
    """

    def __init__(self, control=None, length=None):
        self.lock = threading.Condition()
        self.control = control          # shape -> answer, or None: no check
        self.length = length
        self.sent = 0
        self.answered = set()
        self.cut = {}
        self.refused = {}
        self.verdicts = {}
        self.wrong = []
        self.times = {}

    def next(self):
        with self.lock:
            self.sent += 1
            self.times[self.sent] = [time.monotonic()]
            return self.sent

    def body(self, n):
        return body(n, self.length)

    def no_answer(self, n, why):
        with self.lock:
            self.cut[n] = why
            self.lock.notify_all()

    def answer(self, n, response):
        shape = n % SHAPES, self.length or size(n)
        said = seen_by_client(n, response)
        with self.lock:
            if response.status // 100 == 2:
                self.times[n].append(time.monotonic())
                self.answered.add(n)
                if VERDICT in response.headers:
                    self.verdicts[n] = response.headers[VERDICT]
            else:
                self.refused[n] = response.status
            if self.control is not None and \
                    said != self.control.setdefault(shape, said):
                self.wrong.append((n, said, self.control[shape]))
            self.lock.notify_all()

    def wait_more(self, n, timeout=60):
        """Until n more have been answered than now."""
        with self.lock:
            goal = len(self.answered) + n
            if not self.lock.wait_for(
                    lambda: len(self.answered) >= goal, timeout):
                raise TimeoutError(f'no {n} more answers in {timeout} s')

    def with_verdict(self, verdict):
        return {n for n, v in dict(self.verdicts).items() if v == verdict}

    def wait_verdict(self, verdict, n=1, timeout=60):
        """Until n more have been answered with this verdict than now."""
        with self.lock:
            goal = len(self.with_verdict(verdict)) + n
            if not self.lock.wait_for(
                    lambda: len(self.with_verdict(verdict)) >= goal, timeout):
                raise TimeoutError(f'no {n} more {verdict} in {timeout} s')

    def not_captured(self):
        """Answered where there is no capture: nobody saw them."""
        if not self.verdicts:
            return set()
        return self.answered - set(self.verdicts) | self.with_verdict('off')

    def turned_down(self):
        """Counted before they were answered.

        But for "aborted", which may still end, and then be queued.
        """
        return {n for n, v in dict(self.verdicts).items()
                if v not in ('queued', 'aborted', 'off')}


def seen_by_client(n, response):
    """The answer without what differs from request to request anyway."""
    head = sorted((k, v) for k, v in response.headers.items()
                  if k not in ('date', 'connection', VERDICT))
    return (response.status, head, response.complete,
            response.body.replace(b'%08d' % n, b'N'))


class Account:
    """What the files of a directory hold, against a ledger.

    files: open ones, read as well: what was deleted is still in them.
    """

    def __init__(self, ledger, directory, suffix='.jsonl', files=()):
        self.ledger = ledger
        self.lines = Counter()
        self.torn, self.changed = [], []
        for top, _, names in os.walk(directory):
            for name in names:
                if suffix in name and not name.endswith(
                        ('.epoch', '.key', '.tmp', '.manifest.json')):
                    self.open(os.path.join(top, name))
        for f in files:
            f.seek(0)
            self.read(f.name, f.read())

    def open(self, path):
        if os.path.islink(path) or not os.path.isfile(path):
            return
        if path.endswith('.plain') and os.path.exists(path[:-6] + '.gz'):
            return                      # compressed already
        try:
            self.read(path, content(path))
        except FileNotFoundError:
            pass                        # it became a segment meanwhile

    def read(self, path, data):
        lines = data.split(b'\n')
        if lines.pop():
            self.torn.append(f'{path}: the last line has no end')
        for line in lines:
            self.line(line, path)

    def line(self, line, path):
        found = NUMBER.search(line)
        if not found or not line.startswith(b'{"timestamp":'):
            self.torn.append(f'{path}: {line[:80]!r}')
            return
        n = int(found[1])
        begin = line.find(b'"payload":') + 10
        if line[begin:-1] != self.expected(n):
            self.changed.append(f'{path}: number {n}')
        self.lines[n] += 1

    def expected(self, n):
        return self.ledger.body(n)

    @property
    def recorded(self):
        return sum(self.lines.values())

    def twice(self):
        return sorted(n for n, times in self.lines.items() if times > 1)

    def missing(self):
        """Answered, but in no file: each of these has to be counted."""
        return sorted(self.ledger.answered - set(self.lines))

    def lost(self, row):
        """How many of the missing no counter has.

        What was queued can be counted by the helper alone: so those that went
        away, which are many in some rows, do not stand in for it.
        """
        missing = set(self.missing()) - self.ledger.not_captured() \
            - self.ledger.turned_down()
        queued = missing & self.ledger.with_verdict('queued')
        late = sum(v for k, v in row.items() if LATE.match(k))
        # the worker says so of names, the helper of their number
        late += max(0, row.get('bad_path', 0)
                    - len(self.ledger.with_verdict('bad_path')))
        early = row.get('seen', 0) - row.get('recorded', 0) - late \
            - len(self.ledger.turned_down())
        return max(0, len(queued) - late) \
            + max(0, len(missing - queued) - max(0, early))

    def strangers(self):
        return sorted(n for n in self.lines if n > self.ledger.sent)
