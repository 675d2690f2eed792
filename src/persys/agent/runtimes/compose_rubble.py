"""Containers of a stack that are being removed: Compose stumbles over them, so they are waited for."""

import asyncio

from persys.agent.runtimes.compose_engine import Described, StackEngine
from persys.agent.runtimes.docker_engine import EngineError, as_unavailable
from persys.errors import ConflictError
from persys.model.ids import WorkloadId

_LOOKS_MAX = 100
_LOOK_SECONDS = 0.1


async def without_rubble(stack: StackEngine, workload_id: WorkloadId) -> list[Described]:
    """Its containers, once those that are on their way out are gone. Raises ConflictError."""
    for _ in range(_LOOKS_MAX):
        found = await stack.containers(workload_id)
        rubble = [one for one in found if one["State"]["Status"] in ("removing", "dead")]
        if not rubble:
            return found
        dead = [one for one in rubble if one["State"]["Status"] == "dead"]
        try:
            await stack.remove(dead, with_volumes=False)
        except EngineError as err:
            raise as_unavailable(err) from err
        await asyncio.sleep(_LOOK_SECONDS)
    raise ConflictError("a container is being removed and does not go away")
