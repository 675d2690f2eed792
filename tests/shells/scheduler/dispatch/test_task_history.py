"""Operations that time out: the tasks of the node are read once and stored."""

import asyncio
from datetime import timedelta

import pytest

from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.third_party_agent import Node

ZERO_TIME = -62_135_596_800
HASTY = {
    "agent_apply_timeout": timedelta(seconds=0.3),
    "agent_delete_timeout": timedelta(seconds=0.3),
}
hasty = pytest.mark.parametrize("cluster", [HASTY], indirect=True)
# On a busy machine an apply may take longer, and its time-out would be the first event.
hasty_deletes = pytest.mark.parametrize(
    "cluster", [{"agent_delete_timeout": timedelta(seconds=0.3)}], indirect=True
)


def an_action(
    name: str = "web", *, number: int = 1, kind: str = "apply", error: str = ""
) -> agent_pb2.AgentAction:
    """As third-party agents send it: unset times are the zero time of their language."""
    return agent_pb2.AgentAction(
        task_id=f"{kind}-{name}-{number}",
        workload_id=name,
        action_type=f"{kind}_workload",
        status="failed" if error else "running",
        error=error,
        created_at=1_700_000_000 + number,
        started_at=1_700_000_001 + number,
        ended_at=ZERO_TIME,
    )


async def timeout_events(cluster: Cluster, name: str = "web") -> list[pb.EventView]:
    request = pb.ListEventsRequest(workload_id=name, kinds=["OperationTimedOut"])
    response = await cluster.control.stub.ListEvents(request, timeout=10)
    return list(response.events)


async def until_reported(cluster: Cluster, count: int = 1) -> list[pb.EventView]:
    async def holds_now() -> bool:
        return len(await timeout_events(cluster)) >= count

    await eventually(holds_now, lambda: f"{count} time-outs to be told")
    return await timeout_events(cluster)


async def until_metric(cluster: Cluster, name: str, **labels: str) -> None:
    """Wait until the leader counts one."""

    async def is_one() -> bool:
        await cluster.app.workload_counter.take()
        registry = cluster.app.metrics.registry
        return registry.get_sample_value(f"persys_scheduler_{name}", labels) == 1

    await eventually(is_one, lambda: f"{name} of {labels} to be 1")


async def a_stuck_node(cluster: Cluster) -> Node:
    node = await cluster.join()
    node.agent.behaviour.work_seconds = 60
    return node


@hasty
async def test_a_timed_out_apply_keeps_the_tasks_of_its_node(cluster: Cluster) -> None:
    node = await a_stuck_node(cluster)
    node.agent.actions = [
        an_action(number=1, error="pull is stuck"),
        an_action(number=2, error="pull is still stuck"),
        agent_pb2.AgentAction(task_id="sing-1", workload_id="web", action_type="sing"),
    ]

    await cluster.control.apply("web")

    event = (await until_reported(cluster))[0]
    assert (event.node_id, event.epoch) == ("n1", 1)
    for words in ("not running 0.3s", "apply-web-2", "failed", "pull is still stuck"):
        assert words in event.message
    view = await cluster.control.workload("web")
    assert [action.task_id for action in view.history] == ["apply-web-2", "apply-web-1"]
    newest = view.history[0]
    assert (newest.node_id, newest.action_type) == ("n1", "apply_workload")
    assert (newest.status, newest.error) == ("failed", "pull is still stuck")
    assert newest.created_at.seconds == 1_700_000_002
    assert not newest.HasField("ended_at")
    assert newest.HasField("fetched_at")
    assert view.reason.code == "TimedOut"


@hasty
async def test_a_task_history_survives_a_restart_and_is_deleted_with_its_workload(
    cluster: Cluster,
) -> None:
    node = await a_stuck_node(cluster)
    node.agent.actions = [an_action()]
    await cluster.control.apply("web")
    await until_reported(cluster)

    await cluster.stop()
    await cluster.start()

    view = await cluster.control.workload("web")
    assert [action.task_id for action in view.history] == ["apply-web-1"]
    node.agent.behaviour.work_seconds = 0.01
    await cluster.control.delete("web")
    await cluster.control.until_gone("web")
    assert (await cluster.store.read("/reconciliations/")).records == ()


@hasty
@pytest.mark.parametrize("tells", [True, False], ids=["knows nothing", "has no such call"])
async def test_a_timeout_is_recorded_also_if_the_node_does_not_reply(
    cluster: Cluster, tells: bool
) -> None:
    node = await a_stuck_node(cluster)
    node.agent.behaviour.tells_actions = tells

    await cluster.control.apply("web")

    event = (await until_reported(cluster))[0]
    assert ("has no task" if tells else "cannot list the tasks") in event.message
    assert not (await cluster.control.workload("web")).history
    node.agent.behaviour.work_seconds = 0.01
    cluster.clock.ahead += timedelta(seconds=10)  # beyond the back-off of the next attempt
    await cluster.control.until("web", "Running")


@hasty
async def test_each_timeout_is_written_once(cluster: Cluster) -> None:
    node = await a_stuck_node(cluster)
    node.agent.actions = [an_action()]
    await cluster.control.apply("web")
    await until_reported(cluster)
    written = cluster.store.commits

    await asyncio.sleep(0.6)  # three resync rounds

    assert cluster.store.commits == written
    assert len(node.agent.inquiries) == 1
    assert len(await timeout_events(cluster)) == 1


@hasty_deletes
async def test_a_timed_out_delete_is_counted_and_recorded_as_an_event(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    node.agent.behaviour.keeps_copies = True
    node.agent.actions = [an_action(kind="delete", error="device is busy")]

    await cluster.control.delete("web")

    events = await until_reported(cluster, 2)
    assert "delete-web-1" in events[0].message
    assert "device is busy" in events[0].message
    view = await cluster.control.workload("web")
    assert (view.status, view.reason.code) == ("Deleting", "TimedOut")
    assert "sent again" in view.reason.message
    assert view.retry_attempts >= 2
    assert len(node.agent.deletes) >= 2
    await until_metric(cluster, "workloads_retrying", plan="removal_overdue")
    node.agent.behaviour.keeps_copies = False
    await cluster.control.until_gone("web")


@hasty_deletes
async def test_a_delete_that_takes_too_long_reads_the_health_of_the_node(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    node.agent.behaviour.keeps_copies = True
    node.agent.behaviour.runtimes = {"container": "unhealthy: no answer", "compose": "healthy"}

    await cluster.control.delete("web")

    events = await until_reported(cluster)
    assert events[0].message.endswith("; node n1 reports unhealthy runtimes: container")
    node.agent.behaviour.keeps_copies = False
    await cluster.control.until_gone("web")
