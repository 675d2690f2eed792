"""Checks that a registry that does not respond delays only its own images.

An agent that is not disturbed starts a workload soon if the image is present on its node.
"""

import asyncio
from collections.abc import Iterator

from persys.core.agent.next_step import Progress
from persys.model.ids import NodeId, WorkloadId
from persys.model.workload import Desired
from persys.sim.fakes.docker import behaviour_of
from persys.sim.fakes.node import SimNode
from persys.sim.world import World

CHECK_SECONDS = 5.0
START_SECONDS_MAX = 45.0


async def watch_present_images(world: World) -> None:
    time = asyncio.get_running_loop().time
    waiting: dict[tuple[NodeId, WorkloadId], float] = {}
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        found = list(_waiting(world)) if world.network.silent_registries else []
        waiting = {copy: waiting.get(copy, time()) for copy in found}
        for (node_id, workload_id), since in waiting.items():
            if time() - since > START_SECONDS_MAX:
                text = f"{workload_id} waits on {node_id}, which has its image"
                world.invariants.fail("image pull", text)


def _waiting(world: World) -> Iterator[tuple[NodeId, WorkloadId]]:
    """Workloads whose agent has done nothing yet although their image is present."""
    for node in world.nodes.values():
        if not _is_disturbed(node):
            for entry in node.disk.all_kept():
                order = entry.order
                if (
                    order.desired is Desired.RUNNING
                    and entry.progress == Progress()
                    and order.workload_id not in node.docker.containers
                    and behaviour_of(order.spec).image in node.docker.images
                ):
                    yield node.id, order.workload_id


def _is_disturbed(node: SimNode) -> bool:
    return (
        not node.powered or node.cannot_act or bool(node.disk.errors) or node.disk.slow_seconds > 0
    )
