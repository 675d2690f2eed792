"""Performing one step: the right call of the runtime or the volumes, with a deadline and a bound on how many
run at once."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from persys.agent.journal import Entry
from persys.agent.past import Past
from persys.agent.ports import Runtime, Volumes
from persys.agent.pulls import Pulls
from persys.core.convergence import Artefact, Step
from persys.errors import ConflictError, PersysError, RuntimeUnavailableError
from persys.model.failure import Failure, FailureReason
from persys.model.ids import WorkloadId
from persys.model.order import Order
from persys.model.spec import ContainerSpec, Spec, VMSpec, WorkloadType
from persys.model.workload import Desired

STEP_TIMED_OUT = "StepTimedOut"
# Each waits for a grace to pass, so more would be quicker; but Docker 20.10 was seen to lock up for good
# while many containers gave their networks back at once.
STOPS_MAX = 16
DEEDS_MAX = 16
INSPECTS_MAX = 16
STACKS_MAX = 8  # brought up at once
_STOPPING = (Step.STOP, Step.RESTART)
_WAITING = (
    Step.CREATE,
    Step.START,
    Step.REPLACE,
)  # a service may wait long for another one of its stack


_SECONDS = {
    Step.PULL: 1800.0,
    Step.PREPARE_VOLUMES: 600.0,
    Step.CREATE: 1800.0,
    Step.START: 1800.0,
    Step.STOP: 3600.0,
    Step.RESTART: 3600.0,
    Step.REPAIR: 600.0,
    Step.REPLACE: 1800.0,
    Step.REMOVE: 600.0,
    Step.REMOVE_VOLUMES: 600.0,
}


@dataclass(frozen=True, slots=True)
class StepDeadlines:
    """Seconds. Each call of a runtime has a deadline of its own; these are behind them, so that a step that
    hangs anywhere ends and its workload fails."""

    inspect: float = 60.0
    log_tail: float = 30.0
    steps: Mapping[Step, float] = field(default_factory=lambda: _SECONDS)


class Steps:
    def __init__(
        self,
        runtimes: Mapping[WorkloadType, Runtime],
        volumes: Volumes,
        pulls: Pulls,
        past: Past | None,
        deadlines: StepDeadlines,
    ) -> None:
        self._runtimes = runtimes
        self._volumes = volumes
        self._watched = pulls
        self._past = past
        self._deadlines = deadlines
        self._interruptible: dict[WorkloadId, asyncio.Timeout] = {}
        self._stop_room = asyncio.Semaphore(STOPS_MAX)
        self._room = asyncio.Semaphore(DEEDS_MAX)
        self._inspect_room = asyncio.Semaphore(INSPECTS_MAX)
        self._stack_room = asyncio.Semaphore(STACKS_MAX)

    def runtime(self, type_: WorkloadType) -> Runtime:
        if type_ not in self._runtimes:
            raise RuntimeUnavailableError(f"{type_} runtime not available")
        return self._runtimes[type_]

    async def inspect(self, entry: Entry) -> Artefact | None:
        """Raises RuntimeUnavailableError."""
        async with self._inspect_room:
            return await self._look(entry.order)

    async def may_have(self, order: Order) -> bool:
        """Whether the runtime has something of it, or cannot say."""
        try:
            return await self._look(order) is not None
        except RuntimeUnavailableError:
            return True

    async def log_tail(self, entry: Entry, artefact: Artefact | None) -> str:
        """The last words of this revision; those of the one before it would mislead.

        "" if they cannot be had: that does not hide the failure that they belong to.
        """
        if artefact is None or artefact.revision != entry.order.revision:
            return ""
        try:
            async with asyncio.timeout(self._deadlines.log_tail):
                return await self.runtime(entry.order.type).log_tail(artefact)
        except (OSError, PersysError):  # also a TimeoutError
            return ""

    async def perform(self, step: Step, entry: Entry, artefact: Artefact | None) -> Failure | None:
        """ConflictError: what there is has changed, or the order has. Look again."""
        if step is Step.PULL:
            # Without a bound here: images that are present wait for nothing, and a registry that hangs
            # holds up only its own.
            return await self._interruptibly(step, entry, None)
        if entry.order.type is WorkloadType.COMPOSE and step in _WAITING:
            async with self._stack_room:
                return await self._interruptibly(step, entry, artefact)
        async with self._stop_room if step in _STOPPING else self._room:
            try:
                async with asyncio.timeout(self._deadlines.steps[step]) as deadline:
                    return await self._do(step, entry, artefact)
            except TimeoutError:
                if not deadline.expired():
                    raise
                return self._timed_out(step)

    def interrupt(self, workload_id: WorkloadId) -> None:
        """A newer order has come: do not finish what takes long for the old one."""
        deadline = self._interruptible.pop(workload_id, None)
        if deadline is not None and not deadline.expired():
            deadline.reschedule(0)

    async def _look(self, order: Order) -> Artefact | None:
        try:
            async with asyncio.timeout(self._deadlines.inspect) as deadline:
                return await self.runtime(order.type).inspect(order)
        except TimeoutError as err:
            if not deadline.expired():
                raise
            text = f"{order.type} runtime: no answer within {self._deadlines.inspect:g} s"
            raise RuntimeUnavailableError(text) from err
        except OSError as err:
            raise RuntimeUnavailableError(f"{order.type} runtime: {err}") from err

    def _timed_out(self, step: Step) -> Failure:
        reason = (
            FailureReason.IMAGE_PULL_FAILED if step is Step.PULL else FailureReason.RUNTIME_ERROR
        )
        text = f"{step} did not finish within {self._deadlines.steps[step]:g} s"
        return Failure(reason, text, code=STEP_TIMED_OUT)

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
            case Step.REPAIR | Step.REPLACE:
                assert artefact is not None, "decided only about something that runs"
                deed = runtime.repair if step is Step.REPAIR else runtime.replace
                return await deed(order, artefact)
            case unreachable:
                assert_never(unreachable)

    async def _attach(self, order: Order) -> Failure | None:
        return await self._volumes.prepare(order) if volumes_of(order.spec) else None

    def _places(self, order: Order) -> dict[str, Path]:
        of = self._volumes.disk if isinstance(order.spec, VMSpec) else self._volumes.path
        return {name: of(order.workload_id, name) for name in volumes_of(order.spec)}

    async def _interruptibly(
        self, step: Step, entry: Entry, artefact: Artefact | None
    ) -> Failure | None:
        """May take long. A newer order ends it: raises ConflictError."""
        workload_id = entry.order.workload_id
        try:
            async with asyncio.timeout(self._deadlines.steps[step]) as deadline:
                self._interruptible[workload_id] = deadline
                return await self._do(step, entry, artefact)
        except TimeoutError as err:
            if not deadline.expired():
                raise
            if workload_id not in self._interruptible:
                raise ConflictError(f"a newer order for {workload_id} has come") from err
            return self._timed_out(step)
        finally:
            self._interruptible.pop(workload_id, None)


def volumes_of(spec: Spec) -> dict[str, bool]:
    """The managed volumes of a spec, and whether each must outlive its workload."""
    match spec:
        case ContainerSpec() | VMSpec():
            return {volume.name: volume.retain for volume in spec.managed_volumes}
        case _:
            return {}
