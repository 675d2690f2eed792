"""Nodes that send heartbeats and cannot do what they are told get no new work until they can."""

from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually

NAMES = ("a", "b", "c", "d")


async def test_a_node_whose_port_is_closed_gets_nothing_new_until_it_answers(
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
    assert "does not answer orders" in view.status_reason

    await cluster.control.apply("huge", cpu=4000)  # only n1 has so much left
    waiting = await cluster.control.workload("huge")
    assert "not answering orders" in waiting.reason.message
    await deaf.agent.start()

    async def placed() -> bool:
        return (await cluster.control.workload("huge")).assigned_node_id == "n1"

    await eventually(placed, lambda: "n1 to get work again")


async def test_a_node_whose_journal_cannot_be_written_says_so_and_gets_nothing(
    cluster: Cluster,
) -> None:
    full, other = await cluster.join("n1"), await cluster.join("n2")
    await full.fall_silent()
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
    assert node.problems == ["takes no orders: journal: database or disk is full"]
    assert node.status_reason == node.problems[0]

    await cluster.control.stub.Heartbeat(pb.HeartbeatRequest(node_id="n1"), timeout=10)

    assert not (await cluster.control.node("n1")).problems


async def test_a_node_whose_runtime_does_not_answer_gets_nothing_of_that_type(
    cluster: Cluster,
) -> None:
    blind, other = await cluster.join("n1"), await cluster.join("n2")
    await blind.fall_silent()
    report = pb.HeartbeatRequest(node_id="n1", unavailable_types=["container", "of the future"])
    await cluster.control.stub.Heartbeat(report, timeout=10)

    for name in NAMES:
        await cluster.control.apply(name)
        await cluster.control.until(name, "Running")
    assert other.agent.running() == set(NAMES)
    assert "runtime does not answer: container" in (await cluster.control.node("n1")).status_reason
    await cluster.control.apply("huge", cpu=4000)
    waiting = await cluster.control.workload("huge")
    assert "whose container runtime does not answer" in waiting.reason.message

    await cluster.control.stub.Heartbeat(pb.HeartbeatRequest(node_id="n1"), timeout=10)

    await cluster.control.until("huge", "Running")
    assert blind.agent.running() == {"huge"}
