"""Placement rules on a real scheduler; freed capacity is used at once."""

import asyncio
from datetime import timedelta

import pytest

from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.third_party_agent import Node

# So slow that nothing in these tests is caused by the resync.
NO_SAFETY_NET = {"reconcile_interval": timedelta(minutes=5)}
AT_ONCE = 1.0


async def joined(cluster: Cluster, node_id: str, *, cpu: int = 4000, **labels: str) -> Node:
    node = await cluster.prepare(node_id, cpu=cpu)
    node.labels = labels
    await node.join()
    return node


async def apply(
    cluster: Cluster, name: str, *, cpu: int = 100, image: str = "nginx", **rules: object
) -> pb.WorkloadView:
    spec = pb.WorkloadSpec(
        resources=pb.ResourceRequirements(cpu_millicores=cpu, memory_mb=64),
        container=pb.ContainerSpec(image=image),
        placement=pb.PlacementRules(**rules),  # type: ignore[arg-type]  # by name
    )
    response = await cluster.control.send(pb.ApplyWorkloadRequest(workload_id=name, spec=spec))
    assert response.success, response.error_message
    return await cluster.control.workload(name)


async def taint(cluster: Cluster, node_id: str, *taints: str) -> pb.NodeAnswer:
    request = pb.TaintNodeRequest(node_id=node_id, taints=taints)
    response: pb.NodeAnswer = await cluster.control.stub.TaintNode(request, timeout=10)
    return response


async def test_a_constraint_chooses_the_node_and_is_named_when_none_meets_it(
    cluster: Cluster,
) -> None:
    await joined(cluster, "n1", zone="us")
    await joined(cluster, "n2", zone="eu")

    assert (await apply(cluster, "web", constraints=["zone = eu"])).assigned_node_id == "n2"
    unplaceable = await apply(cluster, "nowhere", constraints=["zone = mars"])
    assert unplaceable.reason.message == "2 nodes not meeting 'zone = mars'"


async def test_a_wrong_rule_is_refused_with_its_field(cluster: Cluster) -> None:
    spec = pb.WorkloadSpec(
        container=pb.ContainerSpec(image="nginx"),
        placement=pb.PlacementRules(constraints=["a exists", "b >"]),
    )
    response = await cluster.control.send(pb.ApplyWorkloadRequest(workload_id="web", spec=spec))

    assert not response.success
    assert response.error_message.startswith("spec.placement.constraints[1]: ")


async def test_rules_are_shown_as_they_were_given(cluster: Cluster) -> None:
    view = await apply(
        cluster, "web", constraints=["zone in (a, b)"], group="g", anti_affinity="required"
    )

    assert list(view.spec.placement.constraints) == ["zone in (a, b)"]
    assert view.spec.placement.anti_affinity == "required"


async def test_a_group_is_spread_over_zones(cluster: Cluster) -> None:
    for node_id, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        await joined(cluster, node_id, zone=zone)
    views = [
        await apply(cluster, f"web-{number}", group="web", spread_over=["zone"])
        for number in range(4)
    ]

    nodes = [view.assigned_node_id for view in views]
    assert sorted(nodes) == ["n1", "n2", "n3", "n3"]


@pytest.mark.parametrize("cluster", [NO_SAFETY_NET], indirect=True)
async def test_an_anti_affinity_workload_waits_until_another_of_its_group_leaves(
    cluster: Cluster,
) -> None:
    await joined(cluster, "n1")
    first = await apply(cluster, "first", group="db", anti_affinity="required")
    assert first.assigned_node_id == "n1"
    second = await apply(cluster, "second", group="db", anti_affinity="required")
    assert second.reason.message == "1 node with another of group db"
    await cluster.control.until("first", "Running")
    await cluster.control.delete("first")
    await cluster.control.until_gone("first")

    await cluster.control.until("second", "Running", within=AT_ONCE + 2)


@pytest.mark.parametrize("cluster", [NO_SAFETY_NET], indirect=True)
async def test_a_taint_blocks_new_work_until_it_is_removed(cluster: Cluster) -> None:
    node = await joined(cluster, "n1")
    await apply(cluster, "old")
    await cluster.control.until("old", "Running")
    response = await taint(cluster, "n1", "gpu=old")
    assert list(response.node.taints) == ["gpu=old"]

    assert (await apply(cluster, "new")).reason.message == "1 node with taint gpu=old"
    assert (await apply(cluster, "tolerant", tolerations=["gpu"])).assigned_node_id == "n1"
    assert (await cluster.control.workload("old")).status == "Running"
    await node.register()
    assert list((await cluster.control.node("n1")).taints) == ["gpu=old"]

    await taint(cluster, "n1")
    await cluster.control.until("new", "Running", within=AT_ONCE + 2)


async def test_new_rules_alone_apply_nothing_again(cluster: Cluster) -> None:
    node = await joined(cluster, "n1", zone="eu")
    await apply(cluster, "web")
    before = await cluster.control.until("web", "Running")
    orders = len(node.agent.applies)
    after = await apply(cluster, "web", constraints=["zone = eu"], priority=90)

    assert (after.revision_id, after.epoch) == (before.revision_id, before.epoch)
    assert after.status == "Running"
    assert list(after.spec.placement.constraints) == ["zone = eu"]
    # A later order has reached the node, so an earlier one would have arrived too.
    await apply(cluster, "next")
    await cluster.control.until("next", "Running")
    assert [order.id for order in node.agent.applies[orders:]] == ["next"]


async def test_new_rules_that_its_node_breaks_move_a_workload(cluster: Cluster) -> None:
    first = await joined(cluster, "n1", zone="us")
    await apply(cluster, "web")
    await cluster.control.until("web", "Running")
    await joined(cluster, "n2", zone="eu")
    view = await apply(cluster, "web", constraints=["zone = eu"])
    assert view.assigned_node_id == "n2"
    await cluster.control.until("web", "Running")

    async def gone() -> bool:
        return "web" not in first.agent.running()

    await eventually(gone, lambda: "the old copy to be gone")


@pytest.mark.parametrize("cluster", [NO_SAFETY_NET], indirect=True)
async def test_promise_2_capacity_is_assigned_to_the_highest_priority_that_fits(
    cluster: Cluster,
) -> None:
    await joined(cluster, "n1", cpu=1000)
    await apply(cluster, "holder", cpu=1000)
    await cluster.control.until("holder", "Running")
    await apply(cluster, "too-large", cpu=2000, priority=100)
    await apply(cluster, "usual", cpu=800)
    await apply(cluster, "urgent", cpu=800, priority=90)
    await cluster.control.delete("holder")
    await cluster.control.until_gone("holder")

    await cluster.control.until("urgent", "Running", within=AT_ONCE + 2)
    assert (await cluster.control.workload("usual")).status == "Pending"


@pytest.mark.parametrize("cluster", [NO_SAFETY_NET], indirect=True)
async def test_promise_2_a_fitting_workload_is_placed_within_a_second_although_hundreds_wait(
    cluster: Cluster,
) -> None:
    await joined(cluster, "n1", cpu=1000)
    await apply(cluster, "holder", cpu=300)
    await cluster.control.until("holder", "Running")
    await asyncio.gather(
        *(apply(cluster, f"large-{number}", cpu=2000 + number) for number in range(300))
    )
    await apply(cluster, "small", cpu=800)
    await cluster.control.delete("holder")
    await cluster.control.until_gone("holder")

    await cluster.control.until("small", "Running", within=AT_ONCE + 2)


@pytest.mark.parametrize("cluster", [NO_SAFETY_NET], indirect=True)
async def test_promise_2_a_workload_woken_for_two_nodes_leaves_one_to_the_next(
    cluster: Cluster,
) -> None:
    for node_id in ("n1", "n2"):
        await joined(cluster, node_id, cpu=1000)
        await taint(cluster, node_id, "closed")
    for name in ("a", "b"):
        await apply(cluster, name, cpu=800)
    await asyncio.gather(taint(cluster, "n1"), taint(cluster, "n2"))

    for name in ("a", "b"):
        await cluster.control.until(name, "Running", within=AT_ONCE + 2)


async def test_two_stacks_with_one_project_name_are_never_on_one_node(cluster: Cluster) -> None:
    for node_id in ("n1", "n2"):
        node = await cluster.prepare(node_id)
        node.features = ["compose-project-name"]
        await node.join()
    text = "services: {web: {image: nginx}}"
    spec = pb.WorkloadSpec(compose=pb.ComposeSpec(inline_yaml=text, project_name="shop"))
    for name in ("a", "b", "c"):
        await cluster.control.send(pb.ApplyWorkloadRequest(workload_id=name, spec=spec))

    views = [await cluster.control.workload(name) for name in ("a", "b", "c")]

    assert {view.assigned_node_id for view in views} == {"n1", "n2", ""}
    (waiting,) = (view for view in views if not view.assigned_node_id)
    assert waiting.reason.message == "2 nodes with Compose project shop taken"
    assert waiting.spec.compose.project_name == "shop"
