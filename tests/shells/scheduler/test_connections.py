"""Connections to agents, and answers that cross what the agents report meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from persys.infra.clock import SystemClock
from persys.model.ids import NodeId
from persys.scheduler.agents import Close, Stub, over_grpc
from persys.scheduler.app import Scheduler
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, brisk, eventually
from shells.scheduler.stores import TroubledStore


class Connections:
    """Counts what is open, by node and endpoint."""

    def __init__(self) -> None:
        self.open: list[tuple[NodeId, str]] = []

    def connect(self, node_id: NodeId, endpoint: str) -> tuple[Stub, Close]:
        stub, close = over_grpc(node_id, endpoint)
        self.open.append((node_id, endpoint))

        async def closing(grace: float | None) -> None:
            self.open.remove((node_id, endpoint))
            await close(grace)

        return stub, closing

    def scheduler(self, *args: Any, **options: Any) -> Scheduler:
        return Scheduler(*args, **(options | {"connect": self.connect}))


@asynccontextmanager
async def a_counted_cluster(connections: Connections) -> AsyncIterator[Cluster]:
    store = TroubledStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, brisk(), scheduler=connections.scheduler) as cluster:
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

        await node.fall_silent()
        answer = await cluster.control.stub.RemoveNode(pb.NodeRequest(node_id="n1"), timeout=10)
        assert answer.accepted, answer.reason

        async def closed() -> bool:
            return not connections.open

        await eventually(closed, lambda: f"{connections.open} to be closed")


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
    node.agent.manner.answer_seconds = 0.6
    node.agent.manner.rejects = "spec.container.image: is wrong"
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
