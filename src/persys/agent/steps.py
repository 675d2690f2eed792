"""Performing one step: the right deed of the runtime or the volumes, with a bound on how many at once."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import assert_never

from persys.agent.journal import Entry
from persys.agent.past import Past
from persys.agent.ports import Runtime, Volumes
from persys.agent.pulls import Pulls
from persys.core.convergence import Artefact, Step
from persys.errors import ConflictError, RuntimeUnavailableError
from persys.model.failure import Failure, FailureReason
from persys.model.ids import WorkloadId
from persys.model.order import Order
from persys.model.spec import ContainerSpec, Spec, VMSpec, WorkloadType
from persys.model.workload import Desired

PULL_DEADLINE_SECONDS = 1800.0
PULLS_MAX = 4
# Each waits for a grace to pass, so more would be quicker; but Docker 20.10 was seen to lock up for good
# while many containers gave their networks back at once.
STOPS_MAX = 16
DEEDS_MAX = 16
STACKS_MAX = 8  # brought up at once
_STOPPING = (Step.STOP, Step.RESTART)
_WAITING = (Step.CREATE, Step.START)  # a service may wait long for another one of its stack


class Steps:
    def __init__(
        self,
        runtimes: Mapping[WorkloadType, Runtime],
        volumes: Volumes,
        pulls: Pulls,
        past: Past | None = None,
    ) -> None:
        self._runtimes = runtimes
        self._volumes = volumes
        self._watched = pulls
        self._past = past
        self._pulls: dict[WorkloadId, asyncio.Timeout] = {}
        self._pull_room = asyncio.Semaphore(PULLS_MAX)
        self._stop_room = asyncio.Semaphore(STOPS_MAX)
        self._room = asyncio.Semaphore(DEEDS_MAX)
        self._stack_room = asyncio.Semaphore(STACKS_MAX)

    def runtime(self, type_: WorkloadType) -> Runtime:
        if type_ not in self._runtimes:
            raise RuntimeUnavailableError(f"{type_} runtime not available")
        return self._runtimes[type_]

    async def inspect(self, entry: Entry) -> Artefact | None:
        async with self._room:
            return await self.runtime(entry.order.type).inspect(entry.order.workload_id)

    async def may_have(self, order: Order) -> bool:
        """Whether the runtime has something of it, or cannot say."""
        try:
            return await self.runtime(order.type).inspect(order.workload_id) is not None
        except RuntimeUnavailableError:
            return True

    async def log_tail(self, entry: Entry, artefact: Artefact | None) -> str:
        """The last words of this revision; those of the one before it would mislead."""
        if artefact is None or artefact.revision != entry.order.revision:
            return ""
        return await self.runtime(entry.order.type).log_tail(artefact)

    async def perform(self, step: Step, entry: Entry, artefact: Artefact | None) -> Failure | None:
        """ConflictError: what there is has changed, or the order has. Look again."""
        if step is Step.PULL:
            return await self._pull(entry)
        if entry.order.type is WorkloadType.COMPOSE and step in _WAITING:
            return await self._bring_up(step, entry, artefact)
        async with self._stop_room if step in _STOPPING else self._room:
            return await self._do(step, entry, artefact)

    def interrupt(self, workload_id: WorkloadId) -> None:
        """A newer order has come: do not finish what takes long for the old one."""
        deadline = self._pulls.pop(workload_id, None)
        if deadline is not None and not deadline.expired():
            deadline.reschedule(0)

    async def _do(self, step: Step, entry: Entry, artefact: Artefact | None) -> Failure | None:
        order = entry.order
        runtime = self.runtime(order.type)
        match step:
            case Step.PULL:
                pull = self._watched.watch(entry)
                failure = await runtime.pull(order, pull)
                pull.ended(failure)
                return failure
            case Step.PREPARE_VOLUMES:
                return await self._volumes.prepare(order)
            case Step.CREATE:
                # Prepared once more: the machine may have come up anew since, with nothing mounted.
                return await self._attach(order) or await runtime.create(order, self._places(order))
            case Step.REMOVE_VOLUMES:
                doomed = frozenset(
                    name
                    for name, retain in entry.volumes.items()
                    if not retain and not order.keeps_data
                )
                if self._past is not None:
                    await self._past.forget(order.workload_id)
                failure = await runtime.discard(order)
                return failure or await self._volumes.remove(order.workload_id, doomed)
            case Step.STOP | Step.REMOVE | Step.START:
                assert artefact is not None, "these are decided only about something that is there"
                if step is Step.REMOVE and self._past is not None:
                    await self._past.keep(order)
                deed = {
                    Step.STOP: runtime.stop,
                    Step.REMOVE: runtime.remove,
                    Step.START: runtime.start,
                }[step]
                if step is Step.START and (failure := await self._attach(order)):
                    return failure
                failure = await deed(order, artefact)
                if step is Step.STOP and order.desired is not Desired.RUNNING:
                    await self._volumes.release(order.workload_id)
                return failure
            case Step.RESTART:
                assert artefact is not None, "decided only about something that runs"
                return await runtime.stop(order, artefact) or await runtime.start(order, artefact)
            case unreachable:
                assert_never(unreachable)

    async def _attach(self, order: Order) -> Failure | None:
        return await self._volumes.prepare(order) if volumes_of(order.spec) else None

    def _places(self, order: Order) -> dict[str, Path]:
        of = self._volumes.disk if isinstance(order.spec, VMSpec) else self._volumes.path
        return {name: of(order.workload_id, name) for name in volumes_of(order.spec)}

    async def _pull(self, entry: Entry) -> Failure | None:
        workload_id = entry.order.workload_id
        try:
            async with asyncio.timeout(PULL_DEADLINE_SECONDS) as self._pulls[workload_id]:
                async with self._pull_room:
                    return await self._do(Step.PULL, entry, None)
        except TimeoutError as err:
            if workload_id not in self._pulls:
                raise ConflictError(f"a newer order for {workload_id} has come") from err
            text = f"the image was not here after {PULL_DEADLINE_SECONDS:.0f} s"
            return Failure(FailureReason.IMAGE_PULL_FAILED, text)
        finally:
            self._pulls.pop(workload_id, None)

    async def _bring_up(
        self, step: Step, entry: Entry, artefact: Artefact | None
    ) -> Failure | None:
        """Has its own deadline, and room of its own: it may wait long for a service to end."""
        workload_id = entry.order.workload_id
        try:
            async with asyncio.timeout(None) as self._pulls[workload_id], self._stack_room:
                return await self._do(step, entry, artefact)
        except TimeoutError as err:
            raise ConflictError(f"a newer order for {workload_id} has come") from err
        finally:
            self._pulls.pop(workload_id, None)


def volumes_of(spec: Spec) -> dict[str, bool]:
    """The managed volumes of a spec, and whether each must outlive its workload."""
    match spec:
        case ContainerSpec() | VMSpec():
            return {volume.name: volume.retain for volume in spec.managed_volumes}
        case _:
            return {}
