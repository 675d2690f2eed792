"""An id that is deleted while its node is unreachable and applied again; the node returns or stays lost."""

from datetime import timedelta

import pytest

from persys.model.placement import EpochCounter
from persys.store import keys
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.stored.records import decode
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.reconcile.test_failover import apply_with_data, change_node
from shells.scheduler.third_party_agent import Node

SHORT = {
    "node_lease": timedelta(seconds=2),
    "node_unavailable_grace": timedelta(seconds=0.5),
}
short_grace = pytest.mark.parametrize("cluster", [SHORT], indirect=True, ids=[""])


async def deleted_while_away(cluster: Cluster, name: str) -> Node:
    """A node that still runs a copy of a workload that was deleted while the node was unreachable."""
    node = await cluster.join("n1")
    await apply_with_data(cluster, name)
    await node.die()
    await cluster.control.until_node("n1", "NotReady")
    await cluster.control.delete(name)
    await cluster.control.until_gone(name)
    return node


async def apply_again(cluster: Cluster, name: str) -> None:
    volume = pb.VolumeMount(host_path="/srv/data", container_path="/data")
    spec = pb.WorkloadSpec(
        type="container", container=pb.ContainerSpec(image="db", volumes=[volume])
    )
    response = await cluster.control.send(pb.ApplyWorkloadRequest(workload_id=name, spec=spec))
    assert response.success, response.error_message


@short_grace
async def test_promise_4_a_new_workload_waits_while_the_stale_copy_may_run(
    cluster: Cluster,
) -> None:
    await deleted_while_away(cluster, "db")
    other = await cluster.join("n2")

    await apply_again(cluster, "db")

    view = await cluster.control.workload("db")
    assert (view.status, view.assigned_node_id) == ("Pending", "")
    assert "an old copy may still run on n1" in view.reason.message
    assert other.agent.running() == set()

    assert (await change_node(cluster, "ConfirmNodeDead")).accepted
    await cluster.control.until("db", "Running")
    assert other.agent.running() == {"db"}


@short_grace
async def test_a_new_workload_starts_when_the_node_has_removed_the_stale_copy(
    cluster: Cluster,
) -> None:
    node = await deleted_while_away(cluster, "db")
    await apply_again(cluster, "db")

    await node.agent.start()
    await node.join()

    view = await cluster.control.until("db", "Running")
    assert view.epoch > 1
    epochs = [order.epoch for order in node.agent.applies]
    assert list(dict.fromkeys(epochs)) == [1, view.epoch]  # an order may be repeated
    assert node.agent.running() == {"db"}


async def test_an_epoch_that_a_node_invents_is_not_used(cluster: Cluster) -> None:
    node = await cluster.join("n1")
    await cluster.control.apply("first")
    await cluster.control.until("first", "Running")
    made_up = pb.WorkloadStatus(workload_id="web", state="Running", epoch=2**63 - 1)
    await cluster.control.stub.Heartbeat(
        pb.HeartbeatRequest(node_id="n1", workload_statuses=[made_up], complete=True), timeout=10
    )

    assert (await cluster.control.apply("web")).success

    view = await cluster.control.until("web", "Running")
    assert view.epoch == 2
    await cluster.stop()
    await cluster.start()
    assert (await cluster.control.apply("third")).success
    assert node.agent.running() >= {"first", "web"}


async def test_epochs_increase_over_deletions_and_leaders_and_an_idle_leader_reserves_none(
    cluster: Cluster,
) -> None:
    await cluster.join("n1")
    seen = []
    for _ in range(3):
        await cluster.control.apply("web")
        seen.append((await cluster.control.until("web", "Running")).epoch)
        await cluster.control.delete("web")
        await cluster.control.until_gone("web")
    assert seen == [1, 2, 3]

    for _ in range(2):
        await cluster.stop()
        before = (await cluster.store.read(keys.EPOCHS)).records
        await cluster.start()
        assert (await cluster.store.read(keys.EPOCHS)).records == before
    await cluster.control.apply("web")

    epoch = (await cluster.control.until("web", "Running")).epoch
    started = cluster.clock.now().timestamp() - epoch / 1e6
    assert 0 < started < 600


async def test_the_epoch_of_every_order_is_reserved_on_record(cluster: Cluster) -> None:
    await cluster.join("n1")
    await cluster.control.apply("web")
    epoch = (await cluster.control.until("web", "Running")).epoch

    (stored,) = (await cluster.store.read(keys.EPOCHS)).records

    assert decode(stored.value, EpochCounter).reserved_until >= epoch > 0


async def test_a_stale_copy_that_a_node_did_not_report_keeps_its_tombstone(
    cluster: Cluster,
) -> None:
    """The stale copy of a moved workload is removed with its own epoch."""
    first = await cluster.join("n1")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    await cluster.join("n2")
    assert (await change_node(cluster, "DrainNode")).accepted

    async def gone() -> bool:
        return first.agent.running() == set()

    await eventually(gone, lambda: f"the old copy to go: {first.agent.copies}")
    assert (await cluster.control.workload("web")).epoch == 2


async def test_a_tombstone_stays_until_the_node_has_acknowledged_the_removal(
    cluster: Cluster,
) -> None:
    """The absence of the copy is not enough: the order to start it may still be in flight."""
    first = await cluster.join("n1")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    await cluster.join("n2")
    await first.agent.stop()
    assert (await change_node(cluster, "DrainNode")).accepted

    async def moved() -> bool:
        return (await cluster.control.workload("web")).assigned_node_id == "n2"

    async def removed() -> bool:
        request = pb.ListEventsRequest(kinds=["OldCopyRemoved"])
        return bool((await cluster.control.stub.ListEvents(request, timeout=10)).events)

    await eventually(moved, lambda: "web to move")
    await cluster.control.until("web", "Running")
    first.agent.copies.clear()
    await cluster.control.stub.Heartbeat(
        pb.HeartbeatRequest(node_id="n1", complete=True), timeout=10
    )
    assert not await removed()

    await first.agent.start()

    await eventually(removed, lambda: "the tombstone to be dropped")
