"""An idle cluster writes nothing, polls little, and its store does not grow."""

import asyncio
from datetime import timedelta

import pytest

from shells.scheduler.harness import Cluster, eventually

WATCHED_SECONDS = 1.5  # seven reconcile passes, seven heartbeats and five surveys


async def written_while_idle(cluster: Cluster) -> int:
    before = cluster.store.transactions
    # The only sleep on the wall clock: time must pass to see that nothing happens.
    await asyncio.sleep(WATCHED_SECONDS)
    return cluster.store.transactions - before


async def until_nothing_is_sent(cluster: Cluster) -> None:
    """A poll may still be queued when an earlier reply has settled the workload."""

    async def holds_now() -> bool:
        return not cluster.app.dispatcher.depth()

    await eventually(holds_now, lambda: "the last question to be answered")


async def until_reported(cluster: Cluster, code: str) -> None:
    async def has_reason() -> bool:
        return (await cluster.control.workload("web")).reason.code == code

    await eventually(has_reason, lambda: f"web to say {code}")


async def test_running_workloads_and_heartbeats_write_nothing(cluster: Cluster) -> None:
    node = await cluster.join()
    for number in range(10):
        await cluster.control.apply(f"w{number}")
    for number in range(10):
        await cluster.control.until(f"w{number}", "Running")
    await until_nothing_is_sent(cluster)
    orders, questions = len(node.agent.applies), len(node.agent.asked)

    assert await written_while_idle(cluster) == 0
    assert len(node.agent.applies) == orders
    assert len(node.agent.asked) == questions


async def test_pending_and_given_up_workloads_write_nothing(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.failures["bad"] = ("INVALID_SPECIFICATION", "no")
    await cluster.control.apply("bad")
    await cluster.control.until("bad", "Failed")
    await cluster.control.apply("huge", cpu=100_000)
    await cluster.control.apply("off", desired="Stopped")

    assert await written_while_idle(cluster) == 0


async def test_a_slow_start_writes_nothing_while_it_lasts(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.work_seconds = 5
    await cluster.control.apply("web")
    await until_reported(cluster, "Starting")

    assert await written_while_idle(cluster) == 0


@pytest.mark.parametrize(
    "cluster", [{"node_lease": timedelta(seconds=1.0)}], indirect=True, ids=[""]
)
async def test_a_node_without_heartbeats_is_recorded_once(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    await node.die()
    await cluster.control.until_node("n1", "NotReady")
    await cluster.control.until("web", "Unknown")

    assert await written_while_idle(cluster) == 0


async def test_a_node_that_cannot_be_reached_is_noted_once(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    await node.agent.stop()
    await cluster.control.apply("web", image="nginx:2")
    await until_reported(cluster, "NodeUnreachable")

    assert await written_while_idle(cluster) == 0


@pytest.mark.parametrize(
    "cluster", [{"agent_rpc_timeout": timedelta(seconds=0.4)}], indirect=True, ids=[""]
)
async def test_a_node_whose_calls_all_time_out_is_recorded_once(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.answer_seconds = 3600
    await cluster.control.apply("web")
    await until_reported(cluster, "NodeUnreachable")

    assert await written_while_idle(cluster) == 0
