"""Deletion of a workload: when no copy can exist any more, or when its node is lost."""

from dataclasses import replace
from datetime import datetime

import pytest

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
from persys.core.reconcile.effects import FetchActions, PollStatus, Remove
from persys.core.reconcile.situation import Decision, Policy, Situation
from persys.model.placement import Tombstone
from persys.model.status import Actual, Status
from persys.model.workload import Desired

POLICY = Policy()
ON_N1 = an_assignment()
LEAVING = a_workload(desired=Desired.DELETED)
SENT = a_dispatch(desired=Desired.DELETED)


def decided(situation: Situation, *, now: datetime = NOON) -> Decision:
    node_index = NodeIndex()
    add_node(node_index, "n1")
    return decide(situation, rooms_of(node_index), POLICY, now=now, roll=0.5)


def test_a_deleted_workload_without_a_node_is_removed_immediately() -> None:
    assert decided(a_situation(LEAVING)) == Decision(
        None, None, None, forget=True, rule="delete-unassigned"
    )


def test_a_copy_that_may_exist_is_removed_first() -> None:
    decision = decided(a_situation(LEAVING, assignment=ON_N1, workload_status=a_status()))

    assert decision.effects == (Remove(N1, WEB, 1),)
    assert not decision.forget
    assert decision.workload_status is not None
    assert decision.workload_status.status is Status.DELETING


def test_a_deleted_workload_is_removed_when_its_node_reports_absence() -> None:
    gone = an_observation(Actual.ABSENT, seen_at=after(1))
    decision = decided(a_situation(LEAVING, assignment=ON_N1, dispatch=SENT, observation=gone))

    assert decision == Decision(None, None, None, forget=True, rule="delete-confirmed")


def test_absence_from_before_the_removal_was_sent_proves_nothing() -> None:
    older = an_observation(Actual.ABSENT, seen_at=after(-1))
    decision = decided(a_situation(LEAVING, assignment=ON_N1, dispatch=SENT, observation=older))

    assert not decision.forget


def test_absence_proves_nothing_while_the_removal_is_in_flight() -> None:
    in_flight = a_dispatch(desired=Desired.DELETED, answered=False)
    gone = an_observation(Actual.ABSENT, seen_at=after(1))

    assert not decided(
        a_situation(LEAVING, assignment=ON_N1, dispatch=in_flight, observation=gone)
    ).forget


@pytest.mark.parametrize("actual", [Actual.UNKNOWN, Actual.PENDING, Actual.STOPPED], ids=str)
def test_only_an_absent_report_confirms_a_removal(actual: Actual) -> None:
    seen = an_observation(actual, seen_at=after(1))
    decision = decided(
        a_situation(LEAVING, assignment=ON_N1, dispatch=SENT, observation=seen), now=after(2)
    )

    assert not decision.forget
    assert decision.effects == (PollStatus(N1, WEB),)


def test_a_removal_that_is_overdue_is_sent_again() -> None:
    decision = decided(
        a_situation(LEAVING, assignment=ON_N1, dispatch=SENT, reports=True), now=after(60)
    )

    about = "not removed 60s after the request was sent, once; sent again"
    assert decision.effects == (FetchActions(N1, WEB, 1, about), Remove(N1, WEB, 1))
    assert decision.retry == a_retry(1, after(60))
    assert decision.workload_status is not None
    assert (decision.workload_status.status, decision.workload_status.code) == (
        Status.DELETING,
        "TimedOut",
    )


def test_each_removal_that_is_overdue_is_counted_once_and_the_next_gets_twice_as_long() -> None:
    again = a_dispatch(desired=Desired.DELETED, sent_at=after(60))
    situation = a_situation(
        LEAVING, assignment=ON_N1, dispatch=again, retry=a_retry(1, after(60)), reports=True
    )

    waiting = decided(situation, now=after(179))
    late = decided(situation, now=after(180))

    assert (waiting.effects, waiting.retry) == ((), a_retry(1, after(60)))
    assert late.retry == a_retry(2, after(180))
    assert late.workload_status is not None
    assert "2 times" in late.workload_status.message


def test_a_removal_that_its_node_has_no_task_of_is_sent_again_once_after_the_grace() -> None:
    def decided_with(repeats: int, now: datetime) -> Decision:
        lost = replace(SENT, lost=True, repeats=repeats, polled_at=after(10))
        seen = an_observation(Actual.RUNNING, seen_at=after(10))
        return decided(
            a_situation(LEAVING, assignment=ON_N1, dispatch=lost, observation=seen), now=now
        )

    assert Remove not in map(type, decided_with(0, after(9)).effects)
    assert [type(effect) for effect in decided_with(0, after(10)).effects] == [Remove]
    assert Remove not in map(type, decided_with(1, after(10)).effects)


def test_a_removal_without_a_response_shows_the_reason() -> None:
    unanswered = a_dispatch(desired=Desired.DELETED, resend_at=after(9), problem="refused")

    decision = decided(
        a_situation(LEAVING, assignment=ON_N1, dispatch=unanswered, reports=True), now=after(1)
    )

    assert decision.workload_status is not None
    assert (decision.workload_status.status, decision.workload_status.code) == (
        Status.DELETING,
        "NodeUnreachable",
    )
    assert decision.workload_status.message == "node n1 does not respond: refused"


def test_on_a_suspect_node_no_removal_is_overdue() -> None:
    decision = decided(
        a_situation(LEAVING, assignment=ON_N1, dispatch=SENT, phase=Phase.SUSPECT), now=after(90)
    )

    assert (decision.effects, decision.retry) == ((), None)


def test_a_failed_removal_shows_the_reason_and_continues() -> None:
    failed = an_observation(
        Actual.FAILED, failure=a_failure(), message="volume is busy", seen_at=after(1)
    )
    decision = decided(
        a_situation(LEAVING, assignment=ON_N1, dispatch=SENT, observation=failed), now=after(1)
    )

    assert decision.workload_status is not None
    assert decision.workload_status.message == "volume is busy"
    assert not decision.forget


def test_on_a_suspect_node_a_deletion_waits() -> None:
    decision = decided(a_situation(LEAVING, assignment=ON_N1, phase=Phase.SUSPECT))

    assert (decision.forget, decision.effects) == (False, ())
    assert decision.workload_status is not None
    assert decision.workload_status.message.startswith("node n1 is not sending heartbeats")


def test_on_a_lost_node_a_deletion_ends_and_leaves_a_tombstone() -> None:
    decision = decided(a_situation(LEAVING, assignment=ON_N1, phase=Phase.LOST))

    assert decision == Decision(
        None, None, None, forget=True, tombstone=Tombstone(ON_N1, NOON), rule="delete-node-lost"
    )


def test_a_deletion_beats_a_new_revision_and_a_plan_to_try_again() -> None:
    decision = decided(
        a_situation(
            a_workload(desired=Desired.DELETED, revision="r9"),
            assignment=ON_N1,
            observation=an_observation(
                Actual.FAILED, failure=a_failure(code="RuntimeNotAvailable")
            ),
        )
    )

    assert decision.effects == (Remove(N1, WEB, 1),)
