"""Tasks of Persys agents in the history of a workload, and how an order in progress is shown."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from persys.infra.clock import SystemClock
from persys.model.status import Failure, FailureReason
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, eventually, fast_settings
from shells.scheduler.real_nodes import real_nodes
from shells.scheduler.stores import FaultyStore


async def history(cluster: Cluster, count: int) -> Sequence[pb.ActionView]:
    """Newest first, once there are this many."""
    found: Sequence[pb.ActionView] = ()

    async def are_kept() -> bool:
        nonlocal found
        found = (await cluster.control.workload("web")).history
        return len(found) >= count

    await eventually(are_kept, lambda: f"{count} tasks: {found}")
    return found


async def test_every_finished_task_of_an_agent_is_stored_with_its_times_and_error(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with real_nodes(tmp_path, cluster.settings.grpc_port, "n1"):
        await cluster.control.apply("web")
        await cluster.control.until("web", "Running")
        await cluster.control.want("web", "Stopped")
        await cluster.control.until("web", "Stopped")

        newest, oldest = await history(cluster, 2)

    assert newest.task_id != oldest.task_id
    for task in (newest, oldest):
        assert task.task_id.startswith("apply-")
        assert (task.node_id, task.action_type) == ("n1", "apply_workload")
        assert (task.status, task.error) == ("completed", "")
        for field in ("created_at", "started_at", "ended_at", "fetched_at"):
            assert task.HasField(field), field
        assert task.created_at.ToDatetime() <= task.ended_at.ToDatetime()
    assert oldest.created_at.ToDatetime() < newest.created_at.ToDatetime()


async def test_a_failed_task_is_stored_with_its_error(cluster: Cluster, tmp_path: Path) -> None:
    async with real_nodes(tmp_path, cluster.settings.grpc_port, "n1") as (node,):
        node.runtime.pull_failure = Failure(FailureReason.IMAGE_PULL_FAILED, "registry is away")
        await cluster.control.apply("web")
        await cluster.control.until("web", "Failed")

        (task, *_) = await history(cluster, 1)

    assert (task.status, task.action_type) == ("failed", "apply_workload")
    assert "registry is away" in task.error


async def test_the_event_of_an_end_names_its_task(cluster: Cluster, tmp_path: Path) -> None:
    async with real_nodes(tmp_path, cluster.settings.grpc_port, "n1"):
        await cluster.control.apply("web")
        await cluster.control.until("web", "Running")
        (task,) = await history(cluster, 1)
        request = pb.ListEventsRequest(workload_id="web", kinds=["WorkloadRunning"])
        response = await cluster.control.stub.ListEvents(request, timeout=10)

    assert [event.task_id for event in response.events] == [task.task_id]


async def test_a_task_is_written_once_and_not_again_after_a_restart(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with real_nodes(tmp_path, cluster.settings.grpc_port, "n1"):
        await cluster.control.apply("web")
        await cluster.control.until("web", "Running")
        before = list(await history(cluster, 1))

        await cluster.stop()
        await cluster.start()
        await cluster.control.until_node("n1", "Ready")
        await cluster.control.until("web", "Running")
        written = cluster.store.transactions
        await asyncio.sleep(1.5)  # several heartbeats and resync rounds

        assert cluster.store.transactions == written
        assert list((await cluster.control.workload("web")).history) == before


async def test_an_accepted_order_is_shown_as_admitted_also_after_a_restart(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    node.agent.behaviour.work_seconds = 0.5
    await cluster.control.apply("web")

    async def is_admitted() -> bool:
        return (await cluster.control.workload("web")).admitted_on_node

    await eventually(is_admitted, lambda: "it to be admitted")
    assert (await cluster.control.workload("web")).status == "Pending"
    await cluster.control.until("web", "Running")
    await node.stop_heartbeats()
    await cluster.stop()
    await cluster.start()
    assert await is_admitted()


async def test_a_refused_order_is_not_shown_as_admitted(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.rejects = "no such field"
    await cluster.control.apply("web")

    view = await cluster.control.until("web", "Failed")

    assert not view.admitted_on_node
    assert not view.dispatch_failed


async def test_an_order_without_a_reply_is_shown_as_dispatch_failed_until_it_is_accepted(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    await node.agent.stop()
    await cluster.control.apply("web")

    async def has_failed() -> bool:
        return (await cluster.control.workload("web")).dispatch_failed

    await eventually(has_failed, lambda: "the failed dispatch to be shown")
    view = await cluster.control.workload("web")
    assert (view.reason.code, view.admitted_on_node) == ("NodeUnreachable", False)
    await node.agent.start()
    view = await cluster.control.until("web", "Running")
    assert (view.dispatch_failed, view.admitted_on_node) == (False, True)


@pytest.mark.parametrize("error", ["", "no such image"])
async def test_the_tasks_of_a_third_party_agent_are_stored_if_a_full_list_shows_the_end(
    error: str,
) -> None:
    """The full list of its node is read before the status of the workload is polled."""
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    settings = fast_settings(agent_status_poll_interval=timedelta(minutes=5))
    async with a_cluster(store, settings) as cluster:
        node = await cluster.join()
        node.agent.behaviour.lists_tasks = True
        if error:
            node.agent.behaviour.failures["web"] = ("IMAGE_NOT_FOUND", error)
        await cluster.control.apply("web")
        await cluster.control.until("web", "Failed" if error else "Running")

        (task, *_) = await history(cluster, 1)

        assert not node.agent.asked
    await store.store.close()
    assert (task.action_type, task.error) == ("apply_workload", error)


@pytest.mark.parametrize("count", [25])
async def test_the_history_is_bounded(cluster: Cluster, tmp_path: Path, count: int) -> None:
    async with real_nodes(tmp_path, cluster.settings.grpc_port, "n1"):
        await cluster.control.apply("web")
        await cluster.control.until("web", "Running")
        for number in range(count):
            desired = "Stopped" if number % 2 == 0 else "Running"
            await cluster.control.want("web", desired)
            await cluster.control.until("web", desired)

        found = await history(cluster, 20)

    assert len(found) == 20
