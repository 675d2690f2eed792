"""Assignment of a workload with an existing copy on a node: never two copies with data."""

from dataclasses import replace

import pytest
from msgspec import structs

from builders import (
    N1,
    N2,
    NOON,
    a_dispatch,
    a_situation,
    a_status,
    a_workload,
    add_node,
    after,
    an_assignment,
    an_observation,
    rooms_of,
)
from persys.core.agent.admission import NODE_FULL
from persys.core.drift import describe_copies
from persys.core.placement.index.node_index import NodeIndex
from persys.core.reconcile.converge import WAITS_FOR_OLD_COPY
from persys.core.reconcile.decide import decide
from persys.core.reconcile.dispatch import Dispatch
from persys.core.reconcile.effects import Apply
from persys.core.reconcile.situation import Copy, Decision, Policy
from persys.model.spec import ContainerSpec, VolumeMount
from persys.model.status import Actual, Failure, FailureReason, Status
from persys.model.workload import Desired, Workload

STATELESS = a_workload()
WITH_DATA = a_workload(spec=ContainerSpec("db", volumes=(VolumeMount("/srv", "/data"),)))
either = pytest.mark.parametrize("workload", [STATELESS, WITH_DATA], ids=["stateless", "with data"])


def decided(workload: Workload, *copies: Copy, full: bool = False) -> Decision:
    """Two nodes, of which n1 is the better choice; n2 may be full."""
    node_index = NodeIndex()
    add_node(node_index, "n1")
    add_node(node_index, "n2", cpu=50 if full else 3000)
    situation = replace(a_situation(workload), copies=copies, next_epoch=40)
    return decide(situation, rooms_of(node_index), Policy(), now=NOON, roll=0.5)


@either
def test_it_is_assigned_to_the_node_of_its_copy_with_the_next_epoch(
    workload: Workload,
) -> None:
    assignment = decided(workload, Copy(N2, 7)).assignment

    assert assignment is not None
    assert (assignment.node_id, assignment.epoch) == (N2, 40)


def test_a_stopped_workload_is_assigned_to_the_node_of_its_copy() -> None:
    decision = decided(a_workload(desired=Desired.STOPPED), Copy(N2, 7))

    assert decision.assignment is not None
    assert decision.assignment.node_id == N2


def test_a_workload_without_data_moves_if_it_does_not_fit_next_to_its_old_copy() -> None:
    assignment = decided(STATELESS, Copy(N2, 7), full=True).assignment

    assert assignment is not None
    assert (assignment.node_id, assignment.epoch) == (N1, 40)


def test_a_workload_with_data_waits_for_capacity_on_the_node_of_its_copy() -> None:
    decision = decided(WITH_DATA, Copy(N2, 7), full=True)

    assert decision.assignment is None
    assert decision.waits_for_capacity
    assert decision.workload_status is not None
    assert decision.workload_status.status is Status.PENDING
    assert "n2 has an orphan of it" in decision.workload_status.message
    assert "short of cpu" in decision.workload_status.message


def test_with_data_and_two_copies_it_waits_for_the_operator() -> None:
    decision = decided(WITH_DATA, Copy(N1, 3), Copy(N2, 7))

    assert decision.assignment is None
    assert decision.workload_status is not None
    assert "n1, n2 have orphans of it" in decision.workload_status.message


def test_with_data_it_waits_until_an_old_copy_is_removed() -> None:
    decision = decided(WITH_DATA, Copy(N2, 7, being_removed=True))

    assert decision.assignment is None
    assert decision.workload_status is not None
    assert "still being removed from n2" in decision.workload_status.message


@pytest.mark.parametrize("claimed", [41, 2**53, 2**63 - 1])
def test_an_epoch_that_a_node_reports_does_not_raise_the_next_one(claimed: int) -> None:
    assignment = decided(STATELESS, Copy(N2, claimed)).assignment

    assert assignment is not None
    assert assignment.epoch == 40


def test_with_data_it_waits_for_a_lost_node_that_may_still_run_its_old_copy() -> None:
    decision = decided(WITH_DATA, Copy(N2, 7, being_removed=True, lost=True, stops_at=after(60)))

    assert decision.assignment is None
    assert decision.workload_status is not None
    assert "an old copy may still run on n2" in decision.workload_status.message
    assert decision.wake_at == after(60)


def test_a_workload_with_data_moves_if_its_old_copy_cannot_run() -> None:
    decision = decided(WITH_DATA, Copy(N2, 7, being_removed=True, lost=True, may_run=False))

    assert decision.assignment is not None
    assert decision.assignment.node_id == N1


def test_without_data_an_old_copy_on_a_lost_node_does_not_hold_it_up() -> None:
    decision = decided(STATELESS, Copy(N2, 7, being_removed=True, lost=True))

    assert decision.assignment is not None


def changed_on_n1(workload: Workload, copy: Copy, *, observed: str = "r0") -> Decision:
    """The workload is assigned to n1, which runs the revision `observed`; `copy` is on another node."""
    node_index = NodeIndex()
    add_node(node_index, "n1")
    situation = replace(
        a_situation(workload, assignment=an_assignment()),
        workload_status=a_status(Status.RUNNING, revision=observed),
        observation=an_observation(Actual.RUNNING, revision=observed),
        copies=(copy,),
    )
    return decide(situation, rooms_of(node_index), Policy(), now=NOON, roll=0.5)


def test_a_new_revision_with_data_waits_until_an_old_copy_on_another_node_is_removed() -> None:
    decision = changed_on_n1(
        WITH_DATA, Copy(N2, 7, being_removed=True, lost=True, stops_at=after(60))
    )

    assert decision.assignment == an_assignment()
    assert decision.effects == ()
    assert decision.rule == WAITS_FOR_OLD_COPY
    assert decision.wake_at == after(60)
    assert decision.workload_status is not None
    assert decision.workload_status.status is Status.PENDING
    assert "an old copy may still run on n2" in decision.workload_status.message


@pytest.mark.parametrize(
    ("workload", "copy"),
    [
        (STATELESS, Copy(N2, 7, being_removed=True, lost=True)),
        (WITH_DATA, Copy(N2, 7, being_removed=True, lost=True, may_run=False)),
        (WITH_DATA, Copy(N2, 7)),
        (structs.replace(WITH_DATA, desired=Desired.STOPPED), Copy(N2, 7, being_removed=True)),
    ],
    ids=["without data", "the old copy cannot run", "an orphan", "stopped"],
)
def test_a_new_revision_that_waits_for_no_copy_is_sent(workload: Workload, copy: Copy) -> None:
    assert changed_on_n1(workload, copy).effects == (Apply(N1, workload, 1),)


def test_a_revision_with_data_that_its_node_has_is_not_affected_by_an_old_copy() -> None:
    decision = changed_on_n1(
        WITH_DATA, Copy(N2, 7, being_removed=True, lost=True), observed=WITH_DATA.revision
    )

    assert decision.rule == "converged"


@either
def test_a_refused_workload_moves_and_with_data_only_if_the_node_cannot_start_it(
    workload: Workload,
) -> None:
    """An order without a response may still be in flight to that node."""
    node_index = NodeIndex()
    add_node(node_index, "n1")
    full = Failure(FailureReason.INSUFFICIENT_RESOURCES, "this node is full", code=NODE_FULL)
    situation = replace(
        a_situation(workload, assignment=an_assignment(N2, epoch=7)),
        observation=an_observation(Actual.FAILED, node_id=N2, epoch=7, failure=full),
        next_epoch=40,
    )

    decision = decide(situation, rooms_of(node_index), Policy(), now=NOON, roll=0.5)

    if workload is STATELESS:
        assert decision.assignment is not None
        assert (decision.assignment.node_id, decision.tombstone) == (N1, None)
    else:
        assert decision.assignment is None
        assert decision.tombstone is not None
        assert decision.tombstone.assignment == situation.assignment
        assert decision.tombstone.keeps_data


@pytest.mark.parametrize(
    ("dispatch", "proof"),
    [(a_dispatch(epoch=7), b""), (None, b"proof")],
    ids=["by this leader", "by an earlier leader"],
)
def test_a_node_that_accepted_the_order_before_it_was_full_gets_a_tombstone(
    dispatch: Dispatch | None, proof: bytes
) -> None:
    assert after_full(dispatch, proof).tombstone is not None


def test_a_node_that_refused_the_order_gets_no_tombstone() -> None:
    assert after_full(replace(a_dispatch(epoch=7), refused=True)).tombstone is None


def after_full(dispatch: Dispatch | None, proof: bytes = b"") -> Decision:
    node_index = NodeIndex()
    add_node(node_index, "n1")
    full = Failure(FailureReason.INSUFFICIENT_RESOURCES, "this node is full", code=NODE_FULL)
    situation = replace(
        a_situation(STATELESS, assignment=an_assignment(N2, epoch=7)),
        observation=structs.replace(
            an_observation(Actual.FAILED, node_id=N2, epoch=7, failure=full), proof=proof
        ),
        dispatch=dispatch,
        next_epoch=40,
    )

    decision = decide(situation, rooms_of(node_index), Policy(), now=NOON, roll=0.5)

    assert decision.assignment is not None
    assert decision.assignment.node_id == N1
    return decision


@either
def test_a_copy_that_only_its_node_reports_decides_nothing(workload: Workload) -> None:
    assignment = decided(workload, Copy(N2, 7, counts=False)).assignment

    assert assignment is not None
    assert assignment.node_id == N1


def test_each_copy_is_described_with_the_command_that_resolves_it() -> None:
    lines = describe_copies(
        WITH_DATA.id,
        [
            Copy(N1, 3),
            Copy(N2, 4, counts=False),
            Copy(N1, 5, being_removed=True),
            Copy(N2, 6, being_removed=True, lost=True),
            Copy(N2, 7, being_removed=True, lost=True, may_run=False),
        ],
    )

    assert [line.partition("; ")[0].partition(" that ")[0] for line in lines] == [
        "n1: an orphan with epoch 3",
        "n2: the node reports a copy with epoch 4 without proof of assignment",
        "n1: an old copy with epoch 5, which is being removed",
        "n2: an old copy with epoch 6, which is being removed when the node returns",
        "n2: an old copy with epoch 7, which is being removed when the node returns",
    ]
    assert lines[0].endswith("`persysctl orphans delete n1 web` removes it")
    assert lines[3].endswith("`persysctl node confirm-dead n2`")


def test_a_limited_number_of_copies_is_described() -> None:
    lines = describe_copies(WITH_DATA.id, [Copy(N1, number) for number in range(50)])

    assert (len(lines), lines[-1]) == (21, "and 30 more")
