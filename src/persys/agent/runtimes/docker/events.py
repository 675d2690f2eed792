"""Changes of the agent's containers, from the event stream of Docker."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from persys.agent.runtimes.docker.engine import Engine, EngineError, as_unavailable, understood
from persys.agent.runtimes.docker.mapping import WORKLOAD_LABEL
from persys.model.ids import WorkloadId

# Events that can change a status. All others are filtered out.
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
    """Workloads whose containers change. The first item is None: the stream is open from then on.

    Raises RuntimeUnavailableError when the stream ends.
    """
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
