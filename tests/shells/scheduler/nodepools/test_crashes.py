"""A scheduler that crashes at any step between a decision about a machine and its record.

The whole life of a machine runs once per step: created, ready, and destroyed with its pool. No machine is
created twice, none is left over, and none is created beyond the limit.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial

import grpc
import pytest

from persys.infra.clock import SystemClock
from persys.providers.port import Instance, MachineRequest
from persys.scheduler.app import Scheduler
from persys.scheduler.build import MachineSources
from persys.store import keys
from persys.store.memory import MemoryStore
from persys.store.port import Outcome, Unit
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, eventually, fast_settings
from shells.scheduler.nodepools.fake_provider import FakeProvider
from shells.scheduler.stores import FaultyStore

BEFORE_CREATE = (2, 3)  # the machine is stored, and the provider was not called


class KilledError(BaseException):
    """Ends the scheduler at once: nothing of it handles this."""


class Steps:
    """Counts the steps of node pools, and kills the scheduler at one of them."""

    def __init__(self, kill_at: int) -> None:
        self.count = 0
        self._kill_at = kill_at

    def reach(self) -> None:
        self.count += 1
        if self.count == self._kill_at:
            raise KilledError


class CrashingStore(FaultyStore):
    def __init__(self, steps: Steps) -> None:
        super().__init__(MemoryStore(SystemClock().monotonic))
        self._steps = steps

    async def commit(
        self, units: Sequence[Unit], *, fence: tuple[str, int] | None = None
    ) -> list[Outcome]:
        changed = [key for unit in units for key in (*unit.puts, *unit.deletes)]
        concerns_machines = any(key.startswith(keys.MACHINES) for key in changed)
        if concerns_machines:
            self._steps.reach()
        outcomes = await super().commit(units, fence=fence)
        if concerns_machines:
            self._steps.reach()
        return outcomes


class CrashingProvider(FakeProvider):
    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps
        self.most = 0  # instances at the same time

    async def create(self, request: MachineRequest) -> Instance:
        self._steps.reach()
        instance = await super().create(request)
        self.most = max(self.most, len(self.running))
        self._steps.reach()
        return instance

    async def destroy(self, provider_id: str) -> None:
        self._steps.reach()
        await super().destroy(provider_id)
        self._steps.reach()


async def live_through(
    cluster: Cluster, provider: CrashingProvider, *, was_killed_before_create: bool
) -> None:
    """A pool with one machine: created, joined, deleted. The scheduler is started again if it was killed."""

    async def pools() -> dict[str, pb.NodePoolView]:
        if cluster.has_ended:
            await cluster.ended()
            await cluster.start()
        with suppress(grpc.aio.AioRpcError):
            cluster.app.pool_controller.wake("burst")
            listed = await cluster.control.stub.ListNodePools(pb.ListNodePoolsRequest(), timeout=5)
            return {pool.spec.pool_id: pool for pool in listed.pools}
        return {"": pb.NodePoolView()}

    async def is_booting() -> bool:
        pool = (await pools()).get("burst")
        if was_killed_before_create:
            cluster.clock.ahead += timedelta(minutes=2)  # the record is dropped after the deadline
        return pool is not None and [one.state for one in pool.machines] == ["booting"]

    async def is_ready() -> bool:
        pool = (await pools()).get("burst")
        return pool is not None and [one.state for one in pool.machines] == ["ready"]

    async def is_dropped() -> bool:
        return not await pools()

    size = pb.MachineSize(name="small", cpu_millicores=2000, memory_mb=4096, hour_price=0.1)
    spec = pb.NodePoolSpec(
        pool_id="burst", provider="exec", sizes=[size], min=1, max=1, spend_per_hour_max=0.1
    )
    stub = cluster.control.stub
    await stub.CreateNodePool(pb.CreateNodePoolRequest(pool=spec), timeout=10)
    await eventually(is_booting, lambda: "the machine to boot")
    name = provider.requests[-1].name
    provider.nodes[name] = await cluster.join(name, cpu=2000)
    await eventually(is_ready, lambda: "the machine to be ready")
    await stub.DeleteNodePool(pb.DeleteNodePoolRequest(pool_id="burst"), timeout=10)
    await eventually(is_dropped, lambda: "the pool to be dropped")


@pytest.mark.parametrize(
    "kill_at",
    [
        0,
        3,
        5,
        13,
        *(pytest.param(at, marks=pytest.mark.full) for at in (2, 4, 7, 9, 11, 12, 14, 15)),
    ],
)
async def test_a_crash_at_any_step_loses_no_machine_and_pays_for_none_twice(kill_at: int) -> None:
    """At 0 it is not killed. Step 1 is before the first store: nothing has happened yet."""
    steps = Steps(kill_at)
    provider, store = CrashingProvider(steps), CrashingStore(steps)
    scheduler = partial(Scheduler, machines=MachineSources(provider.open))
    async with a_cluster(store, fast_settings(), scheduler=scheduler) as cluster:
        await live_through(cluster, provider, was_killed_before_create=kill_at in BEFORE_CREATE)
    await store.store.close()

    names = [request.name for request in provider.requests]
    assert len(names) == len(set(names))
    assert provider.most == 1
    assert not provider.running
    assert steps.count > kill_at
