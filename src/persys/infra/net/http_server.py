"""The HTTP server of the gateway, of webhooks and of persys-ca.

Each resource that a client can use has a limit: connections in total and per address (`listener.py`), the
time of a TLS handshake, of a header, of an idle connection, the rate of a body, the time a response may stay
unread.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from persys.infra.net.listener import HttpConnection, HttpLimits, Listener

# How long the rest of a refused body is read and dropped, so that the client can read the response.
_LINGER_SECONDS = 2.0

# aiohttp logs unexpected failures here; invalid requests of clients are filtered out.
_aiohttp_log = logging.getLogger(__name__)
_no_access_log = logging.getLogger(f"{__name__}.access")
_no_access_log.disabled = True
_OF_CLIENTS = (HttpProcessingError, web.RequestPayloadError, ConnectionError)


class HttpServer:
    def __init__(
        self,
        app: web.Application,
        *,
        limits: HttpLimits,
        context: ssl.SSLContext | None,
        port_name: str = "port",
    ) -> None:
        """`context` None: plain HTTP. `port_name` is the name of the port in errors."""
        app.middlewares.insert(0, _serving)
        self._limits = limits
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=limits.closing_seconds)
        self._listener = Listener(
            self._connect, limits=limits, context=context, port_name=port_name
        )

    @property
    def connections(self) -> int:
        """The number of open connections, including handshakes."""
        return self._listener.connections

    async def start(self, host: str, port: int) -> int:
        """Listen on all addresses of the host. Returns the port that is bound (useful for port 0)."""
        bound = await self._listener.bind(host, port)
        await self._runner.setup()
        await self._listener.accept()
        return bound

    async def stop(self) -> None:
        """Stop accepting connections and wait for requests, up to a limit. Idempotent."""
        self._listener.stop_accepting()
        await self._runner.cleanup()
        await self._listener.close()

    def _connect(self, ended: Callable[[], None]) -> "_Connection":
        server = self._runner.server
        assert server is not None, "set up before connections are accepted"
        return _Connection(server, asyncio.get_running_loop(), self._limits, ended)


class _Connection(web.RequestHandler, HttpConnection):
    """An aiohttp connection that is closed when its client is too slow."""

    def __init__(
        self,
        server: web.Server,
        loop: asyncio.AbstractEventLoop,
        limits: HttpLimits,
        ended: Callable[[], None],
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=limits.idle_seconds,
            lingering_time=_LINGER_SECONDS,
            logger=_aiohttp_log,
            access_log=_no_access_log,
        )
        self._limits = limits
        self._ended = ended
        self._received = 0
        self._is_paused = False
        self._requests = 0
        self._age_limit: asyncio.TimerHandle | None = None
        self._unread_limit: asyncio.TimerHandle | None = None
        self._body_check: asyncio.TimerHandle | None = None

    @property
    def is_connected(self) -> bool:
        return self.transport is not None

    @property
    def serving(self) -> bool:
        return self._requests > 0

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def begin(self, request: web.Request) -> None:
        """A request has a complete header: from now on its body must arrive at a minimum rate."""
        self._requests += 1
        if not request.content.is_eof():
            self._check_body_later(request.content)

    def end(self) -> None:
        self._requests -= 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._limits.connection_seconds:
            self._age_limit = self._loop.call_later(self._limits.connection_seconds, self.abort)

    def connection_lost(self, exc: BaseException | None) -> None:
        for timer in (self._age_limit, self._unread_limit, self._body_check):
            if timer is not None:
                timer.cancel()
        self._ended()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)

    def pause_reading(self) -> None:
        self._is_paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        self._is_paused = False
        super().resume_reading(resume_parser)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_limit = self._loop.call_later(self._limits.unread_seconds, self.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread_limit is not None:
            self._unread_limit.cancel()

    def _check_body_later(self, body: StreamReader) -> None:
        received = self._received

        def check() -> None:
            if body.is_eof():
                return
            # A paused body waits for our handler, not for the client.
            if self._is_paused or self._received - received >= self._limits.body_window_bytes_min:
                self._check_body_later(body)
            else:
                self.abort()

        self._body_check = self._loop.call_later(self._limits.body_window_seconds, check)


@web.middleware
async def _serving(request: web.Request, handler: Handler) -> web.StreamResponse:
    connection = request.protocol
    assert isinstance(connection, _Connection), "made by HttpServer"
    connection.begin(request)
    try:
        return await handler(request)
    finally:
        connection.end()


def server_context(roots_pem: bytes) -> ssl.SSLContext:
    """TLS 1.2 or newer. A client certificate is optional and verified; sessions are not resumed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_OPTIONAL
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.load_verify_locations(cadata=roots_pem.decode("ascii"))
    return context


def show_certificate(context: ssl.SSLContext, chain_pem: bytes, key_pem: bytes) -> None:
    """Set the certificate of new connections of this context."""
    # The ssl module reads only files. This one is in memory, and no other process can open it.
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, key_pem + chain_pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def shown_certificate(request: web.Request) -> bytes | None:
    """The client certificate in DER, verified by the handshake, or None."""
    transport = request.transport
    connection = None if transport is None else transport.get_extra_info("ssl_object")
    if connection is None:
        return None
    shown: bytes | None = connection.getpeercert(binary_form=True)
    return shown


def _is_unexpected(record: logging.LogRecord) -> bool:
    """Invalid HTTP and disconnects of clients are expected."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, _OF_CLIENTS)


_aiohttp_log.addFilter(_is_unexpected)
