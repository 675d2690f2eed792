"""The HTTP server of every process: gateway, webhooks, persys-ca, and /health and /metrics.

Each resource that a client can use has a limit: connections in total and per address, the time of a TLS
handshake, of a header, of an idle connection, the rate of a body, the time a response may stay unread.
Connections are counted when they are accepted, before the TLS handshake. When a limit is reached, the oldest
connection that is not serving a request is closed in favour of the new one; if all of them serve requests,
the new one is closed. So idle connections cannot block other clients, and the process does not run out of
file descriptors, which its gRPC port needs too.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack

import structlog
from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler
from msgspec import Struct

from persys.core.dns_names import PORT_MAX
from persys.errors import SettingsError

log = structlog.get_logger()

_BACKLOG = 1024
_ACCEPT_RETRY_SECONDS = 0.1
# How long the rest of a refused body is read and dropped, so that the client can read the response.
_LINGER_SECONDS = 2.0

# aiohttp logs unexpected failures here; invalid requests of clients are filtered out.
_aiohttp_log = logging.getLogger(__name__)
_no_access_log = logging.getLogger(f"{__name__}.access")
_no_access_log.disabled = True
_OF_CLIENTS = (HttpProcessingError, web.RequestPayloadError, ConnectionError)


class HttpLimits(Struct, frozen=True):
    """The limits for clients of one port. Times are in seconds."""

    connections_max: int = 4096
    connections_per_address_max: int = 1024
    handshake_seconds: float = 10.0
    idle_seconds: float = 30.0  # from the connection, or the last response, to a complete header
    body_window_seconds: float = 20.0  # in each window of an incomplete body …
    body_window_bytes_min: int = 16 * 1024  # … at least this much arrives
    unread_seconds: float = 60.0  # how long a client may leave a response unread
    connection_seconds: float = 0.0  # maximum age of a connection; 0: unlimited
    closing_seconds: float = 10.0  # for requests in progress when the server stops


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
        self._context = context
        self._port_name = port_name
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=limits.closing_seconds)
        self._slots = _Slots(limits)
        self._sockets: list[socket.socket] = []
        self._group = asyncio.TaskGroup()
        self._running = AsyncExitStack()
        self._accepting: list[asyncio.Task[None]] = []

    @property
    def connections(self) -> int:
        """The number of open connections, including handshakes."""
        return len(self._slots)

    async def start(self, host: str, port: int) -> int:
        """Listen on all addresses of the host. Returns the port that is bound (useful for port 0)."""
        if not 0 <= port <= PORT_MAX:
            raise self._unusable(port, f"expected 0 to {PORT_MAX}")
        try:
            self._sockets = await _listen(host, port)
        except OSError as err:
            raise self._unusable(port, str(err)) from err
        await self._runner.setup()
        await self._running.enter_async_context(self._group)
        for listening in self._sockets:
            self._accepting.append(self._group.create_task(self._accept(listening)))
        bound: int = self._sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stop accepting connections and wait for requests, up to a limit. Idempotent."""
        for accepting in self._accepting:
            accepting.cancel()
        for listening in self._sockets:
            listening.close()
        self._slots.cancel_handshakes()
        await self._runner.cleanup()
        await self._running.aclose()

    def _unusable(self, port: int, problem: str) -> SettingsError:
        return SettingsError(f"{self._port_name} {port} cannot be used: {problem}")

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError as err:  # no descriptors, no memory, or the client disconnected
                log.warning("http.accept_failed", port=listening.getsockname()[1], reason=str(err))
                await asyncio.sleep(_ACCEPT_RETRY_SECONDS)
                continue
            slot = self._slots.take(str(peer[0]))
            if slot is None:
                accepted.close()
                continue
            slot.handshake = self._group.create_task(self._connect(accepted, slot))

    async def _connect(self, accepted: socket.socket, slot: "_Slot") -> None:
        """Attach the protocol to an accepted connection; it releases the slot when it ends."""
        loop = asyncio.get_running_loop()
        server = self._runner.server
        assert server is not None, "set up before connections are accepted"
        connection = _Connection(server, loop, self._limits, lambda: self._slots.release(slot))
        accepted.setblocking(False)
        timeout = None if self._context is None else self._limits.handshake_seconds
        try:
            await loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=self._context, ssl_handshake_timeout=timeout
            )
        except OSError:  # a handshake that failed or took too long
            accepted.close()
        finally:
            slot.handshake = None
            slot.connection = connection
            if connection.transport is None:
                self._slots.release(slot)
            elif slot.is_ended:
                connection.abort()


class _Slot(Struct, eq=False):
    """One accepted connection."""

    address: str
    handshake: "asyncio.Task[None] | None" = None
    connection: "_Connection | None" = None
    is_ended: bool = False

    @property
    def is_idle(self) -> bool:
        return self.connection is None or not self.connection.serving

    def end(self) -> None:
        self.is_ended = True
        if self.handshake is not None:
            self.handshake.cancel()
        if self.connection is not None:
            self.connection.abort()


class _Slots:
    """The open connections in the order of acceptance."""

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._all: dict[_Slot, None] = {}
        self._of_address: dict[str, dict[_Slot, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def take(self, address: str) -> _Slot | None:
        """A slot for a new connection. None if there is none and no idle connection can be closed."""
        same = self._of_address.get(address, {})
        if len(same) >= self._limits.connections_per_address_max and not self._evict(same):
            return None
        if len(self._all) >= self._limits.connections_max and not self._evict(self._all):
            return None
        slot = _Slot(address)
        self._all[slot] = None
        self._of_address.setdefault(address, {})[slot] = None
        return slot

    def release(self, slot: _Slot) -> None:
        """Idempotent."""
        if slot not in self._all:
            return
        del self._all[slot]
        same = self._of_address[slot.address]
        del same[slot]
        if not same:
            del self._of_address[slot.address]

    def cancel_handshakes(self) -> None:
        for slot in self._all:
            if slot.handshake is not None:
                slot.handshake.cancel()

    def _evict(self, among: Iterable[_Slot]) -> bool:
        oldest = next((slot for slot in among if slot.is_idle), None)
        if oldest is None:
            return False
        self.release(oldest)
        oldest.end()
        return True


class _Connection(web.RequestHandler):
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


async def _listen(host: str, port: int) -> list[socket.socket]:
    """Listening sockets on every address of the host, on one port. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    listening: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            one = socket.socket(family, socket.SOCK_STREAM)
            listening.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            chosen = port or (listening[0].getsockname()[1] if len(listening) > 1 else 0)
            one.bind((address[0], chosen, *address[2:]))
            one.listen(_BACKLOG)
            one.setblocking(False)
    except OSError:
        for one in listening:
            one.close()
        raise
    return listening


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
