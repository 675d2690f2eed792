"""Reacts to a failure: retry after a delay, or give up until an operator changes something."""

from datetime import datetime

from persys.core.reconcile.effects import Apply
from persys.core.reconcile.retry import after_failure
from persys.core.reconcile.situation import Decision, Policy, Situation, next_status, retried
from persys.model.status import Failure, FailureReason, Observation, Retry, Status, WorkloadStatus


def after_failed(
    situation: Situation, seen: Observation, policy: Policy, *, now: datetime, roll: float
) -> Decision:
    failure = seen.failure or Failure(FailureReason.RUNTIME_ERROR, seen.message)
    retry = situation.retry
    if retry is None:
        return count_failure(situation, failure, policy, now=now, roll=roll)
    if retry.next_at is None:
        return _given_up(situation, failure, retry, now)
    if not retried(situation, retry):
        return _wait_or_retry(situation, failure, retry, now)
    return count_failure(situation, failure, policy, now=now, roll=roll)


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


def _wait_or_retry(situation: Situation, failure: Failure, retry: Retry, now: datetime) -> Decision:
    assert situation.assignment is not None
    assert retry.next_at is not None
    workload_status = _failed_status(situation, failure, now)
    if now < retry.next_at:
        return Decision(situation.assignment, workload_status, retry, wake_at=retry.next_at)
    if situation.dispatch is not None and situation.dispatch.in_flight:
        return Decision(situation.assignment, workload_status, retry)
    effect = Apply(situation.assignment.node_id, situation.workload, situation.assignment.epoch)
    return Decision(situation.assignment, workload_status, retry, effects=(effect,))


def before_retry(situation: Situation, retry: Retry, now: datetime) -> Decision:
    """Keep the status failed until the next attempt is due, or for good after giving up."""
    failure = situation.workload_status.failure if situation.workload_status else None
    if failure is None:
        failure = Failure(FailureReason.RUNTIME_ERROR, f"no longer {situation.workload.desired}")
    workload_status = _failed_status(situation, failure, now)
    return Decision(situation.assignment, workload_status, retry, wake_at=retry.next_at)


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
