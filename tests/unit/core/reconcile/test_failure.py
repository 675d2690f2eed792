"""The reaction of `decide` to a failure."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

from builders import (
    N1,
    NOON,
    WEB,
    a_dispatch,
    a_failure,
    a_retry,
    a_situation,
    a_status,
    a_workload,
    add_node,
    after,
    an_assignment,
    an_observation,
    rooms_of,
)
from persys.core.nodes import Phase
from persys.core.placement.index.node_index import NodeIndex
from persys.core.reconcile.decide import decide
from persys.core.reconcile.effects import Apply, FetchActions
from persys.core.reconcile.situation import Decision, Policy, Situation
from persys.model.status import Actual, FailureReason, Status, WorkloadStatus
from persys.model.workload import Desired

POLICY = Policy()
ON_N1 = an_assignment()
FAILED = an_observation(Actual.FAILED, failure=a_failure(), seen_at=after(1))


def decided(situation: Situation, *, now: datetime = NOON) -> Decision:
    node_index = NodeIndex()
    add_node(node_index, "n1")
    return decide(situation, rooms_of(node_index), POLICY, now=now, roll=0.5)


def status_of(decision: Decision) -> WorkloadStatus:
    assert decision.workload_status is not None
    return decision.workload_status


def test_a_failure_is_counted_once_and_retried_when_due() -> None:
    situation = a_situation(assignment=ON_N1, dispatch=a_dispatch(), observation=FAILED)
    first = decided(situation, now=after(1))
    again = decided(
        replace(situation, workload_status=first.workload_status, retry=first.retry), now=after(2)
    )
    due = decided(
        replace(situation, workload_status=first.workload_status, retry=first.retry), now=after(6)
    )

    assert first.retry == a_retry(1, after(6))
    assert (first.effects, first.wake_at) == ((), after(6))
    assert status_of(first).status is Status.FAILED
    assert status_of(first).failure == a_failure()
    assert again == Decision(
        ON_N1, first.workload_status, first.retry, wake_at=after(6), rule="retry-waiting"
    )
    assert due.effects == (Apply(N1, a_workload(), 1),)
    assert due.retry == first.retry


def test_each_attempt_that_fails_is_counted_then_slow_ones_follow_without_end() -> None:
    situation = a_situation(assignment=ON_N1, dispatch=a_dispatch(), observation=FAILED)
    now, sent, sent_at = after(1), 1, [after(0)]
    for _ in range(40):
        decision = decided(situation, now=now)
        situation = replace(
            situation, workload_status=decision.workload_status, retry=decision.retry
        )
        if decision.effects:
            sent += 1
            sent_at.append(now)
            situation = replace(
                situation,
                dispatch=a_dispatch(sent_at=now),
                observation=an_observation(Actual.FAILED, failure=a_failure(), seen_at=now),
            )
        else:
            assert decision.wake_at is not None
            now = decision.wake_at
        assert status_of(decision).status is Status.FAILED

    assert sent > 10
    assert situation.retry is not None
    assert situation.retry.attempts == 5
    slow = [later - earlier for earlier, later in pairwise(sent_at[6:])]
    assert set(slow) == {timedelta(minutes=5)}


def test_a_permanent_failure_is_not_retried() -> None:
    missing = a_failure(FailureReason.IMAGE_NOT_FOUND, "no such image")
    seen = an_observation(Actual.FAILED, failure=missing, seen_at=after(1))
    decision = decided(
        a_situation(assignment=ON_N1, dispatch=a_dispatch(), observation=seen), now=after(1)
    )

    assert decision.retry == a_retry(0, None)
    assert (decision.effects, decision.wake_at) == ((), None)
    assert (status_of(decision).status, status_of(decision).message) == (
        Status.FAILED,
        "no such image",
    )


def test_a_failure_without_a_message_is_a_runtime_error() -> None:
    seen = an_observation(Actual.FAILED, message="exited")
    decision = decided(a_situation(assignment=ON_N1, observation=seen))

    failure = status_of(decision).failure
    assert failure is not None
    assert (failure.reason, failure.message) == (FailureReason.RUNTIME_ERROR, "exited")


def test_a_failure_observed_before_the_order_is_ignored() -> None:
    older = an_observation(Actual.FAILED, failure=a_failure(), seen_at=after(-1))
    decision = decided(a_situation(assignment=ON_N1, dispatch=a_dispatch(), observation=older))

    assert decision.retry is None
    assert status_of(decision).status is Status.PENDING


def test_an_overdue_operation_is_counted_once_as_a_failure_and_retried() -> None:
    situation = a_situation(
        assignment=ON_N1,
        dispatch=a_dispatch(),
        observation=an_observation(Actual.PENDING, seen_at=after(1)),
    )
    late = decided(situation, now=after(45))
    known = replace(situation, workload_status=late.workload_status, retry=late.retry)

    assert late.retry == a_retry(1, after(50))
    assert late.effects == (FetchActions(N1, WEB, 1, "not running 45s after the order was sent"),)
    assert status_of(late).code == "TimedOut"
    assert status_of(late).message == "not running 45s after the order was sent"
    assert decided(known, now=after(46)) == Decision(
        ON_N1, late.workload_status, late.retry, wake_at=after(50), rule="retry-not-due"
    )
    assert [type(effect) for effect in decided(known, now=after(50)).effects] == [Apply]


def test_a_progress_report_extends_the_deadline() -> None:
    situation = a_situation(
        assignment=ON_N1,
        dispatch=a_dispatch(),
        observation=an_observation(Actual.PENDING, seen_at=after(30)),
        reports=True,
    )

    assert decided(situation, now=after(45)).wake_at == after(75)
    assert decided(situation, now=after(75)).retry == a_retry(1, after(80))


def test_a_failed_stop_is_retried_too() -> None:
    workload = a_workload(desired=Desired.STOPPED)
    decision = decided(
        a_situation(
            workload,
            assignment=ON_N1,
            dispatch=a_dispatch(desired=Desired.STOPPED),
            observation=FAILED,
        ),
        now=after(1),
    )

    assert decision.retry == a_retry(1, after(6))


def test_a_restart_of_the_scheduler_keeps_the_plan() -> None:
    failed = a_status(Status.FAILED, failure=a_failure(), code="RUNTIME_ERROR", message="it broke")
    restarted = a_situation(assignment=ON_N1, workload_status=failed, retry=a_retry(2, after(10)))
    waiting, due = decided(restarted, now=after(9)), decided(restarted, now=after(10))

    assert (waiting.effects, waiting.wake_at, waiting.retry) == (
        (),
        after(10),
        a_retry(2, after(10)),
    )
    assert status_of(waiting) is failed
    assert [type(effect) for effect in due.effects] == [Apply]


def test_a_scheduler_restart_does_not_retry_a_given_up_workload() -> None:
    failed = a_status(Status.FAILED, failure=a_failure(), code="RUNTIME_ERROR", message="it broke")
    decision = decided(
        a_situation(assignment=ON_N1, workload_status=failed, retry=a_retry(5, None)),
        now=after(1e6),
    )

    assert decision == Decision(ON_N1, failed, a_retry(5, None), rule="retry-not-due")


def test_a_given_up_workload_that_ran_and_vanished_is_not_shown_as_running() -> None:
    gone = an_observation(Actual.ABSENT, seen_at=after(100))
    decision = decided(
        a_situation(
            assignment=ON_N1,
            workload_status=a_status(Status.RUNNING),
            retry=a_retry(5, None),
            observation=gone,
        ),
        now=after(200),
    )

    assert status_of(decision).status is Status.FAILED
    assert status_of(decision).message
    assert decision.effects == ()


def test_a_failed_workload_stays_failed_when_heartbeats_resume() -> None:
    silent = a_situation(
        assignment=ON_N1,
        workload_status=a_status(Status.FAILED, failure=a_failure(), code="RUNTIME_ERROR"),
        retry=a_retry(1, after(5)),
        dispatch=a_dispatch(),
        observation=an_observation(Actual.PENDING),
        phase=Phase.SUSPECT,
    )
    unknown = decided(silent)
    back = decided(
        replace(silent, workload_status=unknown.workload_status, phase=Phase.ALIVE), now=after(1)
    )

    assert status_of(unknown).status is Status.UNKNOWN
    assert status_of(back).status is Status.FAILED
    assert back.wake_at == after(5)


def test_a_retry_waits_for_an_order_that_is_still_in_flight() -> None:
    situation = a_situation(
        assignment=ON_N1,
        dispatch=a_dispatch(sent_at=after(20), answered=False),
        observation=FAILED,
        retry=a_retry(1, after(10)),
        workload_status=a_status(Status.FAILED),
    )

    assert decided(situation, now=after(30)).effects == ()


def test_a_retry_planned_by_a_fast_clock_is_moved_closer_once() -> None:
    situation = a_situation(
        assignment=ON_N1,
        dispatch=a_dispatch(),
        observation=FAILED,
        workload_status=a_status(Status.FAILED),
        retry=a_retry(1, after(3600)),
    )
    first = decided(situation, now=after(2))
    due = decided(replace(situation, retry=first.retry), now=after(8))

    assert first.retry == a_retry(1, after(8))
    assert first.wake_at == after(8)
    assert due.effects == (Apply(N1, a_workload(), 1),)
