"""Counting very many workloads and nodes: other tasks run meanwhile, and the page stays small."""

import asyncio
from datetime import UTC, datetime

from msgspec.structs import replace
from prometheus_client import Metric

from builders import a_status, a_workload
from persys.infra.clock import SystemClock
from persys.model.cluster import Mode
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Capabilities, Node
from persys.model.status import Status
from persys.model.workload import Desired
from persys.scheduler.metrics.gauges import NODES_SHOWN_MAX, ClusterCollector, GaugeSources
from persys.scheduler.metrics.workload_counts import SLICE, WorkloadCounter
from persys.scheduler.state.cluster import ClusterState

SLICES = 4


def a_full_cluster() -> ClusterState:
    cluster = ClusterState()
    workload = a_workload()
    for number in range(SLICES * SLICE):
        named = replace(workload, id=WorkloadId(f"w{number}"))
        cluster.put_workload(named).workload_status = a_status(Status.RUNNING)
    return cluster


async def test_other_tasks_run_while_the_workloads_are_counted() -> None:
    workload_counter = WorkloadCounter(a_full_cluster(), SystemClock())
    turns = 0

    async def another() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        other = group.create_task(another())
        await workload_counter.take()
        other.cancel()

    assert turns >= SLICES
    assert workload_counter.latest.statuses[Status.RUNNING] == SLICES * SLICE
    assert workload_counter.latest.desired[Desired.RUNNING] == SLICES * SLICE


async def test_a_recent_count_is_reused() -> None:
    cluster = a_full_cluster()
    workload_counter = WorkloadCounter(cluster, SystemClock())
    await workload_counter.take()
    cluster.drop_workload(WorkloadId("w0"))

    await workload_counter.take()

    assert workload_counter.latest.statuses[Status.RUNNING] == SLICES * SLICE


def test_of_very_many_nodes_those_with_the_oldest_heartbeats_are_shown() -> None:
    cluster, clock = ClusterState(), SystemClock()
    now = clock.monotonic()  # once: a slow machine would put later nodes after earlier ones
    for number in range(NODES_SHOWN_MAX + 1):
        node = Node(NodeId(f"n{number}"), Capabilities(1000, 1024), "", datetime.now(UTC))
        cluster.put_node(node, lease_until=now + 1000 - number / 1000)

    families = exported_metrics(cluster, clock, leads=True)

    silence = families["persys_scheduler_node_heartbeat_age_seconds"].samples
    shown = {sample.labels["node_id"] for sample in silence}
    assert len(shown) == NODES_SHOWN_MAX
    assert "n0" not in shown


def test_a_standby_exports_no_node_metrics() -> None:
    reported = exported_metrics(a_full_cluster(), SystemClock(), leads=False)

    assert reported["persys_scheduler_leading"].samples[0].value == 0
    assert "persys_scheduler_store_records" in reported
    assert "persys_scheduler_nodes_phase" not in reported
    assert "persys_scheduler_workloads" not in reported


def exported_metrics(
    cluster: ClusterState, clock: SystemClock, *, leads: bool
) -> dict[str, Metric]:
    sources = GaugeSources(
        transactions=lambda: 0,
        depths=dict,
        mode=lambda: Mode.NORMAL,
        leads=lambda: leads,
        unanswered=lambda _node_id: 0,
        records=lambda: 0,
        endpoint_count=lambda _service: 0,
        file_bytes=None,
    )
    collector = ClusterCollector(
        cluster, WorkloadCounter(cluster, clock), clock, sources, lease=30, grace=60
    )
    return {family.name: family for family in collector.collect()}
