"""Nodes that send heartbeats but cannot execute orders get no new work until they can."""

import pytest

from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually

NAMES = ("a", "b", "c", "d")


async def test_a_node_whose_port_is_closed_gets_no_new_work_until_it_replies(
    cluster: Cluster,
) -> None:
    deaf, other = await cluster.join("n1"), await cluster.join("n2")
    await deaf.agent.stop()

    for name in NAMES:
        await cluster.control.apply(name)
    for name in NAMES:
        await cluster.control.until(name, "Running")

    assert other.agent.running() == set(NAMES)
    view = await cluster.control.node("n1")
    assert view.status == "Ready"
    assert "does not reply to orders" in view.status_reason

    await cluster.control.apply("huge", cpu=4000)  # only n1 has so much left
    waiting = await cluster.control.workload("huge")
    assert "not answering orders" in waiting.reason.message
    await deaf.agent.start()

    async def placed() -> bool:
        return (await cluster.control.workload("huge")).assigned_node_id == "n1"

    await eventually(placed, lambda: "n1 to get work again")


async def test_a_node_whose_journal_is_not_writable_gets_no_new_work(
    cluster: Cluster,
) -> None:
    full, other = await cluster.join("n1"), await cluster.join("n2")
    await full.stop_heartbeats()
    report = pb.HeartbeatRequest(
        node_id="n1",
        unavailable_types=["container"],
        journal_problem="journal: database or disk is full",
    )
    await cluster.control.stub.Heartbeat(report, timeout=10)

    for name in NAMES:
        await cluster.control.apply(name)
        await cluster.control.until(name, "Running")
    assert other.agent.running() == set(NAMES)
    node = await cluster.control.node("n1")
    assert node.problems == ["accepts no orders: journal: database or disk is full"]
    assert node.status_reason == node.problems[0]

    await cluster.control.stub.Heartbeat(pb.HeartbeatRequest(node_id="n1"), timeout=10)

    assert not (await cluster.control.node("n1")).problems


async def test_a_node_whose_runtime_does_not_respond_gets_no_work_of_that_type(
    cluster: Cluster,
) -> None:
    blind, other = await cluster.join("n1"), await cluster.join("n2")
    await blind.stop_heartbeats()
    report = pb.HeartbeatRequest(node_id="n1", unavailable_types=["container", "of the future"])
    await cluster.control.stub.Heartbeat(report, timeout=10)

    for name in NAMES:
        await cluster.control.apply(name)
        await cluster.control.until(name, "Running")
    assert other.agent.running() == set(NAMES)
    assert "runtime does not respond: container" in (await cluster.control.node("n1")).status_reason
    await cluster.control.apply("huge", cpu=4000)
    waiting = await cluster.control.workload("huge")
    assert "whose container runtime does not respond" in waiting.reason.message

    await cluster.control.stub.Heartbeat(pb.HeartbeatRequest(node_id="n1"), timeout=10)

    await cluster.control.until("huge", "Running")
    assert blind.agent.running() == {"huge"}


async def test_a_runtime_that_a_third_party_agent_reports_unhealthy_gets_no_new_work(
    cluster: Cluster,
) -> None:
    unhealthy_node, other = await cluster.join("n1"), await cluster.join("n2")
    unhealthy_node.agent.behaviour.runtimes = {
        "container": "unhealthy: no answer",
        "compose": "healthy",
    }

    async def is_noticed() -> bool:
        return (await cluster.control.node("n1")).problems == ["runtime is unhealthy: container"]

    await eventually(is_noticed, lambda: "the unhealthy runtime to be noticed")
    for name in NAMES:
        await cluster.control.apply(name)
        await cluster.control.until(name, "Running")
    assert other.agent.running() == set(NAMES)

    await cluster.control.apply("huge", cpu=4000)  # only n1 has so much left
    explained = await cluster.control.stub.ExplainWorkload(
        pb.ExplainWorkloadRequest(workload_id="huge"), timeout=10
    )
    assert "container runtime" in str(explained)
    unhealthy_node.agent.behaviour.runtimes = {"container": "healthy"}

    async def placed() -> bool:
        return (await cluster.control.workload("huge")).assigned_node_id == "n1"

    await eventually(placed, lambda: "n1 to get work again")
    assert not (await cluster.control.node("n1")).problems


@pytest.mark.parametrize("text", ["ok", "ready", "healthy", "docker 24.0.7", ""])
async def test_a_healthy_runtime_gets_work(cluster: Cluster, text: str) -> None:
    node = await cluster.join("n1")
    node.agent.behaviour.runtimes = {"container": text, "vm": "runtime not available"}

    await cluster.control.apply("web")

    await cluster.control.until("web", "Running")
    assert not (await cluster.control.node("n1")).problems


async def test_an_agent_that_stops_replying_to_health_checks_keeps_its_last_health(
    cluster: Cluster,
) -> None:
    node = await cluster.join("n1")
    node.agent.behaviour.runtimes = {"container": "down"}

    async def is_noticed() -> bool:
        return bool((await cluster.control.node("n1")).problems)

    await eventually(is_noticed, lambda: "the unhealthy runtime to be noticed")
    node.agent.behaviour.runtimes = None
    await cluster.control.apply("web")

    assert (await cluster.control.workload("web")).status == "Pending"
    node.agent.behaviour.runtimes = {}
    await cluster.control.until("web", "Running")
