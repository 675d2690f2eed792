"""A scheduler on a store of another version: older records are read, newer ones are not overwritten.

store_0_1.jsonl was written by version 0.1: a node with a taint, and workloads that run, failed, wait or are
stopped.
It is never regenerated: it proves that users of that version can upgrade.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from persys.infra.clock import SystemClock
from persys.store.memory import MemoryStore
from persys.store.port import Unit
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, fast_settings
from shells.scheduler.stores import FaultyStore
from shells.scheduler.third_party_agent import Copy

OLD = Path(__file__).with_name("store_0_1.jsonl")
REVISION_OF_WEB = "51141980ab56c059"  # as version 0.1 made it


@pytest.fixture
async def old_store() -> AsyncIterator[FaultyStore]:
    lines = map(json.loads, OLD.read_text("utf-8").splitlines())
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    await store.commit([Unit(puts={line["key"]: line["value"].encode() for line in lines})])
    yield store
    await store.store.close()


@pytest.fixture
async def cluster(old_store: FaultyStore) -> AsyncIterator[Cluster]:
    async with a_cluster(old_store, fast_settings()) as created:
        yield created


async def test_all_records_of_the_first_version_are_loaded(cluster: Cluster) -> None:
    statuses = {
        name: (await cluster.control.workload(name)).status
        for name in await cluster.control.names()
    }
    events = await cluster.control.stub.ListEvents(pb.ListEventsRequest(), timeout=10)

    assert statuses == {
        "broken": "Failed",
        "giant": "Pending",
        "idle": "Stopped",
        "web": "Running",
    }
    assert "WorkloadRunning" in {event.kind for event in events.events}
    assert list((await cluster.control.node("n1")).taints) != []
    assert (await cluster.control.workload("broken")).failure_reason == "IMAGE_NOT_FOUND"


async def test_an_upgraded_scheduler_orders_nothing_again(cluster: Cluster) -> None:
    node = await cluster.prepare("n1")
    node.agent.copies["web"] = Copy(
        agent_pb2.WorkloadStatus(
            id="web",
            type=agent_pb2.WORKLOAD_TYPE_CONTAINER,
            revision_id=REVISION_OF_WEB,
            desired_state=agent_pb2.DESIRED_STATE_RUNNING,
            actual_state=agent_pb2.ACTUAL_STATE_RUNNING,
        )
    )
    await node.join()

    # The user applies the same file again, which gives the same revision.
    assert (await cluster.control.apply("web", host_port=8080)).success
    await cluster.control.stub.TaintNode(pb.TaintNodeRequest(node_id="n1"), timeout=10)
    await cluster.control.apply("fresh")
    await cluster.control.until("fresh", "Running")

    assert {order.id for order in node.agent.applies} == {"fresh"}
    assert (await cluster.control.workload("web")).revision_id == REVISION_OF_WEB


async def test_a_record_of_a_newer_version_is_not_written_and_everything_else_works(
    old_store: FaultyStore,
) -> None:
    record = await old_store.get("/workloads/web")
    assert record is not None
    newer = record.value.replace(b'"schema":1', b'"schema":3')
    await old_store.commit([Unit(puts={"/workloads/web": newer})])
    before = await old_store.get("/workloads/web")

    async with a_cluster(old_store, fast_settings()) as cluster:
        await cluster.join("n2")
        refused = await cluster.control.apply("web", host_port=8080)
        await cluster.control.apply("fresh")
        await cluster.control.until("fresh", "Running")

    assert not refused.success
    assert "schema 3" in refused.error_message
    assert await old_store.get("/workloads/web") == before
