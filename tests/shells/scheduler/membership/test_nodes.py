"""Nodes register, stop sending heartbeats, return and are lost."""

import asyncio
from datetime import timedelta

import pytest

from persys.scheduler.membership.leases import JUDGE_AGAIN_SECONDS
from persys.store import keys
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually

SHORT_LEASE = {
    "node_lease": timedelta(seconds=1.5),
    "node_unavailable_grace": timedelta(seconds=60),
}
SHORT_GRACE = {
    "node_lease": timedelta(seconds=1.5),
    "node_unavailable_grace": timedelta(seconds=0.5),
}

short_lease = pytest.mark.parametrize("cluster", [SHORT_LEASE], indirect=True, ids=[""])
short_grace = pytest.mark.parametrize("cluster", [SHORT_GRACE], indirect=True, ids=[""])


async def test_a_registered_node_is_ready_and_gets_the_heartbeat_interval(cluster: Cluster) -> None:
    node = await cluster.prepare("n1")
    response = await node.register()
    view = await cluster.control.node("n1")

    assert response.accepted
    assert response.heartbeat_interval_seconds == 1
    assert response.HasField("lease_expires_at")
    assert (view.status, view.grpc_endpoint) == ("Ready", node.agent.endpoint)
    assert (view.total_cpu_cores, view.available_cpu_cores) == (4, 4)
    assert (view.total_memory_mb, view.total_disk_gb) == (8192, 100)
    assert list(view.supported_workload_types) == ["compose", "container"]


async def test_a_heartbeat_renews_the_lease(cluster: Cluster) -> None:
    node = await cluster.prepare("n1")
    granted = (await node.register()).lease_expires_at.ToDatetime()
    response = await node.heartbeat()

    assert response.acknowledged
    assert not response.drain_node
    assert response.lease_expires_at.ToDatetime() > granted


async def test_assigned_resources_are_no_longer_available(cluster: Cluster) -> None:
    await cluster.join()
    await cluster.control.apply("web", cpu=1500, memory=1024)
    view = await cluster.control.node("n1")

    assert view.available_cpu_cores == 2.5
    assert view.available_memory_mb == 8192 - 1024
    assert view.workload_count == 1


@pytest.mark.parametrize(
    "cluster", [{"node_lease": timedelta(seconds=60)}], indirect=True, ids=[""]
)
async def test_a_node_that_reports_while_another_change_of_it_is_stored_is_not_lost(
    cluster: Cluster,
) -> None:
    node = await cluster.prepare("n1")
    await node.register()
    cluster.store.commit_seconds = 3.0
    async with asyncio.TaskGroup() as group:
        group.create_task(change(cluster, "CordonNode"))
        await until_commits(cluster, cluster.store.commits + 1)
        cluster.clock.monotonic_ahead = 61.0
        await asyncio.sleep(1.5 * JUDGE_AGAIN_SECONDS)  # its lease is found to be over
        await node.heartbeat()

    # Changes of one node are serialized: the check of its lease has ended after this one.
    cluster.store.commit_seconds = 0.0
    await change(cluster, "UncordonNode")

    response = await cluster.control.stub.ListEvents(pb.ListEventsRequest(node_id="n1"), timeout=10)
    assert "NodeNotReady" not in {event.kind for event in response.events}


async def change(cluster: Cluster, verb: str) -> None:
    method = getattr(cluster.control.stub, verb)
    assert (await method(pb.NodeRequest(node_id="n1"), timeout=30)).accepted


async def until_commits(cluster: Cluster, count: int) -> None:
    async def holds_now() -> bool:
        return cluster.store.commits >= count

    await eventually(holds_now, lambda: f"{count} commits: {cluster.store.commits}")


@short_lease
async def test_a_node_without_heartbeats_is_not_ready_until_it_sends_them_again(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    await node.stop_heartbeats()

    view = await cluster.control.until_node("n1", "NotReady")
    assert view.status_reason == "no heartbeat for 1.5s"
    silent = await cluster.control.until("web", "Unknown")
    assert silent.reason.code == "NodeNotReady"
    assert silent.assigned_node_id == "n1"

    node.start_heartbeats()
    await cluster.control.until_node("n1", "Ready")
    await cluster.control.until("web", "Running")
    assert len(node.agent.applies) == 1


@short_lease
async def test_nothing_is_placed_on_a_node_without_heartbeats(cluster: Cluster) -> None:
    node = await cluster.join()
    await node.stop_heartbeats()
    await cluster.control.until_node("n1", "NotReady")
    await cluster.control.apply("web")
    view = await cluster.control.until("web", "Pending")
    assert view.reason.message == "1 node not ready"
    assert node.agent.applies == []

    node.start_heartbeats()
    await cluster.control.until("web", "Running")


async def test_a_node_of_another_cluster_is_refused_and_one_without_a_cluster_joins(
    cluster: Cluster,
) -> None:
    node = await cluster.prepare()
    node.cluster_id = "another"

    refused = await node.register()
    assert not refused.accepted
    assert "this scheduler serves cluster 'default'" in refused.reason
    assert (await cluster.control.summary()).total_nodes == 0
    for accepted in ("", "default"):
        node.cluster_id = accepted
        assert (await node.register()).accepted


async def test_registering_again_changes_nothing_that_runs(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply("web", cpu=1000)
    await cluster.control.until("web", "Running")
    await node.stop_heartbeats()
    before = await cluster.control.node("n1")
    written = cluster.store.transactions
    assert (await node.register()).accepted
    after = await cluster.control.node("n1")

    assert (after.status, after.available_cpu_cores) == ("Ready", 3)
    assert after.status_updated_at == before.status_updated_at
    assert cluster.store.transactions == written
    assert len(node.agent.applies) == 1


async def test_registering_again_with_other_figures_changes_the_figures(cluster: Cluster) -> None:
    node = await cluster.join(cpu=4000)
    await cluster.control.apply("web", cpu=1000)
    node.capabilities.cpu_total_millicores = 8000
    await node.register()
    view = await cluster.control.node("n1")

    assert (view.total_cpu_cores, view.available_cpu_cores) == (8, 7)


async def test_a_node_that_moved_is_reached_at_its_new_address(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply("a")
    await cluster.control.until("a", "Running")
    await node.agent.stop()
    node.agent.endpoint = ""
    await node.agent.start()
    await node.register()
    await cluster.control.apply("b")

    await cluster.control.until("b", "Running")


@short_lease
async def test_a_deletion_on_an_unreachable_node_ends_when_it_returns(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    await node.stop_heartbeats()
    await cluster.control.until_node("n1", "NotReady")
    assert (await cluster.control.delete("web")).success
    view = await cluster.control.workload("web")
    assert (view.status, view.reason.code) == ("Deleting", "Deleting")
    assert "is not sending heartbeats" in view.reason.message

    node.start_heartbeats()
    await cluster.control.until_gone("web")
    assert node.agent.running() == set()


@short_grace
async def test_a_deletion_on_a_lost_node_ends_and_its_copy_is_removed_when_the_node_returns(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    await cluster.control.apply("web", cpu=1000)
    await cluster.control.until("web", "Running")
    await node.die()
    await cluster.control.until_node("n1", "NotReady")
    assert (await cluster.control.delete("web")).success
    await cluster.control.until_gone("web")

    # Its capacity stays reserved until the node has confirmed the removal.
    assert (await cluster.control.node("n1")).available_cpu_cores == 3
    await node.agent.start()
    await node.join()

    async def stale() -> bool:
        view = await cluster.control.node("n1")
        return node.agent.running() == set() and view.available_cpu_cores == 4

    await eventually(stale, lambda: f"the old copy to go: {node.agent.copies}")


@short_grace
async def test_an_id_deleted_on_a_lost_node_runs_on_another_and_the_stale_copy_is_removed(
    cluster: Cluster,
) -> None:
    lost = await cluster.join("n1")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    await lost.die()
    await cluster.control.until_node("n1", "NotReady")
    await cluster.control.delete("web")
    await cluster.control.until_gone("web")
    other = await cluster.join("n2")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    await lost.agent.start()
    await lost.join()

    async def only_on_the_other() -> bool:
        return lost.agent.running() == set()

    await eventually(only_on_the_other, lambda: f"the old copy to go: {lost.agent.copies}")
    assert other.agent.running() == {"web"}
    assert (await cluster.control.workload("web")).assigned_node_id == "n2"


async def test_a_node_that_pushes_status_is_not_polled(cluster: Cluster) -> None:
    node = await cluster.prepare("n1")
    node.agent.behaviour.work_seconds = 1000
    request = pb.RegisterNodeRequest(
        node_id="n1",
        capabilities=node.capabilities,
        grpc_endpoint=node.agent.endpoint,
        features=["push-status"],
    )
    await cluster.control.stub.RegisterNode(request, timeout=10)
    response = await cluster.control.apply("web")

    async def sent() -> bool:
        return len(node.agent.applies) == 1

    await eventually(sent, lambda: "the order to arrive")
    report = pb.HeartbeatRequest(
        node_id="n1",
        workload_statuses=[
            pb.WorkloadStatus(
                workload_id="web", state="Running", revision_id=response.revision_id, epoch=1
            )
        ],
    )

    async def is_accepted() -> bool:
        await cluster.control.stub.Heartbeat(report, timeout=10)
        return (await cluster.control.workload("web")).status == "Running"

    await eventually(is_accepted, lambda: "the report to be believed")
    assert node.agent.asked == []


@short_lease
async def test_a_lease_that_expires_during_a_removal_does_not_create_the_node_again(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    await node.stop_heartbeats()
    cluster.store.commit_seconds = 2.0
    request = pb.NodeRequest(node_id="n1")
    assert (await cluster.control.stub.RemoveNode(request, timeout=30)).accepted
    cluster.store.commit_seconds = 0.0

    await cluster.join("n2")  # its commit follows those of the lease

    snapshot = await cluster.store.store.read(keys.NODES)
    assert {record.key.removeprefix(keys.NODES).split("/")[0] for record in snapshot.records} == {
        "n2"
    }
