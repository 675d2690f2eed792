"""A cloned machine: two agents with one node id, of which one acts as the node."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import grpc
import pytest

from builders import a_supervisor
from persys.agent.api.tunnel_server import TunnelServer
from persys.agent.uplink.link import Link, SchedulerLostError
from persys.agent.uplink.stream_link import connect_stream
from persys.infra.rpc.grpc_server import new_channel
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.api.test_control_stream import registration
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.third_party_agent import Agent


def application(
    session_id: str, instance_id: str = "", *, boot_id: str = ""
) -> pb.RegisterNodeRequest:
    request = registration("n1")
    request.session_id, request.instance_id = session_id, instance_id
    request.boot_id = boot_id
    return request


@asynccontextmanager
async def connected(cluster: Cluster, agent: Agent | None = None) -> AsyncIterator[Link]:
    connect = connect_stream(
        TunnelServer(agent or Agent(), a_supervisor()), new_channel, certificate=lambda: None
    )
    async with connect(f"127.0.0.1:{cluster.settings.grpc_port}") as link:
        yield link


async def test_a_clone_is_refused_and_gets_no_copy_while_the_first_agent_is_connected(
    cluster: Cluster,
) -> None:
    first, second = Agent(), Agent()
    async with connected(cluster, first) as link:
        response = await link.register(application("s1"))
        assert response.accepted
        held = response.instance_id
        async with connected(cluster, second) as clone:
            refused = await clone.register(application("s2", held))
            assert not refused.accepted
            assert "another agent is registered as node n1" in refused.reason

        await cluster.control.apply("db")
        await link.heartbeat(pb.HeartbeatRequest(node_id="n1", instance_id=held))
        await cluster.control.until("db", "Running")
        assert (first.running(), second.running()) == ({"db"}, set())


async def test_a_report_under_another_instance_id_is_refused(cluster: Cluster) -> None:
    async with connected(cluster) as link:
        held = (await link.register(application("s1"))).instance_id
        for instance_id in ("", "made up"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await cluster.control.stub.Heartbeat(
                    pb.HeartbeatRequest(node_id="n1", instance_id=instance_id), timeout=10
                )
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        await link.heartbeat(pb.HeartbeatRequest(node_id="n1", instance_id=held))


async def test_a_new_process_gets_a_new_id_and_the_old_one_is_refused_from_then_on(
    cluster: Cluster,
) -> None:
    async with connected(cluster) as link:
        first = (await link.register(application("s1"))).instance_id
        await link.heartbeat(pb.HeartbeatRequest(node_id="n1", instance_id=first))

    async def restarted() -> bool:
        async with connected(cluster) as link:
            response = await link.register(application("s2", first))
            if not response.accepted:
                return False
            assert response.instance_id != first
            heartbeat = pb.HeartbeatRequest(node_id="n1", instance_id=response.instance_id)
            await link.heartbeat(heartbeat)
            async with connected(cluster) as old:
                assert not (await old.register(application("s3", first))).accepted
            return True

    await eventually(restarted, lambda: "the restarted agent to register")


async def test_the_same_process_keeps_its_id_on_another_stream_and_at_a_new_leader(
    cluster: Cluster,
) -> None:
    async with connected(cluster) as link:
        first = (await link.register(application("s1"))).instance_id
        async with connected(cluster) as second:
            link.leaving = True  # the scheduler closes the replaced stream
            assert (await second.register(application("s1", first))).instance_id == first
    await cluster.stop()
    await cluster.start()

    async def joined() -> str:
        async with connected(cluster) as again:
            return (await again.register(application("s1", first))).instance_id

    for _ in range(50):
        try:
            assert await joined() == first
        except SchedulerLostError:
            await asyncio.sleep(0.1)
        else:
            return
    pytest.fail("the scheduler did not come back")


LEASE = {"node_lease": timedelta(seconds=60)}


async def is_superseded(cluster: Cluster, link: Link, held: str, *, boot_id: str) -> bool:
    """Whether a clone is superseded within more than a lease."""
    for _ in range(7):
        await link.heartbeat(pb.HeartbeatRequest(node_id="n1", instance_id=held))
        async with connected(cluster) as clone:  # a stream ends with the refusal
            response = await clone.register(application("s2", held, boot_id=boot_id))
        assert not response.accepted
        if response.superseded:
            return True
        cluster.clock.monotonic_ahead += 15
    return False


@pytest.mark.parametrize("cluster", [LEASE], indirect=True)
async def test_a_clone_on_another_machine_is_superseded_while_the_first_agent_reports(
    cluster: Cluster,
) -> None:
    async with connected(cluster) as link:
        held = (await link.register(application("s1", boot_id="b1"))).instance_id

        assert await is_superseded(cluster, link, held, boot_id="b2")


@pytest.mark.parametrize("cluster", [LEASE], indirect=True)
@pytest.mark.parametrize("boot_id", ["b1", ""])
async def test_a_second_agent_on_the_same_machine_is_not_superseded(
    cluster: Cluster, boot_id: str
) -> None:
    async with connected(cluster) as link:
        held = (await link.register(application("s1", boot_id="b1"))).instance_id

        assert not await is_superseded(cluster, link, held, boot_id=boot_id)
