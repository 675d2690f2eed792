"""Performs one step: calls the runtime or the volumes, with a deadline and a limit on concurrent steps.

The limit is per runtime and volume driver: while a storage server does not respond, its workloads do not
delay others. It follows the duration of starts, which shows how many the runtime can take.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from persys.agent.access.logs import PreviousLogs
from persys.agent.journal.recorder import Recorder
from persys.agent.journal.records import Entry, Image, JournalChange
from persys.agent.journal.store import Journal
from persys.agent.metrics import Metrics
from persys.agent.ports import PullWatch, Runtime, Volumes
from persys.core.agent.progress import Artefact, Step
from persys.core.agent.report import DownloadProgress, LayerProgress
from persys.errors import ConflictError, PersysError, RuntimeUnavailableError, StoreUnavailableError
from persys.infra.aio.adaptive_limit import AdaptiveLimit
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.spec import Spec, VMSpec, WorkloadType, managed_volumes_of
from persys.model.status import Failure, FailureReason
from persys.model.workload import Desired, Order

log = structlog.get_logger()

REPORT_SECONDS = 1.0
COMMIT_DEADLINE_SECONDS = 5.0
STEP_TIMED_OUT = "StepTimedOut"
# Stops mostly wait for the grace period, so a higher limit would be faster. But Docker 20.10 was seen to
# deadlock when many containers released their networks at once.
STOPS_MAX = 16
INSPECTS_MAX = 16
STACKS_MAX = 8  # concurrent `docker compose up`
_STOPPING = (Step.STOP, Step.RESTART)
# In a stack a service may wait long for another service.
_WAITING = (Step.CREATE, Step.START, Step.REPLACE)
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


class PullTracker:
    """Reports the progress of image pulls, and records which images this agent has pulled.

    Progress is reported at most once a second per workload: the scheduler extends the apply timeout of a node
    that reports progress.
    """

    def __init__(
        self, journal: Journal, recorder: Recorder, clock: Clock, metrics: Metrics
    ) -> None:
        self._journal = journal
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics

    def watch(self, entry: Entry) -> "PullProgress":
        return PullProgress(entry, self._journal, self._recorder, self._clock, self._metrics)


class PullProgress(PullWatch):
    """One image pull. Implements agent.ports.PullWatch."""

    def __init__(
        self, entry: Entry, journal: Journal, recorder: Recorder, clock: Clock, metrics: Metrics
    ) -> None:
        self._entry = entry
        self._journal = journal
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics
        self._began: float | None = None
        self._reported_at = float("-inf")
        self._fetching: LayerProgress | DownloadProgress | None = None

    def queued(self, why: str) -> None:
        self._recorder.report_progress(self._entry, "Pulling", f"waiting: {why}")

    def began(self) -> None:
        self._began = self._clock.monotonic()

    def progress(self, fetching: LayerProgress | DownloadProgress) -> None:
        self._fetching = fetching
        now = self._clock.monotonic()
        if now - self._reported_at < REPORT_SECONDS:
            return
        self._reported_at = now
        self._recorder.report_progress(self._entry, "Pulling", fetching.describe())

    async def fetched(self, image: str, image_id: str) -> None:
        now = self._clock.now()
        try:
            change = JournalChange(images=[Image(image, image_id, now, now)])
            await self._journal.commit(change, deadline_seconds=COMMIT_DEADLINE_SECONDS)
        except StoreUnavailableError as err:
            # The image is then never garbage collected, because its origin is unknown.
            log.warning("image.not_kept", image=image, reason=str(err))

    def ended(self, failure: Failure | None) -> None:
        """Count the pull, unless the image was already present."""
        if self._began is not None:
            outcome = failure.reason.value if failure is not None else "completed"
            byte_count = self._fetching.bytes_got if self._fetching is not None else 0
            self._metrics.pulls.ended(outcome, self._clock.monotonic() - self._began, byte_count)


@dataclass(frozen=True, slots=True)
class StepDeadlines:
    """Seconds. Runtime calls have their own shorter deadlines; these end a step that hangs anywhere else."""

    inspect: float = 60.0
    log_tail: float = 30.0
    steps: Mapping[Step, float] = field(default_factory=lambda: _SECONDS)


@dataclass(frozen=True, slots=True)
class _Work:
    """The input of an operation."""

    runtime: Runtime
    entry: Entry
    artefact: Artefact | None

    @property
    def order(self) -> Order:
        return self.entry.order

    @property
    def present(self) -> Artefact:
        """For steps that are decided only for an existing artefact."""
        assert self.artefact is not None, "this step needs an artefact"
        return self.artefact


_Engine = tuple[WorkloadType, frozenset[str]]  # the volume drivers
_Operation = Callable[[_Work], Awaitable[Failure | None]]


class Steps:
    def __init__(
        self,
        runtimes: Mapping[WorkloadType, Runtime],
        volumes: Volumes,
        pulls: PullTracker,
        previous_logs: PreviousLogs | None,
        deadlines: StepDeadlines,
    ) -> None:
        self._runtimes = runtimes
        self._volumes = volumes
        self._pulls = pulls
        self._previous_logs = previous_logs
        self._deadlines = deadlines
        self._interruptible: dict[WorkloadId, asyncio.Timeout] = {}
        self._stop_slots = asyncio.Semaphore(STOPS_MAX)
        self._limits: defaultdict[_Engine, AdaptiveLimit] = defaultdict(AdaptiveLimit)
        self._inspect_slots = asyncio.Semaphore(INSPECTS_MAX)
        self._stack_slots = asyncio.Semaphore(STACKS_MAX)
        self._operations: Mapping[Step, _Operation] = {
            Step.PULL: self._pull,
            Step.PREPARE_VOLUMES: self._prepare_volumes,
            Step.CREATE: self._create,
            Step.START: self._start,
            Step.STOP: self._stop,
            Step.RESTART: self._restart,
            Step.REPAIR: self._repair,
            Step.REPLACE: self._replace,
            Step.REMOVE: self._remove,
            Step.REMOVE_VOLUMES: self._remove_volumes,
        }
        assert self._operations.keys() == set(Step), "every step has an operation"

    def runtime(self, type_: WorkloadType) -> Runtime:
        if type_ not in self._runtimes:
            raise RuntimeUnavailableError(f"{type_} runtime not available")
        return self._runtimes[type_]

    async def inspect(self, entry: Entry) -> Artefact | None:
        """Raises RuntimeUnavailableError."""
        async with self._inspect_slots:
            return await self._inspect(entry.order)

    async def may_have(self, order: Order) -> bool:
        """Whether the runtime has an artefact of the workload, or does not respond."""
        try:
            return await self._inspect(order) is not None
        except RuntimeUnavailableError:
            return True

    async def log_tail(self, entry: Entry, artefact: Artefact | None) -> str:
        """The log tail of the artefact, if it has the revision of the order.

        "" if it is not available, so that the original failure is reported.
        """
        if artefact is None or artefact.revision != entry.order.revision:
            return ""
        try:
            async with asyncio.timeout(self._deadlines.log_tail):
                return await self.runtime(entry.order.type).log_tail(artefact)
        except (OSError, PersysError):  # includes TimeoutError
            return ""

    async def perform(self, step: Step, entry: Entry, artefact: Artefact | None) -> Failure | None:
        """Raises ConflictError if the artefact or the order has changed: inspect again."""
        if step is Step.PULL:
            # No limit here: a present image must not wait, and the runtime limits pulls per registry.
            return await self._interruptibly(step, entry, None)
        if entry.order.type is WorkloadType.COMPOSE and step in _WAITING:
            async with self._stack_slots:
                return await self._interruptibly(step, entry, artefact)
        if step in _STOPPING:
            async with self._stop_slots:
                return await self._in_time(step, entry, artefact)
        limit = self._limits[entry.order.type, _drivers_of(entry.order.spec)]
        now = asyncio.get_running_loop().time
        async with limit.slot():
            began = now()
            failure = await self._in_time(step, entry, artefact)
            if step is Step.START and failure is None:
                limit.measured(now() - began)
            return failure

    def interrupt(self, workload_id: WorkloadId) -> None:
        """Cancel a long step, because a newer order has arrived."""
        deadline = self._interruptible.pop(workload_id, None)
        if deadline is not None and not deadline.expired():
            deadline.reschedule(0)

    async def _in_time(self, step: Step, entry: Entry, artefact: Artefact | None) -> Failure | None:
        try:
            async with asyncio.timeout(self._deadlines.steps[step]) as deadline:
                return await self._do(step, entry, artefact)
        except TimeoutError:
            if not deadline.expired():
                raise
            return self._timed_out(step)

    async def _inspect(self, order: Order) -> Artefact | None:
        try:
            async with asyncio.timeout(self._deadlines.inspect) as deadline:
                return await self.runtime(order.type).inspect(order)
        except TimeoutError as err:
            if not deadline.expired():
                raise
            text = f"{order.type} runtime: no response within {self._deadlines.inspect:g} s"
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
        runtime = self.runtime(entry.order.type)
        return await self._operations[step](_Work(runtime, entry, artefact))

    async def _pull(self, work: _Work) -> Failure | None:
        pull = self._pulls.watch(work.entry)
        failure = await work.runtime.pull(work.order, pull)
        pull.ended(failure)
        return failure

    async def _prepare_volumes(self, work: _Work) -> Failure | None:
        return await self._volumes.prepare(work.order)

    async def _create(self, work: _Work) -> Failure | None:
        # Prepare again: the host may have rebooted since, with nothing mounted.
        if failure := await self._attach(work.order):
            return failure
        return await work.runtime.create(work.order, self._places(work.order))

    async def _start(self, work: _Work) -> Failure | None:
        if failure := await self._attach(work.order):
            return failure
        return await work.runtime.start(work.order, work.present)

    async def _stop(self, work: _Work) -> Failure | None:
        failure = await work.runtime.stop(work.order, work.present)
        if work.order.desired is not Desired.RUNNING:
            await self._volumes.release(work.order.workload_id)
        return failure

    async def _restart(self, work: _Work) -> Failure | None:
        if failure := await work.runtime.stop(work.order, work.present):
            return failure
        return await work.runtime.start(work.order, work.present)

    async def _repair(self, work: _Work) -> Failure | None:
        return await work.runtime.repair(work.order, work.present)

    async def _replace(self, work: _Work) -> Failure | None:
        return await work.runtime.replace(work.order, work.present)

    async def _remove(self, work: _Work) -> Failure | None:
        if self._previous_logs is not None:
            await self._previous_logs.save(work.order)
        return await work.runtime.remove(work.order, work.present)

    async def _remove_volumes(self, work: _Work) -> Failure | None:
        order = work.order
        removed = frozenset(
            name
            for name, retain in work.entry.volumes.items()
            if not retain and not order.keeps_data
        )
        if self._previous_logs is not None:
            await self._previous_logs.remove(order.workload_id)
        failure = await work.runtime.discard(order)
        return failure or await self._volumes.remove(order.workload_id, removed)

    async def _attach(self, order: Order) -> Failure | None:
        return await self._volumes.prepare(order) if volumes_of(order.spec) else None

    def _places(self, order: Order) -> dict[str, Path]:
        of = self._volumes.disk if isinstance(order.spec, VMSpec) else self._volumes.path
        return {name: of(order.workload_id, name) for name in volumes_of(order.spec)}

    async def _interruptibly(
        self, step: Step, entry: Entry, artefact: Artefact | None
    ) -> Failure | None:
        """Perform a long step. Raises ConflictError if a newer order interrupts it."""
        workload_id = entry.order.workload_id
        seconds = self._deadlines.steps[step]
        if step is Step.START and entry.order.run_deadline_seconds:
            seconds = min(seconds, entry.order.run_deadline_seconds)
        try:
            async with asyncio.timeout(seconds) as deadline:
                self._interruptible[workload_id] = deadline
                return await self._do(step, entry, artefact)
        except TimeoutError as err:
            if not deadline.expired():
                raise
            if workload_id not in self._interruptible:
                raise ConflictError(f"a newer order for {workload_id} has arrived") from err
            return self._timed_out(step)
        finally:
            self._interruptible.pop(workload_id, None)


def volumes_of(spec: Spec) -> dict[str, bool]:
    """The managed volumes of a spec, and whether each must be retained after a delete."""
    return {volume.name: volume.retain for volume in managed_volumes_of(spec)}


def _drivers_of(spec: Spec) -> frozenset[str]:
    return frozenset(volume.driver for volume in managed_volumes_of(spec))
