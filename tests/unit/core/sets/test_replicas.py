"""Which members are created and deleted, apart from updates."""

import pytest
from msgspec.structs import replace

from persys.core.sets.rollout import CHANGES_MAX
from persys.core.sets.situation import MemberHealth, MemberIntent, MemberState
from persys.model.event import EventKind
from persys.model.ids import NodeId, WorkloadId
from persys.model.sets import Phase, UpdatePolicy
from persys.model.spec import ContainerSpec, ManagedVolume
from persys.model.workload import Desired
from set_builders import NOW, a_member, a_set, a_template, decision_of, members_of

HEALTHY, LOST, STARTING = MemberHealth.HEALTHY, MemberHealth.LOST, MemberHealth.STARTING
UNHEALTHY, DELETING = MemberHealth.UNHEALTHY, MemberHealth.DELETING
NODES = (NodeId("a"), NodeId("b"), NodeId("c"))

COUNT = CHANGES_MAX + 88


def on(node: str, number: int, health: MemberHealth = HEALTHY, revision: int = 1) -> MemberState:
    return a_member(number, health, revision=revision, pinned_node=NodeId(node))


def numbers(intents: tuple[MemberIntent, ...]) -> list[tuple[int, int]]:
    """The number and the revision of each."""
    return [(intent.number, intent.revision) for intent in intents]


def test_a_steady_set_changes_nothing() -> None:
    record = a_set()

    decision = decision_of(record, members_of(3))

    assert (decision.record, decision.put, decision.delete) == (record, (), ())
    assert (decision.wake_at, decision.waits_for, decision.rule) == (None, "", "steady")


def test_all_missing_members_are_created_at_once() -> None:
    decision = decision_of(a_set(4), members_of(1))

    assert decision.rule == "missing"
    assert decision.put == tuple(
        MemberIntent(index, index, 1, Desired.RUNNING) for index in (1, 2, 3)
    )


def test_a_new_member_does_not_take_the_id_of_another_workload() -> None:
    decision = decision_of(a_set(3), members_of(1), taken_numbers=frozenset({1}))

    assert [(one.number, one.index) for one in decision.put] == [(3, 1), (2, 2)]


def test_a_new_member_does_not_take_the_id_of_one_that_is_being_deleted() -> None:
    decision = decision_of(a_set(2), (a_member(0), a_member(1, DELETING)))

    assert [(one.number, one.index) for one in decision.put] == [(2, 1)]


def test_a_member_with_data_waits_for_its_number() -> None:
    decision = decision_of(a_set(2), (a_member(0), a_member(1, DELETING)), data=True)

    assert decision.put == ()
    assert decision.waits_for == "web-1: is being deleted"


def test_scale_out_with_data_uses_the_number_of_the_index_again() -> None:
    assert numbers(decision_of(a_set(3), members_of(1), data=True).put) == [(1, 1), (2, 1)]


def test_a_member_that_is_scaled_in_and_out_returns_to_its_data() -> None:
    volume = ManagedVolume("data", retain=True)
    templates = {1: a_template(spec=ContainerSpec("nginx:1", managed_volumes=(volume,)))}
    smaller = decision_of(a_set(1), members_of(3), templates=templates)
    assert smaller.record is not None
    larger, homes = replace(smaller.record, replicas=3), smaller.record.homes

    again = decision_of(larger, members_of(1), templates=templates, homes=homes)
    without_node = decision_of(
        larger, members_of(1), templates=templates, homes={WorkloadId("web-2"): NodeId("n2")}
    )

    assert homes == {"web-1": "n1", "web-2": "n2"}
    assert [(one.number, one.pinned_node) for one in again.put] == [(1, "n1"), (2, "n2")]
    assert [(one.number, one.pinned_node) for one in without_node.put] == [(1, None), (2, "n2")]


@pytest.mark.parametrize("data", [False, True])
def test_the_node_of_a_member_is_not_kept_if_its_data_is_deleted_with_it(*, data: bool) -> None:
    decision = decision_of(a_set(1), members_of(3), data=data)

    assert decision.record is not None
    assert decision.record.homes == {}


def test_scale_in_deletes_the_highest_index_first() -> None:
    members = (a_member(7, index=0), a_member(1), a_member(2), a_member(0, index=3))

    decision = decision_of(a_set(2), members)

    assert decision.delete == ("web-0", "web-2")


def test_scale_to_zero_deletes_all_members() -> None:
    assert len(decision_of(a_set(0), members_of(3)).delete) == 3


def test_a_lost_member_is_neither_replaced_nor_deleted() -> None:
    decision = decision_of(a_set(3), (a_member(0), a_member(1, LOST), a_member(2)))

    assert (decision.put, decision.delete) == ((), ())


def test_scale_in_during_a_partition_removes_no_healthy_member_below_the_new_size() -> None:
    members = (a_member(0), a_member(1), a_member(2), a_member(3, LOST))

    decision = decision_of(a_set(3), members)

    assert decision.delete == ("web-3",)


def test_scale_in_keeps_healthy_members_while_those_that_stay_are_lost() -> None:
    """Three of six stay, and those three are lost: two healthy ones are required."""
    members = tuple(a_member(number, LOST if number < 3 else HEALTHY) for number in range(6))

    decision = decision_of(a_set(3), members)

    assert decision.delete == ("web-5",)
    assert decision.waits_for == ("web-3: is kept, only 0 of 3 members are healthy, 2 are required")


def test_scale_in_continues_when_the_others_are_healthy() -> None:
    members = (a_member(0), a_member(1), a_member(2, STARTING), a_member(3), a_member(4))

    assert decision_of(a_set(3), members).delete == ("web-4", "web-3")


def test_scale_in_deletes_members_that_are_not_healthy_at_once() -> None:
    members = (a_member(0, UNHEALTHY), a_member(1, LOST), a_member(2, UNHEALTHY), a_member(3))

    assert decision_of(a_set(2), members).delete == ("web-2",)


def test_of_two_surplus_members_of_an_index_one_that_is_healthy_is_kept() -> None:
    members = (a_member(0, LOST), a_member(1, LOST), a_member(2), a_member(5, index=2))

    assert decision_of(a_set(2), members).delete == ("web-5",)


def test_of_two_members_of_an_index_the_longest_healthy_one_stays() -> None:
    members = (
        a_member(0, since=-10),
        a_member(4, index=0, since=-900),
        a_member(5, UNHEALTHY, index=0),
    )

    assert set(decision_of(a_set(1), members).delete) == {"web-0", "web-5"}


def test_of_two_members_of_an_index_the_one_on_a_lost_node_is_deleted() -> None:
    members = (a_member(0, LOST), a_member(4, STARTING, index=0))

    assert decision_of(a_set(1), members).delete == ("web-0",)


def test_an_old_member_that_an_interrupted_decision_has_left_is_deleted() -> None:
    steady = a_set(1, target=2, stable=2)

    decision = decision_of(steady, (a_member(0), a_member(1, index=0, revision=2)))

    assert decision.delete == ("web-0",)


def test_a_healthy_old_member_stays_until_the_new_one_is_healthy() -> None:
    steady = a_set(1, target=2, stable=2)
    new = a_member(1, STARTING, index=0, revision=2, since=-5)

    decision = decision_of(steady, (a_member(0), new))

    assert decision.delete == ()
    assert decision.waits_for == "web-0: is deleted when web-1 is healthy"


def test_missing_members_are_created_with_the_stable_revision_during_a_rollout() -> None:
    for phase in (Phase.ROLLING, Phase.CANARY, Phase.PAUSED):
        record = a_set(3, phase=phase, target=2, stable=1)
        members = (a_member(0, STARTING, revision=2, since=-5), a_member(1))

        assert numbers(decision_of(record, members).put) == [(2, 1)], phase


def test_missing_members_of_a_first_deployment_have_the_target_revision() -> None:
    for phase in (Phase.ROLLING, Phase.PAUSED):
        record = a_set(2, phase=phase, target=1, stable=0)

        assert numbers(decision_of(record).put) == [(0, 1), (1, 1)], phase


def test_a_decision_changes_a_bounded_number_of_members() -> None:
    decision = decision_of(a_set(CHANGES_MAX + 1))

    assert len(decision.put) == CHANGES_MAX
    assert decision.wake_at == NOW


def test_a_large_scale_in_is_done_in_parts() -> None:
    decision = decision_of(a_set(10), members_of(CHANGES_MAX + 20))

    assert len(decision.delete) == CHANGES_MAX
    assert decision.delete[0] == f"web-{CHANGES_MAX + 19}"
    assert decision.wake_at == NOW


def test_each_node_gets_a_member_that_is_pinned_to_it() -> None:
    decision = decision_of(a_set(0, every_node=True), nodes=NODES)

    assert [(one.index, one.pinned_node) for one in decision.put] == [(0, "a"), (1, "b"), (2, "c")]


def test_a_new_node_gets_the_lowest_free_index() -> None:
    members = (on("a", 0), on("c", 2))

    (new,) = decision_of(a_set(0, every_node=True), members, nodes=NODES).put

    assert (new.number, new.index, new.pinned_node) == (1, 1, "b")


def test_the_member_of_a_node_that_no_longer_matches_is_deleted() -> None:
    """Also if others are not healthy: a member on one node does not replace one on another."""
    members = (on("a", 0, UNHEALTHY), on("b", 1, UNHEALTHY), on("c", 2))

    decision = decision_of(a_set(0, every_node=True), members, nodes=NODES[:2])

    assert decision.delete == ("web-2",)


def test_a_node_keeps_the_index_of_its_member() -> None:
    leaving = a_member(7, DELETING, pinned_node=NODES[0])
    record = a_set(0, phase=Phase.ROLLING, target=2, stable=1, every_node=True)

    (update,) = decision_of(record, (on("a", 0), leaving), nodes=NODES[:1], data=True).put

    assert (update.number, update.index) == (0, 0)


def test_a_member_of_a_lost_node_stays() -> None:
    members = (on("a", 0, LOST), on("b", 1), on("c", 2))

    decision = decision_of(a_set(0, every_node=True), members, nodes=NODES)

    assert (decision.put, decision.delete) == ((), ())


def test_a_stopped_set_stops_all_members_at_the_target_revision() -> None:
    record = a_set(3, phase=Phase.ROLLING, target=2, stable=1, desired=Desired.STOPPED)
    members = (a_member(0), a_member(3, index=0, revision=2), a_member(1, LOST), a_member(9))

    decision = decision_of(record, members)

    assert decision.record is not None
    assert (decision.record.rollout.phase, decision.record.stable) == (Phase.STEADY, 1)
    assert decision.put == (
        MemberIntent(3, 0, 2, Desired.STOPPED),
        MemberIntent(1, 1, 2, Desired.STOPPED),
    )
    assert set(decision.delete) == {"web-0", "web-9"}


def test_a_stopped_set_creates_no_members() -> None:
    decision = decision_of(a_set(3, desired=Desired.STOPPED))

    assert (decision.put, decision.rule) == ((), "stopped")


def test_a_started_set_starts_all_members_with_their_revisions() -> None:
    members = tuple(
        a_member(number, MemberHealth.STOPPED, desired=Desired.STOPPED) for number in range(3)
    )

    decision = decision_of(a_set(3), members)

    assert decision.put == tuple(MemberIntent(n, n, 1, Desired.RUNNING) for n in range(3))


def test_a_member_whose_revision_is_not_stored_starts_with_the_target() -> None:
    member = a_member(0, MemberHealth.STOPPED, revision=7, desired=Desired.STOPPED)

    assert numbers(decision_of(a_set(1), (member,)).put)[0] == (0, 1)


def test_starting_and_deleting_many_members_is_done_in_parts() -> None:
    stopped = tuple(
        a_member(number, MemberHealth.STOPPED, desired=Desired.STOPPED) for number in range(COUNT)
    )

    assert len(decision_of(a_set(COUNT), stopped).put) == CHANGES_MAX
    deleted = decision_of(a_set(COUNT, desired=Desired.DELETED), stopped)
    assert len(deleted.delete) == CHANGES_MAX


def test_a_started_set_gates_an_unproven_revision() -> None:
    members = tuple(
        a_member(number, MemberHealth.STOPPED, revision=2, desired=Desired.STOPPED)
        for number in range(3)
    )

    decision = decision_of(a_set(3, target=2, stable=1), members)

    assert decision.record is not None
    assert decision.record.rollout.phase is Phase.ROLLING
    assert numbers(decision.put) == [(0, 2), (1, 2), (2, 2)]
    assert [event.kind for event in decision.events] == [EventKind.ROLLOUT_STARTED]


def test_a_deleted_set_deletes_its_members_and_then_itself() -> None:
    record = a_set(3, desired=Desired.DELETED)

    first = decision_of(record, (a_member(0), a_member(1, LOST), a_member(2, DELETING)))
    second = decision_of(record, (a_member(0, DELETING),))
    last = decision_of(record)

    assert (first.record, first.delete) == (record, ("web-1", "web-0"))
    assert (second.record, second.delete) == (record, ())
    assert last.record is None
    assert [event.kind for event in last.events] == [EventKind.SET_DELETED]


@pytest.mark.parametrize(
    ("phase", "stable", "deletes"),
    [(Phase.ROLLING, 0, False), (Phase.PAUSED, 0, False), (Phase.STEADY, 1, True)],
)
def test_the_replaced_workload_is_deleted_when_all_members_have_passed(
    phase: Phase, stable: int, deletes: bool
) -> None:
    record = a_set(2, phase=phase, stable=stable, replaces=WorkloadId("web"))
    members = (a_member(0), a_member(1, STARTING, since=-5))

    decision = decision_of(record, members, replaced_exists=True)

    assert decision.delete_replaced is deletes
    assert decision.record is not None
    assert decision.record.replaces == "web"


def test_the_replaced_workload_of_a_stopped_set_is_deleted_at_once() -> None:
    record = a_set(2, stable=0, desired=Desired.STOPPED, replaces=WorkloadId("web"))

    assert decision_of(record, replaced_exists=True).delete_replaced


def test_a_replaced_workload_is_forgotten_when_it_is_deleted() -> None:
    decision = decision_of(a_set(2, replaces=WorkloadId("web")), members_of(2))

    assert decision.record is not None
    assert decision.record.replaces == ""
    assert not decision.delete_replaced


def test_the_workload_stays_if_the_set_is_deleted_before_it_has_replaced_it() -> None:
    record = a_set(1, desired=Desired.DELETED, replaces=WorkloadId("web"))

    assert not decision_of(record, members_of(1), replaced_exists=True).delete_replaced


def test_more_parallel_updates_allow_a_larger_scale_in() -> None:
    members = tuple(a_member(number, LOST if number < 3 else HEALTHY) for number in range(6))

    decision = decision_of(a_set(3, update=UpdatePolicy(max_parallel=3)), members)

    assert decision.delete == ("web-5", "web-4", "web-3")
