"""Workloads that run once: after they may have started, they are neither moved nor sent to run again."""

import dataclasses
from datetime import timedelta

import pytest
from msgspec.structs import replace

from builders import (
    CONTAINER,
    NOON,
    a_dispatch,
    a_failure,
    a_retry,
    a_situation,
    a_status,
    a_workload,
    add_node,
    an_assignment,
    an_observation,
    rooms_of,
)
from persys.core.agent.admission import NODE_FULL
from persys.core.agent.run_limits import INTERRUPTED
from persys.core.nodes import Phase
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.requirements import requirements_of
from persys.core.reconcile.decide import decide
from persys.core.reconcile.dispatch import unanswered
from persys.core.reconcile.effects import Apply
from persys.core.reconcile.situation import (
    COMPLETED,
    RUNTIME_NOT_AVAILABLE,
    Decision,
    Policy,
    Situation,
)
from persys.core.recovery.rollback import ALREADY_DELETED
from persys.model import feature
from persys.model.placement import NO_RULES, Assignment, Resources, Rules
from persys.model.spec import VMSpec
from persys.model.status import Actual, FailureReason, Status
from persys.model.workload import Desired, Membership

ONCE = f"feature:{feature.RUN_ONCE}"
MEMBER = replace(
    a_workload(), membership=Membership("backup-1", index=0, number=0, job_id="backup")
)
ON_N1 = an_assignment("n1")
RUNNING = replace(a_status(), metadata={"task_id": "t1"})
GRACE = Policy().missing_grace


def decided(situation: Situation, *, seconds: float = 0) -> Decision:
    """With the nodes n1 and n2, which both have capacity."""
    node_index = NodeIndex()
    for node_id in ("n1", "n2"):
        add_node(node_index, node_id, traits=(*CONTAINER, "type:vm", ONCE))
    now = NOON + timedelta(seconds=seconds)
    return decide(situation, rooms_of(node_index), Policy(), now=now, roll=0.5)


def stays(decision: Decision) -> bool:
    """Whether nothing is sent, and it stays assigned."""
    is_sent = any(isinstance(effect, Apply) for effect in decision.effects)
    bound = decision.assignment
    is_here = bound is not None and (bound.node_id, bound.epoch) == (ON_N1.node_id, ON_N1.epoch)
    return not is_sent and is_here and decision.tombstone is None


def test_only_agents_that_start_it_once_are_candidates() -> None:
    assert ONCE in requirements_of(MEMBER).traits
    assert ONCE not in requirements_of(a_workload()).traits
    limited = replace(a_workload(), run_deadline_seconds=60)
    assert ONCE in requirements_of(limited).traits


def test_it_is_placed_and_sent_like_any_workload() -> None:
    decision = decided(a_situation(MEMBER))

    assert decision.assignment is not None
    assert [type(effect) for effect in decision.effects] == [Apply]


@pytest.mark.parametrize("confirmed_dead", [False, True])
@pytest.mark.parametrize("stop_after", [0, 1])
def test_it_is_not_moved_from_a_lost_node(confirmed_dead: bool, stop_after: int) -> None:
    situation = a_situation(
        replace(MEMBER, stop_after_seconds=stop_after),
        assignment=ON_N1,
        workload_status=RUNNING,
        observation=an_observation(),
        phase=Phase.LOST,
        confirmed_dead=confirmed_dead,
    )
    long_ago = dataclasses.replace(
        situation, silent=timedelta(days=1), supports_stop_after=True, node_workload_count=1
    )

    for one in (situation, long_ago):
        decision = decided(one, seconds=7200)
        assert stays(decision)
        assert decision.workload_status is not None
        assert decision.workload_status.status is Status.UNKNOWN


def test_it_is_not_moved_from_a_lost_node_before_its_first_report() -> None:
    situation = a_situation(MEMBER, assignment=ON_N1, phase=Phase.LOST)

    assert stays(decided(situation))


def test_it_runs_to_its_end_on_a_draining_node_and_then_leaves_it() -> None:
    running = a_situation(
        MEMBER,
        assignment=ON_N1,
        workload_status=RUNNING,
        observation=an_observation(),
        draining=True,
    )
    assert stays(decided(running))

    for ended in (
        a_status(Status.STOPPED, code=COMPLETED),
        a_status(Status.FAILED, failure=a_failure(retryable=False)),
    ):
        decision = decided(dataclasses.replace(running, workload_status=ended))

        assert (decision.assignment, decision.effects) == (None, ())
        assert decision.workload_status == ended
        assert decision.tombstone is not None


@pytest.mark.parametrize(
    "ended",
    [
        a_status(Status.STOPPED, code=COMPLETED),
        a_status(Status.FAILED, failure=a_failure(retryable=False)),
    ],
    ids=["completed", "failed"],
)
@pytest.mark.parametrize("actual", [Actual.ABSENT, Actual.RUNNING, Actual.PENDING, Actual.STOPPED])
def test_a_stored_result_stays_whatever_its_node_reports(ended: object, actual: Actual) -> None:
    for phase in (Phase.ALIVE, Phase.SUSPECT):
        situation = a_situation(
            MEMBER,
            assignment=ON_N1,
            workload_status=ended,  # type: ignore[arg-type]
            observation=an_observation(actual),
            phase=phase,
        )

        decision = decided(situation, seconds=3600)

        assert stays(decision)
        assert decision.workload_status == ended


def test_an_ended_run_holds_no_capacity() -> None:
    ended = an_observation(Actual.STOPPED, metadata={"container.exit_code": "0"})
    running = a_situation(
        MEMBER, assignment=ON_N1, workload_status=RUNNING, observation=ended, reports=True
    )

    decision = decided(running)

    assert decision.assignment is not None
    assert (decision.assignment.node_id, decision.assignment.epoch) == ("n1", 1)
    assert decision.assignment.reserved == Resources()
    again = dataclasses.replace(
        running, assignment=decision.assignment, workload_status=decision.workload_status
    )
    assert decided(again).assignment == decision.assignment


def test_a_result_stays_without_an_assignment() -> None:
    given_up = a_status(Status.FAILED, failure=a_failure())
    retry = a_retry(5, None)
    situation = a_situation(MEMBER, workload_status=given_up, retry=retry)

    decision = decided(situation)

    assert (decision.assignment, decision.workload_status, decision.retry) == (
        None,
        given_up,
        retry,
    )


def test_it_is_interrupted_when_its_node_has_lost_it() -> None:
    situation = a_situation(
        MEMBER,
        assignment=ON_N1,
        workload_status=RUNNING,
        observation=an_observation(Actual.ABSENT),
        reports=True,
    )

    early = decided(situation)
    assert stays(early)
    assert early.wake_at == NOON + GRACE
    decision = decided(situation, seconds=GRACE.total_seconds())

    assert stays(decision)
    assert decision.workload_status is not None
    assert decision.workload_status.status is Status.FAILED
    assert decision.workload_status.code == INTERRUPTED
    assert decision.retry is not None
    assert decision.retry.next_at is None


def test_it_is_interrupted_when_its_node_has_accepted_the_order_and_lost_it() -> None:
    situation = a_situation(
        MEMBER,
        assignment=ON_N1,
        dispatch=a_dispatch(),
        observation=an_observation(Actual.ABSENT),
        reports=True,
    )

    decision = decided(situation, seconds=GRACE.total_seconds())

    assert decision.workload_status is not None
    assert decision.workload_status.code == INTERRUPTED


def test_an_order_that_its_node_never_accepted_is_sent_again_to_the_same_node() -> None:
    dispatch = unanswered(a_dispatch(answered=False), "no answer", now=NOON)
    dispatch = unanswered(dispatch, "no answer", now=NOON)
    situation = a_situation(MEMBER, assignment=ON_N1, dispatch=dispatch, reports=True)

    decision = decided(situation, seconds=60)

    assert decision.assignment == ON_N1
    assert [effect.epoch for effect in decision.effects if isinstance(effect, Apply)] == [1]


def refused(code: str, *, accepted: bool) -> Situation:
    return a_situation(
        MEMBER,
        assignment=ON_N1,
        workload_status=RUNNING if accepted else None,
        observation=an_observation(Actual.FAILED, failure=a_failure(code=code)),
        reports=True,
    )


def test_a_node_that_refuses_it_is_left_when_it_cannot_start_it_any_more() -> None:
    for code in (NODE_FULL, RUNTIME_NOT_AVAILABLE):
        decision = decided(refused(code, accepted=False))

        assert decision.assignment is None
        assert decision.effects == ()
        assert decision.tombstone is not None


def test_a_node_that_has_accepted_it_and_refuses_it_as_new_has_lost_it() -> None:
    decision = decided(refused(NODE_FULL, accepted=True))

    assert stays(decision)
    assert decision.workload_status is not None
    assert decision.workload_status.code == INTERRUPTED


def test_a_node_without_its_runtime_keeps_it() -> None:
    assert stays(decided(refused(RUNTIME_NOT_AVAILABLE, accepted=True)))


def test_a_deleted_assignment_is_not_renewed() -> None:
    seen = replace(
        an_observation(Actual.FAILED, failure=a_failure(code=ALREADY_DELETED)), known_epoch=3
    )
    situation = dataclasses.replace(
        a_situation(MEMBER, assignment=ON_N1, observation=seen, reports=True), next_epoch=9
    )

    decision = decided(situation, seconds=3600)

    assert stays(decision)
    assert decision.workload_status is not None
    assert decision.workload_status.code == INTERRUPTED


def test_a_failure_before_its_start_is_retried_on_its_node() -> None:
    failure = a_failure(FailureReason.IMAGE_PULL_FAILED)
    situation = a_situation(
        MEMBER,
        assignment=ON_N1,
        workload_status=a_status(Status.FAILED, failure=failure),
        observation=an_observation(Actual.FAILED, failure=failure),
        retry=a_retry(),
        reports=True,
    )

    decision = decided(situation, seconds=1)

    assert decision.assignment == ON_N1
    assert [effect.epoch for effect in decision.effects if isinstance(effect, Apply)] == [1]


def test_a_failed_run_is_not_retried_whatever_its_agent_says() -> None:
    seen = an_observation(Actual.FAILED, failure=a_failure(), metadata={"container.exit_code": "1"})
    situation = a_situation(
        MEMBER, assignment=ON_N1, workload_status=RUNNING, observation=seen, reports=True
    )

    decision = decided(situation)

    assert stays(decision)
    assert decision.retry is not None
    assert decision.retry.next_at is None


def test_a_failed_run_is_not_sent_again_for_a_retry_that_was_planned_before_its_start() -> None:
    seen = an_observation(Actual.FAILED, failure=a_failure(), metadata={"container.exit_code": "1"})
    situation = a_situation(
        MEMBER,
        assignment=ON_N1,
        workload_status=RUNNING,
        observation=seen,
        retry=a_retry(),
        reports=True,
    )

    decision = decided(situation, seconds=1)

    assert stays(decision)
    assert decision.retry is not None
    assert decision.retry.next_at is None


def test_it_stays_on_its_node_when_its_rules_change() -> None:
    bound = Assignment(MEMBER.id, ON_N1.node_id, 1, NOON, reserved=an_assignment().reserved)
    crowded = replace(MEMBER, resources=replace(MEMBER.resources, memory_mb=100_000))
    situation = a_situation(
        crowded, assignment=bound, workload_status=RUNNING, observation=an_observation()
    )

    decision = decided(situation)

    assert decision.assignment == bound
    assert decision.tombstone is None


@pytest.mark.parametrize("exit_code", ["0", "1"])
def test_a_vm_that_has_ended_with_0_is_completed(exit_code: str) -> None:
    machine = replace(MEMBER, spec=VMSpec(1, 512))
    ended = an_observation(Actual.STOPPED, metadata={"container.exit_code": exit_code})
    situation = a_situation(
        machine, assignment=ON_N1, workload_status=RUNNING, observation=ended, reports=True
    )

    status = decided(situation).workload_status

    assert status is not None
    assert (status.code == COMPLETED) is (exit_code == "0")


def test_a_member_that_its_owner_stops_is_stopped() -> None:
    situation = a_situation(
        replace(MEMBER, desired=Desired.STOPPED),
        assignment=ON_N1,
        workload_status=RUNNING,
        observation=an_observation(),
    )

    assert [type(effect) for effect in decided(situation).effects] == [Apply]


APART = replace(MEMBER, rules=Rules(group="backup", apart=True))
APART_ON_N1 = an_assignment("n1", reserved=APART.resources, rules=APART.rules)


@pytest.mark.parametrize("desired", [Desired.RUNNING, Desired.STOPPED])
def test_a_member_that_has_ended_does_not_keep_others_of_its_group_away(desired: Desired) -> None:
    """Also one that was stopped with its run."""
    situation = a_situation(
        replace(APART, desired=desired),
        assignment=APART_ON_N1,
        workload_status=RUNNING,
        observation=an_observation(Actual.STOPPED, metadata={"container.exit_code": "0"}),
    )

    decision = decided(situation)

    assert decision.assignment is not None
    assert (decision.assignment.reserved, decision.assignment.rules) == (Resources(), NO_RULES)
    after = dataclasses.replace(
        situation, assignment=decision.assignment, workload_status=decision.workload_status
    )
    assert decided(after, seconds=60).assignment == decision.assignment, "it stays released"
