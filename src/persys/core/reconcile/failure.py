"""Rules for a failed workload: retry after a delay, or give up until an operator changes something."""

from datetime import datetime

from msgspec.structs import replace

from persys.core.agent.report import EXIT_CODE
from persys.core.reconcile.effects import Apply
from persys.core.reconcile.retry import after_failure
from persys.core.reconcile.situation import (
    Case,
    Decision,
    Policy,
    Situation,
    fresh_observation,
    next_status,
    retried,
)
from persys.model.status import (
    Actual,
    Failure,
    FailureReason,
    Retry,
    Status,
    WorkloadStatus,
)


def given_up(case: Case) -> Decision | None:
    """It failed, and no retry is planned."""
    failure, retry = _reported_failure(case.situation), case.situation.retry
    if failure is None or retry is None or retry.next_at is not None:
        return None
    return _given_up(case.situation, failure, retry, case.now)


def retry_waiting(case: Case) -> Decision | None:
    """It failed, and the planned retry is not due."""
    failure, retry = _reported_failure(case.situation), _planned(case.situation)
    if failure is None or retry is None or retry.next_at is None or case.now >= retry.next_at:
        return None
    status = _failed_status(case.situation, failure, case.now)
    return Decision(case.situation.assignment, status, retry, wake_at=retry.next_at)


def retry_due(case: Case) -> Decision | None:
    """It failed, and the planned retry is due: send the order again."""
    situation = case.situation
    failure, retry, bound = _reported_failure(situation), _planned(situation), situation.assignment
    if failure is None or retry is None:
        return None
    assert bound is not None
    status = _failed_status(situation, failure, case.now)
    if situation.dispatch is not None and situation.dispatch.in_flight:
        return Decision(bound, status, retry)
    effect = Apply(bound.node_id, situation.workload, bound.epoch)
    return Decision(bound, status, retry, effects=(effect,))


def new_failure(case: Case) -> Decision | None:
    """It failed for the first time, or after a retry: count the failure and plan the next retry."""
    failure = _reported_failure(case.situation)
    if failure is None:
        return None
    return count_failure(case.situation, failure, case.policy, now=case.now, roll=case.roll)


def count_failure(
    situation: Situation, failure: Failure, policy: Policy, *, now: datetime, roll: float
) -> Decision:
    retry = after_failure(
        situation.workload.id,
        situation.workload.revision,
        failure,
        attempts=situation.retry.attempts if situation.retry else 0,
        policy=policy.retry,
        now=now,
        roll=roll,
    )
    if retry.next_at is None:
        return _given_up(situation, failure, retry, now)
    return Decision(
        situation.assignment, _failed_status(situation, failure, now), retry, wake_at=retry.next_at
    )


def removal_counted(situation: Situation, now: datetime) -> Retry:
    """Count a removal that timed out. The next one is sent at once."""
    attempts = situation.retry.attempts if situation.retry else 0
    return Retry(situation.workload.id, situation.workload.revision, attempts + 1, now)


def before_retry(situation: Situation, retry: Retry, now: datetime) -> Decision:
    """Keep the status failed until the next attempt is due, or for good after giving up."""
    failure = situation.workload_status.failure if situation.workload_status else None
    if failure is None:
        failure = Failure(FailureReason.RUNTIME_ERROR, f"no longer {situation.workload.desired}")
    workload_status = _failed_status(situation, failure, now)
    return Decision(situation.assignment, workload_status, retry, wake_at=retry.next_at)


def _reported_failure(situation: Situation) -> Failure | None:
    seen = fresh_observation(situation, Actual.FAILED)
    if seen is None:
        return None
    failure = seen.failure or Failure(FailureReason.RUNTIME_ERROR, seen.message)
    return replace(failure, retryable=False) if _has_run(situation) else failure


def _has_run(situation: Situation) -> bool:
    """Whether it runs once and has failed with an exit code: only its job runs it again."""
    seen = fresh_observation(situation, Actual.FAILED)
    return situation.workload.runs_once and seen is not None and EXIT_CODE in seen.metadata


def _planned(situation: Situation) -> Retry | None:
    """The retry that is planned and not sent yet."""
    retry = situation.retry
    if retry is None or retry.next_at is None or retried(situation, retry):
        return None
    return None if _has_run(situation) else retry


def _given_up(situation: Situation, failure: Failure, retry: Retry, now: datetime) -> Decision:
    return Decision(situation.assignment, _failed_status(situation, failure, now), retry)


def _failed_status(situation: Situation, failure: Failure, now: datetime) -> WorkloadStatus:
    return next_status(
        situation,
        Status.FAILED,
        now,
        code=failure.code or failure.reason,
        message=failure.message,
        failure=failure,
        revision=situation.workload.revision,
        metadata=situation.observation.metadata if situation.observation else {},
    )
