"""Which of the agent's containers change, as Docker tells."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from persys.agent.runtimes.docker_engine import Engine, EngineError, as_unavailable, understood
from persys.agent.runtimes.docker_form import WORKLOAD_LABEL
from persys.model.ids import WorkloadId

# A change of one of these may change a status. Everything else Docker tells is noise here.
_EVENTS = (
    "create",
    "start",
    "die",
    "destroy",
    "oom",
    "pause",
    "unpause",
    "rename",
    "update",
    "health_status",
)


async def container_changes(
    engine: Engine, labels: list[str]
) -> AsyncGenerator[WorkloadId | None, None]:
    """None first: Docker listens from there on. RuntimeUnavailableError ends it."""
    filters = {"type": ["container"], "event": list(_EVENTS), "label": labels}
    params = {"filters": json.dumps(filters)}
    try:
        async with aclosing(engine.stream("GET", "events", params=params)) as lines:
            async for line in lines:
                if not line:
                    yield None
                    continue
                with understood("an event"):
                    workload_id = line["Actor"]["Attributes"].get(WORKLOAD_LABEL)
                if workload_id:
                    yield WorkloadId(str(workload_id))
    except EngineError as err:
        raise as_unavailable(err) from err
