"""What garbage collection may remove from a node, and what must stay."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persys.core.agent.garbage import (
    Ages,
    ImageUse,
    Item,
    Kind,
    old_actions,
    stale_images,
    unowned_items,
    unowned_since,
)
from persys.model.action import Action, ActionKind, ActionState
from persys.model.ids import ActionId, WorkloadId

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=365)
FOREVER = timedelta(days=365)
WEB, OLD = WorkloadId("web"), WorkloadId("old")
AGES = Ages(
    zombie=timedelta(minutes=10),
    stray=timedelta(hours=24),
    image=timedelta(days=30),
    action=timedelta(days=7),
)


def an_item(workload_id: str = "old", kind: Kind = Kind.CONTAINER) -> Item:
    return Item(kind, f"id-{workload_id}-{kind}", f"persys-{workload_id}", WorkloadId(workload_id))


def removable(
    *items: Item,
    since: datetime = LONG_AGO,
    deleted_here: tuple[WorkloadId, ...] = (),
    connected_for: timedelta = FOREVER,
    ages: Ages = AGES,
) -> list[str]:
    seen_since = {item.id: since for item in items}
    found = unowned_items(
        items, seen_since, ages, deleted_here=deleted_here, connected_for=connected_for, now=NOW
    )
    return [each.item.id for each in found]


def test_an_item_in_the_journal_always_has_an_owner() -> None:
    assert unowned_since([an_item("web")], {}, known=[WEB], now=NOW) == {}


def test_an_item_has_no_owner_since_it_was_first_seen_without_one() -> None:
    item = an_item()
    first = unowned_since([item], {}, known=[WEB], now=LONG_AGO)

    assert unowned_since([item], first, known=[WEB], now=NOW) == {item.id: LONG_AGO}


def test_an_item_that_had_an_owner_starts_again() -> None:
    item = an_item()
    first = unowned_since([item], {}, known=[], now=LONG_AGO)
    claimed = unowned_since([item], first, known=[OLD], now=LONG_AGO)

    assert unowned_since([item], claimed, known=[], now=NOW) == {item.id: NOW}


def test_leftovers_of_a_deleted_workload_are_removed_without_the_scheduler() -> None:
    assert removable(an_item(), deleted_here=(OLD,), connected_for=timedelta()) == [an_item().id]


def test_leftovers_of_a_deleted_workload_are_kept_until_their_age() -> None:
    assert not removable(an_item(), deleted_here=(OLD,), since=NOW - timedelta(minutes=9))


def test_an_unassigned_artefact_is_removed_after_its_age() -> None:
    assert removable(an_item()) == [an_item().id]
    assert not removable(an_item(), since=NOW - timedelta(hours=23))


def test_an_unassigned_artefact_is_kept_without_continuous_scheduler_contact() -> None:
    assert not removable(an_item(), connected_for=timedelta())
    assert not removable(an_item(), connected_for=timedelta(hours=23))


def test_a_running_artefact_is_removed_only_if_its_workload_was_deleted() -> None:
    running = Item(Kind.CONTAINER, "c", "persys-old", OLD, running=True)

    assert not removable(running)
    assert removable(running, deleted_here=(OLD,)) == ["c"]


def test_an_age_of_nothing_means_never() -> None:
    never = Ages(timedelta(), timedelta(), timedelta(), timedelta())
    image = ImageUse(an_item(kind=Kind.IMAGE), in_use=False, used_at=LONG_AGO)
    action = Action(ActionId("a"), WEB, ActionKind.APPLY, ActionState.FAILED, LONG_AGO)

    assert not removable(an_item(), ages=never)
    assert not removable(an_item(), ages=never, deleted_here=(OLD,))
    assert not stale_images([image], never, now=NOW)
    assert not old_actions([action], never, now=NOW)


def test_a_network_is_removed_after_its_containers() -> None:
    network, container = an_item(kind=Kind.NETWORK), an_item()

    assert removable(network, container) == [container.id, network.id]


def test_only_images_that_nothing_has_used_for_long_go() -> None:
    item = an_item(kind=Kind.IMAGE)
    recent = NOW - timedelta(days=29)

    assert not stale_images([ImageUse(item, True, LONG_AGO)], AGES, now=NOW)
    assert not stale_images([ImageUse(item, False, recent)], AGES, now=NOW)
    (found,) = stale_images([ImageUse(item, False, LONG_AGO)], AGES, now=NOW)
    assert found.why == "image: not used for 365d"


@pytest.mark.parametrize(
    ("state", "ended_at", "goes"),
    [
        (ActionState.COMPLETED, LONG_AGO, True),
        (ActionState.FAILED, LONG_AGO, True),
        (ActionState.FAILED, NOW, False),
        (ActionState.RUNNING, None, False),
        (ActionState.PENDING, None, False),
    ],
)
def test_only_old_ended_actions_are_deleted(
    state: ActionState, ended_at: datetime | None, goes: bool
) -> None:
    action = Action(ActionId("a"), WEB, ActionKind.APPLY, state, LONG_AGO, ended_at=ended_at)

    assert bool(old_actions([action], AGES, now=NOW)) is goes


names = st.sampled_from(["a", "b", "c", "d"])


@given(
    st.lists(names, unique=True),
    st.frozensets(names),
    st.frozensets(names),
    st.timedeltas(timedelta(), timedelta(days=3)),
    st.timedeltas(timedelta(), timedelta(days=3)),
)
def test_no_artefact_in_use_is_removed_and_none_before_its_age(
    there: list[str],
    known: frozenset[str],
    deleted_here: frozenset[str],
    age: timedelta,
    connected_for: timedelta,
) -> None:
    items = [an_item(name) for name in there]
    owners = [WorkloadId(name) for name in known]
    seen_since = unowned_since(items, {}, known=owners, now=NOW - age)
    found = unowned_items(
        items,
        seen_since,
        AGES,
        deleted_here=[WorkloadId(name) for name in deleted_here],
        connected_for=connected_for,
        now=NOW,
    )

    for each in found:
        assert each.item.workload_id not in known
        assert age >= AGES.zombie
        assert each.item.workload_id in deleted_here or min(age, connected_for) >= AGES.stray
