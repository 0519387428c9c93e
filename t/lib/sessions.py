#
# Copyright (C) the llm-capture authors
#
# Ids of sessions, computed a second time, and rows that have them.

import json

from client import request
from life import Lives
from outcomes import CHAT

MASK = (1 << 64) - 1


def rotl(x, b):
    return (x << b | x >> (64 - b)) & MASK


def siphash(key, data):
    """SipHash-2-4, as its paper has it."""
    k0, k1 = (int.from_bytes(key[i:i + 8], 'little') for i in (0, 8))
    v = [k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d,
         k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573]

    def rounds(n):
        for _ in range(n):
            v[0] = (v[0] + v[1]) & MASK
            v[1] = rotl(v[1], 13) ^ v[0]
            v[0] = rotl(v[0], 32)
            v[2] = (v[2] + v[3]) & MASK
            v[3] = rotl(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & MASK
            v[3] = rotl(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & MASK
            v[1] = rotl(v[1], 17) ^ v[2]
            v[2] = rotl(v[2], 32)

    data += bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for i in range(0, len(data), 8):
        word = int.from_bytes(data[i:i + 8], 'little')
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xff
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def session_id(key, value):
    """key: 32 hex digits; what the file says of a session of that name."""
    session = siphash(bytes(16), b'session\0' + value.encode())
    return '%016x' % siphash(bytes.fromhex(key),
                             b'id\0' + session.to_bytes(8, 'little'))


def kept(key, value, rate):
    """Is a session of that name kept?"""
    return siphash(bytes.fromhex(key), b'sample\0' + value.encode()) >> 32 \
        < rate * (1 << 32)


class Sessions(Lives):
    """An nginx that records /v1/chat/completions, by sessions."""

    def __init__(self, up, names='', location='', **kw):
        self.sent = 0
        names = names and f'llm_capture_session_id {names};'
        super().__init__(up, location='llm_capture on;' + names + location,
                         **kw)

    def body(self, n=None, **more):
        if n is None:
            n = self.sent
            self.sent += 1
        return json.dumps({'n': n, 'messages': [
            {'role': 'user', 'content': 'Hi'}], **more}).encode()

    def ask(self, headers=(), query='', **more):
        """One request, of the next number."""
        return request(self.port, CHAT + query, self.body(**more),
                       headers=headers)

    def rows(self):
        """Number -> row, once all that was asked is there."""
        rows = self.wait_records('chat', self.sent)
        found = {row.value['payload']['n']: row.value for row in rows}
        if len(found) != len(rows):
            raise AssertionError('a row stands there twice')
        return found

    def ids(self):
        """What each says of its session, in the order of numbers."""
        return [row.get('session_id') for _, row in sorted(self.rows().items())]
