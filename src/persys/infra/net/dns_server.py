"""A DNS server on UDP and TCP, bounded in rate, size and connections.

Answers are computed on the event loop, in less than a millisecond each; above the rate, queries are dropped
and clients ask again. It runs beside the work of a process and is never needed for it: an address that cannot
be used is one warning, and is tried again.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, cast

import structlog

from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import Clock
from persys.infra.net.dns_wire import Resolve, Result, respond

log = structlog.get_logger()

QUERIES_PER_SECOND_MAX = 500
CONNECTIONS_MAX = 64
QUERIES_PER_CONNECTION_MAX = 100
CONNECTION_SECONDS = 5.0  # without a complete query
RETRY_SECONDS = 5.0
FORWARDS_MAX = 100  # at a time
DROPPED = "dropped"
FORWARDED = "forwarded"


class Forward(Protocol):
    async def __call__(self, packet: bytes, *, udp: bool) -> bytes | None:
        """The reply of another server, within a few seconds. None: there is none."""


class DnsServer:
    def __init__(
        self,
        host: str,
        port: int,
        resolve: Resolve,
        clock: Clock,
        *,
        supervisor: Supervisor,
        count: Callable[[str], None],
        resolve_for: Callable[[str], Resolve] | None = None,
        forward: Forward | None = None,
    ) -> None:
        """`count` is called with the result of each query. Port 0: any free port, for tests.

        `resolve_for` resolves for the address of a client, instead of `resolve`. `forward` replies to queries
        for names that are refused otherwise.
        """
        self._address = (host, port)
        self._resolve = resolve
        self._resolve_for = resolve_for
        self._forward = forward
        self._forwards = 0
        self._group: asyncio.TaskGroup | None = None  # while it serves
        self._clock = clock
        self._supervisor = supervisor
        self._count = count
        self._allowance = float(QUERIES_PER_SECOND_MAX)
        self._allowed_at = clock.monotonic()
        self._connections = 0
        self._is_unavailable = False
        self.port = 0  # while it serves

    async def run(self) -> None:
        while True:
            try:
                await self._serve()
            except OSError as err:
                self._note_outage(str(err))
            await asyncio.sleep(RETRY_SECONDS)

    def handle(self, packet: bytes, *, udp: bool, client: str = "") -> bytes | None:
        """None: the packet gets no answer."""
        reply, result = self._respond(packet, udp=udp, client=client)
        if result is not None:
            self._count(result)
        return reply

    def receive(
        self, packet: bytes, client: tuple[str, int], transport: asyncio.DatagramTransport
    ) -> None:
        """Answer a datagram, now or when another server has answered it."""
        reply, result = self._respond(packet, udp=True, client=client[0])
        if result is Result.REFUSED and self._forward is not None:
            if self._group is not None and self._forwards < FORWARDS_MAX:
                self._group.create_task(self._pass_on(packet, client, transport))
                return
            result, reply = None, None
            self._count(DROPPED)
        if result is not None:
            self._count(result)
        if reply is not None:
            transport.sendto(reply, client)

    async def _pass_on(
        self, packet: bytes, client: tuple[str, int], transport: asyncio.DatagramTransport
    ) -> None:
        reply = await self._forwarded(packet, udp=True)
        if reply is not None and not transport.is_closing():
            transport.sendto(reply, client)

    async def _forwarded(self, packet: bytes, *, udp: bool) -> bytes | None:
        assert self._forward is not None, "only servers that forward call it"
        reply: bytes | None = None
        self._forwards += 1
        try:
            with self._supervisor.contain("dns", "forward", failed=lambda _error: None):
                reply = await self._forward(packet, udp=udp)
        finally:
            self._forwards -= 1
        self._count(FORWARDED if reply is not None else DROPPED)
        return reply

    def _respond(
        self, packet: bytes, *, udp: bool, client: str
    ) -> tuple[bytes | None, Result | None]:
        """The result is None for a query above the rate."""
        if not self._take():
            self._count(DROPPED)
            return None, None
        resolve = self._resolve_for(client) if self._resolve_for is not None else self._resolve
        with self._supervisor.contain("dns", "", failed=lambda _error: None):
            return respond(packet, resolve, udp=udp)
        return None, Result.INVALID

    async def _serve(self) -> None:
        host, port = self._address
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Datagrams(self), local_addr=(host, port)
        )
        try:
            self.port = transport.get_extra_info("sockname")[1]
            server = await asyncio.start_server(self._converse, host, self.port)
            async with server, asyncio.TaskGroup() as self._group:
                self._note_recovery()
                await server.serve_forever()
        finally:
            self._group = None
            self.port = 0
            transport.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One TCP connection."""
        self._connections += 1
        try:
            if self._connections <= CONNECTIONS_MAX:
                with suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
                    for _ in range(QUERIES_PER_CONNECTION_MAX):
                        async with asyncio.timeout(CONNECTION_SECONDS):
                            if not await self._answer(reader, writer):
                                break
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One query with its length. False: the connection is closed."""
        length = int.from_bytes(await reader.readexactly(2))
        packet = await reader.readexactly(length)
        client = str((writer.get_extra_info("peername") or ("",))[0])
        reply, result = self._respond(packet, udp=False, client=client)
        if result is Result.REFUSED and self._forward is not None:
            reply = await self._forwarded(packet, udp=False)
        elif result is not None:
            self._count(result)
        if reply is None:
            return False
        writer.write(len(reply).to_bytes(2) + reply)
        await writer.drain()
        return True

    def _take(self) -> bool:
        now = self._clock.monotonic()
        earned = (now - self._allowed_at) * QUERIES_PER_SECOND_MAX
        self._allowance = min(self._allowance + earned, float(QUERIES_PER_SECOND_MAX))
        self._allowed_at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True

    def _note_outage(self, why: str) -> None:
        if not self._is_unavailable:
            log.warning("dns.unavailable", reason=why)
        self._is_unavailable = True

    def _note_recovery(self) -> None:
        log.info("dns.serving", host=self._address[0], port=self.port)
        self._is_unavailable = False


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer) -> None:
        self._server = server
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Event loops have classes of their own for it.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if self._transport is not None:
            self._server.receive(data, addr, self._transport)
