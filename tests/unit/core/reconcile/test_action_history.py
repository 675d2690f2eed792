"""The action history, and the description of a time-out."""

from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from builders import N1, NOON, WEB, after
from persys.core.reconcile.task_history import (
    ID_LENGTH_MAX,
    TEXT_LENGTH_MAX,
    describe_timeout,
    remember,
)
from persys.model.action import ACTIONS_MAX, Action, ActionKind, ActionState
from persys.model.ids import ActionId


def an_action(
    name: str = "apply-web-1",
    *,
    state: ActionState = ActionState.RUNNING,
    created_at: datetime = NOON,
    error: str = "",
) -> Action:
    return Action(ActionId(name), WEB, ActionKind.APPLY, state, created_at, error=error)


def test_the_newest_come_first() -> None:
    first = remember(None, WEB, N1, [an_action("a"), an_action("c", created_at=after(2))], now=NOON)
    both = remember(first, WEB, N1, [an_action("b", created_at=after(1))], now=after(9))

    assert [observation.action.id for observation in both.sightings] == ["c", "b", "a"]


def test_a_known_action_is_updated() -> None:
    first = remember(None, WEB, N1, [an_action()], now=NOON)
    again = remember(first, WEB, N1, [an_action(state=ActionState.FAILED)], now=after(9))

    assert [observation.action.state for observation in again.sightings] == [ActionState.FAILED]
    assert again.sightings[0].fetched_at == after(9)


@given(st.lists(st.integers(0, 40)), st.integers(0, 3000))
def test_a_history_never_outgrows_its_record(numbers: list[int], length: int) -> None:
    actions = [
        an_action(f"{number}" * length, created_at=after(number), error="e" * length)
        for number in numbers
    ]

    history = remember(None, WEB, N1, actions, now=NOON)

    assert len(history.sightings) <= ACTIONS_MAX
    for observation in history.sightings:
        assert len(observation.action.id) <= ID_LENGTH_MAX
        assert len(observation.action.error) <= TEXT_LENGTH_MAX


def test_the_newest_task_is_shown_with_its_error() -> None:
    actions = [
        an_action("apply-web-1"),
        an_action("apply-web-2", created_at=after(1), state=ActionState.FAILED, error="disk full"),
    ]

    assert describe_timeout("not running 45s after the order was sent", actions, "") == (
        "not running 45s after the order was sent; task apply-web-2 (apply_workload) is failed: disk full"
    )


def test_a_timeout_without_a_task_is_described() -> None:
    assert "has no task" in describe_timeout("late", [], "")
    assert describe_timeout("late", [], "no such call").endswith(
        "cannot list the tasks of its node: no such call"
    )
