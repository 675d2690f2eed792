"""Workloads leave a node that is lost or drained; workloads with data stay."""

from datetime import timedelta

import pytest

from persys.model import feature
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.third_party_agent import Node

SHORT = {
    "node_lease": timedelta(seconds=1.5),
    "node_unavailable_grace": timedelta(seconds=0.5),
}
short_grace = pytest.mark.parametrize("cluster", [SHORT], indirect=True, ids=[""])


async def apply_with_data(cluster: Cluster, name: str) -> None:
    volume = pb.VolumeMount(host_path="/srv/data", container_path="/data")
    spec = pb.WorkloadSpec(
        type="container", container=pb.ContainerSpec(image="db", volumes=[volume])
    )
    response = await cluster.control.send(pb.ApplyWorkloadRequest(workload_id=name, spec=spec))
    assert response.success, response.error_message
    await cluster.control.until(name, "Running")


async def two_nodes(cluster: Cluster, name: str = "web") -> tuple[Node, Node]:
    """A node that runs the workload, and an empty one."""
    first = await cluster.join("n1")
    await cluster.control.apply(name)
    await cluster.control.until(name, "Running")
    return first, await cluster.join("n2")


async def change_node(cluster: Cluster, verb: str, node_id: str = "n1") -> pb.NodeAnswer:
    method = getattr(cluster.control.stub, verb)
    kind = pb.DrainNodeRequest if verb == "DrainNode" else pb.NodeRequest
    response: pb.NodeAnswer = await method(kind(node_id=node_id), timeout=10)
    return response


@short_grace
async def test_a_workload_of_a_lost_node_is_rescheduled_and_its_old_copy_removed_on_return(
    cluster: Cluster,
) -> None:
    lost, other = await two_nodes(cluster)
    await lost.die()

    async def moved() -> bool:
        view = await cluster.control.workload("web")
        return (view.assigned_node_id, view.status) == ("n2", "Running")

    await eventually(moved, lambda: "web to run on n2")
    assert (await cluster.control.workload("web")).epoch == 2
    await lost.agent.start()
    await lost.join()

    async def only_once() -> bool:
        return lost.agent.running() == set()

    await eventually(only_once, lambda: f"the old copy to go: {lost.agent.copies}")
    assert other.agent.running() == {"web"}


@short_grace
async def test_promise_4_a_workload_with_data_stays_assigned_until_its_node_is_confirmed_dead(
    cluster: Cluster,
) -> None:
    lost = await cluster.join("n1")
    await apply_with_data(cluster, "db")
    other = await cluster.join("n2")
    await lost.die()

    async def shows_reason() -> bool:
        view = await cluster.control.workload("db")
        return "confirmed dead" in view.reason.message

    await eventually(shows_reason, lambda: "db to say why it stays")
    assert other.agent.running() == set()

    assert (await change_node(cluster, "ConfirmNodeDead")).accepted
    await cluster.control.until("db", "Running")
    assert (await cluster.control.workload("db")).assigned_node_id == "n2"
    assert other.agent.running() == {"db"}


@short_grace
async def test_workloads_that_fit_on_no_other_node_resume_when_the_lost_node_returns(
    cluster: Cluster,
) -> None:
    node = await cluster.join("n1")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    await node.die()

    async def stranded() -> bool:
        return (await cluster.control.workload("web")).reason.code == "NodeLost"

    await eventually(stranded, lambda: "web to be stranded")
    assert "other nodes: " in (await cluster.control.workload("web")).reason.message
    await node.agent.start()
    await node.join()
    await cluster.control.until("web", "Running")
    assert (await cluster.control.workload("web")).epoch == 1


async def test_only_a_node_without_heartbeats_can_be_confirmed_dead(cluster: Cluster) -> None:
    await cluster.join("n1")
    response = await change_node(cluster, "ConfirmNodeDead")

    assert not response.accepted
    assert "n1 is Ready" in response.reason


async def test_a_cordoned_node_keeps_its_workloads_and_gets_no_new_ones(cluster: Cluster) -> None:
    node = await cluster.join("n1")
    await cluster.control.apply("old")
    await cluster.control.until("old", "Running")
    assert (await change_node(cluster, "CordonNode")).node.cordoned
    await cluster.control.apply("new")
    view = await cluster.control.workload("new")
    assert "cordoned" in view.reason.message
    assert node.agent.running() == {"old"}

    assert (await change_node(cluster, "UncordonNode")).accepted
    await cluster.control.until("new", "Running")


async def test_promise_12_a_node_reported_as_drained_is_empty(cluster: Cluster) -> None:
    first, other = await two_nodes(cluster)
    first.agent.behaviour.answer_seconds = 0.3
    response = await change_node(cluster, "DrainNode")
    assert response.node.status == "Draining"

    async def drained() -> bool:
        view = await cluster.control.node("n1")
        if view.drain.state != "drained":
            return False
        assert first.agent.running() == set()
        return True

    await eventually(drained, lambda: "n1 to be drained")
    await cluster.control.until("web", "Running")
    assert other.agent.running() == {"web"}


async def drain_state(cluster: Cluster) -> str:
    return (await cluster.control.node("n1")).drain.state


async def list_workloads(cluster: Cluster, *names: str) -> None:
    """A heartbeat of n1 with the full list of its workloads."""
    statuses = [pb.WorkloadStatus(workload_id=name, state="Running") for name in names]
    report = pb.HeartbeatRequest(node_id="n1", workload_statuses=statuses, complete=True)
    await cluster.control.stub.Heartbeat(report, timeout=10)


async def test_promise_12_a_node_with_copies_that_are_not_orphans_yet_is_not_drained(
    cluster: Cluster,
) -> None:
    """After a loss of the store no copy has a record, and orphans are recorded after a while."""
    node = await cluster.prepare("n1")
    await node.register()
    await list_workloads(cluster, "web")
    await change_node(cluster, "DrainNode")
    view = await cluster.control.node("n1")

    assert (view.drain.state, view.drain.remaining) == ("draining", 1)
    assert [block.workload_id for block in view.drain.blocked] == ["web"]


async def test_promise_12_a_node_is_not_drained_before_its_agent_has_listed_its_workloads(
    cluster: Cluster,
) -> None:
    registration = pb.RegisterNodeRequest(
        node_id="n1",
        capabilities=pb.NodeCapabilities(cpu_total_millicores=4000, memory_total_mb=8192),
        grpc_endpoint="127.0.0.1:1",
        features=[feature.PUSHES_STATUS],
    )
    assert (await cluster.control.stub.RegisterNode(registration, timeout=10)).accepted
    await change_node(cluster, "DrainNode")
    before = await drain_state(cluster)

    await list_workloads(cluster)

    assert (before, await drain_state(cluster)) == ("draining", "drained")


async def test_a_drain_names_the_remaining_workloads_and_reasons(cluster: Cluster) -> None:
    await cluster.join("n1")
    await cluster.join("n2", cpu=50)
    await apply_with_data(cluster, "db")
    await cluster.control.apply("web", cpu=1000)
    await cluster.control.until("web", "Running")
    await change_node(cluster, "DrainNode")
    blocked = {
        block.workload_id: block.reason
        for block in (await cluster.control.node("n1")).drain.blocked
    }

    assert blocked["db"] == "its data is on this node"
    assert "short of cpu" in blocked["web"]
    assert (await cluster.control.workload("web")).status == "Running"


async def test_a_drain_continues_when_capacity_is_freed(cluster: Cluster) -> None:
    await cluster.join("n1")
    await cluster.control.apply("web", cpu=1000)
    await cluster.control.until("web", "Running")
    await change_node(cluster, "DrainNode")
    other = await cluster.join("n2")

    async def moved() -> bool:
        return other.agent.running() == {"web"}

    await eventually(moved, lambda: "web to move to n2")


async def test_a_drain_survives_a_restart_of_the_scheduler(cluster: Cluster) -> None:
    await cluster.join("n1")
    await change_node(cluster, "DrainNode")
    await cluster.stop()
    await cluster.start()
    view = await cluster.control.node("n1")

    assert (view.status, view.drain.state) == ("Draining", "drained")


async def test_a_node_with_workloads_is_not_removed_and_an_empty_one_is(cluster: Cluster) -> None:
    node = await cluster.join("n1")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    refused = await change_node(cluster, "RemoveNode")
    assert not refused.accepted
    assert "web" in refused.reason

    await cluster.control.delete("web")
    await cluster.control.until_gone("web")
    await node.stop_heartbeats()
    assert (await change_node(cluster, "RemoveNode")).accepted
    assert not (await change_node(cluster, "RemoveNode")).accepted


async def test_how_far_a_clock_is_ahead_is_shown(cluster: Cluster) -> None:
    node = await cluster.prepare("n1")
    await node.register()
    ahead = pb.HeartbeatRequest(node_id="n1")
    ahead.timestamp.FromDatetime(cluster.clock.now() + timedelta(seconds=90))
    await cluster.control.stub.Heartbeat(ahead, timeout=10)
    skew = (await cluster.control.node("n1")).clock_skew_ms

    assert 85_000 < skew <= 90_000


@pytest.mark.parametrize(
    "cluster",
    [
        {
            "node_lease": timedelta(seconds=2),
            "node_unavailable_grace": timedelta(seconds=0.5),
            "reconcile_interval": timedelta(minutes=10),
            "drift_detect_interval": timedelta(minutes=10),
        }
    ],
    indirect=True,
    ids=["no safety passes"],
)
async def test_promise_2_capacity_of_a_removed_copy_is_used_at_once(cluster: Cluster) -> None:
    lost = await cluster.join("n1")
    await cluster.control.apply("web", cpu=3000)
    await cluster.control.until("web", "Running")
    await lost.die()
    await cluster.control.until_node("n1", "NotReady")
    await cluster.control.delete("web")
    await cluster.control.until_gone("web")
    await lost.agent.start()
    await cluster.control.apply("next", cpu=3000)

    await lost.join()

    await cluster.control.until("next", "Running")
    assert lost.agent.running() == {"next"}
