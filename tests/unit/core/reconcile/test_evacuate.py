"""Leaving a node that is lost or draining."""

import dataclasses
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from builders import (
    CONTAINER,
    NOON,
    a_dispatch,
    a_failure,
    a_situation,
    a_status,
    a_workload,
    add_node,
    an_assignment,
    an_observation,
    rooms_of,
)
from persys.core.nodes import Phase
from persys.core.placement.index.node_index import NodeIndex
from persys.core.reconcile.decide import decide
from persys.core.reconcile.dispatch import unanswered
from persys.core.reconcile.effects import Apply
from persys.core.reconcile.evacuate import START_DEADLINE, must_leave
from persys.core.reconcile.situation import COMPLETED, Copy, Decision, Policy, Situation
from persys.model import feature
from persys.model.ids import NodeId, Revision
from persys.model.placement import HostPort, Tombstone
from persys.model.spec import ContainerSpec, VolumeMount
from persys.model.status import Status, WorkloadStatus
from persys.model.workload import Desired, Workload

DATA = a_workload(spec=ContainerSpec("db", volumes=(VolumeMount("/srv", "/data"),)))
ON_N1 = an_assignment("n1")
KEPT_ON_N0 = Tombstone(an_assignment("n0", epoch=0), NOON, keeps_data=True, after_running=True)


def decided(situation: Situation, *nodes: str) -> Decision:
    """With these nodes available."""
    node_index = NodeIndex()
    for node_id in nodes:
        add_node(node_index, node_id, traits={*CONTAINER, f"feature:{feature.STOP_AFTER}"})
    return decide(situation, rooms_of(node_index), Policy(), now=NOON, roll=0.5)


def lost(workload: Workload | None = None, *, confirmed_dead: bool = False) -> Situation:
    return a_situation(
        workload,
        assignment=ON_N1,
        workload_status=a_status(),
        observation=an_observation(),
        phase=Phase.LOST,
        confirmed_dead=confirmed_dead,
    )


def test_moving_from_a_lost_node_uses_the_next_epoch_and_writes_a_tombstone() -> None:
    decision = decided(lost(), "n2")

    assert decision.assignment is not None
    assert (decision.assignment.node_id, decision.assignment.epoch) == ("n2", 2)
    assert decision.tombstone is not None
    assert decision.tombstone.assignment == ON_N1
    assert [type(effect) for effect in decision.effects] == [Apply]


def test_without_other_capacity_it_stays_assigned_and_waits() -> None:
    decision = decided(lost())

    assert decision.assignment == ON_N1
    assert decision.waits_for_capacity
    assert decision.workload_status is not None
    assert decision.workload_status.code == "NodeLost"


def test_a_workload_with_data_stays_assigned_to_a_lost_node() -> None:
    decision = decided(lost(DATA), "n2")

    assert decision.assignment == ON_N1
    assert decision.tombstone is None
    assert decision.effects == ()


def test_a_workload_with_data_leaves_a_node_that_is_confirmed_dead() -> None:
    decision = decided(lost(DATA, confirmed_dead=True), "n2")

    assert decision.assignment is not None
    assert decision.assignment.node_id == "n2"


def test_a_finished_job_leaves_and_does_not_run_again() -> None:
    workload_status = a_status(Status.STOPPED, code=COMPLETED)
    left = decided(
        a_situation(
            assignment=ON_N1, workload_status=workload_status, phase=Phase.ALIVE, draining=True
        ),
        "n2",
    )
    later = decided(a_situation(assignment=None, workload_status=workload_status), "n2")

    assert (left.assignment, left.effects, left.workload_status) == (None, (), workload_status)
    assert left.tombstone is not None
    assert (later.assignment, later.effects, later.workload_status) == (None, (), workload_status)


def test_a_stopped_workload_leaves_a_draining_node_without_a_new_one() -> None:
    stopped = a_workload(desired=Desired.STOPPED)
    decision = decided(
        a_situation(stopped, assignment=ON_N1, phase=Phase.ALIVE, draining=True), "n2"
    )

    assert decision.assignment is None
    assert decision.tombstone is not None


def test_a_workload_that_fits_on_no_other_node_keeps_running_on_a_draining_node() -> None:
    decision = decided(
        a_situation(
            assignment=ON_N1,
            workload_status=a_status(),
            observation=an_observation(),
            phase=Phase.ALIVE,
            draining=True,
        )
    )

    assert decision.assignment == ON_N1
    assert decision.workload_status is not None
    assert decision.workload_status.status is Status.RUNNING
    assert decision.waits_for_capacity


def test_a_stop_after_workload_does_not_leave_a_suspect_draining_node() -> None:
    """Its agent may not have stopped it yet."""
    single = replace(a_workload(), stop_after_seconds=60)
    situation = a_situation(
        single,
        assignment=ON_N1,
        workload_status=a_status(),
        observation=an_observation(),
        phase=Phase.SUSPECT,
        draining=True,
    )

    assert not must_leave(situation, NOON)
    assert must_leave(dataclasses.replace(situation, phase=Phase.ALIVE, in_contact=True), NOON)


def test_a_stop_after_workload_does_not_leave_a_draining_node_that_was_not_heard() -> None:
    """A new leader gives every node a lease without contact: the node may be unreachable."""
    single = replace(a_workload(), stop_after_seconds=60)
    situation = a_situation(single, assignment=ON_N1, workload_status=a_status(), draining=True)

    assert not must_leave(situation, NOON)
    assert must_leave(dataclasses.replace(situation, in_contact=True), NOON)


def test_a_workload_without_stop_after_leaves_a_draining_node_that_was_not_heard() -> None:
    situation = a_situation(assignment=ON_N1, workload_status=a_status(), draining=True)

    assert must_leave(situation, NOON)


def unanswered_order() -> Situation:
    """The node is alive and did not respond to the order twice."""
    dispatch = a_dispatch(answered=False)
    for _ in range(2):
        dispatch = unanswered(dispatch, "no route to host", now=NOON)
    return a_situation(
        assignment=ON_N1, workload_status=a_status(Status.PENDING, revision=""), dispatch=dispatch
    )


def test_a_workload_that_its_node_never_accepted_is_rescheduled() -> None:
    decision = decided(unanswered_order(), "n2")

    assert decision.assignment is not None
    assert decision.assignment.node_id == "n2"
    assert decision.tombstone is not None


def test_a_workload_that_its_node_never_accepted_stays_if_that_node_is_still_best() -> None:
    decision = decided(unanswered_order(), "n1")

    assert decision.assignment == ON_N1
    assert decision.tombstone is None


def draining(workload: Workload | None = None) -> Situation:
    """It runs on n1, which is being drained and in contact."""
    return dataclasses.replace(
        a_situation(
            workload,
            assignment=ON_N1,
            workload_status=a_status(),
            observation=an_observation(),
            draining=True,
        ),
        in_contact=True,
    )


def moving(
    workload_status: WorkloadStatus, *, at: datetime = NOON, assigned_at: datetime | None = NOON
) -> Decision:
    """It is assigned to n2, and its copy on the draining node n1 is kept since noon."""
    on_n2 = None
    if assigned_at is not None:
        on_n2 = replace(an_assignment("n2", epoch=2), assigned_at=assigned_at)
    kept = Tombstone(ON_N1, NOON, keeps_data=True, after_running=True)
    copy = Copy(NodeId("n1"), 1, being_removed=True, draining=True, kept=kept)
    situation = a_situation(assignment=on_n2, workload_status=workload_status)
    node_index = NodeIndex()
    add_node(node_index, "n2")
    return decide(
        dataclasses.replace(situation, copies=(copy,)),
        rooms_of(node_index),
        Policy(),
        now=at,
        roll=0.5,
    )


def test_a_workload_runs_on_a_draining_node_until_it_runs_on_the_next_one() -> None:
    left = decided(draining(), "n2")
    starting = moving(a_status(Status.PENDING, epoch=2))
    running = moving(a_status(epoch=2))

    assert left.assignment is not None
    assert left.assignment.node_id == "n2"
    assert left.tombstone is not None
    assert left.tombstone.after_running
    assert starting.released is None
    assert running.released is not None
    assert not running.released.after_running


def test_a_copy_of_an_earlier_revision_runs_on_a_draining_node_too() -> None:
    """A rollout changes a member on a draining node: the image is pulled before its copy stops."""
    updated = replace(a_workload(), revision=Revision("r2"))

    left = decided(draining(updated), "n2")

    assert left.tombstone is not None
    assert left.tombstone.after_running


def test_a_draining_node_does_not_keep_a_copy_without_limit() -> None:
    failed = a_status(Status.FAILED, epoch=2, failure=a_failure())
    due_at = NOON + START_DEADLINE

    assert moving(failed, at=due_at - timedelta(seconds=1)).released is None
    assert moving(failed, at=due_at).released is not None


@pytest.mark.parametrize("assigned_at", [NOON + START_DEADLINE, None], ids=["again", "not"])
def test_further_assignments_do_not_extend_the_time_of_a_kept_copy(
    assigned_at: datetime | None,
) -> None:
    """Other nodes may refuse it again and again."""
    pending = a_status(Status.PENDING, epoch=2)

    decision = moving(pending, at=NOON + START_DEADLINE, assigned_at=assigned_at)

    assert decision.released is not None


def test_a_workload_that_does_not_start_elsewhere_does_not_return_to_a_draining_node() -> None:
    decision = moving(a_status(Status.FAILED, epoch=2, failure=a_failure()))

    assert decision.assignment is not None
    assert decision.assignment.node_id == "n2"


@pytest.mark.parametrize(
    "situation",
    [
        draining(replace(a_workload(), stop_after_seconds=60)),
        dataclasses.replace(
            draining(), assignment=an_assignment("n1", host_ports=[HostPort(8080)])
        ),
        dataclasses.replace(draining(), workload_status=a_status(Status.PENDING)),
        dataclasses.replace(draining(), workload_status=a_status(epoch=7)),
        dataclasses.replace(
            draining(),
            copies=(Copy(NodeId("n0"), 0, being_removed=True, kept=KEPT_ON_N0),),
        ),
    ],
    ids=[
        "stop-after",
        "fixed-port",
        "not-running",
        "of-an-earlier-assignment",
        "another-copy-is-kept",
    ],
)
def test_the_copy_on_a_draining_node_is_removed_at_once(situation: Situation) -> None:
    left = decided(situation, "n2")

    assert left.tombstone is not None
    assert not left.tombstone.after_running
