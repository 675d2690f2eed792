"""Concurrent changes of one node record: none reverts another."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from persys.infra.clock import SystemClock
from persys.model.event import EventKind
from persys.model.ids import NodeId
from persys.scheduler.app import Scheduler
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, eventually, fast_settings
from shells.scheduler.stores import FaultyStore
from shells.scheduler.third_party_agent import Node

N1 = NodeId("n1")


class SchedulerParts:
    """A cluster of one node, and the parts of its scheduler."""

    def __init__(self) -> None:
        self.scheduler: Scheduler | None = None

    def new(self, *args: Any, **options: Any) -> Scheduler:
        self.scheduler = Scheduler(*args, **options)
        return self.scheduler

    @property
    def membership(self) -> Any:
        assert self.scheduler is not None
        return self.scheduler.membership

    def end_lease(self) -> None:
        assert self.scheduler is not None
        self.scheduler.cluster.nodes[N1].lease_until = 0.0

    async def check_leases(self) -> None:
        assert self.scheduler is not None
        await self.scheduler.leases._evaluate_all(SystemClock().monotonic())

    async def until_lock_is_queued(self, *, waiting: int = 0) -> None:
        queues = self.membership._locks._queues

        async def taken() -> bool:
            return N1 in queues and len(queues[N1]) >= waiting

        await eventually(taken, lambda: f"the turn of {N1} to be taken: {queues}")


@pytest.fixture
def inside() -> SchedulerParts:
    return SchedulerParts()


@pytest.fixture
async def cluster(inside: SchedulerParts) -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, fast_settings(), scheduler=inside.new) as running:
        yield running
    await store.store.close()


@pytest.fixture
async def node(cluster: Cluster) -> Node:
    """It sends heartbeats only when the test does."""
    node = await cluster.prepare("n1")
    assert (await node.register()).accepted
    return node


async def cordon(cluster: Cluster) -> None:
    response = await cluster.control.stub.CordonNode(pb.NodeRequest(node_id="n1"), timeout=10)
    assert response.accepted, response.reason


async def count(cluster: Cluster, kind: EventKind) -> int:
    request = pb.ListEventsRequest(kinds=[kind])
    return len((await cluster.control.stub.ListEvents(request, timeout=10)).events)


@pytest.mark.usefixtures("node")
async def test_a_lease_that_ends_during_a_change_of_the_node_does_not_undo_it(
    cluster: Cluster, inside: SchedulerParts
) -> None:
    cluster.store.commit_seconds = 0.2
    async with asyncio.TaskGroup() as group:
        group.create_task(cordon(cluster))
        await inside.until_lock_is_queued()
        inside.end_lease()
        await inside.check_leases()

    view = await cluster.control.node("n1")
    assert (view.status, view.cordoned) == ("NotReady", True)


async def test_a_heartbeat_before_the_lease_check_keeps_the_node_ready(
    cluster: Cluster, inside: SchedulerParts, node: Node
) -> None:
    async with asyncio.TaskGroup() as group, inside.membership._locks.hold(N1):
        inside.end_lease()
        group.create_task(inside.check_leases())
        await inside.until_lock_is_queued(waiting=1)
        await node.heartbeat()

    assert (await cluster.control.node("n1")).status == "Ready"
    assert await count(cluster, EventKind.NODE_NOT_READY) == 0


async def test_two_heartbeats_at_once_make_a_node_ready_once(
    cluster: Cluster, inside: SchedulerParts, node: Node
) -> None:
    inside.end_lease()
    await inside.check_leases()
    assert (await cluster.control.node("n1")).status == "NotReady"
    cluster.store.commit_seconds = 0.1

    await asyncio.gather(node.heartbeat(), node.heartbeat())

    assert await count(cluster, EventKind.NODE_READY) == 1


@pytest.mark.usefixtures("node")
async def test_two_changes_of_a_node_at_once_are_both_kept(cluster: Cluster) -> None:
    taint = pb.TaintNodeRequest(node_id="n1", taints=["gpu=yes"])
    cluster.store.commit_seconds = 0.1

    await asyncio.gather(cordon(cluster), cluster.control.stub.TaintNode(taint, timeout=10))

    view = await cluster.control.node("n1")
    assert view.cordoned
    assert list(view.taints) == ["gpu=yes"]


async def test_a_registration_does_not_undo_a_change_at_the_same_time(
    cluster: Cluster, inside: SchedulerParts, node: Node
) -> None:
    cluster.store.commit_seconds = 0.2
    node.labels = {"zone": "a"}
    async with asyncio.TaskGroup() as group:
        group.create_task(cordon(cluster))
        await inside.until_lock_is_queued()
        await node.register()

    view = await cluster.control.node("n1")
    assert view.cordoned
    assert view.labels["zone"] == "a"
