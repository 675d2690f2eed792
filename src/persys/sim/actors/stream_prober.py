"""Probes control streams: cancels a status call before its response and sends another one at once.

Schedulers rarely do this, and a wrong result would be corrected later. Here the second response must belong
to the second request.
"""

import asyncio
from contextlib import suppress

from persys.errors import PersysError
from persys.model.ids import NodeId, WorkloadId
from persys.scheduler.app import Scheduler
from persys.sim.engine.trace import rng
from persys.sim.world import World

PAUSE_SECONDS = 20.0
IMPATIENT_SECONDS = (0.0005, 0.006)
PATIENT_SECONDS = 3.0


async def probe_streams(world: World) -> None:
    random = rng(world.plan.seed, "probe")
    while world.plan.shape.streams > 0:
        await asyncio.sleep(PAUSE_SECONDS)
        scheduler = world.host.scheduler
        choices = _choices(scheduler) if scheduler is not None else []
        if scheduler is None or not choices:
            continue
        node_id, workload_ids = random.choice(choices)
        first, second = random.sample(workload_ids, 2)
        await _ask(scheduler, node_id, first, random.uniform(*IMPATIENT_SECONDS))
        answered = await _ask(scheduler, node_id, second, PATIENT_SECONDS)
        if answered not in ("", second):
            text = f"{node_id} was queried for {second}, but the response is for {answered}"
            world.invariants.fail("stream", text)


async def _ask(
    scheduler: Scheduler, node_id: NodeId, workload_id: WorkloadId, seconds: float
) -> str:
    """The workload id of the response; empty without a response."""
    with suppress(PersysError, TimeoutError):
        async with asyncio.timeout(seconds):
            return (await scheduler.agents.get_status(node_id, "", workload_id)).workload_id
    return ""


def _choices(scheduler: Scheduler) -> list[tuple[NodeId, list[WorkloadId]]]:
    """Nodes with a control stream and two or more workloads."""
    found = (
        (node_id, sorted(workload_ids))
        for node_id, workload_ids in sorted(scheduler.cluster.on_node.items())
        if scheduler.streams.get(node_id) is not None
    )
    return [(node_id, workload_ids) for node_id, workload_ids in found if len(workload_ids) > 1]
