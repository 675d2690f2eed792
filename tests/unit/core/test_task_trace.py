"""How an operation ended, told by the tasks that an agent lists."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import N1, NOON, WEB, after
from persys.core.task_trace import Ending, Operation, ending, is_unclear
from persys.model.action import Action, ActionKind, ActionState
from persys.model.ids import ActionId
from persys.model.observation import Actual, Observation
from persys.model.workload import Desired

STOPPED = Observation(WEB, N1, Actual.STOPPED, after(20), message="no containers")
UNKNOWN = Observation(WEB, N1, Actual.UNKNOWN, after(20), metadata={"last_error": "no route"})
REMOVAL = Operation(Desired.DELETED, after(10))
APPLY = Operation(Desired.RUNNING, after(10), task_id="apply-2")


def a_task(
    kind: ActionKind,
    state: ActionState,
    at: datetime,
    *,
    name: str = "task",
    error: str = "",
) -> Action:
    return Action(ActionId(name), WEB, kind, state, at, error=error)


def a_delete(
    state: ActionState = ActionState.COMPLETED, at: datetime = NOON, error: str = ""
) -> Action:
    return a_task(ActionKind.DELETE, state, at, error=error)


def an_apply(state: ActionState, at: datetime, *, name: str = "task", error: str = "") -> Action:
    return a_task(ActionKind.APPLY, state, at, name=name, error=error)


def ended(seen: Observation, sent: Operation, *actions: Action) -> Ending | None:
    return ending(seen, actions, sent, is_not_found=lambda text: "not found" in text)


def test_a_removal_that_completed_after_it_was_sent_proves_absence() -> None:
    applied = an_apply(ActionState.COMPLETED, NOON)

    assert ended(STOPPED, REMOVAL, applied, a_delete(at=after(10))) == Ending(Actual.ABSENT)


def test_a_removal_that_found_nothing_proves_absence() -> None:
    nothing = a_delete(ActionState.FAILED, after(11), "workload not found")

    assert ended(STOPPED, REMOVAL, nothing) == Ending(Actual.ABSENT)


@pytest.mark.parametrize(
    "actions",
    [
        (),
        (a_delete(at=NOON),),
        (a_delete(ActionState.RUNNING, after(11)),),
        (a_delete(ActionState.FAILED, after(11), "device busy"),),
        (a_delete(at=after(11)), an_apply(ActionState.COMPLETED, after(12))),
        (a_delete(at=after(11)), a_delete(ActionState.PENDING, after(11))),
        (a_delete(at=after(11)), a_delete(ActionState.FAILED, after(15), "device busy")),
    ],
)
def test_nothing_less_proves_absence(actions: tuple[Action, ...]) -> None:
    assert ended(STOPPED, REMOVAL, *actions) is None


def test_what_runs_is_not_taken_for_gone() -> None:
    running = Observation(WEB, N1, Actual.RUNNING, after(20))

    assert not is_unclear(running, Desired.DELETED)
    assert is_unclear(STOPPED, Desired.DELETED)


def test_the_failed_task_of_the_order_gives_the_cause() -> None:
    task = an_apply(ActionState.FAILED, after(10), name="apply-2", error="pull denied")

    assert ended(UNKNOWN, APPLY, task) == Ending(Actual.FAILED, "pull denied")


def test_a_task_under_way_outweighs_the_error_of_an_earlier_one() -> None:
    old = an_apply(ActionState.FAILED, after(9), name="apply-1", error="pull denied")
    task = an_apply(ActionState.RUNNING, after(10), name="apply-2")

    assert ended(UNKNOWN, APPLY, old, task) == Ending(Actual.PENDING)


def test_without_tasks_the_last_error_counts() -> None:
    assert ended(UNKNOWN, APPLY) == Ending(Actual.FAILED, "no route")
    old = an_apply(ActionState.FAILED, NOON, name="apply-1", error="pull denied")
    assert ended(UNKNOWN, APPLY, old) is None


@given(
    st.lists(
        st.builds(
            a_task,
            st.sampled_from(ActionKind),
            st.sampled_from(ActionState),
            st.integers(-100, 6).map(after),
        )
    )
)
def test_tasks_from_before_the_removal_never_prove_absence(actions: list[Action]) -> None:
    assert ended(STOPPED, REMOVAL, *actions) is None
