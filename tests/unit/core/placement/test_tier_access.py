"""When a workload may leave tier 0, and how long it waits before."""

from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec import structs

from builders import (
    NOON,
    a_situation,
    a_workload,
    add_node,
    an_assignment,
    an_observation,
    rooms_of,
)
from persys.core.nodes import Phase
from persys.core.placement.explain import explain
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.pending_queue import PendingQueue, pending_entry
from persys.core.placement.placer import placer_over
from persys.core.placement.tiers import placement_needs, tier_access
from persys.core.reconcile.decide import decide
from persys.core.reconcile.situation import Decision, Policy, Situation
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.placement import Constraint, Offload, Operator, Resources, Rules
from persys.model.spec import ContainerSpec, VolumeMount
from persys.model.status import Status, WorkloadStatus

AFTER = timedelta(seconds=30)
DATA = ContainerSpec("db", volumes=(VolumeMount("/srv/data", "/data"),))


@pytest.fixture
def node_index() -> NodeIndex:
    """A full node of this cluster, and a federated one."""
    node_index = NodeIndex()
    add_node(node_index, "n1")
    node_index.hold(WorkloadId("other"), NodeId("n1"), Resources(4000), frozenset())
    add_node(node_index, "far", tier=1)
    return node_index


def waiting(rules: Rules, spec: ContainerSpec | None = None, *, seconds: float) -> Situation:
    """A workload that has waited this long for capacity."""
    status = WorkloadStatus(
        WorkloadId("web"), Status.PENDING, NOON - timedelta(seconds=seconds), code="Unplaceable"
    )
    return a_situation(a_workload(rules=rules, spec=spec), workload_status=status)


def decided(situation: Situation, node_index: NodeIndex) -> Decision:
    return decide(situation, rooms_of(node_index), Policy(), now=NOON, roll=0.5)


def node_of(decision: Decision) -> str:
    return decision.assignment.node_id if decision.assignment else ""


def test_a_workload_is_not_offloaded_by_default(node_index: NodeIndex) -> None:
    decision = decided(waiting(Rules(), seconds=3600), node_index)

    assert decision.assignment is None
    assert decision.wake_at is None


@pytest.mark.parametrize(("seconds", "offloads"), [(0, True), (89, False), (90, True)])
def test_a_workload_with_a_short_stop_after_is_not_offloaded(seconds: int, offloads: bool) -> None:
    """The federated cluster would refuse it."""
    workload = a_workload(rules=Rules(offload=Offload.PREFER))
    workload = structs.replace(workload, stop_after_seconds=seconds)

    assert tier_access(a_situation(workload), NOON).offload is offloads


def test_a_new_workload_waits_before_it_is_offloaded(node_index: NodeIndex) -> None:
    decision = decided(a_situation(a_workload(rules=Rules(offload=Offload.WHEN_FULL))), node_index)

    assert decision.waits_for_capacity
    assert decision.wake_at == NOON + AFTER
    assert decision.workload_status is not None
    assert "offload is when-full, after 30 s of waiting" in decision.workload_status.message


def test_it_is_offloaded_when_it_has_waited_long_enough(node_index: NodeIndex) -> None:
    rules = Rules(offload=Offload.WHEN_FULL)

    assert node_of(decided(waiting(rules, seconds=29), node_index)) == ""
    assert node_of(decided(waiting(rules, seconds=30), node_index)) == "far"


def test_a_workload_that_prefers_offloading_does_not_wait(node_index: NodeIndex) -> None:
    situation = a_situation(a_workload(rules=Rules(offload=Offload.PREFER)))

    assert node_of(decided(situation, node_index)) == "far"


@pytest.mark.parametrize("offload", [Offload.WHEN_FULL, Offload.PREFER])
def test_a_workload_with_data_needs_a_second_consent(
    node_index: NodeIndex, offload: Offload
) -> None:
    refused = decided(waiting(Rules(offload=offload), DATA, seconds=60), node_index)
    allowed = decided(
        waiting(Rules(offload=offload, offload_data=True), DATA, seconds=60), node_index
    )

    assert node_of(refused) == ""
    assert refused.workload_status is not None
    assert "it has data, and offload_data is not set" in refused.workload_status.message
    assert node_of(allowed) == "far"


def test_an_offloaded_workload_stays_where_it_is(node_index: NodeIndex) -> None:
    """Capacity in tier 0 does not move it."""
    situation = waiting(Rules(offload=Offload.WHEN_FULL), seconds=60)
    placed = decided(situation, node_index)
    node_index.give_back(WorkloadId("other"), NodeId("n1"))
    assert placed.assignment is not None
    node_index.reserve(placed.assignment)

    later = decided(
        replace(situation, assignment=placed.assignment, workload_status=placed.workload_status),
        node_index,
    )

    assert node_of(later) == "far"


def test_a_waiting_workload_keeps_its_position_when_it_may_be_offloaded() -> None:
    queue, rules = PendingQueue(), Rules(offload=Offload.WHEN_FULL)
    first, second = WorkloadId("first"), WorkloadId("second")
    queue.add(first, pending_entry(waiting(rules, seconds=0), NOON))
    queue.add(second, pending_entry(waiting(Rules(), seconds=0), NOON))
    queue.add(first, pending_entry(waiting(rules, seconds=60), NOON))
    node_index = NodeIndex()
    add_node(node_index, "n1", cpu=100)

    assert queue.candidates_for(node_index.slots[NodeId("n1")]) == [first]


def test_capacity_of_a_higher_tier_does_not_wake_workloads_that_stay_in_tier_0() -> None:
    queue = PendingQueue()
    queue.add(WorkloadId("web"), pending_entry(waiting(Rules(), seconds=60), NOON))
    node_index = NodeIndex()
    add_node(node_index, "far", tier=1)

    assert queue.candidates_for(node_index.slots[NodeId("far")]) == []


def test_the_wait_is_a_setting_of_the_cluster() -> None:
    situation = replace(
        waiting(Rules(offload=Offload.WHEN_FULL), seconds=10), offload_after=timedelta(seconds=5)
    )

    assert tier_access(situation, NOON).offload


def test_a_workload_of_another_cluster_is_not_offloaded_again(node_index: NodeIndex) -> None:
    workload = a_workload(
        rules=Rules(offload=Offload.PREFER), metadata={"persys.home_cluster": "north"}
    )
    situation = a_situation(workload)

    decision = decided(situation, node_index)
    found = explain(placement_needs(situation, NOON), node_index, limit=2)

    assert node_of(decision) == ""
    assert decision.workload_status is not None
    assert "it was offloaded to this cluster by another" in decision.workload_status.message
    assert "a node with capacity in tier 0" in found.changes()


def test_capacity_in_tier_0_is_used_before_the_waiting_time_is_over(node_index: NodeIndex) -> None:
    situation = waiting(Rules(offload=Offload.WHEN_FULL), seconds=29)
    node_index.give_back(WorkloadId("other"), NodeId("n1"))

    assert node_of(decided(situation, node_index)) == "n1"


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_workload_on_a_lost_node_is_offloaded_after_the_waiting_time(
    node_index: NodeIndex, seconds: int
) -> None:
    """The loss may be known at once, when an operator confirms it."""
    since = NOON - timedelta(seconds=seconds)
    add_node(node_index, "n0", closed="not ready")
    situation = a_situation(
        a_workload(rules=Rules(offload=Offload.WHEN_FULL)),
        assignment=an_assignment("n0"),
        workload_status=WorkloadStatus(WorkloadId("web"), Status.UNKNOWN, since),
        phase=Phase.LOST,
    )

    decision = decided(situation, node_index)

    assert node_of(decision) == ("far" if seconds else "n0")
    assert decision.wake_at == (None if seconds else NOON + AFTER)


@pytest.mark.parametrize("seconds", [10, 30])
def test_a_workload_on_a_draining_node_is_offloaded_after_the_waiting_time(
    node_index: NodeIndex, seconds: int
) -> None:
    add_node(node_index, "n0", closed="draining")
    situation = a_situation(
        a_workload(rules=Rules(offload=Offload.WHEN_FULL)),
        assignment=an_assignment("n0"),
        workload_status=WorkloadStatus(
            WorkloadId("web"), Status.RUNNING, NOON - timedelta(hours=1), revision=Revision("r1")
        ),
        draining=True,
    )
    draining = replace(situation, draining_since=NOON - timedelta(seconds=seconds))

    assert node_of(decided(draining, node_index)) == ("n0" if seconds < 30 else "far")


@pytest.mark.parametrize("seconds", [10, 30])
def test_a_misplaced_workload_is_offloaded_after_the_same_wait(
    node_index: NodeIndex, seconds: int
) -> None:
    """It runs on n1, which its new rules exclude."""
    in_b = Constraint("zone", Operator.EQUALS, ("b",))
    add_node(node_index, "far-b", labels={"zone": "b"}, tier=1)
    assignment = an_assignment("n1", rules=Rules(offload=Offload.WHEN_FULL))
    workload = structs.replace(
        a_workload(rules=Rules(constraints=(in_b,), offload=Offload.WHEN_FULL)),
        updated_at=NOON - timedelta(seconds=seconds),
    )
    situation = a_situation(
        workload,
        assignment=assignment,
        workload_status=WorkloadStatus(
            WorkloadId("web"), Status.RUNNING, NOON - timedelta(hours=1), revision=Revision("r1")
        ),
        observation=an_observation(),
    )

    decision = decided(situation, node_index)

    if seconds < 30:
        assert (node_of(decision), decision.rule) == ("n1", "misplaced")
        assert decision.wake_at == workload.updated_at + AFTER
    else:
        assert (node_of(decision), decision.rule) == ("far-b", "resize")
        assert decision.tombstone is not None


def test_a_time_of_a_wrong_clock_does_not_delay_offloading(node_index: NodeIndex) -> None:
    situation = waiting(Rules(offload=Offload.WHEN_FULL), seconds=-3600)

    decision = decided(situation, node_index)

    assert decision.wake_at == NOON + AFTER


@pytest.mark.parametrize("spec", [None, DATA], ids=["stateless", "data"])
def test_a_workload_without_data_returns_when_its_consent_is_withdrawn(
    node_index: NodeIndex, spec: ContainerSpec | None
) -> None:
    node_index.give_back(WorkloadId("other"), NodeId("n1"))
    before = Rules(offload=Offload.WHEN_FULL, offload_data=spec is not None)
    assignment = an_assignment("far", rules=before)
    node_index.reserve(assignment)
    situation = a_situation(
        a_workload(spec=spec),
        assignment=assignment,
        workload_status=WorkloadStatus(
            WorkloadId("web"), Status.RUNNING, NOON, revision=Revision("r1"), epoch=1
        ),
    )

    decision = decide(situation, placer_over(node_index), Policy(), now=NOON, roll=0.5)

    assert node_of(decision) == ("n1" if spec is None else "far")
    assert decision.rule == ("resize" if spec is None else "misplaced")
