"""No node is overcommitted; a waiting workload shows why and is placed when capacity is freed."""

import asyncio

import pytest

from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import EpochCounter
from persys.store import keys
from shells.scheduler.harness import Cluster, eventually

AT_ONCE = 1.0  # a workload is placed within a second of free capacity; polling adds a little


async def test_a_workload_that_fits_on_no_node_shows_why(cluster: Cluster) -> None:
    await cluster.control.apply("early")
    assert (await cluster.control.workload("early")).reason.message == "the cluster has no nodes"
    await cluster.join("n1", cpu=1000)
    await cluster.join("n2", cpu=2000)
    response = await cluster.control.apply("web", cpu=3000)
    view = await cluster.control.workload("web")

    assert response.success
    assert (view.status, view.reason.code) == ("Pending", "Unplaceable")
    assert view.failure_reason == "INSUFFICIENT_RESOURCES"
    assert view.reason.message.startswith("2 nodes short of cpu (needs 3000m, n2 lacks 1")


async def test_promise_2_a_waiting_workload_is_placed_when_a_node_with_capacity_registers(
    cluster: Cluster,
) -> None:
    await cluster.control.apply("web")
    node = await cluster.prepare("n1")
    await node.join()

    await cluster.control.until("web", "Running", within=AT_ONCE + 2)


async def test_a_waiting_workload_is_placed_when_another_is_deleted(cluster: Cluster) -> None:
    await cluster.join(cpu=1000)
    await cluster.control.apply("first", cpu=800)
    await cluster.control.until("first", "Running")
    await cluster.control.apply("second", cpu=800)
    await cluster.control.until("second", "Pending")
    await cluster.control.delete("first")
    await cluster.control.until_gone("first")

    await cluster.control.until("second", "Running", within=AT_ONCE + 2)


async def test_a_waiting_workload_is_placed_when_another_shrinks(cluster: Cluster) -> None:
    await cluster.join(cpu=1000)
    await cluster.control.apply("first", cpu=800)
    await cluster.control.apply("second", cpu=800)
    await cluster.control.until("second", "Pending")
    await cluster.control.apply("first", cpu=100)

    await cluster.control.until("second", "Running")


async def test_a_waiting_workload_is_placed_when_another_releases_its_host_port(
    cluster: Cluster,
) -> None:
    await cluster.join()
    await cluster.control.apply("first", host_port=8080)
    await cluster.control.until("first", "Running")
    await cluster.control.apply("second", host_port=8080)
    view = await cluster.control.until("second", "Pending")
    assert view.reason.message == "1 node with host port 8080/tcp taken"
    await cluster.control.apply("first", host_port=8081)

    await cluster.control.until("second", "Running")


async def test_a_waiting_workload_is_placed_when_its_spec_shrinks(cluster: Cluster) -> None:
    await cluster.join(cpu=1000)
    await cluster.control.apply("web", cpu=2000)
    await cluster.control.until("web", "Pending")
    await cluster.control.apply("web", cpu=500)

    await cluster.control.until("web", "Running")


async def test_waiting_workloads_are_placed_in_queue_order(cluster: Cluster) -> None:
    names = [f"w{number}" for number in range(5)]
    for name in names:
        await cluster.control.apply(name, cpu=1000)
    await cluster.join(cpu=3000)
    for name in names[:3]:
        await cluster.control.until(name, "Running")

    assert await cluster.control.names(status="Pending") == ["w3", "w4"]


async def test_a_workload_that_is_woken_while_epochs_are_reserved_keeps_its_turn(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = cluster.app.cluster.epochs
    reserve = epochs.reserve

    def reserve_and_wake(counter: EpochCounter) -> None:
        reserve(counter)
        cluster.app.reconciler.wake_many([WorkloadId("w4"), WorkloadId("w3")])

    monkeypatch.setattr(epochs, "reserve", reserve_and_wake)
    names = [f"w{number}" for number in range(5)]
    for name in names:
        await cluster.control.apply(name, cpu=1000)
    await cluster.join(cpu=3000)
    for name in names[:3]:
        await cluster.control.until(name, "Running")

    assert await cluster.control.names(status="Pending") == ["w3", "w4"]


async def test_promise_3_a_hundred_concurrent_applies_do_not_overcommit(cluster: Cluster) -> None:
    nodes = [await cluster.join(f"n{number}", cpu=1000, memory=4096) for number in range(3)]
    names = [f"w{number:03}" for number in range(100)]
    async with asyncio.TaskGroup() as group:
        responses = [group.create_task(cluster.control.apply(name, cpu=90)) for name in names]
    assert all(response.result().success for response in responses)

    placed = [name for name in names if (await cluster.control.workload(name)).assigned_node_id]
    assert len(placed) == 33  # eleven times 90 in each 1000
    for name in placed:
        await cluster.control.until(name, "Running")
    for node in nodes:
        view = await cluster.control.node(node.id)
        assert round(view.available_cpu_cores * 1000) == 10
        assert len(node.agent.running()) == 11


async def test_the_same_workload_applied_many_times_at_once_is_one_workload(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    async with asyncio.TaskGroup() as group:
        responses = [group.create_task(cluster.control.apply("web")) for _ in range(20)]
    await cluster.control.until("web", "Running")

    assert {response.result().revision_id for response in responses} == {
        node.agent.applies[0].revision_id
    }
    assert len(node.agent.applies) == 1
    assert (await cluster.control.node("n1")).available_cpu_cores == 3.9


async def test_a_workload_that_no_longer_fits_moves_and_its_stale_copy_is_removed(
    cluster: Cluster,
) -> None:
    small = await cluster.join("n1", cpu=1000)
    await cluster.control.apply("web", cpu=500)
    await cluster.control.until("web", "Running")
    big = await cluster.join("n2", cpu=4000)
    await cluster.control.apply("web", cpu=2000)
    view = await cluster.control.until("web", "Running")
    assert (view.assigned_node_id, view.epoch) == ("n2", 2)
    assert big.agent.running() == {"web"}

    async def free_again() -> bool:
        return (await cluster.control.node("n1")).available_cpu_cores == 1

    await eventually(free_again, lambda: "the room of the old copy")
    assert small.agent.running() == set()


async def test_the_capacity_of_a_stale_copy_is_free_once_its_removal_is_stored(
    cluster: Cluster,
) -> None:
    small = await cluster.join("n1", cpu=1000)
    await cluster.control.apply("web", cpu=500)
    await cluster.control.until("web", "Running")
    await cluster.join("n2", cpu=4000)
    small.agent.behaviour.keeps_copies = True
    await cluster.control.apply("web", cpu=2000)
    await cluster.control.until("web", "Running")
    tombstone = keys.tombstone_key(NodeId("n1"), WorkloadId("web"))

    async def stored() -> bool:
        return await cluster.store.get(tombstone) is not None

    async def free_again() -> bool:
        is_free = (await cluster.control.node("n1")).available_cpu_cores == 1
        assert not is_free or not await stored()
        return is_free

    assert await stored()
    cluster.store.commit_seconds = 1.0
    small.agent.behaviour.keeps_copies = False
    await eventually(free_again, lambda: "the room of the old copy")
