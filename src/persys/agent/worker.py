"""One lane per workload: inspect it, decide the next step, perform it, record it, and repeat until settled.

What to do is decided from what is there, never from what woke the workload. When a runtime gives no answer
the state is unknown, nothing is undone, and the workload is looked at again later. An unexpected exception
affects only its workload: in a step it is the failure of that step; elsewhere the state becomes unknown, and
failed when it happens again and again.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import structlog

from persys.agent import failpoints
from persys.agent.crash_recovery import Recovery, note_alone
from persys.agent.journal import Entry
from persys.agent.journal_changes import Change
from persys.agent.ledger import Ledger
from persys.agent.probes import Probes
from persys.agent.state import State
from persys.agent.steps import Steps
from persys.agent.storage_failures import storage_failure
from persys.agent.work_queue import WorkQueue
from persys.core.convergence import STOPPED_ALONE, Artefact, Do, Settled, Step, next_step
from persys.core.disk_limits import within_disk_limit
from persys.core.notes import NOTE, notes_of
from persys.core.quarantine import LastExit, quarantine
from persys.core.reconcile_off import without_reconciliation
from persys.core.report import describe, internal_failure
from persys.errors import ConflictError, PersysError, UnavailableError
from persys.infra.aio.path_calls import PathTimeoutError
from persys.infra.aio.supervisor import Containment, InternalError, Supervisor
from persys.infra.clock import Clock
from persys.infra.failpoints import passing
from persys.infra.lanes import Lanes
from persys.infra.turns import Turns
from persys.model.failure import Failure, FailureReason
from persys.model.ids import WorkloadId
from persys.model.observation import Actual
from persys.model.order import Order
from persys.model.workload import Desired

log = structlog.get_logger()

# A workload that needs more than this at one go is being changed by something else: pause for a while.
STEPS_MAX = 25
NOT_SETTLED = "NotSettled"
# These leave the container as it is, so that there is no need to look again.
PREPARATIONS = frozenset({Step.PULL, Step.PREPARE_VOLUMES})
PATIENCE_MIN_SECONDS = 0.5
PATIENCE_MAX_SECONDS = 30.0
# One that cannot even be inspected is unknown at first, and failed from this attempt on.
ATTEMPTS_UNKNOWN_MAX = 3
# How long an order is resumed alone.
RESUME_SECONDS = {LastExit.KILLED: 0.5, LastExit.CRASHED: 10.0}
# The places where an exception is contained.
STEP, LOOK, LOG_TAIL = "worker.step", "worker.look", "worker.log_tail"


class Worker:
    def __init__(
        self,
        state: State,
        turns: Turns[WorkloadId],
        steps: Steps,
        probes: Probes,
        ledger: Ledger,
        clock: Clock,
        *,
        queue: WorkQueue,
        is_alone: Callable[[Order], bool],
        supervisor: Supervisor,
        recovery: Recovery,
        reconciles: bool,
    ) -> None:
        """`is_alone`: whether the scheduler has been silent for longer than an order allows.

        `reconciles`: whether what changed without an order is repaired, or only reported.
        """
        self._state = state
        self._turns = turns
        self._steps = steps
        self._probes = probes
        self._ledger = ledger
        self._clock = clock
        self._queue = queue
        self._is_alone = is_alone
        self._supervisor = supervisor
        self._reconciles = reconciles
        self._patience: dict[WorkloadId, float] = {}
        # Until when one is left alone whose last step got no answer. Its own steps make events that wake it.
        self._resting: dict[WorkloadId, float] = {}
        self._acted: set[WorkloadId] = set()  # in the look that is under way
        self._last_exit = recovery.last_exit
        self._crashes = dict(recovery.crashes)
        self._quarantined: set[WorkloadId] = set()  # until a new order comes

    async def run(self) -> None:
        self._queue.restart()
        async with asyncio.TaskGroup() as group:
            lanes: Lanes[WorkloadId] = Lanes(group, contain=self._contain)
            await self._resume(lanes)
            while True:
                workload_id = await self._queue.take()
                lanes.hand(workload_id, partial(self._converge, workload_id))

    def supersede(self, workload_id: WorkloadId) -> None:
        """A newer order is in the journal: leave what can be left, and begin with the new one."""
        self._quarantined.discard(workload_id)
        self._steps.interrupt(workload_id)
        self._patience.pop(workload_id, None)
        self._resting.pop(workload_id, None)
        self._queue.wake(workload_id)

    async def retry_failed(self, *, only_deletes: bool) -> None:
        """Let what failed for a passing reason be tried again at the next look."""
        for workload_id in list(self._state.entries):
            async with self._turns.of(workload_id):
                entry = self._state.entries.get(workload_id)
                if entry is None or (only_deletes and entry.order.desired is not Desired.DELETED):
                    continue
                self._ledger.pardon(entry)

    async def _resume(self, lanes: Lanes[WorkloadId]) -> None:
        """After an unclean exit, one after the other: if one of them ends the agent, it is known which.

        A crash may be due to any workload, a kill from outside only interrupts what was unfinished. What
        must stop because the scheduler is silent does not wait for its turn.
        """
        ended, self._last_exit = self._last_exit, LastExit.CLEAN
        if ended is LastExit.CLEAN:
            return
        entries = list(self._state.entries.values())
        for entry in entries:
            workload_id = entry.order.workload_id
            failure = quarantine(self._crashes.get(workload_id, 0))
            if failure is not None:
                await self._quarantine(workload_id, failure)
            elif self._is_alone(entry.order):
                lanes.hand(workload_id, partial(self._converge, workload_id))
            elif ended is LastExit.CRASHED or self._state.open_action(entry) is not None:
                await note_alone(self._state, workload_id)
                await self._alone(workload_id, lanes, RESUME_SECONDS[ended])
        await note_alone(self._state, None)

    async def _alone(
        self, workload_id: WorkloadId, lanes: Lanes[WorkloadId], seconds: float
    ) -> None:
        """Until it has settled, or for so long: a pull does not hold up the others."""
        ended = asyncio.Event()

        async def look() -> None:
            try:
                await self._converge(workload_id)
            finally:
                ended.set()

        lanes.hand(workload_id, look)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ended.wait()

    async def _quarantine(self, workload_id: WorkloadId, failure: Failure) -> None:
        log.error("workload.quarantined", workload_id=workload_id, reason=failure.message)
        self._quarantined.add(workload_id)
        async with self._turns.of(workload_id):
            entry = self._state.entries.get(workload_id)
            if entry is not None:
                self._ledger.broken(entry, failure)

    def _contain(self, workload_id: WorkloadId) -> Containment:
        """Around all work of a lane; `_converge` has contained what it can say more about."""
        return self._supervisor.contain(LOOK, workload_id, failed=lambda _error: None)

    async def _converge(self, workload_id: WorkloadId) -> None:
        self._queue.begin(workload_id)
        try:
            await self._look_and_act(workload_id)
        finally:
            self._queue.looked_at(workload_id)

    async def _look_and_act(self, workload_id: WorkloadId) -> None:
        if workload_id in self._quarantined or self._rests(workload_id):
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
                await self._doubt(workload_id, str(err))
        if errors:
            await self._give_up(workload_id, errors[0])
        else:
            self._lose_patience(workload_id)

    async def _advance(self, workload_id: WorkloadId) -> bool:
        """Look, and do the next thing. False if there is no more to do."""
        entry = self._state.entries.get(workload_id)
        if entry is None:
            return False
        artefact = await self._steps.inspect(entry)
        while True:
            entry = self._state.entries.get(workload_id)  # an order may have come meanwhile
            if entry is None:
                return False
            artefact = self._probes.seen(entry, artefact)
            outcome = next_step(
                entry.order,
                artefact,
                entry.progress,
                now=self._clock.now(),
                alone=self._is_alone(entry.order),
            )
            if not self._reconciles:
                under_way = self._state.open_action(entry) is not None
                outcome = without_reconciliation(
                    outcome, entry.order, artefact, under_way=under_way
                )
            outcome = within_disk_limit(outcome, entry.order, artefact, entry.progress)
            _log_decision(outcome, entry, artefact)
            if not isinstance(outcome, Do):
                return not await self._settle(outcome, entry, artefact)
            await self._do(outcome, entry, artefact)
            if outcome.step not in PREPARATIONS:
                return True

    async def _do(self, todo: Do, seen: Entry, artefact: Artefact | None) -> None:
        workload_id, step = seen.order.workload_id, todo.step
        self._acted.add(workload_id)
        async with self._turns.of(workload_id):
            entry = self._state.entries.get(workload_id)
            if entry is None or entry.generation != seen.generation:
                return
            entry = await self._ledger.begin(entry, todo, artefact)
        if step is Step.START:
            passing(failpoints.LAUNCHING)
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
        passing(failpoints.AFTER_STEP[step])
        async with self._turns.of(workload_id):
            current = self._state.entries.get(workload_id)
            if current is not None and current.generation == entry.generation:
                self._ledger.keep(current, step, failure, seconds)

    async def _perform(self, step: Step, entry: Entry, artefact: Artefact | None) -> Failure | None:
        """What is wrong with the workload after the step. Raises ConflictError, UnavailableError."""
        workload_id, errors = entry.order.workload_id, list[InternalError]()
        with self._supervisor.contain(STEP, workload_id, failed=errors.append):
            passing(failpoints.STEP, workload_id)
            try:
                failure = await self._steps.perform(step, entry, artefact)
            except (OSError, PathTimeoutError) as err:
                failure = storage_failure(step, err)
            except (ConflictError, UnavailableError):
                raise
            except PersysError as err:
                failure = Failure(FailureReason.RUNTIME_ERROR, f"{step}: {err}")
            self._supervisor.resolved(STEP, workload_id)
            return failure
        return internal_failure(f"{step}: {errors[0].text}")

    async def _settle(self, settled: Settled, seen: Entry, artefact: Artefact | None) -> bool:
        """False if a newer order has come meanwhile."""
        workload_id = seen.order.workload_id
        log_tail = ""
        if settled.actual is Actual.FAILED:
            log_tail = await self._log_tail(seen, artefact)
        async with self._turns.of(workload_id):
            entry = self._state.entries.get(workload_id)
            if entry is None or entry.generation != seen.generation:
                return False
            if settled.actual is Actual.ABSENT:
                await self._ledger.forget(entry)
                passing(failpoints.FORGOTTEN)
            elif await self._ledger.settle(
                entry, settled, _words(entry.order, settled, artefact, log_tail)
            ):
                passing(failpoints.SETTLED)
        self._patience.pop(workload_id, None)
        self._resting.pop(workload_id, None)
        self._acted.discard(workload_id)
        if workload_id in self._crashes and settled.actual is not Actual.FAILED:
            del self._crashes[workload_id]
            await self._state.commit(Change(survived=workload_id))
        if settled.look_again_at is not None:
            wait = settled.look_again_at - self._clock.now()
            self._queue.wake_after(workload_id, wait.total_seconds())
        return True

    async def _log_tail(self, entry: Entry, artefact: Artefact | None) -> str:
        """A log that cannot be read does not hide the failure that it belongs to."""
        errors: list[InternalError] = []
        with self._supervisor.contain(LOG_TAIL, entry.order.workload_id, failed=errors.append):
            return await self._steps.log_tail(entry, artefact)
        return f"the log cannot be read: {errors[0].text}"

    async def _show_unsettled(self, workload_id: WorkloadId) -> None:
        """Every step succeeded, and the workload is not as it should be: without a word it would wait."""
        async with self._turns.of(workload_id):
            entry = self._state.entries.get(workload_id)
            if entry is not None:
                text = f"{STEPS_MAX} steps in a row succeeded, and it is not {entry.order.desired}"
                self._ledger.under_way(entry, NOT_SETTLED, f"{text}; trying again")

    async def _doubt(self, workload_id: WorkloadId, why: str) -> None:
        async with self._turns.of(workload_id):
            entry = self._state.entries.get(workload_id)
            if entry is not None:
                self._ledger.doubt(entry, why)

    async def _give_up(self, workload_id: WorkloadId, error: InternalError) -> None:
        """It could not be inspected, decided about or recorded. It is tried again with back-off."""
        self._queue.wake_after(workload_id, self._supervisor.retry_after(error).total_seconds())
        failure = internal_failure(error.text)
        with self._supervisor.contain(LOOK, workload_id, failed=lambda _error: None):
            async with self._turns.of(workload_id):
                entry = self._state.entries.get(workload_id)
                if entry is not None and error.count < ATTEMPTS_UNKNOWN_MAX:
                    self._ledger.doubt(entry, failure.message)
                elif entry is not None:
                    self._ledger.broken(entry, failure)

    def _lose_patience(self, workload_id: WorkloadId) -> None:
        seconds = self._patience.get(workload_id, PATIENCE_MIN_SECONDS)
        self._patience[workload_id] = min(2 * seconds, PATIENCE_MAX_SECONDS)
        self._queue.wake_after(workload_id, seconds)
        if workload_id in self._acted:
            self._resting[workload_id] = self._clock.monotonic() + seconds

    def _rests(self, workload_id: WorkloadId) -> bool:
        """Whether it is left alone for now; it is looked at when that is over."""
        seconds = self._resting.get(workload_id, 0.0) - self._clock.monotonic()
        entry = self._state.entries.get(workload_id)
        if seconds <= 0 or entry is None or self._is_alone(entry.order):
            self._resting.pop(workload_id, None)
            return False
        self._queue.wake_after(workload_id, seconds)
        return True


def _log_decision(outcome: Do | Settled, entry: Entry, artefact: Artefact | None) -> None:
    """What was decided and on what, for a log at level debug."""
    decided = (
        {"step": outcome.step.value}
        if isinstance(outcome, Do)
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


def _words(
    order: Order, settled: Settled, artefact: Artefact | None, log_tail: str
) -> dict[str, str]:
    words = describe(artefact, log_tail=log_tail)
    notes = [*notes_of(order, artefact.name if artefact is not None else "")]
    notes += artefact.notes if artefact is not None else ()
    if notes:
        words[NOTE] = "; ".join(notes)
    if settled.code == STOPPED_ALONE:
        # It did not end by itself: with an exit code of 0 it would look like finished work.
        words.pop("container.exit_code", None)
    return words
