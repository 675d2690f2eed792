"""Many workloads that are woken together: their steps are spread over many turns of the event loop."""

import asyncio

from persys.model.ids import WorkloadId
from shells.scheduler.harness import Cluster, eventually

COUNT = 2000
TURNS = 10


async def test_steps_that_have_not_started_are_counted_and_leave_turns_to_other_tasks(
    cluster: Cluster,
) -> None:
    reconciler = cluster.app.reconciler
    reconciler.wake_many(WorkloadId(f"w{number}") for number in range(COUNT))
    for _ in range(TURNS):
        await asyncio.sleep(0)

    assert COUNT / 2 < reconciler.depth() < COUNT

    async def all_started() -> bool:
        return not reconciler.depth()

    await eventually(all_started, lambda: "all steps to start")
