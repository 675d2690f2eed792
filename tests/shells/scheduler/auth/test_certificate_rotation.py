"""All certificates are replaced under load: no call fails, no stream breaks, no order is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from builders import a_supervisor
from persys.agent.api.tunnel_server import TunnelServer
from persys.agent.uplink.link import Link
from persys.agent.uplink.stream_link import SchedulerLinks, connect_stream
from persys.infra.clock import SystemClock
from persys.infra.tls.tls import Tls
from persys.model.identity import Role
from persys.store.memory import MemoryStore
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from root_ca import Root
from shells.scheduler.harness import Cluster, a_cluster, eventually, fast_settings
from shells.scheduler.stores import FaultyStore
from shells.scheduler.third_party_agent import Agent, Context

ROUNDS = 8
ROUND_SECONDS = 0.4


class EndlessLogsAgent(Agent):
    """An agent whose logs are written as long as they are read."""

    def __init__(self) -> None:
        super().__init__()
        self.readers = 0

    async def StreamLogs(self, requests, context: Context) -> None:  # type: ignore[no-untyped-def]  # noqa: N802
        self.readers += 1
        try:
            while True:
                await context.write(agent_pb2.LogChunk(data=b"line\n"))
                await asyncio.sleep(0.02)
        finally:
            self.readers -= 1


class StreamNode:
    """A node on a control stream that moves to a new connection as Persys agents do."""

    def __init__(self, cluster: Cluster, tls: Tls, node_id: str) -> None:
        self.agent = EndlessLogsAgent()
        self.moves = 0
        self.links: SchedulerLinks | None = None
        self._address = f"127.0.0.1:{cluster.settings.grpc_port}"
        self._tls = tls
        self._node_id = node_id

    async def run(self) -> None:
        calls = TunnelServer(self.agent, a_supervisor())
        connect = connect_stream(
            calls, self._tls.dial(Role.SCHEDULER), certificate=self._tls.in_use
        )
        async with SchedulerLinks(connect, self._address) as links:
            await self._join(links.current)
            self.links = links
            while True:
                if links.current.is_stale:
                    links.current.leaving = True
                    await self._beat(links.current)
                    await links.switch(self._join)
                    self.moves += 1
                await self._beat(links.current)
                await links.close_idle()
                await asyncio.sleep(0.1)

    async def _join(self, link: Link) -> None:
        capabilities = pb.NodeCapabilities(
            cpu_total_millicores=400_000,
            memory_total_mb=800_000,
            supported_workload_types=["container"],
        )
        response = await link.register(
            pb.RegisterNodeRequest(node_id=self._node_id, capabilities=capabilities)
        )
        assert response.accepted, response.reason

    async def _beat(self, link: Link) -> None:
        response = await link.heartbeat(pb.HeartbeatRequest(node_id=self._node_id))
        assert response.acknowledged


@pytest.fixture
def scheduler(root: Root) -> Tls:
    return root.tls(Role.SCHEDULER, "s1")


@pytest.fixture
def user(root: Root) -> Tls:
    return root.tls(Role.ADMIN, "me")


@pytest.fixture
def own(root: Root) -> Tls:
    return root.tls(Role.AGENT, "inside")


@pytest.fixture
async def secure(scheduler: Tls, user: Tls) -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, fast_settings(), tls=scheduler, user=user) as cluster:
        yield cluster
    await store.store.close()


@asynccontextmanager
async def streaming(cluster: Cluster, tls: Tls) -> AsyncIterator[StreamNode]:
    node = StreamNode(cluster, tls, "inside")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(node.run())

        async def joined() -> bool:
            return node.links is not None

        await eventually(joined, lambda: "the node to join")
        yield node
        running.cancel()


async def test_everything_works_while_all_certificates_are_replaced(
    secure: Cluster, root: Root, scheduler: Tls, user: Tls, own: Tls
) -> None:
    outside_tls = root.tls(Role.AGENT, "outside")
    outside = await secure.prepare("outside", tls=outside_tls)
    await outside.agent.stop()
    outside.agent.credentials = outside_tls.certificates.server_credentials()
    await outside.agent.start()
    await outside.join()
    identities = {
        (Role.SCHEDULER, "s1"): scheduler,
        (Role.ADMIN, "me"): user,
        (Role.AGENT, "inside"): own,
        (Role.AGENT, "outside"): outside_tls,
    }
    names = [f"w{number}" for number in range(20)]

    async def apply_on() -> int:
        count = 0
        while True:
            for name in names:
                await secure.control.apply(name, revision=f"r{count}")
                count += 1
                applied[0] = count
                await asyncio.sleep(0.005)

    applied = [0]
    async with streaming(secure, own) as node, asyncio.TaskGroup() as group:
        load = group.create_task(apply_on())
        for _ in range(ROUNDS):
            await asyncio.sleep(ROUND_SECONDS)
            for (role, name), tls in identities.items():
                root.write(role, name)
                assert tls.certificates.reload()

        async def moved() -> bool:
            return node.moves >= ROUNDS - 1

        await eventually(moved, lambda: f"the node to move, {node.moves} times")
        load.cancel()
        for name in names:
            await secure.control.until(name, "Running")
        assert node.links is not None

    assert applied[0] > 10 * ROUNDS
    assert outside.agent.applies
    assert node.agent.applies


async def test_a_log_stream_continues_when_the_node_moves_to_another_stream(
    secure: Cluster, root: Root, own: Tls
) -> None:
    async with streaming(secure, own) as node:
        await secure.control.apply("web")
        await secure.control.until("web", "Running")
        reading = secure.control.stub.StreamLogs(pb.LogsRequest(workload_id="web"))
        await reading.read()

        root.write(Role.AGENT, "inside")
        own.certificates.reload()

        async def moved() -> bool:
            return node.moves == 1

        await eventually(moved, lambda: "the node to move")
        for _ in range(20):
            assert (await reading.read()).data == b"line\n"
        assert node.agent.readers == 1
        await secure.control.apply("more")  # by the new stream
        await secure.control.until("more", "Running")

        reading.cancel()

        async def left() -> bool:
            return node.agent.readers == 0

        await eventually(left, lambda: "the old stream to end")
