"""For how long a removed node's certificates are refused, and which."""

from datetime import UTC, datetime, timedelta

from persys.core.removal import (
    DEPENDENTS_PER_STEP_MAX,
    FORGOTTEN_PER_CHANGE_MAX,
    REMEMBERED,
    Blocked,
    Last,
    Mark,
    Part,
    is_void,
    next_step,
    outdated,
)
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Capabilities, Node
from persys.model.removal import Removal

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SECOND = timedelta(seconds=1)
GONE = Removal(NodeId("n1"), NOW)


def test_who_was_let_in_until_the_removal_is_out_and_who_came_later_is_in() -> None:
    assert is_void(GONE, NOW - SECOND)
    assert is_void(GONE, NOW)
    assert not is_void(GONE, NOW + SECOND)
    assert not is_void(None, NOW)


def test_a_removal_is_remembered_until_no_certificate_from_before_can_be_valid() -> None:
    assert outdated([GONE], NOW + REMEMBERED) == []
    assert outdated([GONE], NOW + REMEMBERED + SECOND) == [GONE]
    assert timedelta(days=90) < REMEMBERED


def test_only_so_many_old_removals_are_forgotten_at_once() -> None:
    many = [Removal(NodeId(f"n{number}"), NOW) for number in range(1_000)]

    forgotten = outdated(many, NOW + REMEMBERED + SECOND)

    assert forgotten == many[:FORGOTTEN_PER_CHANGE_MAX]


NODE = Node(NodeId("n1"), Capabilities(1, 1), "h:1", NOW)
MARKED = Node(NodeId("n1"), Capabilities(1, 1), "h:1", NOW, removing_since=NOW)


def test_a_node_with_few_records_is_removed_in_one_step() -> None:
    few = [f"/tombstones/n1/w{number}" for number in range(DEPENDENTS_PER_STEP_MAX)]

    assert next_step(NODE, few, (), now=NOW) == Last(few)


def test_a_node_with_many_records_is_marked_before_any_of_them_is_deleted() -> None:
    step = next_step(NODE, ["key"] * 1_000, (), now=NOW)

    assert isinstance(step, Mark)
    assert step.node.removing_since == NOW
    assert step.node.status_reason == "being removed with 1000 records"


def test_a_removal_deletes_a_bounded_part_at_a_time_until_the_node_goes_with_the_last() -> None:
    left = [f"/tombstones/n1/w{number}" for number in range(1_000)]
    steps = 0

    while isinstance(step := next_step(MARKED, left, (), now=NOW), Part):
        assert len(step.keys) <= DEPENDENTS_PER_STEP_MAX
        left = left[len(step.keys) :]
        steps += 1

    assert step == Last(left)
    assert steps == 15


def test_a_node_with_workloads_is_not_removed() -> None:
    step = next_step(MARKED, ["key"] * 1_000, [WorkloadId("web")], now=NOW)

    assert isinstance(step, Blocked)
    assert "still has 1 workloads, such as web" in step.why
