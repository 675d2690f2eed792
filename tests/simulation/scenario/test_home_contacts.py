"""Contacts of a home cluster in virtual time: what is written meanwhile, and when workloads are stopped."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from persys.core.federation.cluster_ids import HOME_CLUSTER, HOME_STOP_AFTER
from persys.model.ids import WorkloadId
from persys.model.workload import Desired
from persys.scheduler.app import Scheduler
from persys.scheduler.membership.home_contacts import CHECK_SECONDS
from persys.scheduler.settings import SchedulerSettings
from persys.sim.engine.hardware import WallClock
from persys.sim.engine.virtual_loop import VirtualLoop
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.metadata_keys import HOME

LIMIT_SECONDS = 60
NAME = WorkloadId("home--web")


def of_home(name: str = "home") -> Any:
    """The context of a call of this cluster, without authentication."""
    return SimpleNamespace(
        invocation_metadata=lambda: ((HOME, name),), set_trailing_metadata=lambda _pairs: None
    )


class Remote:
    """A scheduler that runs a workload of the cluster home."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.scheduler = Scheduler(SchedulerSettings(), store, WallClock().as_read(), name="s1")
        self.api: Any = self.scheduler.api()

    async def begin(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        await self.scheduler.take_over()
        running = [group.create_task(part) for part in self.scheduler.parts()]
        await asyncio.sleep(0)
        return running

    async def apply(self) -> None:
        spec = pb.WorkloadSpec(
            type="container",
            container=pb.ContainerSpec(image="nginx"),
            metadata={HOME_CLUSTER: "home", HOME_STOP_AFTER: str(LIMIT_SECONDS)},
        )
        request = pb.ApplyWorkloadRequest(workload_id=NAME, spec=spec)
        assert (await self.api.ApplyWorkload(request, of_home())).success

    async def contact(self) -> None:
        await self.api.GetMode(pb.GetModeRequest(), of_home())

    @property
    def runs(self) -> bool:
        return self.scheduler.cluster.workloads[NAME].workload.desired is Desired.RUNNING

    async def until_stopped(self) -> float:
        """The seconds until it is stopped."""
        for tenths in range(100 * LIMIT_SECONDS):
            if not self.runs:
                return tenths / 10
            await asyncio.sleep(0.1)
        raise AssertionError("it still runs")


def run(scenario: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop()
    loop.run_until_complete(scenario)
    loop.close()


def test_an_hour_of_contacts_writes_nothing_and_silence_stops_it_within_its_limit() -> None:
    async def scenario() -> None:
        remote = Remote(MemoryStore(asyncio.get_running_loop().time))
        async with asyncio.TaskGroup() as group:
            running = await remote.begin(group)
            await remote.apply()
            await asyncio.sleep(1)
            before = remote.store.transactions
            for _ in range(3600 // (LIMIT_SECONDS // 3)):
                await asyncio.sleep(LIMIT_SECONDS // 3)
                await remote.contact()
            assert remote.runs
            assert remote.store.transactions == before

            waited = await remote.until_stopped()

            assert LIMIT_SECONDS <= waited <= LIMIT_SECONDS + 2 * CHECK_SECONDS
            stopped = remote.store.transactions
            await asyncio.sleep(3600)
            assert remote.store.transactions == stopped
            for task in running:
                task.cancel()

    run(scenario())


def test_the_next_leader_gives_it_the_whole_limit_once() -> None:
    async def scenario() -> None:
        store = MemoryStore(asyncio.get_running_loop().time)
        async with asyncio.TaskGroup() as group:
            first = Remote(store)
            running = await first.begin(group)
            await first.apply()
            await asyncio.sleep(LIMIT_SECONDS - 5)
            for task in running:
                task.cancel()
            await asyncio.wait(running)

            second = Remote(store)
            running = await second.begin(group)
            waited = await second.until_stopped()

            assert LIMIT_SECONDS <= waited <= LIMIT_SECONDS + 2 * CHECK_SECONDS
            for task in running:
                task.cancel()

    run(scenario())
