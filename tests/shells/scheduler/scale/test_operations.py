"""What the scheduler does on its own with many records: bounded transactions and short steps."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from persys.core.recovery.mode import StoreHealthy, StoreUnreachable
from persys.model.node import NodeStatus
from persys.store import keys
from persys.store.port import Store
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.replicas import Replicas, until_leading, until_standby
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
    HOLDER,
    LOST,
    MARKER,
    SPARE,
    Records,
    events,
    fill,
    lost,
    lost_nodes,
    orphans,
    ready,
    removals,
    running,
    stored,
    tombstones,
)
from shells.scheduler.scale.measured import MeasuredStore, bounded
from shells.scheduler.scale.mutations import SECONDS, registration, workload

sizes = pytest.mark.parametrize("size", SIZES)


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(request.param, tmp_path, partial(request.getfixturevalue, "etcd")) as created:
        yield created


def of_nodes(*nodes: str) -> Records:
    return {keys.node_key(node.id): node for node in map(ready, nodes)}


async def until_stored(store: Store, prefix: str, count: int) -> None:
    async def holds_now() -> bool:
        return len(await stored(store, prefix)) == count

    await eventually(
        holds_now, lambda: f"{count} records under {prefix}", within=SECONDS, every=0.2
    )


@sizes
async def test_a_scheduler_starts_on_many_records(store: Store, size: int) -> None:
    await fill(store, {**MARKER, **of_nodes(FULL), **running(FULL, size, "run"), **events(size)})
    measured = MeasuredStore(store)

    with bounded(measured):
        async with a_scheduler(measured, Fleet(), quiet_settings()) as cluster:
            await until_idle(cluster)

            assert (await cluster.control.summary(within=SECONDS)).total_workloads == size


@sizes
async def test_a_standby_with_many_records_leads_when_the_leader_stops(
    store: Store, size: int
) -> None:
    await fill(store, {**MARKER, **of_nodes(FULL), **running(FULL, size, "run"), **removals(size)})
    replicas = Replicas(store, start_seconds=SECONDS)
    try:
        await until_leading(await replicas.add(), within=SECONDS)
        standby = await replicas.add()
        await until_standby(standby, within=SECONDS)

        with bounded():
            await replicas.stop(0)
            await until_leading(standby, within=SECONDS)
            response = await standby.stub.ApplyWorkload(workload("fresh"), timeout=SECONDS)

        assert response.success, response.error_message
    finally:
        await replicas.close()


@sizes
async def test_records_are_read_again_after_a_lost_store_response(store: Store, size: int) -> None:
    await fill(store, {**MARKER, **of_nodes(FULL), **running(FULL, size, "run"), **removals(size)})
    measured = MeasuredStore(store)
    async with a_scheduler(measured, Fleet(), quiet_settings()) as cluster:
        await until_idle(cluster)

        with bounded(measured):
            measured.loses_answers = True
            await cluster.control.stub.ApplyWorkload(workload("unsure"), timeout=SECONDS)
            measured.loses_answers = False
            await until_normal(cluster)
            response = await cluster.control.stub.ApplyWorkload(workload("sure"), timeout=SECONDS)

        assert response.success, response.error_message


async def until_normal(cluster: Cluster) -> None:
    async def holds_now() -> bool:
        return not cluster.app.modes.is_frozen

    await eventually(holds_now, lambda: "normal mode", within=SECONDS)


@sizes
async def test_leases_of_many_nodes_that_end_together_share_transactions(
    store: Store, size: int
) -> None:
    await fill(store, {**MARKER, **lost_nodes(size, ready), **removals(size)})
    measured = MeasuredStore(store)
    async with a_scheduler(
        measured, Fleet(), quiet_settings(node_lease=timedelta(seconds=1))
    ) as cluster:
        members = cluster.app.cluster.nodes
        before = measured.commits

        with bounded(measured):

            async def all_judged() -> bool:
                return all(one.node.status is NodeStatus.NOT_READY for one in members.values())

            await eventually(all_judged, lambda: "all nodes to be not ready", within=SECONDS)

        assert measured.commits - before <= 20 + size // 20


@sizes
async def test_a_node_that_returns_removes_all_its_old_copies(store: Store, size: int) -> None:
    node = lost(LOST)
    await fill(store, {**MARKER, keys.node_key(LOST): node, **tombstones(LOST, size)})
    measured = MeasuredStore(store)
    async with a_scheduler(measured, Fleet(), quiet_settings()) as cluster:
        with bounded(measured):
            stub = cluster.control.stub
            response = await stub.RegisterNode(registration(LOST), timeout=SECONDS)
            assert response.accepted, response.reason
            await until_stored(store, keys.TOMBSTONES, 0)


@sizes
async def test_orphans_of_a_node_that_lists_none_are_struck_out(store: Store, size: int) -> None:
    await fill(store, {**MARKER, **of_nodes(HOLDER), **orphans(HOLDER, size, "p")})
    measured = MeasuredStore(store)
    async with a_scheduler(measured, Fleet(), quiet_settings()) as cluster:
        with bounded(measured):
            request = pb.HeartbeatRequest(node_id=HOLDER, complete=True)
            await cluster.control.stub.Heartbeat(request, timeout=SECONDS)
            await until_stored(store, keys.DRIFTS, 0)


@sizes
async def test_after_many_outages_the_history_is_written_in_one_bounded_transaction(
    store: Store, size: int
) -> None:
    measured = MeasuredStore(store)
    async with a_scheduler(measured, Fleet(), quiet_settings()) as cluster:
        modes = cluster.app.modes
        with bounded(measured):
            for _ in range(size):
                modes.take(StoreUnreachable("no answer"))
                modes.take(StoreHealthy("it is back"))
            modes.take(StoreUnreachable("no answer"))
            cluster.app.store_watch.mark_stale()
            await until_normal(cluster)

        response = await cluster.control.stub.ApplyWorkload(workload("web"), timeout=SECONDS)
        assert response.success, response.error_message


@sizes
async def test_old_events_are_trimmed_a_few_with_each_change(store: Store, size: int) -> None:
    await fill(store, {**MARKER, **events(size)})
    measured = MeasuredStore(store)
    async with a_scheduler(measured, Fleet(), quiet_settings()) as cluster:
        with bounded(measured):
            for number in range(20):
                await cluster.control.stub.ApplyWorkload(workload(f"w{number}"), timeout=SECONDS)

        kept = await stored(store, keys.EVENTS)
        assert len(kept) < max(size, 60)


@sizes
async def test_the_safety_pass_looks_at_many_workloads_and_old_copies(
    store: Store, size: int
) -> None:
    found = {
        **MARKER,
        **of_nodes(FULL, SPARE),
        **running(FULL, size, "run"),
        **tombstones(SPARE, size),
    }
    await fill(store, found)
    measured = MeasuredStore(store)
    settings = quiet_settings(reconcile_interval=timedelta(seconds=0.5))
    async with AsyncExitStack() as stack:
        with bounded(measured):
            await stack.enter_async_context(a_scheduler(measured, Fleet(), settings))
            await until_stored(store, keys.TOMBSTONES, 0)
