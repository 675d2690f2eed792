"""Connections to agents, and replies that cross reports of the agents."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from builders import a_supervisor, a_workload
from persys.core.reconcile.effects import Remove
from persys.errors import AgentUnreachableError
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId, WorkloadId
from persys.scheduler.app import Scheduler
from persys.scheduler.dispatch.agent_client import AgentClient, Close, Stub, connect_over_grpc
from persys.scheduler.dispatch.tunnel import OUTGOING_MAX, Tunnel, Tunnels
from persys.scheduler.membership.heartbeat import ReportLimits
from persys.scheduler.metrics.counters import Metrics
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, eventually, fast_settings
from shells.scheduler.stores import FaultyStore


class Connections:
    """Counts open connections by node and endpoint."""

    def __init__(self) -> None:
        self.open: list[tuple[NodeId, str]] = []
        self.closing_seconds = 0.0

    def connect(self, node_id: NodeId, endpoint: str) -> tuple[Stub, Close]:
        stub, close = connect_over_grpc(node_id, endpoint)
        self.open.append((node_id, endpoint))

        async def closing(grace: float | None) -> None:
            await asyncio.sleep(self.closing_seconds)
            self.open.remove((node_id, endpoint))
            await close(grace)

        return stub, closing

    def scheduler(self, *args: Any, **options: Any) -> Scheduler:
        return Scheduler(*args, **(options | {"connect": self.connect}))


@asynccontextmanager
async def a_counted_cluster(connections: Connections) -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, fast_settings(), scheduler=connections.scheduler) as cluster:
        yield cluster
    await store.store.close()


async def test_the_connection_to_a_removed_node_is_closed() -> None:
    connections = Connections()
    async with a_counted_cluster(connections) as cluster:
        node = await cluster.join("n1")
        await cluster.control.apply("web")
        await cluster.control.until("web", "Running")
        assert {name for name, _ in connections.open} == {"n1"}
        await cluster.control.delete("web")
        await cluster.control.until_gone("web")

        await node.stop_heartbeats()
        response = await cluster.control.stub.RemoveNode(pb.NodeRequest(node_id="n1"), timeout=10)
        assert response.accepted, response.reason

        async def closed() -> bool:
            return not connections.open

        await eventually(closed, lambda: f"{connections.open} to be closed")


async def test_a_scheduler_that_has_stopped_has_closed_all_connections_to_nodes() -> None:
    connections = Connections()
    async with a_counted_cluster(connections) as cluster:
        for name in ("n1", "n2"):
            await cluster.join(name)
            await cluster.control.apply(f"on-{name}", cpu=3000)
            await cluster.control.until(f"on-{name}", "Running")
        assert {name for name, _ in connections.open} == {"n1", "n2"}
        connections.closing_seconds = 0.05

        await cluster.stop()

        assert connections.open == []


async def test_the_connection_to_an_address_that_a_node_left_is_closed() -> None:
    connections = Connections()
    async with a_counted_cluster(connections) as cluster:
        node = await cluster.join("n1")
        await cluster.control.apply("web")
        await cluster.control.until("web", "Running")
        before = node.agent.endpoint

        await node.agent.stop()
        node.agent.endpoint = ""
        await node.agent.start()
        await node.register()
        await cluster.control.apply("other")
        await cluster.control.until("other", "Running")

        async def only_the_new() -> bool:
            return connections.open == [(NodeId("n1"), node.agent.endpoint)]

        assert node.agent.endpoint != before
        await eventually(only_the_new, lambda: f"{connections.open} to hold only the new address")


@pytest.mark.parametrize("cluster", [{"agent_apply_timeout": timedelta(minutes=5)}], indirect=True)
async def test_a_refusal_that_crosses_a_heartbeat_is_not_a_time_out(cluster: Cluster) -> None:
    node = await cluster.join("n1")
    node.agent.behaviour.answer_seconds = 0.6
    node.agent.behaviour.rejects = "spec.container.image: is wrong"
    await cluster.control.apply("web")
    async with asyncio.TaskGroup() as group:

        async def keep_reporting() -> None:
            while True:  # all that the node has: nothing
                heartbeat = pb.HeartbeatRequest(node_id="n1", complete=True)
                await cluster.control.stub.Heartbeat(heartbeat, timeout=10)
                await asyncio.sleep(0.01)

        reporting = group.create_task(keep_reporting())

        view = await cluster.control.until("web", "Failed")
        reporting.cancel()

    assert view.failure_reason == "INVALID_SPEC"
    assert "is wrong" in view.reason.message


def agents_with(stream: Tunnel) -> AgentClient:
    """The agent client of a scheduler whose only node is on this stream."""
    streams, metrics = Tunnels(), Metrics()
    streams.add(stream)
    return AgentClient(
        SystemClock(),
        streams,
        metrics,
        deadline=timedelta(seconds=0.05),
        supervisor=a_supervisor("scheduler"),
        limited=ReportLimits(metrics),
        reached=lambda _node_id, _problem: None,
        prove=lambda _workload_id, _node_id, _epoch: b"",
    )


async def test_orders_that_a_stream_does_not_take_in_time_count_as_not_answered() -> None:
    node_id, stream = NodeId("n1"), Tunnel(NodeId("n1"), takes_calls=False)
    agents = agents_with(stream)
    while not stream.outgoing.full():
        stream.outgoing.put_nowait(pb.ControlMessage())

    with pytest.raises(AgentUnreachableError, match="DEADLINE_EXCEEDED"):
        await agents.apply(node_id, "", a_workload(), 1)
    with pytest.raises(AgentUnreachableError, match="DEADLINE_EXCEEDED"):
        await agents.remove(Remove(node_id, WorkloadId("web"), 1), "")

    assert agents.unanswered(node_id) == 2
    assert stream.outgoing.qsize() == OUTGOING_MAX
