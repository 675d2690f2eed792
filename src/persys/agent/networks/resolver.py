"""DNS for the members of networks, on the address of each bridge.

A name of a network is answered from the configuration in the journal, so also without the scheduler. A member
can ask for the names of all networks that it has joined. Everything else is forwarded to the resolvers of the
host.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast

from persys.agent.journal.store import Journal
from persys.agent.networks.members import Members
from persys.core.services.answers import Answer, answer_of_networks
from persys.infra.aio.path_calls import PathCalls, PathTimeoutError
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import Clock
from persys.infra.net.dns_server import DnsServer

DNS_PORT = 53
FORWARD_SECONDS = 4.0
RESOLVERS_MAX = 3
RESOLV_CONF = Path("/etc/resolv.conf")
_REPLY_BYTES_MAX = 65_535


class NetworkResolver:
    """One DNS server per bridge."""

    def __init__(
        self,
        journal: Journal,
        members: Members,
        clock: Clock,
        paths: PathCalls,
        *,
        supervisor: Supervisor,
        count: Callable[[str], None],
        resolv_conf: Path = RESOLV_CONF,
        port: int = DNS_PORT,
    ) -> None:
        """`count` is called with the result of each query."""
        self._journal = journal
        self._members = members
        self._clock = clock
        self._paths = paths
        self._supervisor = supervisor
        self._count = count
        self._resolv_conf = resolv_conf
        self._port = port
        self._wanted: dict[str, str] = {}  # the network by the address of its bridge
        self._changed = asyncio.Event()

    def serve(self, addresses: dict[str, str]) -> None:
        """Serve on these addresses of bridges, each with its network."""
        if addresses != self._wanted:
            self._wanted = dict(addresses)
            self._changed.set()

    async def run(self) -> None:
        serving: dict[tuple[str, str], asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                wanted = set(self._wanted.items())
                for key in serving.keys() - wanted:
                    serving.pop(key).cancel()
                for address, network_id in wanted - serving.keys():
                    server = DnsServer(
                        address,
                        self._port,
                        partial(self.resolve, network_id, ""),
                        self._clock,
                        supervisor=self._supervisor,
                        count=self._count,
                        resolve_for=partial(self._resolve_for, network_id),
                        forward=self.forward,
                    )
                    serving[address, network_id] = group.create_task(server.run())
                self._changed.clear()
                await self._changed.wait()

    def resolve(self, network_id: str, client: str, name: str) -> Answer:
        networks = self._members.networks()
        joined = [network_id]
        member = self._journal.addresses.get((network_id, client))
        entry = self._journal.entries.get(member.workload_id) if member is not None else None
        if entry is not None:
            joined += [one for one in entry.order.networks if one != network_id]
        found = [networks[one] for one in joined if one in networks]
        return answer_of_networks(name, found, self._journal.networks.configuration.domain)

    async def forward(self, packet: bytes, *, udp: bool) -> bytes | None:
        """The reply of the first resolver of the host that responds."""
        for host in await self._resolvers():
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(FORWARD_SECONDS / RESOLVERS_MAX):
                    return await (_ask_udp if udp else _ask_tcp)(host, packet)
        return None

    def _resolve_for(self, network_id: str, client: str) -> Callable[[str], Answer]:
        return partial(self.resolve, network_id, client)

    async def _resolvers(self) -> Sequence[str]:
        try:
            text = await self._paths.run(self._resolv_conf, self._resolv_conf.read_text)
        except (OSError, PathTimeoutError, UnicodeDecodeError):
            return ()
        words = (line.split() for line in text.splitlines())
        found = [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]
        return [one for one in found if one not in self._wanted][:RESOLVERS_MAX]


class _Reply(asyncio.DatagramProtocol):
    """Waits for the reply to one query."""

    def __init__(self, packet: bytes) -> None:
        self._packet = packet
        self.reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.DatagramTransport", transport).sendto(self._packet)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if data[:2] == self._packet[:2] and not self.reply.done():
            self.reply.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.reply.done():
            self.reply.set_exception(exc)


async def _ask_udp(host: str, packet: bytes) -> bytes:
    transport, waiting = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Reply(_with_new_id(packet)), remote_addr=(host, DNS_PORT)
    )
    try:
        return packet[:2] + (await waiting.reply)[2:]
    finally:
        transport.close()


def _with_new_id(packet: bytes) -> bytes:
    """A forged reply would have to guess the id."""
    return os.urandom(2) + packet[2:]


async def _ask_tcp(host: str, packet: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(host, DNS_PORT)
    try:
        writer.write(len(packet).to_bytes(2) + packet)
        await writer.drain()
        length = int.from_bytes(await reader.readexactly(2))
        return await reader.readexactly(min(length, _REPLY_BYTES_MAX))
    finally:
        writer.close()
