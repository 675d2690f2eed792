"""The runtime of a federated node, on a remote cluster in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from persys.core.agent.admission import NODE_FULL
from persys.core.agent.garbage import Ages, Kind, unowned_items
from persys.core.agent.next_step import next_step
from persys.core.agent.progress import Artefact, Perform, Progress, Step
from persys.errors import RuntimeUnavailableError
from persys.federation.access import RemoteUsage
from persys.federation.events import RemoteEvents
from persys.federation.mapping import Names
from persys.federation.metrics import FederationMetrics
from persys.federation.runtime import ClusterRuntime, RemoteGarbage
from persys.infra.clock import SystemClock
from persys.model.ids import Revision, WorkloadId
from persys.model.spec import ContainerSpec, ManagedVolume, Spec, type_of
from persys.model.status import Actual
from persys.model.workload import Desired, Order
from persys.wire.gen.control.v1 import control_pb2 as pb
from unit.federation.in_memory import FULL, MemoryCluster

NAMES = Names("home", "east")
REMOTE_ID = "home--web"
DEADLINE_SECONDS = 20.0
NOW = datetime(2030, 1, 1, tzinfo=UTC)
STATELESS = ContainerSpec("nginx")
WITH_DATA = ContainerSpec("nginx", managed_volumes=(ManagedVolume("data", "/data", size_gb=1),))


def an_order(
    desired: Desired = Desired.RUNNING,
    *,
    revision: str = "r1",
    spec: Spec = STATELESS,
    secret_env: tuple[str, ...] = (),
) -> Order:
    return Order(
        workload_id=WorkloadId("web"),
        type=type_of(spec),
        revision=Revision(revision),
        epoch=1,
        desired=desired,
        spec=spec,
        secret_env=secret_env,
    )


@asynccontextmanager
async def a_runtime(cluster: MemoryCluster, names: Names = NAMES) -> AsyncIterator[ClusterRuntime]:
    metrics = FederationMetrics()
    events = RemoteEvents(cluster, names, metrics)
    async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as group:
        feeding = group.create_task(events.run())
        try:
            yield ClusterRuntime(cluster, names, events, metrics)
        finally:
            feeding.cancel()


def on_a_cluster(
    scenario: Callable[[ClusterRuntime, MemoryCluster], Awaitable[None]],
) -> MemoryCluster:
    async def run() -> MemoryCluster:
        cluster = MemoryCluster()
        async with a_runtime(cluster) as runtime:
            await scenario(runtime, cluster)
        return cluster

    return asyncio.run(run())


async def present(runtime: ClusterRuntime, order: Order) -> Artefact:
    artefact = await runtime.inspect(order)
    assert artefact is not None
    return artefact


def test_create_applies_the_order_there() -> None:
    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        order = an_order()
        assert await runtime.create(order, {}) is None

        reported = (await present(runtime, order)).reported
        assert reported is not None
        assert reported.actual is Actual.RUNNING

    assert list(on_a_cluster(scenario).views) == [REMOTE_ID]


def test_a_copy_of_another_node_of_the_home_cluster_is_left_alone() -> None:
    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        order = an_order()
        await runtime.create(order, {})
        async with a_runtime(cluster, Names("home", "west")) as other:
            assert await other.inspect(order) is None
            failure = await other.create(order, {})
            assert failure is not None
            assert "home--web of node east still exists" in failure.message
            assert failure.retryable
            assert await other.remove(order, await present(runtime, order)) is None
            garbage = RemoteGarbage(cluster, Names("home", "west"), frozenset)
            assert await garbage.inventory() == []

    assert list(on_a_cluster(scenario).views) == [REMOTE_ID]


def test_a_full_cluster_refuses_the_order() -> None:
    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        assert await runtime.refusal(an_order()) is None
        cluster.full = True
        failure = await runtime.refusal(an_order())

        assert failure is not None
        assert (failure.code, failure.message) == (NODE_FULL, FULL)
        assert await runtime.refusal(an_order(Desired.STOPPED)) is None
        cluster.fail("no response")
        assert await runtime.refusal(an_order()) is None

    cluster = on_a_cluster(scenario)
    assert "apply" not in cluster.calls


@pytest.mark.parametrize("spec", [STATELESS, WITH_DATA], ids=["stateless", "data"])
def test_a_cluster_that_is_full_after_the_plan_keeps_no_copy(spec: Spec) -> None:
    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        cluster.full_at_apply = True
        failure = await runtime.create(an_order(spec=spec), {})

        assert failure is not None
        assert (failure.code, failure.message) == (NODE_FULL, FULL)

    assert on_a_cluster(scenario).views == {}


def test_an_update_is_applied_in_place() -> None:
    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        await runtime.create(an_order(), {})
        newer = an_order(revision="r2")
        assert (await present(runtime, newer)).reported is None

        assert await runtime.create(newer, {}) is None
        assert (await present(runtime, newer)).reported is not None

    assert "delete" not in on_a_cluster(scenario).calls


def test_an_update_that_does_not_fit_keeps_the_copy() -> None:
    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        await runtime.create(an_order(), {})
        cluster.full = True
        failure = await runtime.create(an_order(revision="r2"), {})

        assert failure is not None
        assert failure.code != NODE_FULL

    assert list(on_a_cluster(scenario).views) == [REMOTE_ID]


def test_stop_start_and_remove() -> None:
    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        running, stopped = an_order(), an_order(Desired.STOPPED)
        await runtime.create(running, {})

        await runtime.stop(stopped, await present(runtime, stopped))
        assert cluster.views[REMOTE_ID].status == "Stopped"
        await runtime.start(running, await present(runtime, running))
        assert cluster.views[REMOTE_ID].status == "Running"
        await runtime.remove(running, await present(runtime, running))
        assert await runtime.inspect(running) is None

    on_a_cluster(scenario)


def test_a_workload_that_was_stopped_there_is_started_again() -> None:
    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        order = an_order()
        await runtime.create(order, {})
        view = cluster.views[REMOTE_ID]
        view.desired_state = view.status = "Stopped"

        seen = await present(runtime, order)
        assert next_step(order, seen, Progress(launching=True), now=NOW) == Perform(Step.START)
        await runtime.start(order, seen)
        assert cluster.views[REMOTE_ID].status == "Running"

    on_a_cluster(scenario)


def test_a_failed_workload_is_retried_there() -> None:
    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        order, cluster.status = an_order(), "Failed"
        await runtime.create(order, {})
        cluster.status = "Running"

        assert await runtime.start(order, await present(runtime, order)) is None
        assert cluster.views[REMOTE_ID].status == "Running"

    assert on_a_cluster(scenario).calls.count("retry") == 1


@pytest.mark.parametrize(("spec", "stays"), [(STATELESS, False), (WITH_DATA, True)])
def test_a_workload_that_lost_its_node_there_is_given_back_unless_it_has_data(
    spec: Spec, stays: bool
) -> None:
    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        order = an_order(spec=spec)
        await runtime.create(order, {})
        cluster.full = True
        await cluster.retry(REMOTE_ID)

        failure = await runtime.start(order, await present(runtime, order))
        assert (failure is None) is stays

    assert (REMOTE_ID in on_a_cluster(scenario).views) is stays


def test_a_cluster_that_does_not_respond_has_no_absent_workloads() -> None:
    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        cluster.fail("no response")
        for call in (runtime.inspect(an_order()), runtime.ping(), runtime.create(an_order(), {})):
            with pytest.raises(RuntimeUnavailableError, match="no response"):
                await call

    on_a_cluster(scenario)


def test_changes_end_with_the_reason_and_continue_afterwards() -> None:
    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        async with aclosing(runtime.changes()) as changes:
            assert await anext(changes) is None
            cluster.publish("other--web")
            cluster.publish(REMOTE_ID)
            assert await anext(changes) == "web"
            cluster.fail("token revoked")
            with pytest.raises(RuntimeUnavailableError, match="token revoked"):
                await anext(changes)
        with pytest.raises(RuntimeUnavailableError, match="token revoked"):
            await anext(runtime.changes())
        cluster.down = ""
        while True:
            try:
                assert await anext(runtime.changes()) is None
                return
            except RuntimeUnavailableError:
                await asyncio.sleep(0.05)

    on_a_cluster(scenario)


@pytest.mark.parametrize(("spec", "stops"), [(STATELESS, False), (WITH_DATA, True)])
def test_a_copy_with_data_is_stopped_before_it_is_deleted(spec: Spec, stops: bool) -> None:
    """The remote cluster forgets a deleted workload of a lost node, although it may run there."""

    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        order = an_order(spec=spec)
        await runtime.create(order, {})
        artefact = await present(runtime, order)
        cluster.calls.clear()
        await runtime.remove(order, artefact)

    cluster = on_a_cluster(scenario)

    changes = [call for call in cluster.calls if call in ("apply", "delete")]
    assert changes == (["apply", "delete"] if stops else ["delete"])


@pytest.mark.parametrize("keeps_data", [True, False])
def test_a_copy_that_was_replaced_keeps_its_volumes(keeps_data: bool) -> None:
    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        order = an_order(spec=WITH_DATA)
        await runtime.create(order, {})
        view = cluster.views[REMOTE_ID]
        deleted = replace(order, desired=Desired.DELETED, keeps_data=keeps_data)

        assert await runtime.remove(deleted, await present(runtime, deleted)) is None
        (volume,) = view.spec.container.managed_volumes
        assert volume.retain_policy == ("Retain" if keeps_data else "Delete")

    assert on_a_cluster(scenario).views == {}


def test_a_failed_ping_opens_a_silent_event_stream_again() -> None:
    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        async with aclosing(runtime.changes()) as changes:
            assert await anext(changes) is None
            cluster.down = "no response"  # its stream stays open
            for _ in range(2):
                with pytest.raises(RuntimeUnavailableError):
                    await runtime.ping()
            with pytest.raises(RuntimeUnavailableError):
                await anext(changes)

    on_a_cluster(scenario)


def test_secrets_are_stored_once_per_revision_and_removed_with_the_workload() -> None:
    def order(revision: str) -> Order:
        spec = ContainerSpec("nginx", env={"PASSWORD": f"hunter2-{revision}"})
        return an_order(revision=revision, spec=spec, secret_env=("PASSWORD",))

    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        cluster.stored["home--web2.abc"] = b"of another workload"
        await runtime.create(order("r1"), {})
        await runtime.create(order("r1"), {})
        assert cluster.calls.count("put_secret") == 1
        await runtime.create(order("r2"), {})
        assert b"hunter2-r2" in cluster.stored.values()
        await runtime.remove(order("r2"), await present(runtime, order("r2")))
        await runtime.discard(an_order(Desired.DELETED, revision="r3"))

    assert list(on_a_cluster(scenario).stored) == ["home--web2.abc"]


def test_the_load_of_remote_workloads_is_summed_up_to_cpu_time() -> None:
    seconds = [100.0]
    clock = SystemClock(monotonic=lambda: seconds[0])

    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        await runtime.create(an_order(), {})
        usage = cluster.views[REMOTE_ID].usage
        usage.cpu_percent, usage.memory_bytes = 50.0, 1000
        sampler = RemoteUsage(cluster, NAMES, clock)

        (first,) = await sampler.sample()
        seconds[0] += 10
        (second,) = await sampler.sample()

        assert second.cpu_nanos - first.cpu_nanos == 5 * 10**9
        assert (second.workload_id, second.memory_bytes) == ("web", 1000)

    on_a_cluster(scenario)


@pytest.mark.parametrize("spec", [STATELESS, WITH_DATA], ids=["stateless", "data"])
@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "unknown"])
def test_only_what_was_deleted_at_home_is_garbage_there(spec: Spec, deleted: bool) -> None:
    async def scenario(runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        order = an_order(spec=spec)
        await runtime.create(order, {})
        cluster.views["other--web"] = pb.WorkloadView(workload_id="other--web")
        cluster.stored[NAMES.secret(order.workload_id, "env KEY")] = b"left"
        source = RemoteGarbage(cluster, NAMES, lambda: ())
        items = await source.inventory()
        found = unowned_items(
            items,
            {REMOTE_ID: NOW - timedelta(hours=1)},
            Ages(),
            deleted_here=[order.workload_id] if deleted else [],
            connected_for=timedelta(hours=1),
            now=NOW,
        )

        assert [one.item.id for one in found] == ([REMOTE_ID] if deleted else [])
        for one in found:
            assert await source.remove(one.item) == ""
            assert list(cluster.views) == ["other--web"]
            assert cluster.stored == {}

    on_a_cluster(scenario)


def test_secrets_without_a_workload_are_garbage() -> None:
    """A remote cluster that was restored while it deleted the workload has only its secrets."""

    async def scenario(_runtime: ClusterRuntime, cluster: MemoryCluster) -> None:
        left, used = NAMES.secret(WorkloadId("web"), "KEY"), NAMES.secret(WorkloadId("db"), "KEY")
        others = Names("home", "west").secret(WorkloadId("web"), "KEY")
        cluster.stored |= dict.fromkeys((left, used, others, "own-secret"), b"value")
        source = RemoteGarbage(cluster, NAMES, lambda: (WorkloadId("db"),))

        (item,) = await source.inventory()

        assert (item.kind, item.id, item.workload_id) == (Kind.SECRET, left, "web")
        assert await source.remove(item) == ""
        assert left not in cluster.stored

    on_a_cluster(scenario)
