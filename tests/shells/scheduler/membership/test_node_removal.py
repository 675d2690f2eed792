"""The removal of a node with more records than one transaction deletes."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from persys.core.nodes import DEPENDENTS_PER_STEP_MAX
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId
from persys.model.placement import Resources, Tombstone
from persys.store import keys
from persys.store.memory import MemoryStore
from persys.store.port import Store
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import a_cluster, eventually, fast_settings
from shells.scheduler.scale.many_records import (
    LONG_AGO,
    MARKER,
    Records,
    fill,
    lost,
    orphans,
    stored,
    tombstones,
)
from shells.scheduler.stores import FaultyStore

N1 = NodeId("n1")


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    created = MemoryStore(SystemClock().monotonic)
    yield created
    await created.close()


def dependents(count: int) -> Records:
    """A lost node with this many stale copies and orphans."""
    half = count // 2
    return {keys.node_key(N1): lost(N1), **tombstones(N1, half), **orphans(N1, half, "o")}


async def test_a_removal_that_was_interrupted_is_resumed_by_the_next_leader(store: Store) -> None:
    found = dependents(10 * DEPENDENTS_PER_STEP_MAX)
    marked = replace(lost("n1"), removing_since=LONG_AGO)
    await fill(store, {**MARKER, **found, keys.node_key(N1): marked})

    async with a_cluster(FaultyStore(store), fast_settings()) as cluster:

        async def gone() -> bool:
            return not await stored(store, keys.NODES)

        await eventually(gone, lambda: "the removal to be finished")
        assert not await stored(store, keys.TOMBSTONES)
        assert (await cluster.control.summary()).total_nodes == 0


async def test_a_removal_continues_when_its_caller_disconnects(store: Store) -> None:
    await fill(store, {**MARKER, **dependents(20 * DEPENDENTS_PER_STEP_MAX)})

    async with a_cluster(FaultyStore(store), fast_settings()) as cluster:
        cluster.store.commit_seconds = 0.05
        task = asyncio.ensure_future(
            cluster.control.stub.RemoveNode(pb.NodeRequest(node_id="n1"), timeout=30)
        )

        async def marked() -> bool:
            return (await cluster.control.node("n1")).status_reason.startswith("being removed")

        await eventually(marked, lambda: "the removal to begin")
        task.cancel()
        cluster.store.commit_seconds = 0.0

        async def gone() -> bool:
            return not await stored(store, keys.NODES)

        await eventually(gone, lambda: "the removal to be finished")


async def test_a_node_that_is_being_removed_gets_no_work_and_cannot_register(
    store: Store,
) -> None:
    node = replace(lost("n1"), removing_since=LONG_AGO)
    found = dependents(4 * DEPENDENTS_PER_STEP_MAX)
    await fill(store, {**MARKER, **found, keys.node_key(N1): node})
    trouble = FaultyStore(store)
    trouble.commit_seconds = 0.2

    async with a_cluster(trouble, fast_settings()) as cluster:
        peer = await cluster.prepare("n1")
        response = await peer.register()

        assert not response.accepted
        assert "being removed" in response.reason
        trouble.commit_seconds = 0.0


async def test_removed_tombstones_free_the_capacity_of_a_node_that_is_being_removed(
    store: Store,
) -> None:
    marked = replace(lost("n1"), removing_since=LONG_AGO)
    copies = dependents(10 * DEPENDENTS_PER_STEP_MAX)
    for key, one in copies.items():
        if isinstance(one, Tombstone):
            held = replace(one.assignment, reserved=Resources(10))
            copies[key] = replace(one, assignment=held)
    await fill(store, {**MARKER, **copies, keys.node_key(N1): marked})
    at_first = len(await stored(store, keys.TOMBSTONES))
    total = marked.capabilities.allocatable.cpu_millicores
    trouble = FaultyStore(store)
    trouble.commit_seconds = 0.2

    async with a_cluster(trouble, fast_settings()) as cluster:

        async def some_are_removed() -> bool:
            return len(await stored(store, keys.TOMBSTONES)) < at_first

        async def room_is_shown() -> bool:
            left = len(await stored(store, keys.TOMBSTONES))
            view = await cluster.control.node("n1")
            return round(view.available_cpu_cores * 1000) == total - 10 * left

        await eventually(some_are_removed, lambda: "the first step")
        trouble.commit_seconds = 60.0
        await eventually(room_is_shown, lambda: "the room of what is gone")
