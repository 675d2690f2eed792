"""A scheduler with a third-party agent: its behaviour, and what is shown to users."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from persys.infra.clock import SystemClock
from persys.store.memory import MemoryStore
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, eventually, fast_settings
from shells.scheduler.stores import FaultyStore
from shells.scheduler.third_party_agent import Copy, Node

DRIFTS = ("revision_mismatch", "state_mismatch", "missing_on_agent", "orphan_on_agent")
PULL = "failed to pull image: Get https://registry.example/v2/: connection refused"
QUOTA = "RESOURCE_QUOTA_EXCEEDED: cpu utilization 91% exceeds 80%"


async def until(holds: Callable[[], bool], what: str) -> None:
    async def holds_now() -> bool:
        return holds()

    await eventually(holds_now, lambda: what)


async def field_node(cluster: Cluster, node_id: str = "n1") -> Node:
    node = await cluster.join(node_id)
    node.agent.behaviour.lists_tasks = True
    node.agent.behaviour.like_existing_agents = True
    return node


async def test_a_delete_ends_although_the_agent_keeps_reporting_stopped(cluster: Cluster) -> None:
    node = await field_node(cluster)
    names = [f"web{number}" for number in range(8)]
    for name in names:
        await cluster.control.apply(name)
    for name in names:
        await cluster.control.until(name, "Running")
    for name in names:
        await cluster.control.delete(name)
    for name in names:
        await cluster.control.until_gone(name, within=5)

    assert sorted(node.agent.deletes) == names  # each was sent once


async def test_a_removed_workload_that_the_agent_keeps_listing_is_not_an_orphan(
    cluster: Cluster,
) -> None:
    node = await field_node(cluster)
    for name in ("web", "api"):
        await cluster.control.apply(name)
        await cluster.control.until(name, "Running")
    await cluster.control.delete("web")
    await cluster.control.until_gone("web")
    unassigned = agent_pb2.WorkloadStatus(id="old", actual_state=agent_pb2.ACTUAL_STATE_STOPPED)
    node.agent.copies["old"] = Copy(unassigned)

    async def is_recorded() -> bool:
        response = await cluster.control.stub.ListDrifts(pb.ListDriftsRequest(), timeout=10)
        return "old" in {drift.workload_id for drift in response.drifts}

    await eventually(is_recorded, lambda: "the stranger to be recorded")
    response = await cluster.control.stub.ListDrifts(pb.ListDriftsRequest(), timeout=10)
    assert {drift.workload_id for drift in response.drifts} == {"old"}


async def test_a_delete_task_of_an_earlier_workload_proves_nothing(cluster: Cluster) -> None:
    node = await field_node(cluster)
    old = agent_pb2.AgentAction(
        task_id="delete-web-0",
        workload_id="web",
        action_type="delete_workload",
        status="completed",
        created_at=1_700_000_000,
    )
    node.agent.actions.append(old)
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    node.agent.behaviour.keeps_copies = True
    node.agent.copies["web"].status.actual_state = agent_pb2.ACTUAL_STATE_STOPPED
    await cluster.control.delete("web")
    request_count = len(node.agent.inquiries)
    await until(lambda: len(node.agent.inquiries) > request_count + 3, "the tasks to be read")

    assert (await cluster.control.workload("web")).status == "Deleting"


async def test_a_delete_that_never_ends_is_sent_less_and_less_often_with_its_reason() -> None:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    settings = fast_settings(agent_delete_timeout=timedelta(seconds=0.3))
    async with a_cluster(store, settings) as cluster:
        node = await field_node(cluster)
        await cluster.control.apply("web")
        await cluster.control.until("web", "Running")
        node.agent.behaviour.keeps_copies = True
        node.agent.copies["web"].status.message = "still there"
        await cluster.control.delete("web")
        await until(lambda: len(node.agent.deletes) >= 3, "it to be sent again")
        view = await cluster.control.workload("web")

        assert (view.status, view.reason.code) == ("Deleting", "TimedOut")
        assert "; node n1 reports Running: still there" in view.reason.message
        assert len(node.agent.deletes) <= 4  # after 0.3, 0.9 and 2.1 seconds, and so on
    await store.store.close()


@pytest.mark.parametrize(
    ("text", "reason"), [(PULL, "IMAGE_PULL_FAILED"), (QUOTA, "INSUFFICIENT_RESOURCES")]
)
@pytest.mark.parametrize("lists_tasks", [True, False])
async def test_a_failure_that_is_reported_as_unknown_is_shown_with_its_cause(
    cluster: Cluster, text: str, reason: str, lists_tasks: bool
) -> None:
    node = await field_node(cluster)
    node.agent.behaviour.lists_tasks = node.agent.behaviour.tells_actions = lists_tasks
    node.agent.behaviour.failures["web"] = ("", text)
    await cluster.control.apply("web")
    view = await cluster.control.until("web", "Failed", within=3)

    assert view.failure_reason == reason
    assert text in view.reason.message


async def test_a_failure_of_an_earlier_attempt_is_ignored(
    cluster: Cluster,
) -> None:
    node = await field_node(cluster)
    node.agent.behaviour.failures["web"] = ("", PULL)
    await cluster.control.apply("web")
    await cluster.control.until("web", "Failed")
    node.agent.behaviour.failures.clear()
    node.agent.behaviour.work_seconds = 0.5
    await cluster.control.retry("web")
    await until(lambda: len(node.agent.applies) == 2, "the second attempt")
    status = node.agent.copies["web"].status
    status.actual_state = agent_pb2.ACTUAL_STATE_UNKNOWN
    status.metadata["last_error"] = PULL
    await cluster.control.until("web", "Running")

    view = await cluster.control.workload("web")
    assert view.retry_attempts <= 1


@pytest.mark.parametrize("cluster", [{"drift_detect_interval": timedelta(hours=1)}], indirect=True)
async def test_finished_tasks_of_the_agent_are_in_the_history(cluster: Cluster) -> None:
    """The status is polled after the order. A survey that comes first does not read the tasks."""
    node = await field_node(cluster)
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")

    await until(lambda: bool(node.agent.inquiries), "the tasks to be read")
    assert node.agent.inquiries[0].limit == 20

    async def is_kept() -> bool:
        return bool((await cluster.control.workload("web")).history)

    await eventually(is_kept, lambda: "the history")
    (found,) = (await cluster.control.workload("web")).history
    assert (found.task_id, found.status) == ("apply-web-1", "completed")


async def test_another_revision_is_detected_although_heartbeats_have_no_revisions() -> None:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    settings = fast_settings(missing_grace_period=timedelta(seconds=1))
    async with a_cluster(store, settings) as cluster:
        node = await field_node(cluster)
        node.sends_statuses = True
        await cluster.control.apply("web")
        await cluster.control.until("web", "Running")
        node.agent.copies["web"].status.revision_id = "by-hand"
        await until(lambda: len(node.agent.applies) == 2, "the order to be sent again")

        assert await drifted(cluster) == {"revision_mismatch"}
        assert node.agent.copies["web"].status.revision_id != "by-hand"
    await store.store.close()


async def test_a_different_state_is_shown_immediately_and_corrected_after_the_grace() -> None:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    settings = fast_settings(missing_grace_period=timedelta(seconds=1.5))
    async with a_cluster(store, settings) as cluster:
        node = await field_node(cluster)
        node.sends_statuses = True
        await cluster.control.apply("web")
        await cluster.control.until("web", "Running")
        node.agent.copies["web"].status.actual_state = agent_pb2.ACTUAL_STATE_STOPPED
        view = await cluster.control.until("web", "Stopped", within=5)

        assert view.reason.code == "StateMismatch"
        assert view.reason.message == "desired state is Running, but node n1 reports Stopped"
        assert await drifted(cluster) == {"state_mismatch"}
        await cluster.control.until("web", "Running")
        assert len(node.agent.applies) == 2
    await store.store.close()


async def test_a_manual_removal_is_detected_by_the_next_poll(cluster: Cluster) -> None:
    node = await field_node(cluster)
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    del node.agent.copies["web"]
    await until(lambda: "web" in node.agent.running(), "it to be started again")

    assert await drifted(cluster) == {"missing_on_agent"}


async def test_an_unordered_change_causes_an_early_poll() -> None:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    settings = fast_settings(drift_detect_interval=timedelta(hours=1))
    async with a_cluster(store, settings) as cluster:
        node = await field_node(cluster)
        node.sends_statuses = True
        for name in ("web", "api"):
            await cluster.control.apply(name)
            await cluster.control.until(name, "Running")
        del node.agent.copies["api"]  # heartbeats are not complete: nothing reports that it is gone
        node.agent.copies["web"].status.actual_state = agent_pb2.ACTUAL_STATE_STOPPED
        await until(lambda: "api" in node.agent.running(), "the other one to be noticed")
    await store.store.close()


async def test_an_agent_with_rare_heartbeats_stays_ready() -> None:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    settings = fast_settings(
        node_lease=timedelta(seconds=1), node_unavailable_grace=timedelta(seconds=9)
    )
    async with a_cluster(store, settings) as cluster:
        node = await cluster.prepare()
        await node.register()
        await asyncio.sleep(0.9)
        await node.heartbeat()
        started_at = time.monotonic()
        while time.monotonic() - started_at < 2.0:  # the lease is 2.7 seconds by now
            assert (await cluster.control.node("n1")).status == "Ready"
            await asyncio.sleep(0.1)
        view = await cluster.control.until_node("n1", "NotReady")
        assert view.status_reason.startswith("no heartbeat for 2.")
    await store.store.close()


async def drifted(cluster: Cluster) -> set[str]:
    """The types of recorded drift."""
    response = await cluster.control.stub.ListEvents(
        pb.ListEventsRequest(kinds=["DriftDetected"]), timeout=10
    )
    return {kind for event in response.events for kind in DRIFTS if kind in event.message}
