"""HTTP clients that can send what a well-behaved client would not."""

import socket
import struct
import time


class Response:
    def __init__(self, status, headers, body, complete):
        self.status = status
        self.headers = headers          # lower case -> last value
        self.body = body
        self.complete = complete        # the connection did not end too early

    def __repr__(self):
        return f'<{self.status}, {len(self.body)} bytes>'


class Connection:
    """A plain connection to 127.0.0.1."""

    def __init__(self, port, timeout=30):
        self.sock = socket.create_connection(('127.0.0.1', port), timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.sock.makefile('rb')

    def send(self, data):
        self.sock.sendall(data)

    def head(self, path, length=None, headers=(), method='POST',
             version='1.1'):
        """Sends a request's head; length None: chunked, False: no body."""
        lines = [f'{method} {path} HTTP/{version}', 'Host: localhost']
        if length is None:
            lines.append('Transfer-Encoding: chunked')
        elif length is not False:
            lines.append(f'Content-Length: {length}')
        given = dict(headers)
        if not any(name.lower() == 'content-type' for name in given):
            lines.append('Content-Type: application/json')
        lines += [f'{name}: {value}' for name, value in given.items()]
        self.send('\r\n'.join(lines).encode('latin-1') + b'\r\n\r\n')

    def chunk(self, data):
        self.send(b'%x\r\n%s\r\n' % (len(data), data))

    def last_chunk(self):
        self.send(b'0\r\n\r\n')

    def response(self, method='POST'):
        """The next response; b'' in place of a status line: status 0."""
        while True:
            line = self.file.readline()
            if not line:
                return Response(0, {}, b'', False)
            code = int(line.split()[1])
            headers = {}
            while True:
                line = self.file.readline().rstrip(b'\r\n')
                if not line:
                    break
                name, _, value = line.decode('latin-1').partition(':')
                headers[name.strip().lower()] = value.strip()
            if code >= 200:
                break

        if method == 'HEAD' or code in (204, 304):
            return Response(code, headers, b'', True)

        if headers.get('transfer-encoding', '').lower() == 'chunked':
            body = b''
            while True:
                line = self.file.readline()
                if not line:
                    return Response(code, headers, body, False)
                size = int(line, 16)
                body += self.file.read(size)
                self.file.readline()
                if size == 0:
                    return Response(code, headers, body, True)

        if 'content-length' in headers:
            size = int(headers['content-length'])
            body = self.file.read(size)
            return Response(code, headers, body, len(body) == size)

        return Response(code, headers, self.file.read(), True)

    def reset(self):
        """Goes away with a RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                             struct.pack('ii', 1, 0))
        self.close()

    def close(self):
        self.file.close()
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def request(port, path, body=b'', headers=(), method='POST', version='1.1',
            pieces=None, chunks=None, pause=0):
    """One request on a connection of its own.

    body    sent with Content-Length, in one piece
    pieces  the same, but sent in these pieces (body is then not used)
    chunks  sent chunked, a chunk each
    pause   seconds between pieces or chunks
    """
    with Connection(port) as c:
        if chunks is not None:
            c.head(path, None, headers, method, version)
            send, parts = c.chunk, chunks
        else:
            parts = [body] if pieces is None else pieces
            length = sum(map(len, parts))
            if method in ('GET', 'HEAD') and not length:
                length = False
            c.head(path, length, headers, method, version)
            send = c.send

        try:
            for i, part in enumerate(parts):
                if i and pause:
                    time.sleep(pause)
                if part:
                    send(part)
            if chunks is not None:
                c.last_chunk()
        except (BrokenPipeError, ConnectionResetError):
            pass                        # an early answer: read it

        try:
            return c.response(method)
        except ConnectionResetError:
            return Response(0, {}, b'', False)


class H2:
    """HTTP/2 without TLS (prior knowledge), several streams at a time."""

    def __init__(self, port, timeout=30):
        import h2.config
        import h2.connection
        self.sock = socket.create_connection(('127.0.0.1', port), timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(
            client_side=True, header_encoding='utf-8'))
        self.h2.initiate_connection()
        self.flush()
        self.status = {}                # stream -> status
        self.body = {}                  # stream -> bytes
        self.ended = set()              # streams answered, or reset
        self.pongs = 0

    def flush(self):
        data = self.h2.data_to_send()
        if data:
            self.sock.sendall(data)

    def start(self, path, length=None, headers=(), method='POST', end=False,
              host='localhost'):
        stream = self.h2.get_next_available_stream_id()
        head = [(':method', method), (':path', path), (':scheme', 'http'),
                (':authority', host),
                ('content-type', 'application/json')]
        if length is not None:
            head.append(('content-length', str(length)))
        self.h2.send_headers(stream, head + list(dict(headers).items()),
                             end_stream=end)
        self.flush()
        return stream

    def data(self, stream, data, end=False):
        """Sends data as the windows allow, each frame at once."""
        view = memoryview(data)
        while len(view):
            room = min(self.h2.local_flow_control_window(stream),
                       self.h2.max_outbound_frame_size, len(view))
            if room == 0:
                if stream in self.ended:
                    return
                self.read()
                continue
            self.h2.send_data(stream, bytes(view[:room]))
            self.flush()
            view = view[room:]
        if end:
            self.h2.end_stream(stream)
            self.flush()

    def reset(self, stream):
        self.h2.reset_stream(stream)
        self.flush()

    def read(self):
        import h2.events
        data = self.sock.recv(65536)
        if not data:
            raise EOFError('h2 connection closed')
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                self.status[event.stream_id] = int(dict(event.headers)
                                                   [':status'])
            elif isinstance(event, h2.events.DataReceived):
                self.body[event.stream_id] = \
                    self.body.get(event.stream_id, b'') + event.data
                self.h2.acknowledge_received_data(
                    event.flow_controlled_length, event.stream_id)
            elif isinstance(event, (h2.events.StreamEnded,
                                    h2.events.StreamReset)):
                self.ended.add(event.stream_id)
            elif isinstance(event, h2.events.PingAckReceived):
                self.pongs += 1
        self.flush()

    def taken(self):
        """Until nginx has read all that was sent.

        Who closes with something unread resets the connection, and what nginx
        has not read is lost.
        """
        due = self.pongs + 1
        self.h2.ping(b'taken so')
        self.flush()
        while self.pongs < due:
            self.read()

    def response(self, stream):
        while stream not in self.ended:
            self.read()
        return Response(self.status.get(stream, 0), {},
                        self.body.get(stream, b''), True)

    def request(self, path, body=b'', pieces=None, length=True, **kw):
        parts = [body] if pieces is None else pieces
        size = sum(map(len, parts)) if length else None
        stream = self.start(path, size, **kw)
        for part in parts:
            self.data(stream, part)
        self.h2.end_stream(stream)
        self.flush()
        return self.response(stream)

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
