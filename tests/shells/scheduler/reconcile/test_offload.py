"""Workloads that are offloaded to nodes of higher tiers, and return."""

from datetime import timedelta

import aiohttp
import pytest

from persys.model.placement import Offload, Rules
from persys.wire.control.placement import rules_message
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.third_party_agent import Node

soon = pytest.mark.parametrize(
    "cluster", [{"offload_after": timedelta(seconds=1)}], indirect=True, ids=[""]
)
late = pytest.mark.parametrize(
    "cluster", [{"offload_after": timedelta(hours=1)}], indirect=True, ids=[""]
)


def a_request(
    name: str = "web", *, offload: Offload = Offload.NEVER, returns: bool = False
) -> pb.ApplyWorkloadRequest:
    spec = pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=800, memory_mb=64),
        container=pb.ContainerSpec(image="nginx"),
        placement=rules_message(Rules(offload=offload, return_when_free=returns)),
    )
    return pb.ApplyWorkloadRequest(workload_id=name, spec=spec)


async def a_remote(cluster: Cluster, node_id: str = "far", *, price: float = 0.1) -> Node:
    node = await cluster.prepare(node_id, cpu=64000)
    node.agent.behaviour.is_ours = True
    node.capabilities.tier, node.capabilities.core_hour_price = 1, price
    await node.join()
    return node


async def a_full_home(cluster: Cluster) -> Node:
    node = await cluster.join("n1", cpu=1000)
    await cluster.control.apply("first", cpu=800)
    await cluster.control.until("first", "Running")
    return node


async def explained(cluster: Cluster, name: str = "web") -> pb.ExplainWorkloadResponse:
    response: pb.ExplainWorkloadResponse = await cluster.control.stub.ExplainWorkload(
        pb.ExplainWorkloadRequest(workload_id=name), timeout=10
    )
    return response


async def until_on(cluster: Cluster, node_id: str, name: str = "web") -> pb.WorkloadView:
    """Running on this node."""
    view = await cluster.control.workload(name)

    async def runs_there() -> bool:
        nonlocal view
        view = await cluster.control.workload(name)
        return (view.assigned_node_id, view.status) == (node_id, "Running")

    await eventually(runs_there, lambda: f"{name} to run on {node_id}: {view}")
    return view


async def an_offloaded_workload(cluster: Cluster) -> tuple[Node, Node]:
    home, far = await a_full_home(cluster), await a_remote(cluster)
    await cluster.control.send(a_request(offload=Offload.WHEN_FULL, returns=True))
    await until_on(cluster, "far")
    return home, far


@soon
async def test_a_waiting_workload_is_offloaded_also_by_the_next_leader(cluster: Cluster) -> None:
    await a_full_home(cluster)
    await a_remote(cluster)
    await a_remote(cluster, "expensive", price=0.5)
    await cluster.control.send(a_request(offload=Offload.WHEN_FULL))
    view = await cluster.control.workload("web")
    assert (view.status, view.assigned_node_id) == ("Pending", "")
    await cluster.stop()
    await cluster.start()

    view = await until_on(cluster, "far")

    assert view.placement.startswith("offloaded: cheapest of tier 1, 0.1 per core and hour")
    assert "tier 0: 1 node short of cpu" in view.placement
    found = await explained(cluster)
    assert found.summary.startswith("is on far: offloaded")
    assert [(node.node_id, node.tier) for node in found.nodes] == [
        ("far", 1),
        ("expensive", 1),
        ("n1", 0),
    ]


@late
async def test_a_waiting_workload_uses_capacity_in_tier_0_that_is_freed_first(
    cluster: Cluster,
) -> None:
    await a_full_home(cluster)
    await a_remote(cluster)
    await cluster.control.send(a_request(offload=Offload.WHEN_FULL))
    found = await explained(cluster)
    assert "1 node in tier 1 (offload is when-full, after 3600 s of waiting)" in found.summary
    assert "; it may be offloaded in 3" in found.summary
    await cluster.control.delete("first")

    await until_on(cluster, "n1")


@late
async def test_a_plan_names_the_node_that_is_used_after_the_waiting_time(cluster: Cluster) -> None:
    await a_full_home(cluster)
    await a_remote(cluster)
    requests = [
        a_request("waits", offload=Offload.WHEN_FULL),
        a_request("at-once", offload=Offload.PREFER),
        a_request("stays"),
    ]

    response = await cluster.control.stub.PlanWorkloads(
        pb.PlanWorkloadsRequest(workloads=requests), timeout=10
    )

    waits, at_once, stays = response.plans
    assert waits.would_wait
    assert "in 3600 s it is offloaded to far" in waits.reason
    assert (at_once.node_id, at_once.would_wait) == ("far", False)
    assert stays.would_wait
    assert "offloaded to" not in stays.reason


async def test_capacity_counts_higher_tiers_separately(cluster: Cluster) -> None:
    await a_full_home(cluster)
    await cluster.join("n2", cpu=1000)
    await a_remote(cluster)

    allowed = await cluster.control.stub.GetCapacity(
        pb.GetCapacityRequest(spec=a_request(offload=Offload.WHEN_FULL).spec), timeout=10
    )
    refused = await cluster.control.stub.GetCapacity(
        pb.GetCapacityRequest(spec=a_request().spec), timeout=10
    )

    assert (allowed.fits, allowed.offload_fits) == (1, 80)
    assert (refused.fits, refused.offload_fits) == (1, 0)
    assert [loss.node_id for loss in allowed.losses] == ["n1", "n2"]
    assert allowed.survives_any_loss


@soon
async def test_an_offloaded_workload_returns_and_runs_all_the_time(cluster: Cluster) -> None:
    home, far = await an_offloaded_workload(cluster)
    home.agent.behaviour.work_seconds = 0.5
    await cluster.control.delete("first")

    async def runs_at_home() -> bool:
        assert "web" in far.agent.running() or "web" in home.agent.running()
        return "web" in home.agent.running()

    await eventually(runs_at_home, lambda: "web to run on n1")
    view = await until_on(cluster, "n1")
    assert view.placement.startswith("returned from far in tier 1")

    async def removed() -> bool:
        return "web" not in far.agent.running()

    await eventually(removed, lambda: "the offloaded copy to be removed")
    assert "web" in home.agent.running()


@soon
async def test_a_return_is_continued_by_the_next_leader(cluster: Cluster) -> None:
    far = await a_remote(cluster)
    await cluster.control.send(a_request(offload=Offload.WHEN_FULL, returns=True))
    await until_on(cluster, "far")
    home = await cluster.prepare("n1")
    home.agent.behaviour.work_seconds = 3600  # it does not start yet
    await home.join()

    async def is_sent() -> bool:
        return any(order.id == "web" for order in home.agent.applies)

    await eventually(is_sent, lambda: "the order for n1")
    await cluster.stop()
    await cluster.start()
    (copy,) = (await explained(cluster)).copies
    assert copy.endswith("which is removed when the workload runs in tier 0")
    assert "web" in far.agent.running()
    assert not far.agent.deletes
    home.agent.behaviour.work_seconds = 0.02
    await cluster.control.stub.RedeployWorkload(
        pb.RedeployWorkloadRequest(workload_id="web"), timeout=10
    )

    await until_on(cluster, "n1")

    async def removed() -> bool:
        return "web" not in far.agent.running()

    await eventually(removed, lambda: "the offloaded copy to be removed")


@soon
async def test_a_failed_return_keeps_the_offloaded_copy(cluster: Cluster) -> None:
    home, far = await an_offloaded_workload(cluster)
    home.agent.behaviour.failures["web"] = ("RUNTIME_ERROR", "no such device")
    await cluster.control.delete("first")

    async def has_failed() -> bool:
        view = await cluster.control.workload("web")
        return "its return failed" in view.placement and view.status == "Running"

    await eventually(has_failed, lambda: "the return to fail")

    async def removed() -> bool:
        return "web" in home.agent.deletes

    await eventually(removed, lambda: "the failed copy to be removed")
    assert "web" not in far.agent.deletes
    assert far.agent.starts.count("web") == 1
    assert "the last attempt failed" in (await explained(cluster)).summary


@soon
async def test_a_workload_that_waits_is_placed_before_another_returns(cluster: Cluster) -> None:
    home, _far = await an_offloaded_workload(cluster)
    await cluster.control.apply("waits", cpu=900)
    await cluster.control.until("waits", "Pending")
    await cluster.control.delete("first")

    await until_on(cluster, "n1", "waits")

    assert "web" not in {order.id for order in home.agent.applies}


async def test_offloaded_workloads_and_their_price_are_exported(cluster: Cluster) -> None:
    await a_remote(cluster, price=0.25)
    await cluster.control.send(a_request(offload=Offload.PREFER))
    await until_on(cluster, "far")
    url = f"http://127.0.0.1:{cluster.settings.metrics_port}/metrics"
    text = ""

    async def exported() -> bool:
        nonlocal text
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            text = await response.text()
        return 'persys_offloaded_workloads{tier="1",type="container"} 1.0' in text

    await eventually(exported, lambda: f"the workload to be counted: {text}")
    assert "persys_offload_spend_per_hour 0.2\n" in text
