"""When to try a failed revision again, and when to stop.

Plans are times of the clock of whoever led then. One that lies further ahead than any plan could is of a
clock that does not agree with ours, and is brought near.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from persys.model.belief import Retry
from persys.model.failure import Failure
from persys.model.ids import Revision, WorkloadId

# Far beyond any ceiling; without it a power of two soon is no span of time any more.
GROWTHS_MAX = 24


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    first_after: timedelta = timedelta(seconds=5)
    factor: float = 2.0
    longest_after: timedelta = timedelta(seconds=120)
    spread: float = 0.2
    attempts_max: int = 5
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
    """The next attempt, or `next_at=None` when none would help.

    `attempts` is how many retries were already made. `roll` in [0, 1) places the attempt inside the
    jitter window: 0 is earliest.
    """
    if not failure.retryable or attempts >= policy.attempts_max:
        return Retry(workload_id, revision, attempts, None)
    delay = _delay(attempts, policy, roll=roll)
    return Retry(workload_id, revision, attempts + 1, now + delay)


def in_reach(retry: Retry, policy: RetryPolicy, *, now: datetime) -> Retry:
    """The plan, at most as far ahead as it could have been when it was made."""
    if retry.next_at is None:
        return retry
    latest = now + _delay(max(0, retry.attempts - 1), policy, roll=1)
    return retry if retry.next_at <= latest else replace(retry, next_at=latest)


def _delay(attempts: int, policy: RetryPolicy, *, roll: float) -> timedelta:
    growth = policy.factor ** min(attempts, GROWTHS_MAX)
    delay = min(policy.first_after * growth, policy.longest_after)
    return delay * (1 + policy.spread * (2 * roll - 1))
