"""Failures of the remote cluster and of the connection: each has a defined outcome."""

from datetime import timedelta
from pathlib import Path

from persys.federation.connection import Connection
from persys.federation.remote import RemoteCluster
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.federation.two_clusters import (
    CPU,
    NODE,
    TwoClusters,
    a_spec,
    holds,
    two_clusters,
    until_healthy,
    until_problem,
)
from shells.scheduler.harness import Cluster, eventually

FILLER = "filler"


class FilledAfterPlan(RemoteCluster):
    """Another user takes the remaining capacity between the plan and the apply."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.fill = False

    async def apply(self, request: pb.ApplyWorkloadRequest) -> pb.ApplyWorkloadResponse:
        if self.fill:
            self.fill = False
            free = sum(node.available_cpu_cores for node in await self.nodes())
            spec = a_spec(cpu=round(free * 1000) - CPU // 2, offload="")
            await super().apply(pb.ApplyWorkloadRequest(workload_id=FILLER, spec=spec))
            while (found := await self.workload(FILLER)) is None or not found.assigned_node_id:
                pass
        return await super().apply(request)


async def drifts(cluster: Cluster) -> list[str]:
    answer = await cluster.control.stub.ListDrifts(pb.ListDriftsRequest(), timeout=10)
    return [drift.workload_id for drift in answer.drifts]


async def test_a_remote_that_is_full_after_the_plan_keeps_no_copy(tmp_path: Path) -> None:
    async with two_clusters(tmp_path, connect=FilledAfterPlan) as both:
        local = await both.home.join("local")
        assert isinstance(both.link.remote, FilledAfterPlan)
        both.link.remote.fill = True

        await both.apply("web")
        view = await both.home.control.until("web", "Running")

        assert view.assigned_node_id == local.id
        assert await both.remote.control.names() == [FILLER]
        assert both.link.metric("persys_federation_refusals_total", reason="NodeFull") == 1

        async def is_forgotten() -> bool:
            return not both.link.journal.entries

        await eventually(is_forgotten, lambda: f"no orders: {both.link.journal.entries}")
        assert await drifts(both.home) == []


async def test_a_full_remote_refuses_before_it_accepts(both: TwoClusters) -> None:
    local = await both.home.join("local")
    free = sum(
        node.available_cpu_cores
        for node in (
            await both.remote.control.stub.ListNodes(pb.ListNodesRequest(), timeout=10)
        ).nodes
    )
    await both.remote.control.apply(FILLER, cpu=round(free * 1000) - CPU // 2)
    await both.remote.control.until(FILLER, "Running")

    await both.apply("web")
    view = await both.home.control.until("web", "Running")

    assert view.assigned_node_id == local.id
    assert await both.remote.control.names() == [FILLER]


async def test_a_remote_that_is_restored_from_an_old_snapshot_converges(both: TwoClusters) -> None:
    await both.run("updated")
    await both.run("deleted")
    await both.back_up()
    await both.apply("updated", image="nginx:2")
    await both.run("new")
    await both.home.control.delete("deleted")
    await both.home.control.until_gone("deleted")
    await both.until_remote_is("updated", "new")

    await both.restore()

    await both.until_remote_is("updated", "new")

    async def is_current() -> bool:
        view = await both.remote.control.workload("home--updated")
        return view.spec.container.image == "nginx:2" and view.status == "Running"

    await eventually(is_current, lambda: "the copy to have the newer revision")
    for name in ("updated", "new"):
        await both.home.control.until(name, "Running")
    assert not holds(both.machine, "deleted")


async def test_a_workload_survives_the_death_of_the_remote_leader(both: TwoClusters) -> None:
    await both.run("web")

    await both.remote.stop()
    await until_problem(both.home, "does not respond")
    await both.apply("late", offload="prefer")
    assert (await both.home.control.workload("web")).status in ("Running", "Unknown")
    await both.remote.start()

    await until_healthy(both.home)
    await both.home.control.until("web", "Running")
    await both.home.control.until("late", "Running")
    assert sorted(both.machine.runtime.created) == ["home--late", "home--web"]


async def test_a_degraded_remote_is_an_unhealthy_runtime(both: TwoClusters) -> None:
    await both.run("web")

    both.remote.store.down = True
    await until_problem(both.home, "in degraded mode")
    both.remote.store.down = False

    await until_healthy(both.home)
    assert (await both.home.control.until("web", "Running")).assigned_node_id == NODE


async def test_the_process_continues_with_its_journal(both: TwoClusters) -> None:
    await both.run("web")

    await both.link.stop()
    await both.home.control.delete("web")
    await both.link.start()

    await both.home.control.until_gone("web")
    await both.until_remote_is()


async def test_a_workload_with_stop_after_stops_a_third_of_it_without_the_home_cluster(
    both: TwoClusters,
) -> None:
    await both.run("web", stop_after=90)
    await both.run("other")
    copy = await both.remote.control.workload("home--web")
    assert copy.spec.stop_after_seconds == 30
    assert copy.spec.metadata["persys.home_stop_after"] == "30"

    await both.home.stop()
    both.link.clock.monotonic_ahead += 31
    await both.remote.control.until("home--web", "Stopped")
    assert (await both.remote.control.workload("home--other")).status == "Running"

    both.home.clock.ahead += timedelta(minutes=1)
    await both.home.start()
    await both.home.control.until("web", "Running")
    await both.remote.control.until("home--web", "Running")


async def test_contacts_of_the_home_cluster_keep_a_workload_with_stop_after_running(
    both: TwoClusters,
) -> None:
    """More than the limit of the remote cluster, with contacts in between."""
    await both.run("web", stop_after=90)
    remote = both.remote
    for _ in range(6):
        before = remote.app.home_contacts.contacted_at("home")
        remote.clock.monotonic_ahead += 6

        async def has_called(since: float = before) -> bool:
            return remote.app.home_contacts.contacted_at("home") > since

        await eventually(has_called, lambda: "a contact")

    assert (await remote.control.workload("home--web")).desired_state == "Running"


async def test_a_workload_with_a_short_stop_after_is_not_offloaded(both: TwoClusters) -> None:
    await both.apply("web", stop_after=20)

    async def waits() -> bool:
        return "stop_after" in (await both.home.control.workload("web")).reason.message

    await eventually(waits, lambda: "web to wait")
    assert await both.remote.control.names() == []


async def test_a_copy_with_data_that_was_replaced_is_removed_when_the_process_is_back(
    both: TwoClusters,
) -> None:
    home = both.home.control
    local = await both.home.join("local")
    await both.run("db", data=True)

    await both.link.stop()
    both.home.clock.monotonic_ahead += 60
    await home.until_node(NODE, "NotReady")
    answer = await home.stub.ConfirmNodeDead(pb.NodeRequest(node_id=NODE), timeout=10)
    assert answer.accepted, answer.reason

    async def is_replaced() -> bool:
        view = await home.workload("db")
        return (view.assigned_node_id, view.status) == (local.id, "Running")

    await eventually(is_replaced, lambda: "db to run at home")
    await both.link.start()

    await both.until_remote_is()
    view = await home.workload("db")
    assert (view.assigned_node_id, view.status) == (local.id, "Running")
