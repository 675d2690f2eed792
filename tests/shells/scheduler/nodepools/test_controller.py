"""Node pools of a real scheduler, with a provider in memory and nodes that the test starts."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

import grpc
import pytest

from persys.core.nodepools.steps import Keep
from persys.errors import DeniedError, ProviderThrottledError, ProviderUnavailableError
from persys.infra.clock import SystemClock
from persys.infra.rpc.authorizer import CALLER
from persys.model.identity import Caller, Identity
from persys.model.role import Permission, Role
from persys.scheduler.app import Scheduler
from persys.scheduler.build import MachineSources
from persys.scheduler.nodepools import controller
from persys.scheduler.nodepools.pool_api import NodePoolsApi
from persys.store import keys
from persys.store.memory import MemoryStore
from persys.store.port import Unit
from persys.wire.gen.agent.v1.agent_pb2 import VolumeView
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, eventually, fast_settings
from shells.scheduler.nodepools.fake_provider import FakeProvider
from shells.scheduler.stores import FaultyStore

MACHINE = "default-burst-1"


def a_spec(pool_id: str = "burst", **changes: object) -> pb.NodePoolSpec:
    spec = pb.NodePoolSpec(
        pool_id=pool_id,
        provider="exec",
        sizes=[pb.MachineSize(name="small", cpu_millicores=2000, memory_mb=4096, hour_price=0.1)],
        max=3,
        spend_per_hour_max=1.0,
    )
    for name, value in changes.items():
        setattr(spec, name, value)
    return spec


@pytest.fixture
def provider() -> FakeProvider:
    return FakeProvider()


@pytest.fixture
async def cluster(provider: FakeProvider) -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    scheduler = partial(Scheduler, machines=MachineSources(provider.open))
    async with a_cluster(store, fast_settings(), scheduler=scheduler) as running:
        yield running
    await store.store.close()


async def create(cluster: Cluster, spec: pb.NodePoolSpec | None = None) -> None:
    request = pb.CreateNodePoolRequest(pool=spec or a_spec())
    response = await cluster.control.stub.CreateNodePool(request, timeout=10)
    assert response.accepted, response.reason


async def pool_of(cluster: Cluster, pool_id: str = "burst") -> pb.NodePoolView:
    request = pb.GetNodePoolRequest(pool_id=pool_id)
    response = await cluster.control.stub.GetNodePool(request, timeout=10)
    view: pb.NodePoolView = response.pool
    return view


async def until(
    cluster: Cluster, holds: Callable[[pb.NodePoolView], bool], *, pool_id: str = "burst"
) -> pb.NodePoolView:
    """Run passes of the pool until this holds."""
    view = pb.NodePoolView()

    async def reached() -> bool:
        nonlocal view
        cluster.app.pool_controller.wake(pool_id)
        view = await pool_of(cluster, pool_id)
        return holds(view)

    await eventually(reached, lambda: f"node pool: {view}")
    return view


def is_idle(cluster: Cluster) -> bool:
    """Whether the scheduler has seen that the machine of the pool has no workloads."""
    steps = cluster.app.pool_controller.status("burst").steps
    return any(isinstance(step, Keep) and "has 0 workloads" in step.why for step in steps)


def keeps_volumes(cluster: Cluster) -> bool:
    steps = cluster.app.pool_controller.status("burst").steps
    return any(isinstance(step, Keep) and "1 retained volumes" in step.why for step in steps)


def states(view: pb.NodePoolView) -> list[str]:
    return [machine.state for machine in view.machines]


async def a_waiting_workload(cluster: Cluster, name: str = "web", cpu: int = 1500) -> None:
    """It has waited long enough for a pool to grow."""
    await cluster.control.apply(name, cpu=cpu)
    await cluster.control.until(name, "Pending")
    cluster.clock.ahead += timedelta(seconds=60)


async def test_a_machine_does_not_get_the_id_of_a_registered_node(
    cluster: Cluster, provider: FakeProvider
) -> None:
    """As after a loss of the records of the pool."""
    await cluster.join("default-burst-7", cpu=1000)
    await create(cluster, a_spec(min=1))

    await until(cluster, lambda view: states(view) == ["booting"])

    assert [request.name for request in provider.requests] == ["default-burst-8"]


async def test_a_pass_that_may_not_act_is_repeated_soon(
    cluster: Cluster, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the first pass of a new leader that is not confirmed yet."""
    monkeypatch.setattr(controller, "IDLE_SECONDS", 3600.0)
    await create(cluster)
    cluster.store.down = True
    pools = cluster.app.pool_controller

    async def is_frozen() -> bool:
        return cluster.app.modes.is_frozen

    await eventually(is_frozen, lambda: "the mode to be degraded")
    passed_at = pools.status("burst").passed_at
    pools.wake("burst")

    async def has_passed() -> bool:
        return pools.status("burst").passed_at > passed_at

    await eventually(has_passed, lambda: "a pass in degraded mode")
    before = provider.lists
    cluster.store.down = False

    async def has_listed() -> bool:
        return provider.lists > before

    await eventually(has_listed, lambda: "the instances to be listed")


async def test_a_pool_grows_for_a_waiting_workload_and_shrinks_when_idle(
    cluster: Cluster, provider: FakeProvider
) -> None:
    await cluster.join("n1", cpu=1000)
    await create(cluster, a_spec(idle_after_seconds=60))
    await a_waiting_workload(cluster)

    await until(cluster, lambda view: states(view) == ["booting"])
    [request] = provider.requests
    assert (request.name, request.size) == (MACHINE, "small")
    assert request.tags["persys-pool"] == "burst"
    provider.nodes[MACHINE] = await cluster.join(MACHINE, cpu=2000)
    await until(cluster, lambda view: states(view) == ["ready"])
    assert (await cluster.control.until("web", "Running")).assigned_node_id == MACHINE

    await cluster.control.delete("web")
    await cluster.control.until_gone("web")
    await until(cluster, lambda view: is_idle(cluster))
    cluster.clock.ahead += timedelta(hours=1)
    await until(cluster, lambda view: not view.machines)

    assert provider.destroyed == ["i-1"]
    with pytest.raises(grpc.aio.AioRpcError) as gone:
        await cluster.control.node(MACHINE)
    assert gone.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_lost_answer_of_the_provider_creates_no_second_machine(
    cluster: Cluster, provider: FakeProvider
) -> None:
    provider.loses_answers = True
    await create(cluster)
    await a_waiting_workload(cluster)

    view = await until(cluster, lambda view: states(view) == ["booting"])

    assert view.machines[0].provider_id == "i-1"
    assert len(provider.requests) == 1


async def test_a_new_leader_finds_a_machine_whose_answer_was_not_stored(
    cluster: Cluster, provider: FakeProvider
) -> None:
    provider.loses_answers = True
    await create(cluster)
    await a_waiting_workload(cluster)
    await until(cluster, lambda view: bool(view.machines))

    await cluster.stop()
    provider.loses_answers = False
    await cluster.start()

    view = await until(cluster, lambda view: states(view) == ["booting"])
    assert view.machines[0].name == MACHINE
    assert len(provider.requests) == 1


async def test_a_provider_that_does_not_answer_destroys_and_creates_nothing(
    cluster: Cluster, provider: FakeProvider
) -> None:
    await create(cluster, a_spec(min=1))
    await until(cluster, lambda view: states(view) == ["booting"])

    provider.list_error = ProviderUnavailableError("no answer")
    cluster.clock.ahead += timedelta(days=1)
    view = await until(cluster, lambda view: view.problem == "no answer")

    assert states(view) == ["booting"]
    assert provider.destroyed == []
    assert len(provider.requests) == 1


async def test_a_throttled_create_is_retried_after_the_requested_time(
    cluster: Cluster, provider: FakeProvider
) -> None:
    provider.create_error = ProviderThrottledError("slow down", retry_after=timedelta(minutes=5))
    await create(cluster, a_spec(min=1))
    view = await until(cluster, lambda view: view.failure_count == 1)
    assert not view.machines
    assert view.problem == "slow down"

    provider.create_error = None
    cluster.clock.ahead += timedelta(minutes=6)
    view = await until(cluster, lambda view: states(view) == ["booting"])

    assert view.machines[0].name == "default-burst-2"


async def test_a_machine_that_does_not_join_in_time_is_replaced(
    cluster: Cluster, provider: FakeProvider
) -> None:
    await create(cluster, a_spec(min=1))
    await until(cluster, lambda view: states(view) == ["booting"])

    cluster.clock.ahead += timedelta(minutes=20)
    await until(cluster, lambda view: provider.destroyed == ["i-1"])
    cluster.clock.ahead += timedelta(minutes=20)
    view = await until(cluster, lambda view: states(view) == ["booting"])

    assert view.machines[0].name == "default-burst-2"


async def test_a_defect_of_one_pool_does_not_stop_another(
    cluster: Cluster, provider: FakeProvider
) -> None:
    await create(cluster, a_spec("first"))
    provider.broken = "first"
    await create(cluster, a_spec("second", min=1))

    view = await until(cluster, lambda view: states(view) == ["booting"], pool_id="second")

    assert view.machines[0].name == "default-second-1"


async def test_a_paused_pool_creates_nothing_and_a_plan_shows_what_it_would_create(
    cluster: Cluster, provider: FakeProvider
) -> None:
    stub = cluster.control.stub
    await create(cluster, a_spec(max=0))
    await a_waiting_workload(cluster)

    await stub.PauseNodePool(pb.PauseNodePoolRequest(pool_id="burst", paused=True), timeout=10)
    await create(cluster)
    paused = await stub.PlanNodePool(pb.PlanNodePoolRequest(pool_id="burst"), timeout=10)
    explained = await stub.ExplainWorkload(pb.ExplainWorkloadRequest(workload_id="web"), timeout=10)

    assert [step.action for step in paused.steps] == ["hold"]
    assert "the pool is paused" in explained.summary
    assert provider.requests == []


async def test_a_deleted_pool_destroys_its_machines_and_is_dropped(
    cluster: Cluster, provider: FakeProvider
) -> None:
    await create(cluster, a_spec(min=1))
    await until(cluster, lambda view: states(view) == ["booting"])
    provider.nodes[MACHINE] = await cluster.join(MACHINE, cpu=2000)
    await until(cluster, lambda view: states(view) == ["ready"])

    request = pb.DeleteNodePoolRequest(pool_id="burst")
    await cluster.control.stub.DeleteNodePool(request, timeout=10)

    async def is_dropped() -> bool:
        cluster.app.pool_controller.wake("burst")
        listed = await cluster.control.stub.ListNodePools(pb.ListNodePoolsRequest(), timeout=10)
        return not listed.pools

    await eventually(is_dropped, lambda: "the pool to be dropped")
    assert provider.destroyed == ["i-1"]
    assert MACHINE not in cluster.app.cluster.nodes


async def test_a_node_has_the_taints_of_its_pool_from_its_first_registration(
    cluster: Cluster,
) -> None:
    spec = a_spec(min=1)
    spec.taints.append("burst=only")
    await create(cluster, spec)
    await until(cluster, lambda view: states(view) == ["booting"])

    await cluster.join(MACHINE)

    assert list((await cluster.control.node(MACHINE)).taints) == ["burst=only"]


async def test_a_waiting_workload_is_explained_with_the_pool_that_grows(cluster: Cluster) -> None:
    await create(cluster)
    await cluster.control.apply("web", cpu=1500)
    await cluster.control.until("web", "Pending")

    request = pb.ExplainWorkloadRequest(workload_id="web")
    explained = await cluster.control.stub.ExplainWorkload(request, timeout=10)

    assert "node pool burst grows for it at " in explained.summary
    assert "size small, 0.1 per hour" in explained.summary


async def test_a_pool_with_nothing_to_do_writes_nothing(
    cluster: Cluster, provider: FakeProvider
) -> None:
    await create(cluster, a_spec(min=1))
    await until(cluster, lambda view: states(view) == ["booting"])
    provider.nodes[MACHINE] = await cluster.join(MACHINE, cpu=2000)
    await until(cluster, lambda view: states(view) == ["ready"])
    await until(cluster, lambda view: is_idle(cluster))
    before, lists = cluster.store.commits, provider.lists

    await until(cluster, lambda view: provider.lists >= lists + 5)

    assert cluster.store.commits == before


async def test_an_unreadable_machine_record_stops_its_pool(
    cluster: Cluster, provider: FakeProvider
) -> None:
    await create(cluster, a_spec(min=1))
    await until(cluster, lambda view: states(view) == ["booting"])
    await cluster.stop()
    damaged = Unit(puts={keys.machine_key(MACHINE): b"{"})
    await cluster.store.store.commit([damaged])
    await cluster.start()

    cluster.clock.ahead += timedelta(days=1)
    view = await until(cluster, lambda view: "cannot be read" in view.problem)

    assert not view.machines
    assert provider.destroyed == []
    assert len(provider.requests) == 1


async def test_a_machine_with_a_retained_volume_is_kept(
    cluster: Cluster, provider: FakeProvider
) -> None:
    await create(cluster, a_spec(min=1))
    await until(cluster, lambda view: states(view) == ["booting"])
    node = provider.nodes[MACHINE] = await cluster.join(MACHINE, cpu=2000)
    await until(cluster, lambda view: states(view) == ["ready"])
    node.agent.listed_volumes = [
        VolumeView(workload_id="db", name="data", driver="local", state="retained")
    ]

    request = pb.DeleteNodePoolRequest(pool_id="burst")
    await cluster.control.stub.DeleteNodePool(request, timeout=10)
    await until(cluster, lambda view: keeps_volumes(cluster))

    assert states(await pool_of(cluster)) == ["draining"]
    assert provider.destroyed == []
    node.agent.listed_volumes = []
    await until(cluster, lambda view: provider.destroyed == ["i-1"])


async def test_an_invalid_pool_is_refused_with_the_field(cluster: Cluster) -> None:
    request = pb.CreateNodePoolRequest(pool=a_spec(min=9))
    response = await cluster.control.stub.CreateNodePool(request, timeout=10)

    assert not response.accepted
    assert response.reason.startswith("min: invalid min 9")


async def test_credentials_of_a_pool_need_the_permission_for_secrets() -> None:
    api = NodePoolsApi(cast("Any", None), cast("Any", None), cast("Any", None))
    token = Caller(
        Identity(Role.OPERATOR, "ci"), frozenset({Permission.NODES}), datetime.now(UTC), "1"
    )
    CALLER.set(token)
    request = pb.CreateNodePoolRequest(pool=a_spec(credentials="aws"))

    with pytest.raises(DeniedError, match="may not use secret 'aws' as credentials"):
        await api.CreateNodePool(request, cast("Any", None))
