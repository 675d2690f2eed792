"""A record that is older than its node, after a restore of the store; or the node reports a wrong epoch."""

from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec import structs

from builders import (
    N1,
    N2,
    NOON,
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
from persys.core.reconcile.effects import Apply, Remove
from persys.core.reconcile.situation import Copy, Decision, Policy, Situation
from persys.core.recovery.rollback import ALREADY_DELETED, RENEWED_AFTER, STALE_EPOCH
from persys.model.spec import ContainerSpec, VolumeMount
from persys.model.status import Actual, Failure, FailureReason, Observation, Status
from persys.model.workload import Desired, Workload

STATELESS = a_workload()
WITH_DATA = a_workload(spec=ContainerSpec("db", volumes=(VolumeMount("/srv", "/data"),)))
LATER = NOON + RENEWED_AFTER
either = pytest.mark.parametrize("workload", [STATELESS, WITH_DATA], ids=["stateless", "with data"])


def bound(workload: Workload, seen: Observation | None, **others: object) -> Situation:
    """On n1 with epoch 5, with status Running."""
    situation = a_situation(
        workload,
        assignment=an_assignment(N1, epoch=5),
        workload_status=a_status(Status.RUNNING, epoch=5),
        observation=seen,
    )
    return replace(situation, next_epoch=40, **others)  # type: ignore[arg-type]  # fields by name


def refused(code: str, known_epoch: int) -> Observation:
    failure = Failure(FailureReason.RUNTIME_ERROR, "epoch 5 is older", code=code)
    seen = an_observation(Actual.FAILED, epoch=5, failure=failure, message=failure.message)
    return structs.replace(seen, known_epoch=known_epoch)


def decided(situation: Situation, *, seconds: float = 0, full: bool = False) -> Decision:
    node_index = NodeIndex()
    add_node(node_index, "n1")
    add_node(node_index, "n2", cpu=50 if full else 3000)
    now = LATER + timedelta(seconds=seconds)
    return decide(situation, rooms_of(node_index), Policy(), now=now, roll=0.5)


def epoch_of(decision: Decision) -> int:
    assert decision.assignment is not None
    return decision.assignment.epoch


@either
@pytest.mark.parametrize(
    "seen", [an_observation(epoch=9), refused(STALE_EPOCH, 9)], ids=["reported", "refused"]
)
def test_a_workload_whose_node_has_a_later_epoch_gets_a_new_one_there(
    workload: Workload, seen: Observation
) -> None:
    decision = decided(bound(workload, seen))

    assert decision.assignment is not None
    assert (decision.assignment.node_id, decision.assignment.epoch) == (N1, 40)
    assert decision.effects == (Apply(N1, workload, 40),)
    assert decision.tombstone is None
    assert decision.workload_status is not None
    assert (decision.workload_status.status, decision.workload_status.epoch) == (Status.RUNNING, 40)


def test_a_delete_reaches_a_node_with_a_later_epoch() -> None:
    situation = bound(a_workload(desired=Desired.DELETED), an_observation(epoch=9))
    decision = decided(situation)
    assert (epoch_of(decision), decision.effects, decision.wake_at) == (40, (), LATER)

    again = decided(replace(situation, assignment=decision.assignment), seconds=1)

    assert again.effects == (Remove(N1, situation.workload.id, 40),)


@pytest.mark.parametrize("claimed", [40, 41, 2**53, 2**63 - 1])
def test_an_epoch_that_the_cluster_did_not_assign_renews_nothing(claimed: int) -> None:
    reported = decided(bound(STATELESS, an_observation(epoch=claimed)))
    assert epoch_of(reported) == 5

    decision = decided(bound(STATELESS, refused(STALE_EPOCH, claimed)))

    assert epoch_of(decision) == 5
    assert decision.workload_status is not None
    assert decision.workload_status.status is Status.FAILED
    assert "check the clock of the scheduler" in decision.workload_status.message


def test_a_node_that_reports_ever_later_epochs_gets_one_more_in_half_a_minute() -> None:
    situation = bound(STATELESS, an_observation(epoch=9))
    given = [5]
    for second in range(120):
        seen = an_observation(epoch=given[-1] + 1, seen_at=after(30 + second))
        situation = replace(situation, observation=seen, next_epoch=1000 + second)
        decision = decided(situation, seconds=second)
        situation = replace(situation, assignment=decision.assignment)
        if epoch_of(decision) != given[-1]:
            given.append(epoch_of(decision))

    assert len(given) - 1 == 4


@pytest.mark.parametrize("phase", [Phase.SUSPECT, Phase.LOST])
def test_nothing_is_renewed_on_a_node_that_is_not_alive(phase: Phase) -> None:
    decision = decided(bound(WITH_DATA, an_observation(epoch=9), phase=phase))

    assert epoch_of(decision) == 5


def test_a_stateless_workload_that_its_node_has_deleted_starts_there_again() -> None:
    decision = decided(bound(STATELESS, refused(ALREADY_DELETED, 5)))

    assert epoch_of(decision) == 40
    assert decision.effects == (Apply(N1, STATELESS, 40),)


def test_promise_4_a_workload_with_data_deleted_on_its_node_waits_for_an_operator() -> None:
    situation = bound(WITH_DATA, refused(ALREADY_DELETED, 7))

    decision = decided(situation)

    assert (epoch_of(decision), decision.effects) == (5, ())
    assert decision.workload_status is not None
    assert (decision.workload_status.status, decision.workload_status.code) == (
        Status.FAILED,
        ALREADY_DELETED,
    )
    assert "`persysctl workload retry web`" in decision.workload_status.message
    assert decision.retry is not None
    assert decision.retry.next_at is None
    after_an_hour = replace(
        situation, workload_status=decision.workload_status, retry=decision.retry
    )
    assert decided(after_an_hour, seconds=3600).effects == ()
    after_a_restart = replace(after_an_hour, observation=None)
    assert decided(after_a_restart, seconds=3600).effects == ()


@pytest.mark.parametrize("desired", [Desired.RUNNING, Desired.STOPPED])
def test_an_operator_request_starts_it_again_with_a_new_epoch(desired: Desired) -> None:
    workload = structs.replace(WITH_DATA, desired=desired)
    failure = Failure(FailureReason.RUNTIME_ERROR, "deleted", retryable=False, code=ALREADY_DELETED)
    workload_status = a_status(Status.FAILED, code=ALREADY_DELETED, failure=failure, epoch=5)

    decision = decided(bound(workload, None, workload_status=workload_status))

    assert decision.effects == (Apply(N1, workload, 40),)
    assert decision.workload_status is not None
    assert decision.workload_status.status is Status.PENDING


@either
def test_a_later_assignment_that_another_node_proves_is_followed(workload: Workload) -> None:
    copies = (Copy(N2, 9, proven=True),)
    decision = decided(bound(workload, an_observation(epoch=5), copies=copies))

    assert decision.assignment is not None
    assert (decision.assignment.node_id, decision.assignment.epoch) == (N2, 40)
    assert decision.effects == (Apply(N2, workload, 40),)
    assert decision.tombstone is not None
    assert decision.tombstone.assignment.node_id == N1
    assert decision.tombstone.keeps_data


@either
@pytest.mark.parametrize(
    "copy",
    [
        Copy(N2, 9),
        Copy(N2, 9, counts=False),
        Copy(N2, 4, proven=True),
        Copy(N2, 5, proven=True),
    ],
    ids=["not proven", "only reported", "older", "as old"],
)
def test_no_other_copy_moves_a_workload(workload: Workload, copy: Copy) -> None:
    decision = decided(bound(workload, an_observation(epoch=5), copies=(copy,)))

    assert decision.assignment is not None
    assert (decision.assignment.node_id, decision.assignment.epoch) == (N1, 5)
    assert decision.tombstone is None


def test_the_later_of_two_later_copies_counts() -> None:
    copies = (Copy(N2, 9, proven=True),)
    here_is_later = bound(STATELESS, an_observation(epoch=12), copies=copies)

    decision = decided(here_is_later)

    assert decision.assignment is not None
    assert (decision.assignment.node_id, decision.assignment.epoch) == (N1, 40)


def test_a_workload_with_data_does_not_move_while_its_newest_copy_does_not_fit() -> None:
    situation = bound(WITH_DATA, None, copies=(Copy(N2, 9, proven=True),))

    decision = decided(situation, full=True)

    assert (epoch_of(decision), decision.effects) == (5, ())
    assert decision.waits_for_capacity
    assert decision.workload_status is not None
    assert "n2 has its newest copy with the data" in decision.workload_status.message


def test_earlier_failures_are_cleared_with_a_new_epoch() -> None:
    situation = bound(STATELESS, refused(STALE_EPOCH, 9), retry=a_retry(5))

    assert decided(situation).retry is None
