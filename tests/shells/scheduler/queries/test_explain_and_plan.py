"""Explain, plan and capacity on a real scheduler. They change nothing."""

from datetime import timedelta
from random import Random

import grpc
import pytest

from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually

SHORT = {
    "node_lease": timedelta(seconds=1.5),
    "node_unavailable_grace": timedelta(seconds=0.5),
}
short_grace = pytest.mark.parametrize("cluster", [SHORT], indirect=True, ids=[""])


def a_request(
    name: str, *, image: str = "nginx", cpu: int = 100, host_port: int = 0, data: bool = False
) -> pb.ApplyWorkloadRequest:
    container = pb.ContainerSpec(image=image)
    if host_port:
        container.ports.add(host_port=host_port, container_port=80)
    if data:
        container.volumes.add(host_path="/srv/data", container_path="/data")
    spec = pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=cpu, memory_mb=64),
        container=container,
    )
    return pb.ApplyWorkloadRequest(workload_id=name, spec=spec)


async def explained(cluster: Cluster, name: str, limit: int = 0) -> pb.ExplainWorkloadResponse:
    request = pb.ExplainWorkloadRequest(workload_id=name, limit=limit)
    response: pb.ExplainWorkloadResponse = await cluster.control.stub.ExplainWorkload(
        request, timeout=10
    )
    return response


async def planned(cluster: Cluster, *requests: pb.ApplyWorkloadRequest) -> list[pb.WorkloadPlan]:
    response = await cluster.control.stub.PlanWorkloads(
        pb.PlanWorkloadsRequest(workloads=requests), timeout=10
    )
    return list(response.plans)


async def room_for(cluster: Cluster, request: pb.ApplyWorkloadRequest) -> pb.GetCapacityResponse:
    response: pb.GetCapacityResponse = await cluster.control.stub.GetCapacity(
        pb.GetCapacityRequest(spec=request.spec), timeout=10
    )
    return response


async def drain(cluster: Cluster, node_id: str) -> None:
    await cluster.control.stub.DrainNode(pb.DrainNodeRequest(node_id=node_id), timeout=10)


async def cordon(cluster: Cluster, node_id: str) -> None:
    await cluster.control.stub.CordonNode(pb.NodeRequest(node_id=node_id), timeout=10)


async def test_promise_7_every_waiting_workload_shows_the_reason_for_each_node(
    cluster: Cluster,
) -> None:
    await cluster.join("n1", cpu=1000)
    await cluster.control.apply("web", cpu=600, host_port=8080)
    await cluster.join("n2", cpu=1000, types=("compose",))
    await cluster.join("n3", cpu=1000)
    await cordon(cluster, "n3")
    await cluster.control.apply("big", cpu=700)
    await cluster.control.apply("port", cpu=100, host_port=8080)

    big, port = await explained(cluster, "big"), await explained(cluster, "port")

    assert big.summary.startswith("waits: 1 node cordoned; 1 node short of cpu; 1 node without")
    assert [(node.node_id, node.filter, node.missing, node.unit) for node in big.nodes] == [
        ("n3", "closed", 0, ""),
        ("n1", "cpu", 300, "m"),
        ("n2", "type", 0, ""),
    ]
    assert list(big.changes) == [
        "uncordon n3",
        "free 300m cpu on n1",
        "a node with a runtime for container",
    ]
    assert port.changes[1] == "free host port 8080/tcp on n1, used by workload web"
    assert sum(count.nodes for count in big.counts) == big.node_count == 3


async def test_a_suggested_change_places_the_workload(cluster: Cluster) -> None:
    await cluster.join("n1", cpu=1000)
    await cluster.control.apply("first", cpu=800)
    await cluster.control.apply("second", cpu=500)
    found = await explained(cluster, "second")
    assert list(found.changes) == ["free 300m cpu on n1"]

    await cluster.control.apply("first", cpu=500)

    view = await cluster.control.until("second", "Running")
    assert view.assigned_node_id == "n1"


async def test_a_placed_workload_shows_its_node_first_and_how_others_compare(
    cluster: Cluster,
) -> None:
    await cluster.join("n1", cpu=4000)
    await cluster.join("n2", cpu=4000)
    await cluster.join("n3", cpu=100)
    await cluster.control.apply("web", cpu=1000)
    await cluster.control.until("web", "Running")

    found = await explained(cluster, "web")

    assert found.assigned_node_id == "n1"
    assert [(node.node_id, node.fits) for node in found.nodes] == [
        ("n1", True),
        ("n2", True),
        ("n3", False),
    ]
    own, other = found.nodes[0].score, found.nodes[1].score
    assert [(part.name, part.value) for part in own] == [(part.name, part.value) for part in other]
    assert list(found.changes) == []


async def test_an_explanation_leaves_the_reservation_as_it_was(cluster: Cluster) -> None:
    await cluster.join("n1", cpu=1000)
    await cluster.control.apply("web", cpu=700)
    await cluster.control.until("web", "Running")
    before = await cluster.control.node("n1")

    await explained(cluster, "web")

    after = await cluster.control.node("n1")
    assert after.available_cpu_cores == before.available_cpu_cores == pytest.approx(0.3)


async def test_a_workload_with_data_on_a_draining_node_is_explained(cluster: Cluster) -> None:
    await cluster.join("n1")
    await cluster.control.send(a_request("db", data=True))
    await cluster.control.until("db", "Running")
    await cluster.join("n2")
    await drain(cluster, "n1")

    found = await explained(cluster, "db")

    assert found.summary == "stays on n1, which is draining: its data is on this node"
    assert [(node.node_id, node.detail) for node in found.nodes] == [("n1", "draining"), ("n2", "")]


@short_grace
async def test_a_workload_with_data_on_a_lost_node_is_explained(cluster: Cluster) -> None:
    lost = await cluster.join("n1")
    await cluster.control.send(a_request("db", data=True))
    await cluster.control.until("db", "Running")
    await cluster.join("n2")
    await lost.die()

    async def is_lost() -> bool:
        return "which is lost" in (await explained(cluster, "db")).summary

    await eventually(is_lost, lambda: "db to be known as lost")
    found = await explained(cluster, "db")
    assert found.summary == (
        "stays assigned to n1, which is lost: its data is on this node; "
        "it moves after `persysctl node confirm-dead n1`"
    )
    assert [(node.node_id, node.fits) for node in found.nodes] == [("n1", False), ("n2", True)]


@short_grace
async def test_a_workload_stranded_on_a_lost_node_shows_remedies(cluster: Cluster) -> None:
    lost = await cluster.join("n1")
    await cluster.control.apply("web", cpu=500)
    await cluster.control.until("web", "Running")
    await cluster.join("n2", cpu=1000)
    await cluster.control.apply("other", cpu=700)
    await cordon(cluster, "n2")
    await lost.die()

    async def is_stranded() -> bool:
        return (await cluster.control.workload("web")).reason.code == "NodeLost"

    await eventually(is_stranded, lambda: "web to be stranded")
    found = await explained(cluster, "web")
    assert found.summary.startswith("is assigned to n1 and waits for capacity on another node: ")
    assert found.changes[0].startswith("uncordon n2")


async def test_a_stopped_workload_without_a_node_is_explained(cluster: Cluster) -> None:
    await cluster.join("n1")
    await cluster.control.apply("web", desired="stopped")

    found = await explained(cluster, "web")

    assert found.summary == "has no node: assigned to a node when started"
    assert (found.fit_count, list(found.changes)) == (1, [])


async def test_the_rule_of_a_decision_is_explained_and_in_the_event(cluster: Cluster) -> None:
    await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")

    found = await explained(cluster, "web")

    events = await cluster.control.stub.ListEvents(
        pb.ListEventsRequest(workload_id="web"), timeout=10
    )
    assert found.rule == "converged"
    assert {event.kind: event.rule for event in events.events} == {
        "WorkloadCreated": "",
        "WorkloadPlaced": "unassigned",
        "WorkloadRunning": "converged",
    }


async def test_a_failed_workload_is_explained_with_its_failure(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.failures["web"] = ("INVALID_IMAGE", "no such image")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Failed")

    found = await explained(cluster, "web")

    assert "; it has failed there: " in found.summary
    assert "no such image" in found.summary


async def test_explaining_a_missing_workload_is_not_found(cluster: Cluster) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await explained(cluster, "ghost")

    assert error.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_limit_shows_the_best_nodes_and_counts_all(cluster: Cluster) -> None:
    for number, cpu in enumerate((100, 900, 500)):
        await cluster.join(f"n{number}", cpu=cpu)
    await cluster.control.apply("web", cpu=1000)

    found = await explained(cluster, "web", limit=1)

    assert [node.node_id for node in found.nodes] == ["n1"]
    assert [(count.detail, count.nodes) for count in found.counts] == [("short of cpu", 3)]


async def test_a_plan_decides_each_apply_after_those_before_and_writes_nothing(
    cluster: Cluster,
) -> None:
    await cluster.join("n1", cpu=1000)
    await cluster.join("n2", cpu=1000)
    requests = [a_request(name, cpu=600) for name in ("a", "b", "c")]
    written = cluster.store.transactions

    plans = await planned(cluster, *requests)

    assert [(plan.action, plan.node_id, plan.would_wait) for plan in plans] == [
        ("create", "n1", False),
        ("create", "n2", False),
        ("create", "", True),
    ]
    assert "short of cpu" in plans[2].reason
    assert (await cluster.control.summary()).total_workloads == 0
    assert (await cluster.control.node("n1")).available_cpu_cores == 1
    assert cluster.store.transactions == written


async def test_a_plan_refuses_what_the_apply_would_refuse(cluster: Cluster) -> None:
    await cluster.join("n1")
    short_timeouts = a_request("web")
    short_timeouts.spec.stop_after_seconds = 1

    (plan,) = await planned(cluster, short_timeouts)

    assert plan.action == "refused"
    assert "spec.stop_after_seconds" in plan.reason


async def test_a_plan_shows_changed_fields_and_recreations(
    cluster: Cluster,
) -> None:
    await cluster.join("n1")
    await cluster.control.send(a_request("web"))
    await cluster.control.until("web", "Running")

    (same,) = await planned(cluster, a_request("web"))
    (other,) = await planned(cluster, a_request("web", image="nginx:2", cpu=200))

    assert (same.action, list(same.changes), same.node_id) == ("none", [], "n1")
    assert [(change.field, change.before, change.after) for change in other.changes] == [
        ("container.image", "nginx", "nginx:2"),
        ("resources.cpu_millicores", "100", "200"),
    ]
    assert (other.action, other.current_node_id, other.node_id) == ("update", "n1", "n1")
    assert list(other.displaces) == ["the copy on n1 is stopped and recreated"]


async def test_a_plan_shows_the_node_that_the_apply_then_uses(cluster: Cluster) -> None:
    await cluster.join("n1", cpu=1000)
    await cluster.control.send(a_request("web", cpu=500))
    await cluster.control.until("web", "Running")
    await cluster.join("n2", cpu=4000)
    larger = a_request("web", cpu=2000)

    (plan,) = await planned(cluster, larger)
    await cluster.control.send(larger)

    assert (plan.current_node_id, plan.node_id) == ("n1", "n2")
    assert list(plan.displaces) == ["moves from n1 to n2; the copy on n1 is removed"]
    assert (await cluster.control.until("web", "Running")).assigned_node_id == "n2"


async def test_a_plan_shows_which_workload_gets_the_freed_capacity(cluster: Cluster) -> None:
    await cluster.join("n1", cpu=1000)
    await cluster.control.send(a_request("large", cpu=900))
    await cluster.control.send(a_request("waits", cpu=500))
    await cluster.control.until("waits", "Pending")

    shrunk, late = await planned(cluster, a_request("large", cpu=400), a_request("late", cpu=200))

    assert list(shrunk.displaces)[-1] == "waits no longer waits: it is assigned to n1"
    assert late.would_wait


async def test_a_plan_refuses_what_an_apply_would_refuse(cluster: Cluster) -> None:
    bad = pb.ApplyWorkloadRequest(workload_id="bad", desired_state="sideways")
    unknown = pb.ApplyWorkloadRequest(workload_id="ghost", desired_state="stopped")

    plans = await planned(cluster, bad, unknown, pb.ApplyWorkloadRequest())

    assert [plan.action for plan in plans] == ["refused"] * 3
    assert plans[1].reason == "workload not found: ghost"


async def test_a_plan_of_a_stop_names_the_copy_that_stops(cluster: Cluster) -> None:
    await cluster.join("n1")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")

    request = pb.ApplyWorkloadRequest(workload_id="web", desired_state="stopped")
    (plan,) = await planned(cluster, request)

    assert (plan.action, list(plan.displaces)) == ("stop", ["the copy on n1 is stopped"])


async def test_capacity_is_counted_per_node_with_the_limiting_resource(cluster: Cluster) -> None:
    await cluster.join("n1", cpu=1000)
    await cluster.join("n2", cpu=350)
    await cluster.join("n3", cpu=4000)
    await cordon(cluster, "n3")

    found = await room_for(cluster, a_request("web", cpu=100))
    with_port = await room_for(cluster, a_request("web", cpu=100, host_port=80))

    assert found.fits == 13
    assert [(node.node_id, node.fits, node.limited_by) for node in found.nodes] == [
        ("n1", 10, "short of cpu"),
        ("n2", 3, "short of cpu"),
        ("n3", 0, "cordoned"),
    ]
    assert with_port.fits == 2
    assert with_port.nodes[0].limited_by == "with host port 80/tcp taken"


async def test_a_loss_without_enough_capacity_names_the_stranded_workloads(
    cluster: Cluster,
) -> None:
    await cluster.join("n1", cpu=1000)
    await cluster.control.send(a_request("large", cpu=900))
    await cluster.control.until("large", "Running")
    await cluster.join("n2", cpu=500)
    await cluster.control.send(a_request("db", cpu=100, data=True))
    await cluster.control.until("db", "Running")
    before = await cluster.control.node("n2")

    found = await room_for(cluster, a_request("web"))

    assert not found.survives_any_loss
    assert [(loss.node_id, list(loss.stranded), list(loss.bound)) for loss in found.losses] == [
        ("n1", ["large"], []),
        ("n2", [], ["db"]),
    ]
    assert (await cluster.control.node("n2")).available_cpu_cores == before.available_cpu_cores


async def test_enough_capacity_on_other_nodes_survives_any_loss(cluster: Cluster) -> None:
    await cluster.join("n1", cpu=1000)
    await cluster.join("n2", cpu=1000)
    for name in ("a", "b", "c"):
        await cluster.control.send(a_request(name, cpu=300))
        await cluster.control.until(name, "Running")

    found = await room_for(cluster, a_request("web"))

    assert found.survives_any_loss
    assert sum(loss.moved for loss in found.losses) == 3


async def test_a_single_node_survives_no_loss_even_when_it_is_empty(cluster: Cluster) -> None:
    await cluster.join("n1")

    found = await room_for(cluster, a_request("web"))

    assert not found.survives_any_loss
    assert [loss.node_id for loss in found.losses] == ["n1"]


async def test_capacity_for_an_invalid_spec_is_refused(cluster: Cluster) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await room_for(cluster, pb.ApplyWorkloadRequest())

    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("seed", range(5))
async def test_a_plan_of_many_names_the_nodes_that_the_applies_then_use(
    cluster: Cluster, seed: int
) -> None:
    random = Random(seed)
    for number in range(1, 5):
        await cluster.join(f"n{number}", cpu=random.choice((1000, 2000, 3000)))
    requests = [a_random_request(f"w{number:02}", random) for number in range(30)]

    plans = await planned(cluster, *requests)

    for plan, request in zip(plans, requests, strict=True):
        await cluster.control.send(request)
        view = await cluster.control.workload(request.workload_id)
        assert (plan.node_id, plan.would_wait) == (view.assigned_node_id, not plan.node_id)
    assert {plan.would_wait for plan in plans} == {True, False}


def a_random_request(name: str, random: Random) -> pb.ApplyWorkloadRequest:
    request = a_request(
        name,
        cpu=random.choice((100, 300, 700)),
        host_port=random.choice((0, 0, 0, 80)),
        data=random.random() < 0.2,
    )
    if random.random() < 0.4:
        request.spec.placement.group = random.choice("ab")
        request.spec.placement.anti_affinity = random.choice(("required", "preferred"))
    return request
