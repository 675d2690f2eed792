"""The decisions of `decide`, one situation after the other."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from builders import (
    N1,
    N2,
    NOON,
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
from persys.core.reconcile.dispatch import Dispatch
from persys.core.reconcile.effects import Apply, PollStatus
from persys.core.reconcile.situation import COMPLETED, Decision, Policy, Situation, satisfies
from persys.model.placement import Resources
from persys.model.spec import ContainerSpec, RestartPolicy, VMSpec
from persys.model.status import Actual, Observation, Status, WorkloadStatus
from persys.model.workload import Desired, Workload

POLICY = Policy()
ON_N1 = an_assignment()


def two_nodes() -> NodeIndex:
    node_index = NodeIndex()
    add_node(node_index, "n1")
    add_node(node_index, "n2")
    return node_index


def decided(
    situation: Situation, *, now: datetime = NOON, node_index: NodeIndex | None = None
) -> Decision:
    return decide(situation, rooms_of(node_index or two_nodes()), POLICY, now=now, roll=0.5)


# ---- unassigned


def test_an_unassigned_workload_that_fits_is_assigned_and_sent() -> None:
    workload = a_workload()
    decision = decided(a_situation(workload, phase=Phase.LOST))

    assert decision.assignment is not None
    assert (decision.assignment.node_id, decision.assignment.epoch) == (N1, 1)
    assert decision.assignment.reserved == workload.resources
    assert decision.effects == (Apply(N1, workload, 1),)
    assert decision.workload_status is not None
    assert (decision.workload_status.status, decision.workload_status.code) == (
        Status.PENDING,
        "Starting",
    )


def test_an_unplaceable_workload_is_pending_with_its_reason() -> None:
    decision = decided(a_situation(a_workload(resources=Resources(5000))))

    assert decision.assignment is None
    assert decision.waits_for_capacity
    assert decision.effects == ()
    assert decision.workload_status is not None
    assert (decision.workload_status.status, decision.workload_status.code) == (
        Status.PENDING,
        "Unplaceable",
    )
    assert decision.workload_status.message == "2 nodes short of cpu (needs 5000m, n1 lacks 1000m)"


def test_a_workload_created_stopped_gets_no_node() -> None:
    decision = decided(a_situation(a_workload(desired=Desired.STOPPED)))

    assert decision.assignment is None
    assert not decision.waits_for_capacity
    assert decision.workload_status is not None
    assert (decision.workload_status.status, decision.workload_status.code) == (
        Status.STOPPED,
        "NotPlaced",
    )


def test_a_stopped_workload_without_a_node_has_converged() -> None:
    workload = a_workload(desired=Desired.STOPPED)
    decision = decided(a_situation(workload))

    assert decision.workload_status is not None
    assert satisfies(decision.workload_status, workload)


def test_each_new_assignment_has_a_higher_epoch_than_any_before() -> None:
    decision = decided(a_situation(workload_status=a_status(Status.PENDING, epoch=7)))

    assert decision.assignment is not None
    assert decision.assignment.epoch == 8


# ---- converged


@pytest.mark.parametrize(
    ("desired", "actual", "status"),
    [
        (Desired.RUNNING, Actual.RUNNING, Status.RUNNING),
        (Desired.STOPPED, Actual.STOPPED, Status.STOPPED),
    ],
)
def test_a_workload_in_its_desired_state_has_converged(
    desired: Desired, actual: Actual, status: Status
) -> None:
    decision = decided(
        a_situation(
            a_workload(desired=desired),
            assignment=ON_N1,
            workload_status=a_status(Status.PENDING),
            observation=an_observation(actual),
            dispatch=a_dispatch(desired=desired),
        )
    )

    assert decision.workload_status is not None
    assert decision.workload_status.status is status
    assert decision.workload_status.revision == "r1"
    assert decision.fulfilled
    assert (decision.effects, decision.wake_at) == ((), None)


def test_a_report_without_revision_and_epoch_is_accepted() -> None:
    seen = an_observation(revision="", epoch=0)
    decision = decided(a_situation(assignment=ON_N1, dispatch=a_dispatch(), observation=seen))

    assert decision.workload_status is not None
    assert decision.workload_status.status is Status.RUNNING


@pytest.mark.parametrize(
    "seen",
    [an_observation(revision="r0"), an_observation(epoch=9), an_observation(node_id="n2")],
    ids=["an older revision", "another assignment", "another node"],
)
def test_a_report_of_another_revision_is_not_convergence(seen: Observation) -> None:
    decision = decided(a_situation(assignment=ON_N1, observation=seen))

    assert decision.workload_status is not None
    assert decision.workload_status.status is Status.PENDING
    assert [type(effect) for effect in decision.effects] == [Apply]


def test_a_converged_workload_is_not_sent_again_before_an_observation() -> None:
    workload_status = a_status(Status.RUNNING)
    decision = decided(a_situation(assignment=ON_N1, workload_status=workload_status))

    assert decision == Decision(ON_N1, workload_status, None, rule="unchanged")


def test_a_container_that_runs_to_completion_is_done_when_it_exits_with_zero() -> None:
    job = a_workload(spec=ContainerSpec("job", restart=RestartPolicy("no")))
    seen = an_observation(Actual.STOPPED, metadata={"container.exit_code": "0"})
    decision = decided(a_situation(job, assignment=ON_N1, observation=seen))

    assert decision.workload_status is not None
    assert (decision.workload_status.status, decision.workload_status.code) == (
        Status.STOPPED,
        COMPLETED,
    )
    assert decision.effects == ()
    assert (
        decided(
            a_situation(job, assignment=ON_N1, workload_status=decision.workload_status)
        ).effects
        == ()
    )


@pytest.mark.parametrize(
    ("restart", "exit_code"), [("no", "1"), ("no", ""), ("unless-stopped", "0"), ("always", "0")]
)
def test_any_other_end_of_a_container_is_not_completion(restart: str, exit_code: str) -> None:
    workload = a_workload(spec=ContainerSpec("x", restart=RestartPolicy(restart)))
    seen = an_observation(Actual.STOPPED, metadata={"container.exit_code": exit_code})
    decision = decided(a_situation(workload, assignment=ON_N1, observation=seen))

    assert decision.workload_status is not None
    assert decision.workload_status.code != COMPLETED


# ---- sending and waiting


def test_an_order_that_was_not_sent_is_sent() -> None:
    decision = decided(a_situation(assignment=ON_N1, workload_status=a_status(Status.PENDING)))

    assert decision.effects == (Apply(N1, a_workload(), 1),)


@pytest.mark.parametrize(
    ("workload", "dispatch"),
    [
        (a_workload(revision="r2"), a_dispatch(revision="r1")),
        (a_workload(desired=Desired.STOPPED), a_dispatch(desired=Desired.RUNNING)),
    ],
    ids=["a new revision", "another desired state"],
)
def test_a_new_desired_state_is_sent_after_any_order(
    workload: Workload, dispatch: Dispatch
) -> None:
    situation = a_situation(
        workload,
        assignment=ON_N1,
        dispatch=dispatch,
        observation=an_observation(),
    )

    assert [type(effect) for effect in decided(situation).effects] == [Apply]


def test_a_stop_and_a_start_are_shown_while_they_are_under_way() -> None:
    def shown(desired: Desired, actual: Actual) -> str:
        workload_status = decided(
            a_situation(
                a_workload(desired=desired),
                assignment=ON_N1,
                dispatch=a_dispatch(desired=desired),
                observation=an_observation(actual),
            )
        ).workload_status
        assert workload_status is not None
        return f"{workload_status.status} {workload_status.message}"

    assert shown(Desired.STOPPED, Actual.RUNNING) == "Pending stopping on n1"
    assert shown(Desired.RUNNING, Actual.STOPPED) == "Pending starting on n1"


def test_nothing_is_sent_while_an_order_is_in_flight() -> None:
    decision = decided(
        a_situation(assignment=ON_N1, dispatch=a_dispatch(answered=False)), now=after(1000)
    )

    assert (decision.effects, decision.wake_at) == ((), None)


def test_an_agent_that_reports_is_waited_for_until_the_deadline() -> None:
    decision = decided(
        a_situation(assignment=ON_N1, dispatch=a_dispatch(), reports=True), now=after(1)
    )

    assert (decision.effects, decision.wake_at) == ((), NOON + POLICY.apply_deadline)


def test_an_agent_that_does_not_report_is_polled_every_interval() -> None:
    situation = a_situation(assignment=ON_N1, dispatch=a_dispatch())
    too_soon, in_time = decided(situation, now=after(0.5)), decided(situation, now=after(1))

    assert (too_soon.effects, too_soon.wake_at) == ((), after(1))
    assert (in_time.effects, in_time.wake_at) == ((PollStatus(N1, a_workload().id),), after(2))


def test_an_answered_poll_is_repeated_after_an_interval() -> None:
    situation = a_situation(
        assignment=ON_N1,
        dispatch=replace(a_dispatch(), polled_at=after(10)),
        observation=an_observation(Actual.PENDING, seen_at=after(10)),
    )

    assert decided(situation, now=after(10.5)).wake_at == after(11)
    assert [type(effect) for effect in decided(situation, now=after(11)).effects] == [PollStatus]


def test_a_heartbeat_does_not_put_off_the_next_question() -> None:
    situation = a_situation(
        assignment=ON_N1,
        dispatch=replace(a_dispatch(), polled_at=after(10)),
        observation=an_observation(Actual.PENDING, seen_at=after(10.9)),
    )

    assert [type(effect) for effect in decided(situation, now=after(11)).effects] == [PollStatus]


@pytest.mark.parametrize(
    ("dispatch", "workload_status", "status"),
    [
        (None, a_status(Status.RUNNING, revision="r1"), Status.RUNNING),
        (None, a_status(Status.RUNNING, revision="r0"), Status.PENDING),
        (a_dispatch(answered=False), a_status(Status.RUNNING, revision="r0"), Status.PENDING),
        (a_dispatch(), a_status(Status.RUNNING, revision="r0"), Status.RUNNING),
    ],
    ids=["settled", "not sent", "in flight", "taken"],
)
def test_a_state_without_a_revision_counts_when_the_order_was_taken_or_all_was_well(
    dispatch: Dispatch | None, workload_status: WorkloadStatus, status: Status
) -> None:
    seen = an_observation(Actual.RUNNING, revision="", epoch=0, seen_at=after(1))
    decision = decided(
        a_situation(
            assignment=ON_N1, dispatch=dispatch, workload_status=workload_status, observation=seen
        ),
        now=after(1),
    )

    assert decision.workload_status is not None
    assert decision.workload_status.status is status


def an_order_that_is_not_there(*, repeats: int = 0, reports: bool = False) -> Situation:
    return a_situation(
        assignment=ON_N1,
        dispatch=replace(a_dispatch(), repeats=repeats, polled_at=after(30)),
        observation=an_observation(Actual.ABSENT, revision="", epoch=0, seen_at=after(30)),
        observed_since=after(20),
        reports=reports,
    )


def test_an_order_that_a_node_took_and_does_not_have_is_sent_again_after_the_grace() -> None:
    lost = an_order_that_is_not_there()
    waiting, again = decided(lost, now=after(29)), decided(lost, now=after(30))

    assert Apply not in map(type, waiting.effects)
    assert [type(effect) for effect in again.effects] == [Apply]
    assert again.retry is None


def test_an_order_that_is_lost_again_is_a_failure_with_a_next_attempt() -> None:
    decision = decided(an_order_that_is_not_there(repeats=1), now=after(30))

    assert decision.workload_status is not None
    assert (decision.workload_status.status, decision.workload_status.code) == (
        Status.FAILED,
        "OrderLost",
    )
    assert decision.retry is not None
    assert decision.retry.next_at is not None


def test_an_update_without_a_task_is_sent_again_although_the_old_revision_runs() -> None:
    situation = a_situation(
        assignment=ON_N1,
        dispatch=replace(a_dispatch(), lost=True, polled_at=after(10)),
        observation=an_observation(Actual.RUNNING, revision="r0", seen_at=after(10)),
        observed_since=NOON,
    )

    assert Apply not in map(type, decided(situation, now=after(9)).effects)
    assert [type(effect) for effect in decided(situation, now=after(10)).effects] == [Apply]


def test_a_node_that_reports_changes_loses_no_order() -> None:
    decision = decided(an_order_that_is_not_there(reports=True), now=after(30))

    assert decision.effects == ()


def test_an_agent_that_did_not_respond_is_retried_when_due() -> None:
    silent = a_dispatch(resend_at=after(4), problem="connection refused")
    situation = a_situation(assignment=ON_N1, dispatch=silent)
    waiting, again = decided(situation, now=after(3)), decided(situation, now=after(4))

    assert (waiting.effects, waiting.wake_at) == ((), after(4))
    assert waiting.workload_status is not None
    assert waiting.workload_status.code == "NodeUnreachable"
    assert waiting.workload_status.message == "node n1 does not respond: connection refused"
    assert [type(effect) for effect in again.effects] == [Apply]
    assert again.retry is None


def test_an_unknown_actual_state_is_shown_as_unknown() -> None:
    seen = an_observation(Actual.UNKNOWN, message="docker is not responding", seen_at=after(1))
    decision = decided(
        a_situation(assignment=ON_N1, dispatch=a_dispatch(), observation=seen), now=after(1)
    )

    assert decision.workload_status is not None
    assert decision.workload_status.status is Status.UNKNOWN
    assert decision.workload_status.message == "docker is not responding"


@pytest.mark.parametrize("dispatch", [None, a_dispatch()], ids=["settled", "sent"])
def test_a_node_that_reports_and_cannot_tell_is_waited_for_without_a_deadline(
    dispatch: Dispatch | None,
) -> None:
    situation = a_situation(
        assignment=ON_N1,
        workload_status=a_status(Status.RUNNING),
        dispatch=dispatch,
        observation=an_observation(Actual.UNKNOWN, message="docker is not responding"),
        observed_since=NOON,
        reports=True,
    )

    for seconds in (0, 9, 3600):
        decision = decided(situation, now=after(seconds))
        assert decision.workload_status is not None
        assert decision.workload_status.status is Status.UNKNOWN
        assert (decision.effects, decision.wake_at, decision.retry) == ((), None, None)


def test_a_node_that_cannot_tell_still_gets_a_new_order() -> None:
    situation = a_situation(
        a_workload(desired=Desired.STOPPED),
        assignment=ON_N1,
        workload_status=a_status(Status.UNKNOWN, code="Unknown"),
        observation=an_observation(Actual.UNKNOWN),
        observed_since=NOON,
        reports=True,
    )

    assert [type(effect) for effect in decided(situation).effects] == [Apply]


# ---- absent although it was running


@pytest.mark.parametrize("actual", [Actual.ABSENT, Actual.UNKNOWN], ids=str)
def test_a_workload_that_diverges_gets_a_grace_period_and_then_a_new_order(
    actual: Actual,
) -> None:
    workload_status = a_status(Status.RUNNING)
    situation = a_situation(
        assignment=ON_N1,
        workload_status=workload_status,
        observation=an_observation(actual),
        observed_since=NOON,
    )
    healing, late = decided(situation, now=after(9)), decided(situation, now=after(10))

    assert healing == Decision(
        ON_N1, workload_status, None, wake_at=after(10), rule="agent-repairs"
    )
    assert [type(effect) for effect in late.effects] == [Apply]


def test_a_different_actual_state_is_shown_immediately_and_corrected_after_a_grace_period() -> None:
    seen = an_observation(Actual.STOPPED)
    situation = a_situation(
        assignment=ON_N1,
        workload_status=a_status(Status.RUNNING),
        observation=seen,
        observed_since=NOON,
    )
    shown = decided(situation, now=NOON)
    again = decided(replace(situation, workload_status=shown.workload_status), now=after(9))
    late = decided(replace(situation, workload_status=shown.workload_status), now=after(10))

    assert shown.workload_status is not None
    assert (shown.workload_status.status, shown.workload_status.code) == (
        Status.STOPPED,
        "StateMismatch",
    )
    assert shown.workload_status.message == "desired state is Running, but node n1 reports Stopped"
    assert (again.workload_status, again.effects, again.wake_at) == (
        shown.workload_status,
        (),
        after(10),
    )
    assert [type(effect) for effect in late.effects] == [Apply]


def test_a_state_that_the_agent_repairs_is_converged_again() -> None:
    drifted = a_status(Status.STOPPED, code="StateMismatch")
    situation = a_situation(assignment=ON_N1, workload_status=drifted, observation=an_observation())

    decision = decided(situation, now=after(3))

    assert decision.fulfilled
    assert decision.workload_status is not None
    assert (decision.workload_status.status, decision.workload_status.code) == (Status.RUNNING, "")


# ---- the node


def test_a_workload_on_a_node_without_heartbeats_is_unknown_and_gets_no_order() -> None:
    decision = decided(
        a_situation(
            assignment=ON_N1,
            workload_status=a_status(),
            observation=an_observation(),
            phase=Phase.SUSPECT,
        )
    )

    assert decision.workload_status is not None
    assert (decision.workload_status.status, decision.workload_status.code) == (
        Status.UNKNOWN,
        "NodeNotReady",
    )
    assert decision.workload_status.message == "node n1 is not sending heartbeats"
    assert (decision.assignment, decision.effects) == (ON_N1, ())


def test_a_workload_has_its_former_status_when_heartbeats_resume() -> None:
    unknown = a_status(
        Status.UNKNOWN, code="NodeNotReady", message="node n1 is not sending heartbeats"
    )
    decision = decided(
        a_situation(assignment=ON_N1, workload_status=unknown, observation=an_observation())
    )

    assert decision.workload_status is not None
    assert (decision.workload_status.status, decision.workload_status.code) == (Status.RUNNING, "")


def test_a_vm_has_longer_than_a_container() -> None:
    situation = a_situation(
        a_workload(spec=VMSpec(1, 512)), assignment=ON_N1, dispatch=a_dispatch(), reports=True
    )

    assert decided(situation, now=after(60)).wake_at == NOON + POLICY.vm_apply_deadline


def test_a_workload_that_its_node_cannot_run_is_rescheduled() -> None:
    node_index = two_nodes()
    add_node(node_index, "n1", traits=())
    refused = an_observation(Actual.FAILED, failure=a_failure(code="RuntimeNotAvailable"))
    decision = decided(
        a_situation(assignment=ON_N1, observation=refused, dispatch=a_dispatch()),
        node_index=node_index,
    )

    assert decision.assignment is not None
    assert (decision.assignment.node_id, decision.assignment.epoch) == (N2, 2)
    assert decision.effects == (Apply(N2, a_workload(), 2),)
    assert decision.tombstone is None
    assert decision.retry is None


def test_old_retries_do_not_outlive_their_revision() -> None:
    decision = decided(
        a_situation(
            a_workload(revision="r2"), assignment=ON_N1, retry=a_retry(5, None, revision="r1")
        )
    )

    assert decision.retry is None
    assert [type(effect) for effect in decision.effects] == [Apply]


def test_ten_stable_minutes_forgive_past_failures() -> None:
    running = a_status(Status.RUNNING, changed_at=NOON)
    situation = a_situation(
        assignment=ON_N1, workload_status=running, observation=an_observation(), retry=a_retry(3)
    )
    unstable, stable = decided(situation, now=after(599)), decided(situation, now=after(600))

    assert (unstable.retry, unstable.wake_at) == (a_retry(3), NOON + timedelta(minutes=10))
    assert (stable.retry, stable.wake_at) == (None, None)
