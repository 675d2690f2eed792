"""Decides when to retry a failed revision.

The first retries follow quickly, with growing delays. After them a transient failure is retried at a slow
rate for as long as the workload exists: a registry outage of an hour leaves nothing failed. A failure that
needs a new spec is not retried (`next_at` is None), nor any failure when the policy has no slow retries.

`next_at` was computed with the clock of the leader at that time. A value further ahead than the policy allows
comes from a wrong clock and is reduced.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from persys.core.backoff import grown
from persys.model.ids import Revision, WorkloadId
from persys.model.status import Failure, Retry


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    first_after: timedelta = timedelta(seconds=5)
    factor: float = 2.0
    longest_after: timedelta = timedelta(seconds=120)
    spread: float = 0.2
    attempts_max: int = 5
    # Between attempts beyond attempts_max; zero: no such attempts.
    slow_after: timedelta = timedelta(minutes=5)
    stable_after: timedelta = timedelta(minutes=10)


def after_failure(
    workload_id: WorkloadId,
    revision: Revision,
    failure: Failure,
    *,
    attempts: int,
    policy: RetryPolicy,
    now: datetime,
    roll: float,
) -> Retry:
    """Schedule the next attempt, or give up with `next_at=None`.

    `attempts` is the number of retries so far; it stays at its maximum during the slow attempts.
    `roll` in [0, 1) places the attempt inside the jitter window: 0 is earliest.
    """
    ends = attempts >= policy.attempts_max and not policy.slow_after
    if not failure.retryable or ends:
        return Retry(workload_id, revision, attempts, None)
    if attempts >= policy.attempts_max:
        delay = _jittered(policy.slow_after, policy, roll=roll)
        return Retry(workload_id, revision, attempts, now + delay)
    delay = _delay(attempts, policy, roll=roll)
    return Retry(workload_id, revision, attempts + 1, now + delay)


def within_policy(retry: Retry, policy: RetryPolicy, *, now: datetime) -> Retry:
    """The retry with `next_at` limited to the longest delay that the policy allows."""
    if retry.next_at is None:
        return retry
    delay = _delay(max(0, retry.attempts - 1), policy, roll=1)
    if retry.attempts >= policy.attempts_max:
        delay = max(delay, _jittered(policy.slow_after, policy, roll=1))
    latest = now + delay
    return retry if retry.next_at <= latest else replace(retry, next_at=latest)


def _delay(attempts: int, policy: RetryPolicy, *, roll: float) -> timedelta:
    delay = grown(policy.first_after, attempts, factor=policy.factor, longest=policy.longest_after)
    return _jittered(delay, policy, roll=roll)


def _jittered(delay: timedelta, policy: RetryPolicy, *, roll: float) -> timedelta:
    return delay * (1 + policy.spread * (2 * roll - 1))
