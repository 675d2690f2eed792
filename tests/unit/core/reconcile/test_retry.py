"""When a failed revision is retried."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers, sampled_from

from builders import NOON, WEB, a_failure, after
from persys.core.reconcile.retry import RetryPolicy, after_failure, within_policy
from persys.model.ids import Revision
from persys.model.status import Failure, FailureReason, Retry

POLICY = RetryPolicy()


def retry(
    attempts: int = 0, *, roll: float = 0.5, failure: Failure | None = None, now: datetime = NOON
) -> Retry:
    return after_failure(
        WEB,
        Revision("r1"),
        failure or a_failure(),
        attempts=attempts,
        policy=POLICY,
        now=now,
        roll=roll,
    )


def test_without_slow_retries_the_last_fast_attempt_is_final() -> None:
    policy = RetryPolicy(slow_after=timedelta())
    plans = [
        after_failure(
            WEB, Revision("r1"), a_failure(), attempts=attempts, policy=policy, now=NOON, roll=0.5
        )
        for attempts in (0, 4, 5)
    ]

    assert [(plan.attempts, plan.next_at) for plan in plans] == [
        (1, after(5)),
        (5, after(80)),
        (5, None),
    ]


def test_the_delay_doubles_and_is_slow_and_constant_after_the_last_fast_attempt() -> None:
    planned = [retry(attempts) for attempts in (0, 1, 2, 3, 4, 5, 5)]

    assert [plan.attempts for plan in planned] == [1, 2, 3, 4, 5, 5, 5]
    assert [plan.next_at for plan in planned] == [
        after(5),
        after(10),
        after(20),
        after(40),
        after(80),
        after(300),
        after(300),
    ]


def test_no_delay_is_longer_than_the_ceiling() -> None:
    many_attempts = RetryPolicy(attempts_max=5000)
    plan = after_failure(
        WEB, Revision("r1"), a_failure(), attempts=4000, policy=many_attempts, now=NOON, roll=0.5
    )

    assert plan.next_at == after(120)


@pytest.mark.parametrize(("roll", "seconds"), [(0.0, 4.0), (0.5, 5.0), (0.999, 5.998)])
def test_the_roll_places_the_attempt_in_the_jitter_window(roll: float, seconds: float) -> None:
    assert retry(roll=roll).next_at == after(seconds)


@pytest.mark.parametrize(
    "reason", [FailureReason.INVALID_SPEC, FailureReason.IMAGE_NOT_FOUND], ids=str
)
def test_a_permanent_failure_is_not_retried(reason: FailureReason) -> None:
    assert retry(failure=a_failure(reason)).next_at is None


def test_a_failure_that_is_not_retryable_is_not_retried() -> None:
    assert retry(failure=a_failure(retryable=False)).next_at is None


def test_the_plan_names_the_revision_it_is_for() -> None:
    assert retry().revision == "r1"


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 6), (3, 24), (50, 360)])
def test_a_retry_planned_by_a_fast_clock_waits_no_longer_than_a_local_one(
    attempts: int, seconds: float
) -> None:
    far = Retry(WEB, Revision("r1"), attempts, after(3600))

    near = within_policy(far, POLICY, now=NOON)

    assert near.next_at == after(seconds)
    assert within_policy(near, POLICY, now=after(1)) == near, "brought near once, not ever further"


@pytest.mark.parametrize("roll", [0.0, 0.999])
@pytest.mark.parametrize("attempts", range(6))
def test_a_retry_planned_by_the_same_clock_is_unchanged(attempts: int, roll: float) -> None:
    plan = retry(attempts, roll=roll)

    assert within_policy(plan, POLICY, now=NOON) == plan
    assert within_policy(plan, POLICY, now=after(3600)) == plan


@pytest.mark.parametrize(("roll", "seconds"), [(0.0, 240.0), (0.5, 300.0), (0.999, 359.88)])
def test_slow_attempts_have_jitter(roll: float, seconds: float) -> None:
    assert retry(5, roll=roll).next_at == after(seconds)


def test_a_slow_retry_is_kept_and_one_of_a_fast_clock_is_moved_closer() -> None:
    slow = Retry(WEB, Revision("r1"), 5, after(350))
    ahead = Retry(WEB, Revision("r1"), 5, after(5000))

    assert within_policy(slow, POLICY, now=NOON) == slow
    assert within_policy(ahead, POLICY, now=NOON).next_at == after(360)


@given(reason=sampled_from(FailureReason), attempts=integers(0, 100), roll=floats(0, 0.999))
def test_every_transient_failure_has_a_next_attempt(
    reason: FailureReason, attempts: int, roll: float
) -> None:
    failure = Failure(reason, "x", retryable=reason.retryable)
    plan = retry(attempts, roll=roll, failure=failure)

    assert (plan.next_at is None) == (not reason.retryable)
    assert plan.attempts <= max(attempts, POLICY.attempts_max)
