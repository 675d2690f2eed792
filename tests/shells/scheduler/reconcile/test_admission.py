"""A node that rejects a workload for lack of capacity: it moves to another node, or waits without polling."""

from datetime import timedelta

from shells.scheduler.harness import Cluster, eventually


async def test_a_workload_that_a_full_node_rejects_moves_to_another(cluster: Cluster) -> None:
    full = await cluster.join("n1")
    full.agent.behaviour.is_full = True
    other = await cluster.join("n2", cpu=2000)  # placement would rather have the first
    await cluster.control.apply("web")

    view = await cluster.control.until("web", "Running")
    assert view.assigned_node_id == "n2"
    assert other.agent.running() == {"web"}
    assert len(full.agent.applies) == 1


async def test_without_another_node_it_waits_with_the_reason_and_sends_no_order_for_a_while(
    cluster: Cluster,
) -> None:
    full = await cluster.join("n1")
    full.agent.behaviour.is_full = True
    await cluster.control.apply("web")

    async def waits() -> bool:
        return (await cluster.control.workload("web")).reason.code == "Unplaceable"

    await eventually(waits, lambda: "it to wait")
    view = await cluster.control.workload("web")
    assert view.status == "Pending"
    assert "n1: this node is full: cpu 93 % used" in view.reason.message
    assert not view.assigned_node_id
    assert len(full.agent.applies) == 1

    cluster.clock.ahead = timedelta(seconds=61)

    async def is_sent_again() -> bool:
        return len(full.agent.applies) == 2

    await eventually(is_sent_again, lambda: f"{len(full.agent.applies)} orders, expected 2")
    other = await cluster.join("n2")
    await cluster.control.until("web", "Running")
    assert other.agent.running() == {"web"}


async def test_a_node_too_full_for_one_workload_still_gets_others(cluster: Cluster) -> None:
    node = await cluster.join("n1")
    node.agent.behaviour.is_full = True
    await cluster.control.apply("web")

    async def is_rejected() -> bool:
        return (await cluster.control.workload("web")).reason.code == "Unplaceable"

    await eventually(is_rejected, lambda: "it to be turned away")
    node.agent.behaviour.is_full = False
    await cluster.control.apply("api")

    await cluster.control.until("api", "Running")
    assert node.agent.running() == {"api"}


async def test_a_new_apply_ends_the_exclusion_of_the_node(cluster: Cluster) -> None:
    node = await cluster.join("n1")
    node.agent.behaviour.is_full = True
    await cluster.control.apply("web")

    async def is_rejected() -> bool:
        return (await cluster.control.workload("web")).reason.code == "Unplaceable"

    await eventually(is_rejected, lambda: "it to be turned away")
    node.agent.behaviour.is_full = False
    await cluster.control.apply("web", image="smaller")

    await cluster.control.until("web", "Running")
