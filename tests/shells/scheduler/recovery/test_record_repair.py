"""An operator inspects and deletes an unreadable stored record while the scheduler runs."""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import grpc
import pytest

from e2e.etcd import Etcd
from persys.infra.clock import SystemClock
from persys.model.identity import Role
from persys.store.etcd import EtcdOptions, EtcdStore
from persys.store.memory import MemoryStore
from persys.store.port import Store, Unit
from persys.store.sqlite import SqliteStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from root_ca import Root
from shells.scheduler.harness import Cluster, Control, a_cluster, eventually, fast_settings
from shells.scheduler.replicas import some_replicas, until_leading
from shells.scheduler.state.test_quarantine import restart_with_damage
from shells.scheduler.stores import FaultyStore

_prefixes = count()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["sqlite", "etcd"])
async def stored(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster on a real store."""
    store: Store
    if request.param == "etcd":
        endpoint = request.getfixturevalue("etcd").endpoint
        store = await EtcdStore.open(EtcdOptions((endpoint,), prefix=f"/repair-{next(_prefixes)}"))
    else:
        store = await SqliteStore.open(tmp_path / "store.db", monotonic=SystemClock().monotonic)
    async with a_cluster(FaultyStore(store), fast_settings()) as cluster:
        yield cluster
    await store.close()


async def listed(control: Control) -> dict[str, pb.QuarantinedRecord]:
    response = await control.stub.ListRecords(pb.ListRecordsRequest(), timeout=10)
    return {record.key: record for record in response.records}


async def get(control: Control, key: str) -> pb.RecordView:
    view: pb.RecordView = await control.stub.GetRecord(pb.GetRecordRequest(key=key), timeout=10)
    return view


async def delete(control: Control, key: str, *, version: int = 0) -> pb.DeleteRecordResponse:
    request = pb.DeleteRecordRequest(key=key, stored_version=version)
    response: pb.DeleteRecordResponse = await control.stub.DeleteRecord(request, timeout=30)
    return response


def with_volume(name: str) -> pb.ApplyWorkloadRequest:
    container = pb.ContainerSpec(image="nginx")
    container.managed_volumes.add(name="data", driver="local", size_gb=1, mount_path="/data")
    resources = pb.ResourceRequirements(cpu_millicores=100, memory_mb=64)
    spec = pb.WorkloadSpec(type="container", resources=resources, container=container)
    return pb.ApplyWorkloadRequest(workload_id=name, spec=spec)


async def test_a_readable_cluster_lists_no_records(cluster: Cluster) -> None:
    await cluster.control.apply("web")

    assert await listed(cluster.control) == {}


async def test_a_damaged_record_is_shown_with_its_bytes_and_deleted(stored: Cluster) -> None:
    node = await stored.join("n1")
    await stored.control.apply("web")
    await stored.control.until("web", "Running")
    damaged, _ = await restart_with_damage(stored, "/workloads/web")
    await node.join()

    record = (await listed(stored.control))["/workloads/web"]
    view = await get(stored.control, "/workloads/web")
    response = await delete(stored.control, "/workloads/web", version=view.stored_version)

    assert (record.type, record.replaceable) == ("workload", False)
    assert "stored Workload cannot be read" in record.reason
    assert (view.value, view.stored_version) == (damaged.value, damaged.version)
    assert response.accepted, response.reason
    assert await stored.store.store.get("/workloads/web") is None
    events = await stored.control.stub.ListEvents(
        pb.ListEventsRequest(kinds=["RecordDeleted"]), timeout=10
    )
    assert ["/workloads/web" in event.message for event in events.events] == [True]


async def test_a_record_of_a_newer_version_is_deleted(cluster: Cluster) -> None:
    await cluster.stop()
    newer = b'{"schema":99,"id":"web"}'
    await cluster.store.store.commit([Unit(puts={"/workloads/web": newer})])
    await cluster.start()

    response = await delete(cluster.control, "/workloads/web")
    applied = await cluster.control.apply("web")

    assert response.accepted, response.reason
    assert applied.success, applied.error_message


async def test_a_workload_that_is_applied_again_takes_over_its_running_copy(
    cluster: Cluster,
) -> None:
    node = await cluster.join("n1")
    await cluster.control.apply("web", host_port=8080)
    await cluster.control.until("web", "Running")
    await restart_with_damage(cluster, "/workloads/web")
    await node.join()
    await delete(cluster.control, "/workloads/web")

    await cluster.join("n2")
    await cluster.control.apply("web", host_port=8080)
    view = await cluster.control.until("web", "Running")

    assert view.assigned_node_id == "n1"
    assert await listed(cluster.control) == {}


async def test_an_assignment_whose_workload_is_gone_is_listed_and_deleted(cluster: Cluster) -> None:
    node = await cluster.join("n1")
    await cluster.control.apply("web", host_port=8080)
    await cluster.control.until("web", "Running")
    await restart_with_damage(cluster, "/workloads/web")
    await node.join()
    await delete(cluster.control, "/workloads/web")

    left = await listed(cluster.control)
    response = await delete(cluster.control, "/assignments/web")

    async def is_orphan() -> bool:
        drifts = await cluster.control.stub.ListDrifts(pb.ListDriftsRequest(), timeout=10)
        return [one.workload_id for one in drifts.drifts] == ["web"]

    assert [*left] == ["/assignments/web"]
    assert response.accepted, response.reason
    await eventually(is_orphan, lambda: "the copy to become an orphan")
    assert "web" in node.agent.running()


async def test_a_workload_with_data_whose_assignment_was_deleted_stays_where_its_copy_is(
    cluster: Cluster,
) -> None:
    first = await cluster.join("n1")
    await cluster.control.send(with_volume("db"))
    await cluster.control.until("db", "Running")
    second = await cluster.join("n2")
    await restart_with_damage(cluster, "/assignments/db")
    await first.join()
    await second.join()

    response = await delete(cluster.control, "/assignments/db")

    async def is_bound() -> bool:
        return (await cluster.control.workload("db")).assigned_node_id == "n1"

    assert response.accepted, response.reason
    await eventually(is_bound, lambda: "db to be bound to n1 again")
    assert second.agent.running() == set()


async def test_the_assignment_of_a_workload_with_data_stays_while_a_node_cannot_be_asked(
    cluster: Cluster,
) -> None:
    first = await cluster.join("n1")
    await cluster.control.send(with_volume("db"))
    await cluster.control.until("db", "Running")
    second = await cluster.join("n2")
    await restart_with_damage(cluster, "/assignments/db")
    await second.join()
    await first.agent.stop()

    response = await delete(cluster.control, "/assignments/db")

    assert not response.accepted
    assert "n1 may have a copy of db" in response.reason
    assert "persysctl node confirm-dead n1" in response.reason
    assert await cluster.store.store.get("/assignments/db") is not None


async def test_a_workload_whose_tombstone_is_unreadable_is_not_placed_beside_its_old_copy(
    cluster: Cluster,
) -> None:
    await cluster.stop()
    await cluster.store.store.commit([Unit(puts={"/tombstones/n1/db": b"damaged"})])
    await cluster.start()
    await cluster.join("n2")

    response = await cluster.control.send(with_volume("db"))

    assert not response.success
    assert "/tombstones/n1/db" in response.error_message
    assert (await delete(cluster.control, "/tombstones/n1/db")).accepted
    assert (await cluster.control.send(with_volume("db"))).success


async def test_a_version_that_is_not_stored_any_more_is_not_deleted(cluster: Cluster) -> None:
    await cluster.control.apply("web")
    await restart_with_damage(cluster, "/workloads/web")
    view = await get(cluster.control, "/workloads/web")

    response = await delete(cluster.control, "/workloads/web", version=view.stored_version - 1)

    assert not response.accepted
    assert "/workloads/web" in await listed(cluster.control)


async def test_a_record_that_can_be_read_is_neither_shown_nor_deleted(cluster: Cluster) -> None:
    await cluster.control.apply("web")

    response = await delete(cluster.control, "/workloads/web")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await get(cluster.control, "/workloads/web")

    assert not response.accepted
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert await cluster.store.store.get("/workloads/web") is not None


async def test_the_record_of_a_node_with_workloads_is_not_deleted(cluster: Cluster) -> None:
    node = await cluster.join("n1")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    await node.stop_heartbeats()  # it would register again, and replace the record
    await restart_with_damage(cluster, "/nodes/n1")

    response = await delete(cluster.control, "/nodes/n1")

    assert not response.accepted
    assert "start its agent" in response.reason


async def test_an_unreadable_removal_is_replaced_so_that_old_certificates_stay_refused(
    cluster: Cluster,
) -> None:
    await cluster.stop()
    await cluster.store.store.commit([Unit(puts={"/removed/n9": b"damaged"})])
    await cluster.start()

    response = await delete(cluster.control, "/removed/n9")

    assert response.accepted, response.reason
    assert await listed(cluster.control) == {}
    assert await cluster.store.store.get("/removed/n9") is not None


async def test_a_standby_forwards_the_repair_to_the_leader() -> None:
    async with some_replicas() as replicas:
        leader = await replicas.add()
        await until_leading(leader)
        await leader.apply("web")
        await replicas.stop(0)
        await replicas.store.commit([Unit(puts={"/workloads/web": b"damaged"})])
        leader = await replicas.add()
        await until_leading(leader)
        standby = await replicas.add()

        view = await get(standby, "/workloads/web")
        response = await delete(standby, "/workloads/web")

        async def is_readable() -> bool:
            return await listed(leader) == {} and await listed(standby) == {}

        assert view.value == b"damaged"
        assert response.accepted, response.reason
        await eventually(is_readable, lambda: "both to have no unreadable record")


async def test_an_operator_may_not_see_or_delete_records(root: Root) -> None:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    tls, user = root.tls(Role.SCHEDULER, "s1"), root.tls(Role.OPERATOR, "me")
    async with a_cluster(store, fast_settings(), tls=tls, user=user) as cluster:
        for call in (listed(cluster.control), delete(cluster.control, "/workloads/web")):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    await store.store.close()
