"""Sets with one member per node, and members of sets on nodes that drain or fail."""

from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.sets.calls_of_sets import SetCalls, a_set


def on_every_node(image: str = "agent:1", **placement: object) -> pb.SetSpec:
    spec = a_set("agent", image=image, replicas=None)
    spec.every = "node"
    spec.template.placement.CopyFrom(pb.PlacementRules(**placement))  # type: ignore[arg-type]
    return spec


def nodes_of(view: pb.SetView) -> list[str]:
    return sorted(member.node_id for member in view.members)


async def taint(cluster: Cluster, node_id: str, *taints: str) -> None:
    request = pb.TaintNodeRequest(node_id=node_id, taints=taints)
    assert (await cluster.control.stub.TaintNode(request, timeout=10)).accepted


async def test_every_matching_node_has_one_member(cluster: Cluster, sets: SetCalls) -> None:
    for name in ("n1", "n2", "n3"):
        await cluster.join(name)
    await cluster.join("v1", types=("vm",))
    await taint(cluster, "n3", "gpu")

    await sets.applied(on_every_node())

    view = await sets.until_steady("agent", members=2)
    assert (nodes_of(view), view.member_count_wanted) == (["n1", "n2"], 2)


async def test_a_node_that_joins_gets_a_member(cluster: Cluster, sets: SetCalls) -> None:
    await cluster.join("n1")
    await sets.applied(on_every_node())
    await sets.until_steady("agent", members=1)

    await cluster.join("n2")

    view = await sets.until_steady("agent", members=2)
    assert nodes_of(view) == ["n1", "n2"]


async def test_constraints_select_the_nodes(cluster: Cluster, sets: SetCalls) -> None:
    await cluster.join("n1")
    await cluster.join("n2")

    await sets.applied(on_every_node(constraints=["node.id != n1"]))

    view = await sets.until_steady("agent", members=1)
    assert nodes_of(view) == ["n2"]


async def test_a_rollout_updates_each_node_in_its_place(cluster: Cluster, sets: SetCalls) -> None:
    nodes = [await cluster.join(name) for name in ("n1", "n2")]
    await sets.applied(on_every_node())
    await sets.until_steady("agent", members=2)

    await sets.applied(on_every_node("agent:2"))

    view = await sets.until_steady("agent", members=2, revision=2)
    assert nodes_of(view) == ["n1", "n2"]

    async def is_updated() -> bool:
        return all(len(node.agent.running()) == 1 for node in nodes)

    await eventually(is_updated, lambda: "one member on each node")


async def test_a_drained_node_loses_its_member_and_gets_it_back(
    cluster: Cluster, sets: SetCalls
) -> None:
    await cluster.join("n1")
    await cluster.join("n2")
    await sets.applied(on_every_node())
    await sets.until_steady("agent", members=2)

    stub = cluster.control.stub
    assert (await stub.DrainNode(pb.DrainNodeRequest(node_id="n2"), timeout=10)).accepted

    async def is_drained() -> bool:
        return (await cluster.control.node("n2")).drain.state == "drained"

    await eventually(is_drained, lambda: "n2 to be drained")
    view = await sets.until_steady("agent", members=1)
    assert nodes_of(view) == ["n1"]

    assert (await stub.UncordonNode(pb.NodeRequest(node_id="n2"), timeout=10)).accepted
    view = await sets.until_steady("agent", members=2)
    assert nodes_of(view) == ["n1", "n2"]


async def test_a_cordoned_node_keeps_its_member(cluster: Cluster, sets: SetCalls) -> None:
    await cluster.join("n1")
    await sets.applied(on_every_node())
    await sets.until_steady("agent", members=1)
    stub = cluster.control.stub
    await stub.CordonNode(pb.NodeRequest(node_id="n1"), timeout=10)

    await sets.applied(on_every_node("agent:2"), "")
    view = await sets.until(lambda view: view.target_revision == 2, set_id="agent")

    assert view.member_count_wanted == 1
    assert "n1" in nodes_of(view)


async def test_a_lost_node_keeps_its_member_of_a_set_per_node(
    cluster: Cluster, sets: SetCalls
) -> None:
    await cluster.join("n1")
    other = await cluster.join("n2")
    await sets.applied(on_every_node())
    await sets.until_steady("agent", members=2)

    await other.die()
    await cluster.control.until_node("n2", "NotReady")

    view = await sets.until(lambda view: view.healthy_count == 1, set_id="agent")
    assert (view.member_count, view.phase) == (2, "Steady")
    assert sorted(member.health for member in view.members) == ["healthy", "lost"]


async def test_members_of_a_lost_node_move_and_the_rollout_continues(
    cluster: Cluster, sets: SetCalls
) -> None:
    await cluster.join("n1")
    other = await cluster.join("n2")
    await sets.applied(a_set(replicas=4))
    await sets.until_steady(members=4)

    await other.die()
    await sets.applied(a_set(image="web:2", replicas=4))

    view = await sets.until_steady(members=4, revision=2)
    assert {member.node_id for member in view.members} == {"n1"}


async def test_members_run_on_a_draining_node_until_they_run_on_another(
    cluster: Cluster, sets: SetCalls
) -> None:
    """A drain of the node of all members does not interrupt the set, however long a pull takes."""
    node = await cluster.join("n1")
    await sets.applied(a_set(replicas=2))
    await sets.until_steady(members=2)
    other = await cluster.join("n2")
    other.agent.behaviour.work_seconds = 1.0
    stub = cluster.control.stub

    assert (await stub.DrainNode(pb.DrainNodeRequest(node_id="n1"), timeout=10)).accepted

    async def is_explained() -> bool:
        drain = (await cluster.control.node("n1")).drain
        return [block.reason for block in drain.blocked] == [
            "runs here until it is healthy on n2"
        ] * 2

    await eventually(is_explained, lambda: "the drain to wait for both members")

    async def is_drained() -> bool:
        running = node.agent.running() | other.agent.running()
        assert running == {"web-0", "web-1"}
        return (await cluster.control.node("n1")).drain.state == "drained"

    await eventually(is_drained, lambda: "n1 to be drained")
    view = await sets.until_steady(members=2)
    assert nodes_of(view) == ["n2", "n2"]


async def test_a_member_with_data_is_scaled_out_on_the_node_of_its_data(
    cluster: Cluster, sets: SetCalls
) -> None:
    await cluster.join("n1")
    await cluster.join("n2")
    spec = a_set(replicas=2)
    spec.template.container.volumes.add(host_path="/srv/web", container_path="/data")
    await sets.applied(spec)
    view = await sets.until_steady(members=2)
    home = {member.workload_id: member.node_id for member in view.members}
    assert (await sets.scale(1)).accepted
    await sets.until_steady(members=1)
    await cluster.control.until_gone("web-1")
    await cluster.join("n3")  # it has the most free capacity
    await cluster.stop()
    await cluster.start()

    assert (await sets.scale(2)).accepted

    view = await sets.until_steady(members=2)
    assert {member.workload_id: member.node_id for member in view.members} == home
