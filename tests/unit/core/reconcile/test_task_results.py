"""The result of an operation from the task list of an agent."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import N1, NOON, WEB, after
from persys.core.reconcile.task_history import (
    Operation,
    TaskResult,
    is_lost,
    is_unclear,
    result_from_tasks,
    shows_removed,
)
from persys.model.action import Action, ActionKind, ActionState
from persys.model.ids import ActionId, Revision
from persys.model.status import Actual, Observation
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


def ended(seen: Observation, sent: Operation, *actions: Action) -> TaskResult | None:
    return result_from_tasks(seen, actions, sent, is_not_found=lambda text: "not found" in text)


def test_a_removal_that_completed_after_it_was_sent_proves_absence() -> None:
    applied = an_apply(ActionState.COMPLETED, NOON)

    assert ended(STOPPED, REMOVAL, applied, a_delete(at=after(10))) == TaskResult(Actual.ABSENT)


def test_a_removal_that_found_nothing_proves_absence() -> None:
    nothing = a_delete(ActionState.FAILED, after(11), "workload not found")

    assert ended(STOPPED, REMOVAL, nothing) == TaskResult(Actual.ABSENT)


@pytest.mark.parametrize(
    "actions",
    [
        (),
        (a_delete(at=NOON),),
        (a_delete(ActionState.RUNNING, after(11)),),
        (a_delete(at=after(11)), an_apply(ActionState.COMPLETED, after(12))),
        (a_delete(at=after(11)), a_delete(ActionState.PENDING, after(11))),
    ],
)
def test_nothing_less_proves_absence(actions: tuple[Action, ...]) -> None:
    assert ended(STOPPED, REMOVAL, *actions) is None


def test_a_running_workload_is_not_considered_absent() -> None:
    running = Observation(WEB, N1, Actual.RUNNING, after(20))

    assert ended(running, REMOVAL, a_delete(at=after(11))) is None
    assert ended(STOPPED, REMOVAL, a_delete(at=after(11))) == TaskResult(Actual.ABSENT)


def test_a_removal_that_failed_gives_its_cause() -> None:
    busy = a_delete(ActionState.FAILED, after(11), "device busy")

    assert ended(STOPPED, REMOVAL, a_delete(at=after(10)), busy) == TaskResult(
        Actual.FAILED, "device busy"
    )


@pytest.mark.parametrize(
    ("actual", "revision", "desired", "unclear"),
    [
        (Actual.RUNNING, "r2", Desired.RUNNING, False),
        (Actual.RUNNING, "", Desired.RUNNING, False),
        (Actual.RUNNING, "r1", Desired.RUNNING, True),
        (Actual.STOPPED, "r2", Desired.RUNNING, True),
        (Actual.STOPPED, "r2", Desired.STOPPED, False),
        (Actual.RUNNING, "r2", Desired.STOPPED, True),
        (Actual.UNKNOWN, "r2", Desired.RUNNING, True),
        (Actual.PENDING, "r2", Desired.RUNNING, False),
        (Actual.FAILED, "r2", Desired.RUNNING, False),
        (Actual.ABSENT, "", Desired.RUNNING, True),
        (Actual.STOPPED, "r2", Desired.DELETED, True),
        (Actual.ABSENT, "", Desired.DELETED, False),
    ],
)
def test_tasks_are_requested_until_the_status_matches_the_order(
    actual: Actual, revision: str, desired: Desired, unclear: bool
) -> None:
    seen = Observation(WEB, N1, actual, after(20), revision=Revision(revision))
    sent = Operation(desired, after(10), revision=Revision("r2"))

    assert is_unclear(seen, sent) is unclear


def test_an_operation_without_a_task_since_it_was_sent_is_lost() -> None:
    old = an_apply(ActionState.COMPLETED, NOON, name="apply-1")
    own = an_apply(ActionState.PENDING, after(10), name="apply-2")

    assert is_lost([old], APPLY)
    assert not is_lost([old, own], APPLY)
    assert not is_lost([old], Operation(Desired.RUNNING, after(10)))  # the node named no task
    assert is_lost([a_delete(at=NOON)], REMOVAL)
    assert not is_lost([a_delete(ActionState.RUNNING, after(10))], REMOVAL)


@pytest.mark.parametrize(
    ("actions", "removed"),
    [
        ((), False),
        ((a_delete(),), True),
        ((a_delete(ActionState.FAILED, NOON, "workload not found"),), True),
        ((a_delete(ActionState.FAILED, NOON, "device busy"),), False),
        ((a_delete(ActionState.RUNNING),), False),
        ((a_delete(), an_apply(ActionState.COMPLETED, after(1))), False),
    ],
)
def test_tasks_that_end_with_a_removal_show_that_the_workload_is_absent(
    actions: tuple[Action, ...], removed: bool
) -> None:
    assert shows_removed(actions, is_not_found=lambda text: "not found" in text) is removed


def test_an_old_error_of_a_running_workload_does_not_fail_its_stop() -> None:
    running = Observation(WEB, N1, Actual.RUNNING, after(20), metadata={"last_error": "no route"})

    assert ended(running, Operation(Desired.STOPPED, after(10))) is None


def test_the_failed_task_of_the_order_gives_the_cause() -> None:
    task = an_apply(ActionState.FAILED, after(10), name="apply-2", error="pull denied")

    assert ended(UNKNOWN, APPLY, task) == TaskResult(Actual.FAILED, "pull denied")


def test_a_task_in_progress_overrides_the_error_of_an_earlier_one() -> None:
    old = an_apply(ActionState.FAILED, after(9), name="apply-1", error="pull denied")
    task = an_apply(ActionState.RUNNING, after(10), name="apply-2")

    assert ended(UNKNOWN, APPLY, old, task) == TaskResult(Actual.PENDING)


def test_without_tasks_the_last_error_counts() -> None:
    assert ended(UNKNOWN, APPLY) == TaskResult(Actual.FAILED, "no route")
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
