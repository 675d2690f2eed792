"""Which intents are sent to a node although they need no work there."""

from builders import a_workload, an_assignment
from persys.core.nodes import Phase
from persys.core.reconcile.converge import WAITS_FOR_OLD_COPY
from persys.core.reconcile.effects import Apply
from persys.core.reconcile.situation import Decision, Situation
from persys.model.placement import Assignment, Resources
from persys.scheduler.reconcile.decision_to_transaction import intent_update

BOUND = an_assignment()


def a_situation(resources: Resources) -> Situation:
    workload = a_workload(resources=resources)
    return Situation(workload, BOUND, phase=Phase.ALIVE, reports=True)


def decided(bound: Assignment) -> Decision:
    return Decision(bound, None, None)


def test_an_intent_that_needs_no_work_is_sent_to_the_node() -> None:
    situation = a_situation(BOUND.reserved)

    assert intent_update(situation, decided(BOUND)) == (
        Apply(BOUND.node_id, situation.workload, 1),
    )


def test_a_revision_that_waits_for_capacity_is_not_sent_to_its_node() -> None:
    """Found by seed 48: the node ran it with a smaller reservation on record."""
    larger = a_situation(BOUND.reserved + Resources(2000, 0))

    assert intent_update(larger, decided(BOUND)) == ()


def test_a_revision_that_waits_for_an_old_copy_is_not_sent_to_its_node() -> None:
    waiting = decided(BOUND).by(WAITS_FOR_OLD_COPY)

    assert intent_update(a_situation(BOUND.reserved), waiting) == ()
