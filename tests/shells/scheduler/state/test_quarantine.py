"""A scheduler on a store with a damaged record: it is reported and not overwritten, everything else works."""

import pytest
from structlog.testing import capture_logs

from persys.store.port import Record, Unit
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster
from shells.scheduler.recovery.test_mode import mode, until_mode
from shells.scheduler.third_party_agent import Node


async def a_node_with_web(cluster: Cluster) -> Node:
    """A node that runs `web`, and a store with most types of records."""
    node = await cluster.join("n1")
    await cluster.control.apply("web", host_port=8080)
    await cluster.control.until("web", "Running")
    node.agent.behaviour.failures["broken"] = ("IMAGE_NOT_FOUND", "no such image")
    await cluster.control.apply("broken")
    await cluster.control.until("broken", "Failed")
    return node


async def stored(cluster: Cluster, key: str) -> Record:
    found = await cluster.store.store.get(key)
    assert found is not None
    return found


async def damage(cluster: Cluster, key: str, *, at: int = 40) -> Record:
    """Flip a bit of a stored record while no scheduler runs."""
    value = bytearray((await stored(cluster, key)).value)
    value[at % len(value)] ^= 0x04
    await cluster.store.store.commit([Unit(puts={key: bytes(value)})])
    return await stored(cluster, key)


async def restart_with_damage(cluster: Cluster, key: str) -> tuple[Record, list[str]]:
    """The damaged record, and the keys that the scheduler named in its log."""
    await cluster.stop()
    damaged = await damage(cluster, key)
    with capture_logs() as lines:
        await cluster.start()
    return damaged, [line["key"] for line in lines if line.get("where") == "record"]


@pytest.mark.parametrize(
    "prefix",
    ["/nodes/", "/workloads/", "/assignments/", "/beliefs/", "/retries/", "/events/"],
)
async def test_a_damaged_record_is_named_and_other_workloads_converge(
    cluster: Cluster, prefix: str
) -> None:
    node = await a_node_with_web(cluster)
    key = (await cluster.store.store.read(prefix)).records[-1].key

    _, named = await restart_with_damage(cluster, key)
    await node.join()
    await cluster.control.apply("fresh")
    await cluster.control.until("fresh", "Running")

    assert named == [key]


async def test_a_workload_whose_assignment_is_unreadable_is_not_placed_a_second_time(
    cluster: Cluster,
) -> None:
    first = await a_node_with_web(cluster)
    damaged, _ = await restart_with_damage(cluster, "/assignments/web")
    second = await cluster.join("n2")
    await first.join()

    response = await cluster.control.apply("web", host_port=9090)
    deleted = await cluster.control.delete("web")
    await cluster.control.apply("fresh")
    await cluster.control.until("fresh", "Running")

    assert not response.success
    assert "/assignments/web" in response.error_message
    assert not deleted.success
    assert [order.id for order in (*first.agent.applies, *second.agent.applies)].count("web") == 1
    assert "web" in first.agent.running()
    assert await stored(cluster, "/assignments/web") == damaged


async def test_a_copy_of_an_unreadable_workload_keeps_its_reservation_and_is_not_an_orphan(
    cluster: Cluster,
) -> None:
    node = await a_node_with_web(cluster)
    damaged, _ = await restart_with_damage(cluster, "/workloads/web")
    await node.join()

    await cluster.control.apply("rival", host_port=8080)
    await cluster.control.until("rival", "Pending")
    removal = await cluster.control.stub.RemoveNode(pb.NodeRequest(node_id="n1"), timeout=10)
    drifts = await cluster.control.stub.ListDrifts(pb.ListDriftsRequest(), timeout=10)

    assert not removal.accepted
    assert list(drifts.drifts) == []
    assert "web" in node.agent.running()
    assert await stored(cluster, "/workloads/web") == damaged


async def test_a_node_whose_record_is_unreadable_registers_again_and_keeps_its_workloads(
    cluster: Cluster,
) -> None:
    node = await a_node_with_web(cluster)
    other = await cluster.join("n2")
    await restart_with_damage(cluster, "/nodes/n1")

    # Nothing is moved while the node is unknown.
    await cluster.control.apply("fresh")
    await cluster.control.until("fresh", "Running")
    assert [order.id for order in other.agent.applies] == ["fresh"]

    await node.join()
    await cluster.control.until_node("n1", "Ready")
    events = await cluster.control.stub.ListEvents(pb.ListEventsRequest(node_id="n1"), timeout=10)

    assert (await cluster.control.workload("web")).assigned_node_id == "n1"
    assert [order.id for order in node.agent.applies].count("web") == 1
    assert any("unreadable record" in event.message for event in events.events)
    await cluster.stop()
    with capture_logs() as lines:
        await cluster.start()
    assert not [line for line in lines if line.get("where") == "record"]


async def test_a_damaged_status_is_replaced_by_the_next_one(cluster: Cluster) -> None:
    node = await a_node_with_web(cluster)
    await restart_with_damage(cluster, "/beliefs/web")

    await node.join()

    await cluster.control.until("web", "Running")
    assert [order.id for order in node.agent.applies].count("web") <= 2


async def test_a_secret_that_is_unreadable_is_not_overwritten(cluster: Cluster) -> None:
    put = pb.PutSecretRequest(name="db", value=b"one")
    await cluster.control.stub.PutSecret(put, timeout=10)
    damaged, _ = await restart_with_damage(cluster, "/secrets/db")

    response = await cluster.control.stub.PutSecret(put, timeout=10)

    assert not response.accepted
    assert "/secrets/db" in response.reason
    assert await stored(cluster, "/secrets/db") == damaged


async def test_an_operator_repairs_it_by_deleting_the_key(cluster: Cluster) -> None:
    node = await a_node_with_web(cluster)
    await restart_with_damage(cluster, "/assignments/web")
    await cluster.stop()
    await cluster.store.store.commit([Unit(deletes=["/assignments/web"])])
    await cluster.start()

    await node.join()
    view = await cluster.control.until("web", "Running")

    assert view.assigned_node_id == "n1"
    assert "web" in node.agent.running()


async def test_a_snapshot_is_taken_beside_a_damaged_record(cluster: Cluster) -> None:
    await a_node_with_web(cluster)
    await cluster.stop()
    value = bytearray((await stored(cluster, "/workloads/web")).value)
    value[30] = 0xFF  # not UTF-8
    await cluster.store.store.commit([Unit(puts={"/workloads/web": bytes(value)})])
    await cluster.start()

    stream = cluster.control.stub.SaveSnapshot(pb.SaveSnapshotRequest(), timeout=30)

    assert [chunk async for chunk in stream]


async def test_a_damaged_marker_means_recovery_and_not_a_new_cluster(cluster: Cluster) -> None:
    node = await a_node_with_web(cluster)
    await cluster.stop()
    await damage(cluster, "/cluster")
    await cluster.start()

    await until_mode(cluster.control, "recovery")
    response = await cluster.control.stub.AcceptEmpty(pb.AcceptEmptyRequest(), timeout=30)
    assert response.accepted, response.reason
    await until_mode(cluster.control, "normal")
    await node.join()
    await cluster.control.apply("fresh")

    await cluster.control.until("fresh", "Running")
    assert [order.id for order in node.agent.applies].count("web") == 1


async def test_a_marker_of_a_newer_version_is_not_replaced(cluster: Cluster) -> None:
    await a_node_with_web(cluster)
    await cluster.stop()
    newer = b'{"schema":99,"uid":"u9"}'
    await cluster.store.store.commit([Unit(puts={"/cluster": newer})])
    await cluster.start()

    await until_mode(cluster.control, "recovery")
    response = await cluster.control.stub.AcceptEmpty(pb.AcceptEmptyRequest(), timeout=30)

    assert not response.accepted
    assert "schema 99" in response.reason
    assert (await stored(cluster, "/cluster")).value == newer


async def test_many_unreadable_records_are_not_all_named_in_the_log(cluster: Cluster) -> None:
    await cluster.stop()
    damaged = {f"/workloads/w{number}": b"damaged" for number in range(200)}
    await cluster.store.store.commit([Unit(puts={key: damaged[key]}) for key in damaged])

    with capture_logs() as lines:
        await cluster.start()

    assert sum(line.get("where") == "record" for line in lines) == 50
    assert [line["count"] for line in lines if line["event"] == "records.quarantined"] == [200]


async def test_a_damaged_leader_record_does_not_keep_a_scheduler_from_starting(
    cluster: Cluster,
) -> None:
    await a_node_with_web(cluster)
    await cluster.stop()
    await damage(cluster, "/leader")

    await cluster.start()

    assert (await mode(cluster.control)).mode == "normal"
