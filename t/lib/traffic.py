"""Requests to the byte: bodies that name their own positions, heads as a
client would not write them, chunks and packets in any pieces.
"""

import fcntl
import hashlib
import itertools
import re
import socket
import struct
import termios

from client import Connection
from procs import wait_for
from tap import is_

HEAD = b'{"model":"demo","messages":[{"role":"user","content":"'
TAIL = b'"}]}'
PATH = '/v1/chat/completions'


def body(n, salt=''):
    """A JSON object of exactly n bytes whose text names its own offsets, so
    that a lost, doubled or moved piece shows; n: 2 and more, 0 is empty."""
    if n == 0:
        return b''
    if n < 8:
        return b'{' + b' ' * (n - 2) + b'}'
    if n < len(HEAD) + len(TAIL) + len(salt) + 1:
        return b'{"a":"' + b'x' * (n - 8) + b'"}'
    room = n - len(HEAD) - len(TAIL)
    text = f'{salt}|'.encode()
    text += b''.join(b'@%014d,' % i for i in range(0, room + 16, 16))
    return HEAD + text[:room] + TAIL


def sha(data):
    return hashlib.sha256(data).hexdigest()


def pieces(data, sizes):
    """data in pieces of these sizes, again and again."""
    pos = 0
    for size in itertools.cycle(sizes):
        if pos >= len(data):
            return
        yield data[pos:pos + size]
        pos += size


def chunked(data, sizes=(1 << 30,), ext=b'', trailer=b''):
    """The body as chunks of these sizes."""
    return b''.join(b'%x%s\r\n%s\r\n' % (len(piece), ext, piece)
                    for piece in pieces(data, sizes)) \
        + b'0\r\n' + trailer + b'\r\n'


def head(path=PATH, *headers, method='POST', host='localhost',
         version='1.1'):
    """Headers are whole lines, and may come twice."""
    lines = [f'{method} {path} HTTP/{version}']
    if host:
        lines.append(f'Host: {host}')
    return '\r\n'.join(lines + list(headers)).encode('latin-1') + b'\r\n\r\n'


def whole(data=b'', path=PATH, *headers, sizes=None, **kw):
    """A whole request; sizes: chunked, in chunks of these sizes."""
    if sizes:
        return head(path, 'Transfer-Encoding: chunked', *headers, **kw) \
            + chunked(data, sizes)
    return head(path, f'Content-Length: {len(data)}', *headers, **kw) + data


class Client(Connection):
    """Says what it is told, in any pieces."""

    def say(self, data, sizes=None):
        for piece in pieces(data, sizes) if sizes else [data]:
            self.send(piece)
        return self

    def ask(self, data, sizes=None, method='POST'):
        return self.say(data, sizes).response(method)

    def taken(self):
        """Waits until the other side has read all that was sent."""
        wait_for(lambda: unread(self.sock) == 0, 'nginx to read', step=0.0005)

    def gone(self):
        """Waits until the other side has closed."""
        try:
            while self.sock.recv(65536):
                pass
        except ConnectionError:
            pass
        self.close()


def ask(port, data, sizes=None, method='POST'):
    """One request on a connection of its own."""
    with Client(port) as c:
        return c.ask(data, sizes, method)


def unread(sock):
    """Bytes that were sent but not read by the process at the other end."""
    mine, = struct.unpack('i', fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))
    here, there = sock.getsockname(), sock.getpeername()

    # the kernel is asked for the socket of the other end: sock_diag(7)
    ident = struct.pack('!HH4s12x4s12x', there[1], here[1],
                        socket.inet_aton(there[0]), socket.inet_aton(here[0]))
    ask = struct.pack('=BBBBI', socket.AF_INET, socket.IPPROTO_TCP, 0, 0,
                      0xffffffff) + ident + struct.pack('=III', 0, *NOCOOKIE)

    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as diag:
        diag.send(struct.pack('=IHHII', 16 + len(ask), 20, 1, 0, 0) + ask)
        reply = diag.recv(4096)

    if struct.unpack_from('=H', reply, 4)[0] != 20:
        return -1                       # none: not yet accepted, or gone
    return mine + struct.unpack_from('=I', reply, 16 + 4 + 48 + 4)[0]


NOCOOKIE = (0xffffffff, 0xffffffff)


# servers with a file, counters and a log of their own

WHAT = "log_format what '$llm_capture_status $llm_capture_endpoint $status';"

SERVER = """
    server {
        listen %s;
        server_name %s;
        access_log %%%%DIR%%%%/%s.log what;
        %s
        llm_capture_path %s;
        %s
    }
"""


def server(name, conf, listen='127.0.0.1:%%PORT%%', path=None):
    """On, unless conf begins with something else."""
    own = re.search(r'(^|;)\s*llm_capture\s', conf.split('{')[0])
    return SERVER % (listen, name, name, '' if own else 'llm_capture on;',
                     path or f'%%DIR%%/capture/{name}.jsonl', conf)


def payloads(ng, name):
    return [r.payload for r in ng.records(name + '.jsonl')]


def log_lines(ng, name):
    try:
        with open(f'{ng.dir}/{name}.log') as f:
            return f.read().splitlines()
    except FileNotFoundError:
        return []


def counted(ng, template):
    """The counters of a path that are not 0, but for bytes; {}: no line.  The
    harness has checked that they add up."""
    row = ng.counters(template) or {}
    return {k: n for k, n in row.items() if n and k != 'bytes'}


def check(ng, name, sent, **why):
    """The file of a server has just these bodies; why: its other counters."""
    want = dict(why)
    if sent:
        want['recorded'] = len(sent)
    if want:
        want['seen'] = sum(want.values())
    is_(counted(ng, ng.path(name + '.jsonl')), want, f'{name}: counted')
    is_(sorted(map(sha, payloads(ng, name))), sorted(map(sha, sent)),
        f'{name}: recorded as sent')
