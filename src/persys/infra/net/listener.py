"""Listens on a port and limits its connections: the part of an HTTP server that does not speak HTTP.

Connections are counted when they are accepted, before the TLS handshake. When a limit is reached, the oldest
connection that is not serving a request is closed in favour of the new one; if all of them serve requests,
the new one is closed. So idle connections cannot block other clients, and the process does not run out of
file descriptors, which its gRPC port needs too.
"""

import asyncio
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack

import structlog
from msgspec import Struct

from persys.core.dns_names import PORT_MAX
from persys.errors import SettingsError

log = structlog.get_logger()

_BACKLOG = 1024
_ACCEPT_RETRY_SECONDS = 0.1


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


class HttpConnection(asyncio.Protocol, ABC):
    """The protocol of one connection. When the connection is lost, it calls what it was made with."""

    __slots__ = ()

    @property
    @abstractmethod
    def is_connected(self) -> bool:
        """Whether it has, or had, a transport."""

    @property
    @abstractmethod
    def serving(self) -> bool:
        """Whether a request is in progress."""

    @abstractmethod
    def abort(self) -> None: ...


class Listener:
    def __init__(
        self,
        connect: Callable[[Callable[[], None]], HttpConnection],
        *,
        limits: HttpLimits,
        context: ssl.SSLContext | None,
        port_name: str,
    ) -> None:
        """`connect` makes the protocol of a connection, which calls its argument when it is lost."""
        self._connect_to = connect
        self._limits = limits
        self._context = context
        self._port_name = port_name
        self._slots = _Slots(limits)
        self._sockets: list[socket.socket] = []
        self._group = asyncio.TaskGroup()
        self._running = AsyncExitStack()
        self._accepting: list[asyncio.Task[None]] = []

    @property
    def connections(self) -> int:
        """The number of open connections, including handshakes."""
        return len(self._slots)

    async def bind(self, host: str, port: int) -> int:
        """Listen on all addresses of the host. Returns the port that is bound (useful for port 0)."""
        if not 0 <= port <= PORT_MAX:
            raise self._unusable(port, f"expected 0 to {PORT_MAX}")
        try:
            self._sockets = await _listen(host, port)
        except OSError as err:
            raise self._unusable(port, str(err)) from err
        bound: int = self._sockets[0].getsockname()[1]
        return bound

    async def accept(self) -> None:
        """Begin to accept connections."""
        await self._running.enter_async_context(self._group)
        for listening in self._sockets:
            self._accepting.append(self._group.create_task(self._accept(listening)))

    def stop_accepting(self) -> None:
        """Idempotent."""
        for accepting in self._accepting:
            accepting.cancel()
        for listening in self._sockets:
            listening.close()
        self._slots.cancel_handshakes()

    async def close(self) -> None:
        """Wait for the end of handshakes. Idempotent."""
        await self._running.aclose()

    def abort_all(self) -> None:
        """Close every connection now."""
        self._slots.end_all()

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
        connection = self._connect_to(lambda: self._slots.release(slot))
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
            if not connection.is_connected:
                self._slots.release(slot)
            elif slot.is_ended:
                connection.abort()


class _Slot(Struct, eq=False):
    """One accepted connection."""

    address: str
    handshake: "asyncio.Task[None] | None" = None
    connection: "HttpConnection | None" = None
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

    def end_all(self) -> None:
        for slot in list(self._all):
            slot.end()

    def _evict(self, among: Iterable[_Slot]) -> bool:
        oldest = next((slot for slot in among if slot.is_idle), None)
        if oldest is None:
            return False
        self.release(oldest)
        oldest.end()
        return True


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
