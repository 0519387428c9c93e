"""Posts over HTTP/3, with the length told or not, whole or cut off.

aioquic on one connection; the server's certificate is not checked.
"""

import asyncio
import ssl

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, ErrorCode, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration


class Client(QuicConnectionProtocol):

    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.http = H3Connection(self._quic)
        self.answers = {}

    def quic_event_received(self, event):
        for e in self.http.handle_event(event):
            status, done = self.answers.get(e.stream_id, (None, None))
            if isinstance(e, HeadersReceived):
                status = int(dict(e.headers)[b':status'])
                self.answers[e.stream_id] = (status, done)
            if isinstance(e, (HeadersReceived, DataReceived)) \
                    and e.stream_ended and done:
                done.set_result(status)

    def begin(self, path, host, length=None):
        stream = self._quic.get_next_available_stream_id()
        headers = [(b':method', b'POST'), (b':scheme', b'https'),
                   (b':authority', host.encode()), (b':path', path.encode()),
                   (b'content-type', b'application/json')]
        if length is not None:
            headers.append((b'content-length', str(length).encode()))
        self.answers[stream] = (
            None, asyncio.get_running_loop().create_future())
        self.http.send_headers(stream, headers)
        return stream

    async def post(self, path, host, body, told, piece):
        stream = self.begin(path, host, len(body) if told else None)
        for i in range(0, len(body), piece):
            self.http.send_data(stream, body[i:i + piece], False)
            self.transmit()
            await asyncio.sleep(0)
        self.http.send_data(stream, b'', True)
        self.transmit()
        return await self.answers[stream][1]

    async def cut(self, path, host, body, other):
        """Half of a body, then other(), which is answered after nginx met the
        half; then the stream is reset."""
        stream = self.begin(path, host, len(body) * 2)
        self.http.send_data(stream, body, False)
        self.transmit()
        status = await other()
        self._quic.reset_stream(stream, ErrorCode.H3_REQUEST_CANCELLED)
        self.transmit()
        return status


def run(port, talk):
    """talk(client): a coroutine function; its result."""
    async def go():
        configuration = QuicConfiguration(
            alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE)
        async with connect('127.0.0.1', port, configuration=configuration,
                           create_protocol=Client) as client:
            return await asyncio.wait_for(talk(client), 120)
    return asyncio.run(go())
