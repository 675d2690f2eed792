"""What holds for every decision in every situation, even an impossible one."""

from dataclasses import replace
from datetime import datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    NOON,
    a_dispatch,
    a_failure,
    a_retry,
    a_status,
    a_workload,
    add_node,
    after,
    an_assignment,
    an_observation,
    rooms_of,
)
from examples import times
from persys.core.nodes import Phase
from persys.core.placement.index.node_index import NodeIndex
from persys.core.reconcile.converge import result_due
from persys.core.reconcile.decide import decide
from persys.core.reconcile.dispatch import Dispatch, Goal, answered
from persys.core.reconcile.effects import Apply, Remove
from persys.core.reconcile.situation import COMPLETED, Copy, Decision, Placer, Policy, Situation
from persys.model.placement import NO_RULES, Constraint, Operator, Resources, Rules
from persys.model.spec import ContainerSpec, RestartPolicy, Spec, VMSpec
from persys.model.status import Actual, Failure, FailureReason, Status
from persys.model.workload import Desired

POLICY = Policy()
SMALL, LARGE, HUGE = Resources(100, 128), Resources(2000, 128), Resources(9000, 128)


def rooms_for(situation: Situation) -> Placer:
    """Small workloads fit on n1, large ones only on n2, and huge ones on no node.

    Nothing is placed on the node of the situation while it is silent or draining.
    """
    node_index = NodeIndex()
    traits = {"type:container", "type:vm"}
    shut = situation.draining or situation.phase is not Phase.ALIVE
    here = situation.assignment.node_id if situation.assignment is not None else ""
    for node_id, cpu in (("n1", 1000), ("n2", 4000)):
        closed = "closed" if shut and here == node_id else ""
        labels = {"zone": node_id}
        add_node(node_index, node_id, cpu=cpu, traits=traits, closed=closed, labels=labels)
    return rooms_of(node_index)


instants = st.integers(-700, 700).map(after)
epochs = st.sampled_from([1, 2])
revisions = st.sampled_from(["r1", "r2"])
specs: st.SearchStrategy[Spec] = st.sampled_from(
    [ContainerSpec("x"), ContainerSpec("job", restart=RestartPolicy("no")), VMSpec(1, 512)]
)
failures = st.builds(
    a_failure,
    st.sampled_from(list(FailureReason)),
    code=st.sampled_from(["", "CrashLoop", "RuntimeNotAvailable"]),
)
no_failure: st.SearchStrategy[Failure | None] = st.none() | failures
rules = st.sampled_from(
    [
        NO_RULES,
        NO_RULES,
        Rules(constraints=(Constraint("zone", Operator.EQUALS, ("n1",)),)),
        Rules(constraints=(Constraint("zone", Operator.EQUALS, ("nowhere",)),)),
        Rules(group="g", apart=True),
    ]
)
situations = st.builds(
    Situation,
    st.builds(
        a_workload,
        spec=specs,
        revision=revisions,
        desired=st.sampled_from(list(Desired)),
        resources=st.sampled_from([SMALL, LARGE, HUGE]),
        rules=rules,
    ),
    st.none()
    | st.builds(
        an_assignment,
        st.sampled_from(["n1", "n2"]),
        epoch=epochs,
        reserved=st.sampled_from([SMALL, LARGE]),
        rules=rules,
    ),
    st.none()
    | st.builds(
        lambda said, **rest: a_status(said[0], code=said[1], **rest),
        st.sampled_from([*((status, "") for status in Status), (Status.STOPPED, COMPLETED)]),
        changed_at=instants,
        revision=revisions,
        epoch=epochs,
        failure=no_failure,
    ),
    st.none() | st.builds(a_retry, st.integers(0, 5), st.none() | instants, revision=revisions),
    st.none()
    | st.builds(
        an_observation,
        st.sampled_from(list(Actual)),
        seen_at=instants,
        node_id=st.sampled_from(["n1", "n2"]),
        revision=st.sampled_from(["", "r1", "r2"]),
        epoch=st.sampled_from([0, 1, 2]),
        failure=no_failure,
        metadata=st.sampled_from([{}, {"container.exit_code": "0"}]),
    ),
    st.none() | instants,
    st.none()
    | st.builds(
        a_dispatch,
        sent_at=instants,
        answered=st.booleans(),
        desired=st.sampled_from(list(Desired)),
        revision=revisions,
        epoch=epochs,
        resend_at=st.none() | instants,
        problem=st.sampled_from(["", "refused"]),
    ),
    st.sampled_from(list(Phase)),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
rolls = st.floats(0, 1, exclude_max=True)


def decided(
    situation: Situation, *, now: datetime = NOON, roll: float = 0.5, placer: Placer | None = None
) -> Decision:
    return decide(situation, placer or rooms_for(situation), POLICY, now=now, roll=roll)


def orders_of(decision: Decision) -> list[Apply | Remove]:
    return [effect for effect in decision.effects if isinstance(effect, Apply | Remove)]


def after_commit(situation: Situation, decision: Decision, now: datetime) -> Situation:
    """The situation after the shell has stored the decision and sent its orders."""
    moved = decision.assignment is not None and (
        situation.assignment is None or situation.assignment.node_id != decision.assignment.node_id
    )
    situation = replace(
        situation,
        assignment=decision.assignment,
        workload_status=decision.workload_status,
        retry=decision.retry,
        dispatch=None if decision.fulfilled else situation.dispatch,
        phase=Phase.ALIVE if moved else situation.phase,
        draining=situation.draining and not moved,
        confirmed_dead=situation.confirmed_dead and not moved,
    )
    if decision.tombstone is not None and decision.assignment is None:
        left = decision.tombstone.assignment
        copy = Copy(
            left.node_id, left.epoch, being_removed=True, may_run=not situation.confirmed_dead
        )
        situation = replace(situation, copies=(*situation.copies, copy))
    for order in orders_of(decision):
        desired = order.workload.desired if isinstance(order, Apply) else Desired.DELETED
        goal = Goal(situation.workload.revision, desired, order.epoch)
        situation = replace(situation, dispatch=Dispatch(goal, now))
    return situation


def writes(situation: Situation, decision: Decision) -> bool:
    return (
        decision.forget
        or decision.tombstone is not None
        or decision.assignment != situation.assignment
        or decision.workload_status is not situation.workload_status
        or decision.retry != situation.retry
    )


@settings(max_examples=times(2), deadline=None)
@given(situations, rolls)
def test_the_same_situation_gives_the_same_decision(situation: Situation, roll: float) -> None:
    assert decided(situation, roll=roll) == decided(situation, roll=roll)


@settings(max_examples=times(2), deadline=None)
@given(situations)
def test_an_executed_decision_needs_no_second_one(situation: Situation) -> None:
    """At one instant there is at most one order, and soon nothing to write: no hot loop."""
    orders = 0
    placer = rooms_for(situation)  # a node that was closed stays so, also for who has left it
    for _ in range(3):
        decision = decided(situation, placer=placer)
        orders += len(orders_of(decision))
        if decision.forget:
            return
        situation = after_commit(situation, decision, NOON)

    last = decided(situation, placer=placer)
    assert not writes(situation, last)
    assert orders_of(last) == []
    assert orders <= 1


@settings(max_examples=times(2), deadline=None)
@given(situations)
def test_without_an_effect_the_next_decision_writes_nothing(situation: Situation) -> None:
    placer = rooms_for(situation)
    decision = decided(situation, placer=placer)
    if decision.effects or decision.forget:
        return
    after_it = after_commit(situation, decision, NOON)

    assert not writes(after_it, decided(after_it, placer=placer))


@settings(max_examples=times(2), deadline=None)
@given(situations)
def test_a_deleted_workload_is_never_applied_and_a_running_one_never_removed(
    situation: Situation,
) -> None:
    decision = decided(situation)
    leaving = situation.workload.desired is Desired.DELETED
    for order in orders_of(decision):
        assert isinstance(order, Remove) is leaving
    if not leaving:
        assert not decision.forget


@settings(max_examples=times(2), deadline=None)
@given(situations)
def test_no_order_is_sent_to_a_node_that_is_not_alive(situation: Situation) -> None:
    if situation.phase is Phase.ALIVE or situation.assignment is None:
        return
    decision = decided(situation)
    kept = decision.assignment is None or decision.assignment.epoch == situation.assignment.epoch

    assert not (kept and decision.effects)


@settings(max_examples=times(2), deadline=None)
@given(situations)
def test_the_next_look_is_in_the_future(situation: Situation) -> None:
    decision = decided(situation)

    assert decision.wake_at is None or decision.wake_at > NOON


@settings(max_examples=times(2), deadline=None)
@given(situations)
def test_every_pending_workload_on_an_alive_node_is_decided_again(situation: Situation) -> None:
    """Nothing hangs: an order in flight ends, all else has a wake time, waits for capacity or is done."""
    decision = decided(situation)
    if decision.forget or situation.phase is not Phase.ALIVE or decision.assignment is None:
        return
    if decision.workload_status is None or decision.workload_status.status not in (
        Status.PENDING,
        Status.DELETING,
    ):
        return
    waiting = after_commit(situation, decision, NOON)
    in_flight = waiting.dispatch is not None and waiting.dispatch.in_flight

    assert decision.effects or decision.wake_at or decision.waits_for_capacity or in_flight


@settings(max_examples=times(2), deadline=None)
@given(situations)
def test_a_workload_with_data_never_leaves_a_copy_behind(situation: Situation) -> None:
    """Unless an operator declares its node dead."""
    decision = decided(replace(situation, confirmed_dead=False))
    if isinstance(situation.workload.spec, VMSpec) and not decision.forget:
        assert decision.tombstone is None


def in_progress(situation: Situation, order: Situation) -> Situation:
    """The situation with an order that its node has accepted, as `decide` stores it."""
    return replace(
        situation,
        workload=order.workload,
        assignment=order.assignment,
        workload_status=order.workload_status,
        dispatch=order.dispatch,
        retry=None,
        phase=Phase.ALIVE,
        reports=True,
        draining=False,
        confirmed_dead=False,
    )


@given(situations, situations, instants, st.sampled_from(list(Actual)), st.booleans())
def test_an_accepted_order_changes_nothing_before_its_result_is_due(
    first: Situation, other: Situation, now: datetime, actual: Actual, matches: bool
) -> None:
    """`result_due` saves a decision: the decision would only have waited."""
    begun = replace(first, assignment=None, retry=None, copies=(), workload_status=None)
    begun = after_commit(begun, decided(begun), NOON)
    if begun.assignment is None or begun.dispatch is None:
        return
    situation = in_progress(other, begun)
    seen = an_observation(
        actual,
        seen_at=NOON,
        node_id=begun.assignment.node_id,
        revision=begun.workload.revision if matches else "other",
        epoch=begun.assignment.epoch,
    )
    answered_order = answered(begun.dispatch, now=NOON)
    situation = replace(situation, observation=seen, dispatch=answered_order, observed_since=NOON)

    due = result_due(situation, POLICY)

    if actual is Actual.PENDING and matches and begun.workload.desired is not Desired.DELETED:
        assert due is not None
    if due is not None and now < due:
        decision = decided(situation, now=now)
        assert not writes(situation, decision)
        assert (decision.effects, decision.wake_at) == ((), due)


@given(situations, instants)
def test_a_result_is_due_only_where_a_decision_waits_for_it(
    situation: Situation, now: datetime
) -> None:
    situation = replace(situation, phase=Phase.ALIVE, reports=True, draining=False, copies=())

    due = result_due(situation, POLICY)

    if due is not None and now < due:
        decision = decided(situation, now=now)
        assert not orders_of(decision)
