"""New placement rules for a running workload: it stays, moves, or reports that it is misplaced."""

from builders import (
    N2,
    NOON,
    a_situation,
    a_status,
    a_workload,
    add_node,
    an_assignment,
    an_observation,
)
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.placer import placer_over
from persys.core.reconcile.decide import decide
from persys.core.reconcile.effects import Apply
from persys.core.reconcile.situation import Decision, Policy, Situation
from persys.model.placement import NO_RULES, Assignment, Constraint, Operator, Resources, Rules
from persys.model.spec import ContainerSpec, ManagedVolume
from persys.model.status import Status, WorkloadStatus

IN_B = Rules(constraints=(Constraint("zone", Operator.EQUALS, ("b",)),))
IN_A = Rules(constraints=(Constraint("zone", Operator.EQUALS, ("a",)),), priority=90)
DATABASE = ContainerSpec("db", managed_volumes=(ManagedVolume("data", "/data"),))
ON_N1 = an_assignment()


def running(
    rules: Rules,
    *,
    spec: ContainerSpec | None = None,
    workload_status: WorkloadStatus | None = None,
) -> Situation:
    return a_situation(
        a_workload(rules=rules, spec=spec),
        assignment=ON_N1,
        workload_status=workload_status or a_status(),
        observation=an_observation(),
    )


def decided(
    situation: Situation, *, zone_of_n2: str = "b", closed_n1: str = "", taint_n1: str = ""
) -> Decision:
    node_index = NodeIndex()
    traits = {"type:container", "driver:local"}
    add_node(
        node_index,
        "n1",
        labels={"zone": "a"},
        traits=traits,
        closed=closed_n1,
        taints=[taint_n1] if taint_n1 else [],
    )
    add_node(node_index, "n2", labels={"zone": zone_of_n2}, traits=traits)
    bound = situation.assignment
    assert bound is not None
    node_index.hold(
        bound.workload_id, bound.node_id, bound.reserved, bound.host_ports, group=bound.rules.group
    )
    return decide(situation, placer_over(node_index), Policy(), now=NOON, roll=0.5)


def kept(decision: Decision) -> Assignment:
    assert decision.assignment is not None
    assert (decision.effects, decision.tombstone) == ((), None)
    return decision.assignment


def test_rules_that_its_node_meets_are_recorded_without_a_new_apply() -> None:
    decision = decided(running(IN_A))

    assert kept(decision) == an_assignment(rules=IN_A)
    assert not decision.waits_for_capacity


def test_a_cordon_or_a_taint_moves_nothing_when_rules_change() -> None:
    assert kept(decided(running(IN_A), closed_n1="cordoned")).rules == IN_A
    assert kept(decided(running(IN_A), taint_n1="gpu")).rules == IN_A


def test_a_workload_that_violates_its_rules_moves_with_a_tombstone() -> None:
    situation = running(IN_B)
    decision = decided(situation)

    assert decision.assignment is not None
    assert (decision.assignment.node_id, decision.assignment.epoch) == (N2, 2)
    assert decision.assignment.rules == IN_B
    assert decision.effects == (Apply(N2, situation.workload, 2),)
    assert decision.tombstone is not None
    assert decision.tombstone.assignment == ON_N1


def test_a_workload_that_fits_on_no_other_node_keeps_running_as_misplaced() -> None:
    decision = decided(running(IN_B), zone_of_n2="c")

    assert kept(decision) == ON_N1
    assert decision.waits_for_capacity
    assert decision.workload_status is not None
    assert (decision.workload_status.status, decision.workload_status.code) == (
        Status.RUNNING,
        "Misplaced",
    )
    assert decision.workload_status.message == (
        "on n1, not meeting 'zone = b'; other nodes: 2 nodes not meeting 'zone = b'"
    )


def test_a_workload_with_data_keeps_running_as_misplaced_and_records_it_once() -> None:
    first = decided(running(IN_B, spec=DATABASE))

    assert kept(first) == ON_N1
    assert first.waits_for_capacity
    assert first.workload_status is not None
    assert (
        first.workload_status.message == "on n1, not meeting 'zone = b'; its data is on that node"
    )
    again = decided(running(IN_B, spec=DATABASE, workload_status=first.workload_status))
    assert again.workload_status is first.workload_status


def test_it_is_no_longer_misplaced_when_its_rules_allow_it_again() -> None:
    status = a_status(code="Misplaced", message="on n1, not meeting 'zone = b'")
    decision = decided(running(NO_RULES, workload_status=status))

    assert kept(decision) == ON_N1
    assert decision.workload_status is not None
    assert (decision.workload_status.code, decision.workload_status.message) == ("", "")
    assert not decision.waits_for_capacity


def test_a_moving_workload_has_no_anti_affinity_with_its_old_copy() -> None:
    """Its own old copy does not move it to the other zone, which has a member of its group."""
    group = Rules(group="web", spread_over=("zone",))
    node_index = NodeIndex()
    add_node(node_index, "n1", labels={"zone": "a"}, closed="draining")
    add_node(node_index, "n2", labels={"zone": "a"})
    add_node(node_index, "n3", labels={"zone": "b"})
    assignment = an_assignment(rules=group)
    node_index.hold(
        assignment.workload_id, assignment.node_id, Resources(), frozenset(), group="web"
    )
    other = an_assignment("n3", name="other")
    node_index.hold(other.workload_id, other.node_id, Resources(), frozenset(), group="web")
    node_index.hold(a_workload("x").id, N2, Resources(3000, 128), frozenset())
    situation = a_situation(a_workload(rules=group), assignment=assignment, draining=True)

    decision = decide(situation, placer_over(node_index), Policy(), now=NOON, roll=0.5)

    assert decision.assignment is not None
    assert decision.assignment.node_id == N2
