"""The RPCs that replace the content of the store, with many records: see `test_calls.py` for all others."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from persys.store import keys
from persys.store.port import Store
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.stored import records, snapshot
from shells.scheduler.scale.conftest import (
    SIZES,
    STORES,
    a_scheduler,
    opened,
    quiet_settings,
    until_idle,
)
from shells.scheduler.scale.fleet import Fleet
from shells.scheduler.scale.many_records import (
    FULL,
    LONG_AGO,
    Records,
    events,
    fill,
    ready,
    removals,
    running,
    stored,
)
from shells.scheduler.scale.measured import MeasuredStore, bounded
from shells.scheduler.scale.mutations import SECONDS

sizes = pytest.mark.parametrize("size", SIZES)
_PER_NODE = 500


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(request.param, tmp_path, partial(request.getfixturevalue, "etcd")) as created:
        yield created


def a_cluster_of(size: int) -> Records:
    node = ready(FULL)
    return {keys.node_key(node.id): node, **running(FULL, size, "run"), **removals(size)}


def chunks_of(found: Records) -> list[pb.SnapshotChunk]:
    """A snapshot file, in the messages of its upload."""
    header = snapshot.Header(snapshot.FORMAT, "u2", LONG_AGO, 1, "store", snapshot.count(found))
    pairs = ((key, records.encode(record)) for key, record in found.items())
    return [pb.SnapshotChunk(data=chunk) for chunk in snapshot.write(header, pairs)]


async def sent(chunks: list[pb.SnapshotChunk]) -> AsyncIterator[pb.SnapshotChunk]:
    for chunk in chunks:
        yield chunk


@sizes
async def test_a_snapshot_of_many_records_is_restored(store: Store, size: int) -> None:
    chunks = chunks_of({**a_cluster_of(size), **events(size)})
    measured = MeasuredStore(store)
    async with a_scheduler(measured, Fleet(), quiet_settings()) as cluster:
        with bounded(measured):
            response = await cluster.control.stub.RestoreSnapshot(sent(chunks), timeout=SECONDS)
            await until_idle(cluster)

        assert response.accepted, response.reason
        assert len(await stored(store, keys.WORKLOADS)) == size
        assert len(await stored(store, keys.REMOVED)) == size


@sizes
async def test_a_store_with_many_records_and_no_marker_is_accepted(store: Store, size: int) -> None:
    await fill(store, {**a_cluster_of(size), **events(size)})
    measured = MeasuredStore(store)
    async with a_scheduler(measured, Fleet(), quiet_settings()) as cluster:
        with bounded(measured):
            request = pb.AcceptEmptyRequest()
            response = await cluster.control.stub.AcceptEmpty(request, timeout=SECONDS)
            await until_idle(cluster)

        assert response.accepted, response.reason
        assert response.workloads == size


def nodes_that_keep(size: int, fleet: Fleet) -> Records:
    """Nodes without recorded workloads; their agents in `fleet` run `size` workloads and store the specs."""
    found = removals(size)
    for number in range(-(-size // _PER_NODE)):
        node = ready(f"n{number}")
        found[keys.node_key(node.id)] = node
        agent = fleet.agent(node.id)
        for key, record in running(node.id, min(size, _PER_NODE), f"run{number}-").items():
            if key.startswith(keys.WORKLOADS):
                name = key.removeprefix(keys.WORKLOADS)
                agent.has(name, epoch=1)
                intent = records.encode(record)
                agent.intents.append(agent_pb2.IntentView(id=name, epoch=1, intent=intent))
    return found


@sizes
async def test_many_workloads_are_rebuilt_from_agents(store: Store, size: int) -> None:
    """The store has lost the workloads: the nodes are recorded, and each stores its workloads."""
    fleet = Fleet()
    await fill(store, nodes_that_keep(size, fleet))
    measured = MeasuredStore(store)
    async with a_scheduler(measured, fleet, quiet_settings()) as cluster:
        with bounded(measured):
            request = pb.RebuildFromAgentsRequest()
            response = await cluster.control.stub.RebuildFromAgents(request, timeout=SECONDS)
            await until_idle(cluster)

        assert response.accepted, response.reason
        assert len(await stored(store, keys.WORKLOADS)) == size
