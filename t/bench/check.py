"""Are the bodies that were sent in what a variant wrote, whole and once?

The stamp in a body's head names the request; the rest must be the body's
bytes, as they are or, in an access log, as nginx escapes them there.
"""

import mmap
import os
import re

from bodies import STAMP

MARK = b'"bench":"'


def escaped(data):
    """What log_format's escape=json makes of it."""
    names = {0x22: b'\\"', 0x5c: b'\\\\', 0x0a: b'\\n', 0x0d: b'\\r',
             0x09: b'\\t', 0x08: b'\\b', 0x0c: b'\\f'}
    return re.sub(rb'["\\\x00-\x1f]', lambda m: names.get(
        m[0][0], b'\\u%04X' % m[0][0]), data)


class Found:
    """lines: stamps found; torn: those whose rest is not the body's."""

    def __init__(self):
        self.numbers, self.torn, self.bytes = [], 0, 0

    def verdict(self, sent, first, drops=False):
        """'' or why it is disqualified; drops: it may leave some out."""
        unique = set(self.numbers)
        strange = [n for n in unique if not first <= n < first + sent]
        if self.torn:
            return f'tore {self.torn} of {sent}'
        if strange:
            return f'{len(strange)} that were not sent'
        if len(unique) < len(self.numbers):
            return f'{len(self.numbers) - len(unique)} twice'
        if len(unique) < sent and not drops:
            return f'lost {sent - len(unique)} of {sent}'
        return ''


def find(path, body, escape=False):
    """Each stamp of the file and whether its body stands around it."""
    found = Found()
    change = escaped if escape else bytes
    head, _, tail = body.partition(STAMP.encode())
    head, tail = change(head), change(tail)
    size = os.path.getsize(path) if os.path.exists(path) else 0
    found.bytes = size
    if not size:
        return found
    with open(path, 'rb') as f, mmap.mmap(
            f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(head)
        while at != -1:
            at += len(head)
            stamp = data[at:at + len(STAMP)]
            end = at + len(STAMP) + len(tail)
            if stamp[:12].isdigit() and data[at + len(STAMP):end] == tail:
                found.numbers.append(int(stamp[:12]))
                at = end
            else:
                found.torn += 1
            at = data.find(head, at)
    return found
