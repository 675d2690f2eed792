"""Events of containers, and what they tell without a call: which workloads have no container, and which
containers were seen running.

Containers of workloads are created by this agent only, so their list from the start of the event stream stays
complete with what the agent creates and what events announce. Without an open stream nothing is known.

Docker announces each start also to the agent that requested it and has inspected the container since. The
events of one container arrive in order: a start that no other event precedes is the one that the inspection
has shown.
"""

import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from msgspec import Struct

from persys.agent.runtimes.docker.engine import (
    Engine,
    EngineError,
    as_unavailable,
    parsing_response,
)
from persys.agent.runtimes.docker.mapping import WORKLOAD_LABEL
from persys.core.agent.progress import Artefact, Condition
from persys.model.ids import WorkloadId

CREATE, START, DESTROY = "create", "start", "destroy"
# Events that can change a status. All others are filtered out.
_EVENTS = (
    CREATE,
    START,
    DESTROY,
    "die",
    "oom",
    "pause",
    "unpause",
    "rename",
    "update",
    "health_status",
)


class ContainerEvent(Struct, frozen=True):
    workload_id: WorkloadId
    container_id: str
    action: str


async def container_events(
    engine: Engine, labels: list[str]
) -> AsyncGenerator[ContainerEvent | None, None]:
    """Events of the containers of workloads. The first item is None: the stream is open from then on.

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
                with parsing_response("an event"):
                    actor = line["Actor"]
                    workload_id = actor["Attributes"].get(WORKLOAD_LABEL)
                    container_id, action = str(actor["ID"]), str(line["Action"])
                if workload_id:
                    yield ContainerEvent(WorkloadId(str(workload_id)), container_id, action)
    except EngineError as err:
        raise as_unavailable(err) from err


async def container_changes(
    engine: Engine, labels: list[str]
) -> AsyncGenerator[WorkloadId | None, None]:
    """Workloads whose containers change, like `container_events`."""
    async with aclosing(container_events(engine, labels)) as events:
        async for event in events:
            yield event.workload_id if event is not None else None


class SeenContainers:
    def __init__(self) -> None:
        self._is_complete = False
        self._workloads: set[WorkloadId] = set()  # that have a container, or may have one
        self._event_count = 0
        # By container: the number of its last event other than a start.
        self._changed: dict[str, int] = {}
        self._running: set[str] = set()  # by an inspection after that event

    def open(self) -> None:
        """A stream of events is open. Events of an earlier stream may be lost."""
        self._is_complete = False
        self._changed.clear()
        self._running.clear()

    def close(self) -> None:
        self._is_complete = False

    def listed(self, workload_ids: Iterable[WorkloadId]) -> None:
        """All containers at a time after `open`."""
        self._workloads.update(workload_ids)
        self._is_complete = True

    def add(self, workload_id: WorkloadId) -> None:
        """A container of the workload is about to be created."""
        self._workloads.add(workload_id)

    def remove(self, workload_id: WorkloadId) -> None:
        """An inspection has found no container."""
        self._workloads.discard(workload_id)

    def is_absent(self, workload_id: WorkloadId) -> bool:
        """Whether the workload certainly has no container."""
        return self._is_complete and workload_id not in self._workloads

    @property
    def event_count(self) -> int:
        """To be read before an inspection, for `inspected`."""
        return self._event_count

    def inspected(self, artefact: Artefact, *, event_count: int) -> None:
        is_newer = self._changed.get(artefact.id, 0) <= event_count
        if artefact.condition is Condition.RUNNING and is_newer:
            self._running.add(artefact.id)
        else:
            self._running.discard(artefact.id)

    def is_news(self, event: ContainerEvent) -> bool:
        """Whether the event may announce something that no inspection has shown."""
        if event.action == START:
            return event.container_id not in self._running
        self._event_count += 1
        self._changed[event.container_id] = self._event_count
        self._running.discard(event.container_id)
        if event.action == CREATE:
            self._workloads.add(event.workload_id)
            return False  # it does not run yet
        if event.action == DESTROY:
            del self._changed[event.container_id]
        return True
