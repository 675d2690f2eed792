"""Waits until containers that are being removed are gone: Compose fails while they exist."""

import asyncio

from persys.agent.runtimes.compose_engine import Described, StackEngine
from persys.agent.runtimes.docker_engine import EngineError, as_unavailable
from persys.errors import ConflictError
from persys.model.ids import WorkloadId

_POLLS_MAX = 100
_POLL_SECONDS = 0.1


async def without_rubble(stack: StackEngine, workload_id: WorkloadId) -> list[Described]:
    """The containers of the stack after pending removals have finished. Raises ConflictError."""
    for _ in range(_POLLS_MAX):
        found = await stack.containers(workload_id)
        leaving = [one for one in found if one["State"]["Status"] in ("removing", "dead")]
        if not leaving:
            return found
        dead = [one for one in leaving if one["State"]["Status"] == "dead"]
        try:
            await stack.remove(dead, with_volumes=False)
        except EngineError as err:
            raise as_unavailable(err) from err
        await asyncio.sleep(_POLL_SECONDS)
    raise ConflictError("Docker has not finished removing a container of the stack")
