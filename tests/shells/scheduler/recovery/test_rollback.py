"""A store that is restored from an older copy, with real agents that have newer data."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from persys.infra.clock import SystemClock
from persys.store.memory import MemoryStore
from persys.store.port import Unit
from persys.store.sqlite import SqliteStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, eventually, fast_settings
from shells.scheduler.real_nodes import real_nodes
from shells.scheduler.stores import FaultyStore

Restore = Callable[[], Awaitable[None]]


class DiskCluster:
    """A cluster on a SQLite file that can be backed up and restored while no scheduler runs."""

    def __init__(self, cluster: Cluster, path: Path) -> None:
        self.cluster = cluster
        self._path = path
        self._copy = path.with_suffix(".copy")

    async def back_up(self) -> None:
        """With all nodes open."""
        await uncordon_all(self.cluster)
        await self._exchange(self._path, self._copy)

    async def restore(self) -> None:
        """A minute later."""
        self.cluster.clock.ahead += timedelta(minutes=1)
        await self._exchange(self._copy, self._path)

    async def _exchange(self, source: Path, target: Path) -> None:
        await self.cluster.stop()
        store = self.cluster.store
        await store.store.close()
        shutil.copy(source, target)
        store.store = await open_file(self._path)
        await self.cluster.start()


async def open_file(path: Path) -> SqliteStore:
    return await SqliteStore.open(path, monotonic=SystemClock().monotonic)


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[DiskCluster]:
    path = tmp_path / "scheduler.db"
    store = FaultyStore(await open_file(path))
    async with a_cluster(store, fast_settings()) as cluster:
        yield DiskCluster(cluster, path)
    await store.store.close()


async def uncordon_all(cluster: Cluster) -> None:
    stub = cluster.control.stub
    for node in (await stub.ListNodes(pb.ListNodesRequest(), timeout=10)).nodes:
        await stub.UncordonNode(pb.NodeRequest(node_id=node.node_id), timeout=10)


async def cordon_all_but(cluster: Cluster, node_id: str) -> None:
    stub = cluster.control.stub
    for node in (await stub.ListNodes(pb.ListNodesRequest(), timeout=10)).nodes:
        call = stub.UncordonNode if node.node_id == node_id else stub.CordonNode
        response = await call(pb.NodeRequest(node_id=node.node_id), timeout=10)
        assert response.accepted, response.reason


async def apply(cluster: Cluster, name: str, *, node_id: str, data: bool = False) -> int:
    """Run it on this node. Returns its epoch."""
    container = pb.ContainerSpec(image="app:1")
    if data:
        container.managed_volumes.add(name="data", driver="local", size_gb=1, mount_path="/data")
    spec = pb.WorkloadSpec(type="container", container=container)
    await cordon_all_but(cluster, node_id)
    response = await cluster.control.send(pb.ApplyWorkloadRequest(workload_id=name, spec=spec))
    assert response.success, response.error_message
    view = await cluster.control.until(name, "Running")
    assert view.assigned_node_id == node_id
    return view.epoch


async def again(cluster: Cluster, name: str, *, node_id: str, data: bool = False) -> int:
    """Delete it and run it on this node."""
    await cluster.control.delete(name)
    await cluster.control.until_gone(name)
    return await apply(cluster, name, node_id=node_id, data=data)


async def until_epoch_above(cluster: Cluster, name: str, epoch: int) -> pb.WorkloadView:
    async def has_increased() -> bool:
        view = await cluster.control.workload(name)
        return view.epoch > epoch and view.status == "Running"

    await eventually(has_increased, lambda: f"{name} to get an epoch above {epoch}")
    return await cluster.control.workload(name)


@pytest.mark.parametrize("data", [False, True], ids=["stateless", "with data"])
async def test_orders_are_obeyed_again_after_an_old_copy_of_the_store_was_restored(
    disk: DiskCluster, tmp_path: Path, data: bool
) -> None:
    cluster = disk.cluster
    async with real_nodes(tmp_path, cluster.settings.grpc_port, "n1") as (node,):
        first = await apply(cluster, "web", node_id="n1", data=data)
        await disk.back_up()
        later = await again(cluster, "web", node_id="n1", data=data)
        created = list(node.runtime.created)
        assert later > first

        await disk.restore()

        await until_epoch_above(cluster, "web", later)
        assert node.runtime.created == created  # it was not started again
        await cluster.control.want("web", "Stopped")
        await cluster.control.until("web", "Stopped")
        assert node.has() == set()
        await cluster.control.delete("web")
        await cluster.control.until_gone("web")


async def test_a_delete_reaches_the_copy_after_an_old_copy_of_the_store_was_restored(
    disk: DiskCluster, tmp_path: Path
) -> None:
    cluster = disk.cluster
    async with real_nodes(tmp_path, cluster.settings.grpc_port, "n1") as (node,):
        await apply(cluster, "web", node_id="n1")
        await disk.back_up()
        await again(cluster, "web", node_id="n1")
        await disk.restore()

        await cluster.control.delete("web")

        await cluster.control.until_gone("web")
        assert node.has() == set()


async def test_promise_4_data_stays_where_it_was_moved_to_after_the_backup(
    disk: DiskCluster, tmp_path: Path
) -> None:
    cluster = disk.cluster
    async with real_nodes(tmp_path, cluster.settings.grpc_port, "n1", "n2") as (first, second):
        await apply(cluster, "db", node_id="n1", data=True)
        await disk.back_up()
        later = await again(cluster, "db", node_id="n2", data=True)
        created = (list(first.runtime.created), list(second.runtime.created))

        await disk.restore()

        view = await until_epoch_above(cluster, "db", later)
        assert view.assigned_node_id == "n2"
        assert (first.has(), second.has()) == (set(), {"db"})
        assert (first.runtime.created, second.runtime.created) == created


async def test_promise_4_data_that_was_moved_to_an_unreachable_node_starts_on_no_other(
    disk: DiskCluster, tmp_path: Path
) -> None:
    cluster = disk.cluster
    async with real_nodes(tmp_path, cluster.settings.grpc_port, "n1", "n2") as (first, second):
        await apply(cluster, "db", node_id="n1", data=True)
        await disk.back_up()
        later = await again(cluster, "db", node_id="n2", data=True)
        created = list(first.runtime.created)
        await second.stop()

        await disk.restore()

        view = await cluster.control.until("db", "Failed")
        assert view.reason.code == "AlreadyDeleted"
        assert "`persysctl workload retry db` starts it on n1" in view.reason.message
        await second.start()
        view = await until_epoch_above(cluster, "db", later)
        assert view.assigned_node_id == "n2"
        assert (first.has(), first.runtime.created) == (set(), created)


async def test_data_that_was_deleted_after_the_backup_starts_when_an_operator_adopts_it(
    disk: DiskCluster, tmp_path: Path
) -> None:
    cluster = disk.cluster
    async with real_nodes(tmp_path, cluster.settings.grpc_port, "n1") as (node,):
        await apply(cluster, "db", node_id="n1", data=True)
        await apply(cluster, "web", node_id="n1")
        await disk.back_up()
        for name in ("db", "web"):
            await cluster.control.delete(name)
            await cluster.control.until_gone(name)
        await disk.restore()

        async def only_web_runs() -> bool:
            return node.has() == {"web"}

        await eventually(only_web_runs, lambda: f"web to run on the node: {node.has()}")
        await cluster.control.until("db", "Failed")
        assert node.has() == {"web"}
        assert (await cluster.control.retry("db")).accepted

        await cluster.control.until("db", "Running")
        assert node.has() == {"web", "db"}


@asynccontextmanager
async def in_memory() -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, fast_settings()) as cluster:
        yield cluster
    await store.store.close()


async def restored_while_running(cluster: Cluster, back_up: list[Unit]) -> None:
    """Like a restored etcd: unavailable for a while, then back with other versions."""
    store = cluster.store
    store.down = True
    old = MemoryStore(SystemClock().monotonic)
    await old.commit(back_up)
    cluster.clock.ahead += timedelta(minutes=1)
    store.store = old
    store.down = False
    await cluster.control.apply("other", desired="Stopped")  # detected by the next write


async def test_orders_are_obeyed_again_after_the_store_of_a_running_scheduler_was_restored(
    tmp_path: Path,
) -> None:
    async with (
        in_memory() as cluster,
        real_nodes(tmp_path, cluster.settings.grpc_port, "n1", "n2") as (first, second),
    ):
        await apply(cluster, "web", node_id="n1")
        await apply(cluster, "db", node_id="n1", data=True)
        await uncordon_all(cluster)
        kept = await cluster.store.store.read("/")
        back_up = [Unit(puts={one.key: one.value}) for one in kept.records]
        epochs = [
            await again(cluster, "web", node_id="n1"),
            await again(cluster, "db", node_id="n2", data=True),
        ]
        created = (list(first.runtime.created), list(second.runtime.created))

        await restored_while_running(cluster, back_up)

        web = await until_epoch_above(cluster, "web", max(epochs))
        db = await until_epoch_above(cluster, "db", max(epochs))
        assert (web.assigned_node_id, db.assigned_node_id) == ("n1", "n2")
        assert (first.has(), second.has()) == ({"web"}, {"db"})
        assert (first.runtime.created, second.runtime.created) == created
