"""Which certificates of a removed node are refused, and for how long."""

from datetime import UTC, datetime, timedelta

from persys.core.nodes import (
    DEPENDENTS_PER_STEP_MAX,
    FORGOTTEN_PER_CHANGE_MAX,
    REMEMBERED,
    MarkRemoving,
    RemovalBlocked,
    RemovalStep,
    RemoveDependents,
    RemovedNodes,
    RemoveNode,
    is_from_before_removal,
    next_removal_step,
)
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Capabilities, Node, RemovedNode

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SECOND = timedelta(seconds=1)
GONE = RemovedNode(NodeId("n1"), NOW)
LATER = NOW + REMEMBERED + timedelta(days=1)


def test_only_certificates_from_before_the_removal_are_refused() -> None:
    assert is_from_before_removal(GONE, NOW - SECOND)
    assert is_from_before_removal(GONE, NOW)
    assert not is_from_before_removal(GONE, NOW + SECOND)
    assert not is_from_before_removal(None, NOW)


def test_a_removal_is_remembered_until_no_certificate_from_before_can_be_valid() -> None:
    known = removals(GONE)

    assert forgotten(known, NOW + REMEMBERED) == []
    assert forgotten(known, NOW + REMEMBERED + SECOND) == [GONE]
    assert timedelta(days=90) < REMEMBERED


def test_a_limited_number_of_old_removals_is_deleted_at_once() -> None:
    many = [RemovedNode(NodeId(f"n{number:03}"), NOW) for number in range(1_000)]
    known = removals(*many)

    assert forgotten(known, LATER) == many[:FORGOTTEN_PER_CHANGE_MAX]
    assert len(known) == 1_000 - FORGOTTEN_PER_CHANGE_MAX


def test_the_oldest_removals_are_deleted_first() -> None:
    newer = RemovedNode(NodeId("n0"), NOW + SECOND)
    known = removals(newer, GONE)

    assert forgotten(known, NOW + REMEMBERED + SECOND) == [GONE]
    assert forgotten(known, LATER) == [newer]


def test_a_node_that_is_removed_again_is_remembered_from_the_last_time() -> None:
    again = RemovedNode(GONE.node_id, NOW + REMEMBERED)
    known = removals(GONE, again)

    assert forgotten(known, NOW + REMEMBERED + SECOND) == []
    assert known.get(GONE.node_id) == again


def test_an_unreadable_removal_record_is_not_deleted() -> None:
    known = removals(GONE)

    assert known.take_outdated(LATER, held=lambda node_id: node_id == GONE.node_id) == []
    assert forgotten(known, LATER) == [GONE]


def test_removals_that_come_and_go_leave_nothing_behind() -> None:
    known = RemovedNodes()
    for number in range(1_000):
        known.put(RemovedNode(GONE.node_id, NOW + number * SECOND))
    known.drop(GONE.node_id)

    assert len(known) == 0
    assert forgotten(known, LATER + REMEMBERED) == []


def removals(*known: RemovedNode) -> RemovedNodes:
    created = RemovedNodes()
    for one in known:
        created.put(one)
    return created


def forgotten(known: RemovedNodes, now: datetime) -> list[RemovedNode]:
    return known.take_outdated(now, held=lambda _node_id: False)


NODE = Node(NodeId("n1"), Capabilities(1, 1), "h:1", NOW)
MARKED = Node(NodeId("n1"), Capabilities(1, 1), "h:1", NOW, removing_since=NOW)


def test_a_node_with_few_records_is_removed_in_one_step() -> None:
    few = [f"/tombstones/n1/w{number}" for number in range(DEPENDENTS_PER_STEP_MAX)]

    assert next_removal_step(NODE, few, (), count=len(few), now=NOW) == RemoveNode(few)


def test_a_node_with_many_records_is_marked_before_any_of_them_is_deleted() -> None:
    step = next_removal_step(NODE, ["key"], (), count=1_000, now=NOW)

    assert isinstance(step, MarkRemoving)
    assert step.node.removing_since == NOW
    assert step.node.status_reason == "being removed with 1000 records"


def test_a_node_removal_deletes_records_in_bounded_batches_and_the_node_last() -> None:
    left = [f"/tombstones/n1/w{number}" for number in range(1_000)]
    steps = 0

    def step_now() -> RemovalStep:
        first = left[:DEPENDENTS_PER_STEP_MAX]
        return next_removal_step(MARKED, first, (), count=len(left), now=NOW)

    while isinstance(step := step_now(), RemoveDependents):
        assert len(step.keys) <= DEPENDENTS_PER_STEP_MAX
        left = left[len(step.keys) :]
        steps += 1

    assert step == RemoveNode(left)
    assert steps == 15


def test_a_node_with_workloads_is_not_removed() -> None:
    step = next_removal_step(MARKED, ["key"], [WorkloadId("web")], count=1_000, now=NOW)

    assert isinstance(step, RemovalBlocked)
    assert "still has 1 workloads, such as web" in step.why
