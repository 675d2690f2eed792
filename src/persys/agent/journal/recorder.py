"""Records the progress of work in the journal: actions, step results and status changes.

The caller holds the lock of the workload. Changes are committed where a crash would lose something: before a
start and at the end. Other changes stay in memory until the next commit.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from random import Random

import structlog
from msgspec.structs import replace

from persys.agent.journal.records import DeletionMarker, Entry, JournalChange, ReportedStatus
from persys.agent.journal.store import Journal
from persys.agent.metrics import Metrics
from persys.core.agent.next_step import (
    after_settling,
    after_step,
    before_repair,
    before_replace,
    before_restart,
    before_start,
)
from persys.core.agent.progress import Artefact, Perform, Progress, Settled, Step
from persys.core.agent.report import shortened
from persys.core.secrets import redacted, values_of
from persys.errors import StoreUnavailableError
from persys.infra.clock import Clock
from persys.model.action import Action, ActionKind, ActionState
from persys.model.ids import ActionId, WorkloadId
from persys.model.status import Actual, Failure
from persys.model.workload import Order

log = structlog.get_logger()

HALT_DEADLINE_SECONDS = 2.0  # a mandatory stop does not wait for a stalled disk
_ID_PREFIX = {
    ActionKind.APPLY: "apply",
    ActionKind.DELETE: "delete",
    ActionKind.RECONCILE: "reconcile",
}


class Recorder:
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        metrics: Metrics,
        *,
        report: Callable[[WorkloadId], None],
        random: Random,
    ) -> None:
        """`report` is called with the id of each workload whose status changes."""
        self._journal = journal
        self._clock = clock
        self._metrics = metrics
        self._report = report
        self._random = random

    def new_action(self, workload_id: WorkloadId, kind: ActionKind) -> Action:
        action_id = ActionId(f"{_ID_PREFIX[kind]}-{self._random.getrandbits(64):016x}")
        return Action(action_id, workload_id, kind, ActionState.PENDING, self._clock.now())

    def superseded(self, entry: Entry) -> list[Action]:
        """The open action, ended because a newer order replaces it."""
        action = self._journal.open_action(entry)
        if action is None:
            return []
        return [self._ended(action, entry, "superseded by a newer order")]

    async def begin_step(self, entry: Entry, todo: Perform, artefact: Artefact | None) -> Entry:
        """Record the begin of a step. Work without an open order gets an action of its own."""
        now, step = self._clock.now(), todo.step
        action = self._journal.open_action(entry)
        if action is None:
            action = self.new_action(entry.order.workload_id, ActionKind.RECONCILE)
            status = ReportedStatus(
                Actual.PENDING, now, code="Reconciling", message=f"next: {step}"
            )
            entry = replace(entry, action_id=action.id, status=status, updated_at=now)
            self._report(entry.order.workload_id)
        if action.state is ActionState.PENDING:
            action = replace(action, state=ActionState.RUNNING, started_at=now)
        if step is Step.REPAIR:
            entry = replace(entry, progress=before_repair(entry.progress, now=now))
        self._journal.update(entry, action)
        if step in (Step.START, Step.RESTART, Step.REPLACE):
            self._metrics.health.restarts.inc(step is Step.RESTART)
            entry = replace(entry, progress=_before(step, entry.progress, artefact, now))
            await self._journal.commit(JournalChange(entry=entry, actions=[action]))
        elif todo.halts or todo.expires:
            before = entry.progress
            stopped = replace(
                before,
                halted=before.halted or todo.halts,
                expired=before.expired or todo.expires,
            )
            entry = replace(entry, progress=stopped)
            change = JournalChange(entry=entry, actions=[action])
            try:
                await self._journal.commit(change, deadline_seconds=HALT_DEADLINE_SECONDS)
            except StoreUnavailableError as err:
                # It must stop anyway; after a crash the same reason still prevents a start.
                log.warning("halt.not_kept", reason=str(err))
                self._journal.update(entry, action)
        return entry

    def record_step(
        self, entry: Entry, step: Step, failure: Failure | None, seconds: float
    ) -> None:
        """Record the result and the duration of a step."""
        failure = redacted_failure(entry.order, failure)
        self._metrics.work.step_ended(step, seconds)
        progress = after_step(entry.progress, step, failure, now=self._clock.now())
        self._journal.update(replace(entry, progress=progress))

    async def record_settled(
        self, entry: Entry, settled: Settled, metadata: Mapping[str, str]
    ) -> bool:
        """Commit the status of a settled workload. False if nothing has changed."""
        now = self._clock.now()
        before = entry.status
        settled = redacted_settled(entry.order, settled)
        status = ReportedStatus(
            settled.actual,
            now,
            code=settled.code,
            message=settled.message,
            failure=settled.failure,
            metadata=redacted_metadata(entry.order, metadata),
        )
        if _same_status(status, before):
            status = replace(status, changed_at=before.changed_at)
        progress = after_settling(entry.progress, settled)
        ended = self._outcome(entry, settled)
        if status == before and progress == entry.progress and not ended:
            return False
        changed = status != before or bool(ended)
        entry = replace(
            entry,
            status=status,
            progress=progress,
            updated_at=now if changed else entry.updated_at,
        )
        await self._journal.commit(JournalChange(entry=entry, actions=ended))
        if settled.failure is not None and settled.failure != before.failure:
            self._metrics.work.failed(settled.failure.reason)
        if changed:
            self._report(entry.order.workload_id)
        return True

    async def record_deletion(self, entry: Entry) -> None:
        """Record a completed deletion. A deletion marker remains until the scheduler acknowledges it."""
        action = self._journal.open_action(entry)
        await self._journal.commit(
            JournalChange(
                deleted=entry.order.workload_id,
                addresses_removed=self._journal.members.get(entry.order.workload_id, ()),
                actions=[self._ended(action, entry, "")] if action is not None else [],
                deletion_markers=[
                    DeletionMarker(
                        entry.order.workload_id, entry.order.epoch, cluster_uid=entry.cluster_uid
                    )
                ],
            )
        )
        self._report(entry.order.workload_id)

    def report_progress(self, seen: Entry, code: str, message: str) -> None:
        """Report progress of a long step. Not committed: after a restart the step starts again."""
        workload_id = seen.order.workload_id
        entry = self._journal.entries.get(workload_id)
        if entry is None or entry.generation != seen.generation:
            return
        now = self._clock.now()
        message = redacted_text(entry.order, message)
        status = ReportedStatus(Actual.PENDING, now, code=code, message=message)
        self._journal.update(replace(entry, status=status, updated_at=now))
        self._report(workload_id)

    def clear_failure(self, entry: Entry) -> None:
        """Clear a retryable failure, so that its step is retried."""
        failure = entry.progress.failure
        if failure is not None and failure.retryable:
            self._journal.update(replace(entry, progress=replace(entry.progress, failure=None)))

    def mark_unknown(self, entry: Entry, message: str) -> None:
        """Set the status to unknown. Not committed: after a restart it is inspected anyway."""
        now = self._clock.now()
        message = redacted_text(entry.order, message)
        status = ReportedStatus(Actual.UNKNOWN, now, code="NoAnswer", message=message)
        if _same_status(status, entry.status):
            return
        self._journal.update(replace(entry, status=status, updated_at=now))
        self._report(entry.order.workload_id)

    def mark_failed(self, entry: Entry, failure: Failure) -> None:
        """Set the status to failed after an internal error. Not committed: the journal may be the cause."""
        now = self._clock.now()
        failure = redacted_failure(entry.order, failure) or failure
        status = ReportedStatus(
            Actual.FAILED, now, code=failure.code, message=failure.message, failure=failure
        )
        if _same_status(status, entry.status):
            return
        self._metrics.work.failed(failure.reason)
        self._journal.update(replace(entry, status=status, updated_at=now))
        self._report(entry.order.workload_id)

    def _outcome(self, entry: Entry, settled: Settled) -> list[Action]:
        action = self._journal.open_action(entry)
        if action is None or settled.actual is Actual.PENDING:
            return []
        error = settled.message if settled.actual is Actual.FAILED else ""
        return [self._ended(action, entry, error)]

    def _ended(self, action: Action, entry: Entry, error: str) -> Action:
        now = self._clock.now()
        outcome = ActionState.FAILED if error else ActionState.COMPLETED
        seconds = (now - action.created_at).total_seconds()
        log.info(
            "action.ended",
            action_id=action.id,
            kind=action.kind.value,
            workload_id=action.workload_id,
            revision=entry.order.revision,
            epoch=entry.order.epoch,
            outcome=outcome.value,
            error=error,
            duration_seconds=round(seconds, 3),
        )
        self._metrics.work.action_ended(action.kind, outcome, seconds)
        return replace(action, state=outcome, ended_at=now, error=error)


def _before(step: Step, progress: Progress, artefact: Artefact | None, now: datetime) -> Progress:
    """The progress to commit before a step that starts something."""
    match step:
        case Step.RESTART:
            return before_restart(progress, artefact)
        case Step.REPLACE:
            return before_replace(progress, artefact, now=now)
        case _:
            return before_start(progress, artefact, now=now)


def _same_status(status: ReportedStatus, before: ReportedStatus) -> bool:
    return (
        status.actual is before.actual
        and status.code == before.code
        and status.message == before.message
        and status.failure == before.failure
    )


def redacted_text(order: Order, text: str) -> str:
    return shortened(_redacted(order, text))


def redacted_failure(order: Order, failure: Failure | None) -> Failure | None:
    if failure is None:
        return None
    return replace(failure, message=redacted_text(order, failure.message))


def redacted_settled(order: Order, settled: Settled) -> Settled:
    return replace(
        settled,
        message=redacted_text(order, settled.message),
        failure=redacted_failure(order, settled.failure),
    )


def redacted_metadata(order: Order, words: Mapping[str, str]) -> dict[str, str]:
    """Redact metadata: a log tail may contain any secret of the workload."""
    return {name: _redacted(order, text) for name, text in words.items()}


def _redacted(order: Order, text: str) -> str:
    values = values_of(order)
    return redacted(text, values) if values else text
