"""The queue for capacity: which workloads free capacity wakes."""

from dataclasses import replace

import pytest

from builders import (
    N1,
    N2,
    NOON,
    a_situation,
    a_workload,
    add_node,
    an_assignment,
    needs,
)
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.pending_queue import PendingEntry, PendingQueue, pending_entry
from persys.core.placement.requirements import Requirements
from persys.core.reconcile.situation import Copy
from persys.model.ids import WorkloadId
from persys.model.placement import HostPort, Resources, Rules
from persys.model.spec import ContainerSpec, ManagedVolume
from persys.model.workload import Desired

DATABASE = ContainerSpec("db", managed_volumes=(ManagedVolume("data", "/data"),))


@pytest.fixture
def node_index() -> NodeIndex:
    node_index = NodeIndex()
    add_node(node_index, "n1", cpu=1000, memory=1000, disk=10)
    add_node(node_index, "n2", cpu=1000, memory=1000, disk=10, closed="cordoned")
    return node_index


def queue_of(**who: Requirements) -> PendingQueue:
    waiting = PendingQueue()
    for name, what in who.items():
        waiting.add(WorkloadId(name), PendingEntry(what))
    return waiting


def cpu(amount: int, **rules: object) -> Requirements:
    return Requirements(Resources(amount), rules=Rules(**rules))  # type: ignore[arg-type]  # by name


def woken(waiting: PendingQueue, node_index: NodeIndex) -> list[str]:
    return list(waiting.candidates_for(node_index.slots[N1]))


def test_as_many_workloads_are_woken_as_could_fit(node_index: NodeIndex) -> None:
    waiting = queue_of(a=cpu(400), b=cpu(400), c=cpu(400))

    assert woken(waiting, node_index) == ["a", "b"]


def test_a_workload_that_does_not_fit_is_not_woken_and_blocks_no_other(
    node_index: NodeIndex,
) -> None:
    waiting = queue_of(large=cpu(2000), small=cpu(400), forbidden=needs(traits={"type:vm"}))

    assert woken(waiting, node_index) == ["small"]


def test_the_highest_priority_is_first_then_queue_order(node_index: NodeIndex) -> None:
    waiting = queue_of(
        a=cpu(100), b=cpu(100, priority=100), c=cpu(101), d=cpu(100, priority=100), e=cpu(100)
    )

    assert woken(waiting, node_index) == ["b", "d", "a", "c", "e"]


def test_a_closed_node_wakes_no_workload(node_index: NodeIndex) -> None:
    assert queue_of(a=cpu(100)).candidates_for(node_index.slots[N2]) == []


def test_only_one_workload_with_anti_affinity_is_woken(node_index: NodeIndex) -> None:
    apart = cpu(100, group="g", apart=True)

    assert woken(queue_of(a=apart, b=apart), node_index) == ["a"]


def test_a_host_port_is_given_once(node_index: NodeIndex) -> None:
    web = needs(host_ports=[HostPort(80)])

    assert woken(queue_of(a=web, b=web), node_index) == ["a"]


def test_the_same_requirements_keep_the_queue_position(node_index: NodeIndex) -> None:
    waiting = queue_of(a=cpu(800), b=cpu(800))
    waiting.add(WorkloadId("a"), PendingEntry(cpu(800)))
    assert woken(waiting, node_index) == ["a"]

    waiting.add(WorkloadId("a"), PendingEntry(cpu(700)))
    assert woken(waiting, node_index) == ["b"]


def test_a_workload_that_no_longer_waits_is_not_woken(node_index: NodeIndex) -> None:
    waiting = queue_of(a=cpu(100), b=cpu(100))
    waiting.discard(WorkloadId("a"))

    assert (list(waiting), len(waiting), "a" in waiting) == (["b"], 1, False)
    assert woken(waiting, node_index) == ["b"]


def test_capacity_of_a_workload_that_moved_is_offered_again(node_index: NodeIndex) -> None:
    waiting = queue_of(a=cpu(800), b=cpu(800))
    assert woken(waiting, node_index) == ["a"]
    waiting.discard(WorkloadId("a"))

    assert waiting.after_decision(WorkloadId("a"), node_index.slots) == [N1]
    assert waiting.after_decision(WorkloadId("a"), node_index.slots) == []
    assert woken(waiting, node_index) == ["b"]


def test_capacity_left_over_is_offered_again(node_index: NodeIndex) -> None:
    waiting = queue_of(a=cpu(800), b=cpu(500))
    assert woken(waiting, node_index) == ["a"]
    node_index.hold(WorkloadId("newcomer"), N1, Resources(400), frozenset())

    assert waiting.after_decision(WorkloadId("a"), node_index.slots) == [N1]
    assert woken(waiting, node_index) == ["b"]


def test_a_node_that_was_not_chosen_is_not_offered_again(node_index: NodeIndex) -> None:
    waiting = queue_of(a=cpu(800))
    assert woken(waiting, node_index) == ["a"]

    assert waiting.after_decision(WorkloadId("a"), node_index.slots) == []


def test_a_workload_with_data_waits_for_its_node() -> None:
    situation = a_situation(a_workload(spec=DATABASE), assignment=an_assignment())
    wait = pending_entry(situation, NOON)

    assert wait.own_nodes == {N1}
    assert not wait.anywhere


def test_a_stopped_workload_waits_for_its_node() -> None:
    stopped = a_situation(a_workload(desired=Desired.STOPPED), assignment=an_assignment())

    assert not pending_entry(stopped, NOON).anywhere


def test_a_movable_workload_waits_for_any_node() -> None:
    assert pending_entry(a_situation(assignment=an_assignment()), NOON).anywhere
    assert pending_entry(a_situation(), NOON) == PendingEntry(needs(100, 128))


def test_a_workload_with_a_data_copy_waits_for_the_node_of_the_copy() -> None:
    situation = a_situation(a_workload(spec=DATABASE))
    bare = pending_entry(situation, NOON)
    assert (bare.own_nodes, bare.anywhere) == (frozenset(), True)

    copied = pending_entry(replace(situation, copies=(Copy(N2, 1),)), NOON)
    assert copied.own_nodes == {N2}
    assert not copied.anywhere


def test_a_workload_that_waits_for_a_node_is_woken_by_any_change_there(
    node_index: NodeIndex,
) -> None:
    waiting = PendingQueue()
    waiting.add(WorkloadId("db"), PendingEntry(cpu(9000), frozenset({N2}), anywhere=False))

    assert waiting.candidates_for(node_index.slots[N1]) == []
    assert waiting.candidates_for(node_index.slots[N2]) == ["db"]


def test_a_workload_leaving_a_node_is_not_offered_its_capacity() -> None:
    leaving = pending_entry(a_situation(assignment=an_assignment(), draining=True), NOON)

    assert (leaving.own_nodes, leaving.anywhere) == (frozenset(), True)


def test_capacity_of_a_node_with_an_old_copy_is_offered_to_others(node_index: NodeIndex) -> None:
    waiting = PendingQueue()
    own_nodes = frozenset({N1})
    waiting.add(WorkloadId("a"), PendingEntry(cpu(600), own_nodes, old_copies=own_nodes))
    waiting.add(WorkloadId("b"), PendingEntry(cpu(600)))

    assert waiting.candidates_for(node_index.slots[N1]) == ["b"]
    assert waiting.waiting_for(N1) == ["a"]


def test_all_pending_workloads_are_visited_in_turn() -> None:
    waiting = queue_of(a=cpu(1), b=cpu(2), c=cpu(3))

    assert [waiting.next_batch(2) for _ in range(3)] == [["a", "b"], ["c"], ["a", "b"]]
