"""Concurrent steps are limited per volume driver."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from persys.agent.journal.records import Entry, ReportedStatus
from persys.agent.workloads.steps import StepDeadlines, Steps
from persys.core.agent.progress import Step
from persys.infra.aio.adaptive_limit import FIRST
from persys.model.ids import ActionId, Revision, WorkloadId
from persys.model.spec import ContainerSpec, ManagedVolume, WorkloadType
from persys.model.status import Actual
from persys.model.workload import Desired, Order

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class HangingServer:
    """Volumes of the driver `nfs` are never prepared, others at once."""

    def __init__(self) -> None:
        self.waiting = 0
        self.all_wait = asyncio.Event()

    async def prepare(self, order: Order) -> None:
        assert isinstance(order.spec, ContainerSpec)
        if any(volume.driver == "nfs" for volume in order.spec.managed_volumes):
            self.waiting += 1
            if self.waiting == FIRST:
                self.all_wait.set()
            await asyncio.Event().wait()


def an_entry(workload_id: str, *drivers: str) -> Entry:
    volumes = tuple(ManagedVolume(f"data-{driver}", driver=driver) for driver in drivers)
    order = Order(
        *(WorkloadId(workload_id), WorkloadType.CONTAINER, Revision("r1"), 1, Desired.RUNNING),
        ContainerSpec("web", managed_volumes=volumes),
    )
    return Entry(order, 1, ActionId("a"), NOW, NOW, ReportedStatus(Actual.PENDING, NOW))


def steps_with(volumes: Any) -> Steps:
    runtimes: Any = {WorkloadType.CONTAINER: None}
    pulls: Any = None
    return Steps(runtimes, volumes, pulls, None, StepDeadlines())


async def prepared(steps: Steps, entries: Iterable[Entry]) -> None:
    for entry in entries:
        assert await steps.perform(Step.PREPARE_VOLUMES, entry, None) is None


async def test_a_hanging_storage_server_does_not_delay_workloads_of_other_drivers() -> None:
    server = HangingServer()
    steps = steps_with(server)
    hanging = [
        asyncio.create_task(
            steps.perform(Step.PREPARE_VOLUMES, an_entry(f"nfs-{number}", "nfs"), None)
        )
        for number in range(2 * FIRST)
    ]
    async with asyncio.timeout(20):
        await server.all_wait.wait()
        await prepared(
            steps, [an_entry("plain"), an_entry("disk", "local"), an_entry("rbd", "ceph-rbd")]
        )

    assert server.waiting == FIRST
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
