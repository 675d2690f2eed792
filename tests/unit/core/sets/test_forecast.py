"""What a plan of a set shows."""

from persys.core.sets.forecast import forecast, in_order
from persys.core.sets.situation import MemberHealth, MemberState
from persys.model.sets import Phase, UpdatePolicy, WorkloadSet
from persys.model.workload import Desired
from set_builders import NOW, a_member, a_set, a_situation, members_of

ROLLING = a_set(2, phase=Phase.ROLLING, target=2, stable=1, update=UpdatePolicy(canary=1))


def planned(
    record: WorkloadSet, members: tuple[MemberState, ...], *, data: bool = False
) -> list[tuple[str, int]]:
    """The id and the new revision of each change; 0: it is deleted."""
    situation = a_situation(record, members, data=data)
    changes = in_order(situation, forecast(situation, NOW))
    return [
        (change.workload_id, change.intent.revision if change.intent else 0) for change in changes
    ]


def test_a_steady_set_has_no_changes() -> None:
    assert planned(a_set(2), members_of(2)) == []


def test_a_new_set_creates_its_members() -> None:
    first = a_set(2, phase=Phase.ROLLING, stable=0)

    assert planned(first, ()) == [("web-0", 1), ("web-1", 1)]


def test_a_start_first_rollout_creates_each_member_before_it_deletes_the_old_one() -> None:
    assert planned(ROLLING, members_of(2)) == [
        ("web-2", 2),
        ("web-0", 0),
        ("web-3", 2),
        ("web-1", 0),
    ]


def test_an_in_place_rollout_changes_each_member() -> None:
    assert planned(ROLLING, members_of(2), data=True) == [("web-0", 2), ("web-1", 2)]


def test_a_lost_member_is_changed_in_place_too() -> None:
    members = (a_member(0), a_member(1, MemberHealth.LOST))

    assert planned(ROLLING, members, data=True) == [("web-0", 2), ("web-1", 2)]


def test_a_smaller_set_deletes_members() -> None:
    assert planned(a_set(1), members_of(3)) == [("web-1", 0), ("web-2", 0)]


def test_a_deleted_set_deletes_all_members() -> None:
    gone = a_set(2, desired=Desired.DELETED)

    assert planned(gone, members_of(2)) == [("web-0", 0), ("web-1", 0)]
