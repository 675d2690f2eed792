"""The reconciler of the agent: inspects a workload, decides the next step, performs it, until settled.

Workloads run in parallel, each one serially. The decision depends only on the inspected state, never on the
event that woke the workload. If a runtime does not respond, the state is unknown, and the workload is
inspected again later. An unexpected exception affects only its workload: a step fails; elsewhere the state
becomes unknown, and failed after repeated errors.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import structlog
from msgspec.structs import replace

from persys.agent.journal.recorder import Recorder
from persys.agent.journal.records import Entry, JournalChange
from persys.agent.journal.store import Journal
from persys.agent.networks.controller import NetworkController
from persys.agent.volumes.managed import storage_failure
from persys.agent.workloads import failpoints
from persys.agent.workloads.crash_recovery import Recovery, record_resuming
from persys.agent.workloads.health_probes import HealthProbes
from persys.agent.workloads.steps import Steps
from persys.agent.workloads.work_queue import WorkQueue
from persys.core.agent.admission import LastExit, quarantine
from persys.core.agent.next_step import (
    STOPPED_ALONE,
    after_inspection,
    next_step,
    without_reconciliation,
)
from persys.core.agent.progress import Artefact, Perform, Settled, Step
from persys.core.agent.report import (
    NOTE,
    RUN_STARTED_AT,
    describe,
    internal_failure,
    notes_of,
)
from persys.core.agent.run_limits import within_disk_limit, within_run_limits
from persys.core.backoff import doubled_seconds
from persys.errors import ConflictError, PersysError, UnavailableError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.keyed_queue import KeyedQueue
from persys.infra.aio.path_calls import PathTimeoutError
from persys.infra.aio.supervisor import Containment, InternalError, Supervisor
from persys.infra.clock import Clock
from persys.infra.failpoints import failpoint
from persys.model.ids import WorkloadId
from persys.model.status import Actual, Failure, FailureReason
from persys.model.workload import Desired, Order

log = structlog.get_logger()

# A workload that needs more steps in a row is being changed by something else: back off.
STEPS_MAX = 25
NOT_SETTLED = "NotSettled"
# These steps do not change the container, so it need not be inspected again.
PREPARATIONS = frozenset({Step.PULL, Step.PREPARE_VOLUMES})
# Steps after which a workload uses its networks.
_JOINING = frozenset({Step.CREATE, Step.START, Step.RESTART, Step.REPAIR, Step.REPLACE})
WAITING_FOR_NETWORK = "WaitingForNetwork"
BACK_OFF_MIN_SECONDS = 0.5
BACK_OFF_MAX_SECONDS = 30.0
EARLY_SECONDS = 0.001  # a timer may fire this much early
# A workload that cannot be inspected is unknown at first, and failed from this attempt on.
ATTEMPTS_UNKNOWN_MAX = 3
# How long an order is resumed alone, by the last exit.
RESUME_SECONDS = {LastExit.KILLED: 0.5, LastExit.CRASHED: 10.0}
# Where exceptions are contained.
STEP, LOOK, LOG_TAIL = "worker.step", "worker.look", "worker.log_tail"


class Worker:
    def __init__(
        self,
        journal: Journal,
        locks: KeyedLock[WorkloadId],
        steps: Steps,
        probes: HealthProbes,
        recorder: Recorder,
        clock: Clock,
        *,
        queue: WorkQueue,
        must_stop: Callable[[Order], bool],
        supervisor: Supervisor,
        recovery: Recovery,
        reconciles: bool,
        networks: NetworkController | None = None,
    ) -> None:
        """`must_stop`: whether contact with the scheduler was lost for longer than the order allows.

        `reconciles`: whether deviations without a new order are repaired, or only reported.
        `networks`: None on a node without networks, which refuses orders that need one.
        """
        self._journal = journal
        self._locks = locks
        self._steps = steps
        self._probes = probes
        self._recorder = recorder
        self._clock = clock
        self._queue = queue
        self._must_stop = must_stop
        self._supervisor = supervisor
        self._reconciles = reconciles
        self._networks = networks
        self._attempts: dict[WorkloadId, int] = {}
        # Back-off deadline of workloads whose last step failed: events of their own steps would wake them.
        self._backing_off_until: dict[WorkloadId, float] = {}
        self._acted: set[WorkloadId] = set()  # during the present inspection
        self._last_exit = recovery.last_exit
        self._crashes = dict(recovery.crashes)
        self._quarantined: set[WorkloadId] = set()  # until a new order arrives

    async def run(self) -> None:
        self._queue.restart()
        async with asyncio.TaskGroup() as group:
            queues: KeyedQueue[WorkloadId] = KeyedQueue(group, contain=self._contain)
            await self._resume(queues)
            while True:
                workload_id = await self._queue.take()
                queues.submit(workload_id, partial(self._converge, workload_id))

    def interrupt(self, workload_id: WorkloadId) -> None:
        """A newer order is in the journal: interrupt the old work and start with the new order."""
        self._quarantined.discard(workload_id)
        self._steps.interrupt(workload_id)
        self._attempts.pop(workload_id, None)
        self._backing_off_until.pop(workload_id, None)
        self._queue.wake(workload_id)

    async def retry_failed(self, *, only_deletes: bool) -> None:
        """Clear retryable failures, so that the next inspection retries them."""
        for workload_id in list(self._journal.entries):
            async with self._locks.hold(workload_id):
                entry = self._journal.entries.get(workload_id)
                if entry is None or (only_deletes and entry.order.desired is not Desired.DELETED):
                    continue
                self._recorder.clear_failure(entry)

    async def _resume(self, queues: KeyedQueue[WorkloadId]) -> None:
        """After an unclean exit, resume workloads one at a time, to identify one that crashes the agent.

        After a crash all workloads are resumed alone, after a kill only unfinished ones. Workloads that must
        stop because contact was lost do not wait.
        """
        ended, self._last_exit = self._last_exit, LastExit.CLEAN
        if ended is LastExit.CLEAN:
            return
        entries = list(self._journal.entries.values())
        for entry in entries:
            workload_id = entry.order.workload_id
            failure = quarantine(self._crashes.get(workload_id, 0))
            if failure is not None:
                await self._quarantine(workload_id, failure)
            elif self._must_stop(entry.order):
                queues.submit(workload_id, partial(self._converge, workload_id))
            elif ended is LastExit.CRASHED or self._journal.open_action(entry) is not None:
                await record_resuming(self._journal, workload_id)
                await self._resume_alone(workload_id, queues, RESUME_SECONDS[ended])
        await record_resuming(self._journal, None)

    async def _resume_alone(
        self, workload_id: WorkloadId, queues: KeyedQueue[WorkloadId], seconds: float
    ) -> None:
        """Resume one workload, and wait until it has settled or the time is over: a pull may take long."""
        ended = asyncio.Event()

        async def resume() -> None:
            try:
                await self._converge(workload_id)
            finally:
                ended.set()

        queues.submit(workload_id, resume)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ended.wait()

    async def _quarantine(self, workload_id: WorkloadId, failure: Failure) -> None:
        log.error("workload.quarantined", workload_id=workload_id, reason=failure.message)
        self._quarantined.add(workload_id)
        async with self._locks.hold(workload_id):
            entry = self._journal.entries.get(workload_id)
            if entry is not None:
                self._recorder.mark_failed(entry, failure)

    def _contain(self, workload_id: WorkloadId) -> Containment:
        """Contain errors of a queue task; `_converge` contains those that it can attribute."""
        return self._supervisor.contain(LOOK, workload_id, failed=lambda _error: None)

    async def _converge(self, workload_id: WorkloadId) -> None:
        try:
            if self._queue.begin(workload_id):
                await self._reconcile(workload_id)
        finally:
            self._queue.inspected(workload_id)

    async def _reconcile(self, workload_id: WorkloadId) -> None:
        if workload_id in self._quarantined or self._is_backing_off(workload_id):
            return
        self._acted.discard(workload_id)
        errors: list[InternalError] = []
        with self._supervisor.contain(LOOK, workload_id, failed=errors.append):
            try:
                for _ in range(STEPS_MAX):
                    if not await self._advance(workload_id):
                        self._supervisor.resolved(LOOK, workload_id)
                        return
                await self._show_unsettled(workload_id)
            except PersysError as err:
                await self._mark_unknown(workload_id, str(err))
        if errors:
            await self._give_up(workload_id, errors[0])
        else:
            self._back_off(workload_id)

    async def _advance(self, workload_id: WorkloadId) -> bool:
        """Inspect, and perform the next step. False if the workload has settled."""
        self._queue.begin(workload_id)
        entry = self._journal.entries.get(workload_id)
        if entry is None:
            return False
        artefact = await self._steps.inspect(entry)
        while True:
            entry = self._journal.entries.get(workload_id)  # a new order may have arrived
            if entry is None:
                return False
            artefact = self._probes.seen(entry, artefact)
            entry = self._counted(entry, artefact)
            outcome = next_step(
                entry.order,
                artefact,
                entry.progress,
                now=self._clock.now(),
                scheduler_lost=self._must_stop(entry.order),
            )
            if not self._reconciles:
                under_way = self._journal.open_action(entry) is not None
                outcome = without_reconciliation(
                    outcome, entry.order, artefact, under_way=under_way
                )
            outcome = within_disk_limit(outcome, entry.order, artefact, entry.progress)
            outcome = within_run_limits(
                outcome, entry.order, artefact, entry.progress, now=self._clock.now()
            )
            _log_decision(outcome, entry, artefact)
            if not isinstance(outcome, Perform):
                return not await self._settle(outcome, entry, artefact)
            if outcome.step in _JOINING and self._waits_for_network(entry):
                return False
            await self._do(outcome, entry, artefact)
            if outcome.step not in PREPARATIONS:
                return True

    def _waits_for_network(self, entry: Entry) -> bool:
        """Whether a network of the workload is not ready. It is woken when the network is."""
        if self._networks is None or not (why := self._networks.waiting_for(entry.order)):
            return False
        workload_id = entry.order.workload_id
        if (entry.status.code, entry.status.message) != (WAITING_FOR_NETWORK, why):
            self._recorder.report_progress(entry, WAITING_FOR_NETWORK, why)
        self._queue.wake_after(workload_id, BACK_OFF_MAX_SECONDS)
        return True

    def _counted(self, entry: Entry, artefact: Artefact | None) -> Entry:
        """Count restarts since the last inspection. Committed with the next status; a crash repeats it."""
        progress = after_inspection(entry.progress, entry.order, artefact)
        if progress == entry.progress:
            return entry
        entry = replace(entry, progress=progress)
        self._journal.update(entry)
        return entry

    async def _do(self, todo: Perform, seen: Entry, artefact: Artefact | None) -> None:
        workload_id, step = seen.order.workload_id, todo.step
        self._acted.add(workload_id)
        async with self._locks.hold(workload_id):
            entry = self._journal.entries.get(workload_id)
            if entry is None or entry.generation != seen.generation:
                return
            entry = await self._recorder.begin_step(entry, todo, artefact)
        if step is Step.START:
            failpoint(failpoints.LAUNCHING)
        began = self._clock.monotonic()
        try:
            failure = await self._perform(step, entry, artefact)
        except ConflictError as err:
            log.debug("step.abandoned", workload_id=workload_id, step=step.value, reason=str(err))
            return
        finally:
            seconds = self._clock.monotonic() - began
        log.debug(
            "step.ended",
            workload_id=workload_id,
            step=step.value,
            seconds=round(seconds, 3),
            failure=failure.reason.value if failure is not None else "",
        )
        failpoint(failpoints.AFTER_STEP[step])
        async with self._locks.hold(workload_id):
            current = self._journal.entries.get(workload_id)
            if current is not None and current.generation == entry.generation:
                self._recorder.record_step(current, step, failure, seconds)

    async def _perform(self, step: Step, entry: Entry, artefact: Artefact | None) -> Failure | None:
        """Perform a step. Returns the failure. Raises ConflictError, UnavailableError."""
        workload_id, errors = entry.order.workload_id, list[InternalError]()
        with self._supervisor.contain(STEP, workload_id, failed=errors.append):
            failpoint(failpoints.STEP, workload_id)
            try:
                failure = await self._steps.perform(step, entry, artefact)
            except (OSError, PathTimeoutError) as err:
                failure = storage_failure(step, err)
            except (ConflictError, UnavailableError):
                raise
            except PersysError as err:
                failure = Failure(FailureReason.RUNTIME_ERROR, f"{step}: {err}")
            if self._networks is not None and entry.order.networks and step in _JOINING:
                await self._networks.attach()
            self._supervisor.resolved(STEP, workload_id)
            return failure
        return internal_failure(f"{step}: {errors[0].text}")

    async def _settle(self, settled: Settled, seen: Entry, artefact: Artefact | None) -> bool:
        """Record the settled state. False if a newer order has arrived."""
        workload_id = seen.order.workload_id
        log_tail = ""
        if settled.actual is Actual.FAILED:
            log_tail = await self._log_tail(seen, artefact)
        async with self._locks.hold(workload_id):
            entry = self._journal.entries.get(workload_id)
            if entry is None or entry.generation != seen.generation:
                return False
            if settled.actual is Actual.ABSENT:
                await self._recorder.record_deletion(entry)
                failpoint(failpoints.FORGOTTEN)
            elif await self._recorder.record_settled(
                entry, settled, _status_metadata(entry, settled, artefact, log_tail)
            ):
                failpoint(failpoints.SETTLED)
        self._attempts.pop(workload_id, None)
        self._backing_off_until.pop(workload_id, None)
        self._acted.discard(workload_id)
        if workload_id in self._crashes and settled.actual is not Actual.FAILED:
            del self._crashes[workload_id]
            await self._journal.commit(JournalChange(survived=workload_id))
        if settled.look_again_at is not None:
            wait = settled.look_again_at - self._clock.now()
            self._queue.wake_after(workload_id, wait.total_seconds())
        return True

    async def _log_tail(self, entry: Entry, artefact: Artefact | None) -> str:
        """The log tail; an error text if it cannot be read, so that the failure itself is still reported."""
        errors: list[InternalError] = []
        with self._supervisor.contain(LOG_TAIL, entry.order.workload_id, failed=errors.append):
            return await self._steps.log_tail(entry, artefact)
        return f"cannot read the log: {errors[0].text}"

    async def _show_unsettled(self, workload_id: WorkloadId) -> None:
        """Report a workload that does not reach its desired state although every step succeeded."""
        async with self._locks.hold(workload_id):
            entry = self._journal.entries.get(workload_id)
            if entry is not None:
                text = f"not {entry.order.desired} after {STEPS_MAX} successful steps"
                self._recorder.report_progress(entry, NOT_SETTLED, f"{text}; retrying")

    async def _mark_unknown(self, workload_id: WorkloadId, why: str) -> None:
        async with self._locks.hold(workload_id):
            entry = self._journal.entries.get(workload_id)
            if entry is not None:
                self._recorder.mark_unknown(entry, why)

    async def _give_up(self, workload_id: WorkloadId, error: InternalError) -> None:
        """Handle an unexpected error outside of a step: retry with back-off."""
        self._queue.wake_after(workload_id, self._supervisor.retry_after(error).total_seconds())
        failure = internal_failure(error.text)
        with self._supervisor.contain(LOOK, workload_id, failed=lambda _error: None):
            async with self._locks.hold(workload_id):
                entry = self._journal.entries.get(workload_id)
                if entry is not None and error.count < ATTEMPTS_UNKNOWN_MAX:
                    self._recorder.mark_unknown(entry, failure.message)
                elif entry is not None:
                    self._recorder.mark_failed(entry, failure)

    def _back_off(self, workload_id: WorkloadId) -> None:
        attempts = self._attempts.get(workload_id, 0)
        seconds = doubled_seconds(BACK_OFF_MIN_SECONDS, attempts, longest=BACK_OFF_MAX_SECONDS)
        self._attempts[workload_id] = attempts + 1
        self._queue.wake_after(workload_id, seconds)
        if workload_id in self._acted:
            self._backing_off_until[workload_id] = self._clock.monotonic() + seconds

    def _is_backing_off(self, workload_id: WorkloadId) -> bool:
        """Whether the workload is backing off. It is inspected after that."""
        seconds = self._backing_off_until.get(workload_id, 0.0) - self._clock.monotonic()
        entry = self._journal.entries.get(workload_id)
        if seconds < EARLY_SECONDS or entry is None or self._must_stop(entry.order):
            self._backing_off_until.pop(workload_id, None)
            return False
        self._queue.wake_after(workload_id, seconds)
        return True


def _log_decision(outcome: Perform | Settled, entry: Entry, artefact: Artefact | None) -> None:
    """Log the decision and its inputs at level debug."""
    decided = (
        {"step": outcome.step.value}
        if isinstance(outcome, Perform)
        else {"settled": outcome.actual.value, "code": outcome.code}
    )
    log.debug(
        "workload.decided",
        workload_id=entry.order.workload_id,
        revision=entry.order.revision,
        epoch=entry.order.epoch,
        desired=entry.order.desired.value,
        there=artefact.condition.value if artefact is not None else "",
        there_revision=artefact.revision if artefact is not None else "",
        **decided,
    )


def _status_metadata(
    entry: Entry, settled: Settled, artefact: Artefact | None, log_tail: str
) -> dict[str, str]:
    order, progress = entry.order, entry.progress
    words = describe(artefact, log_tail=log_tail, restarts=progress.restart_counter.total)
    if artefact is None and settled.final:
        words = dict(entry.status.metadata)  # of its container, which was removed
    if (order.run_once or order.run_deadline_seconds) and progress.run_started_at is not None:
        words[RUN_STARTED_AT] = progress.run_started_at.isoformat()
    notes = [*notes_of(order, artefact.name if artefact is not None else "")]
    notes += artefact.notes if artefact is not None else ()
    if notes:
        words[NOTE] = "; ".join(notes)
    if settled.code == STOPPED_ALONE:
        # The agent stopped it: an exit code of 0 would look like completed work.
        words.pop("container.exit_code", None)
    return words
