"""How an operation ended, from the tasks that an agent lists, where its status does not tell.

Agents of other makes report a failed apply as UNKNOWN, and may report a deleted workload as STOPPED for ever.
Their task list tells both. A task counts only if it began after the operation was sent, by the clock of the
node, so that a task of an earlier life of the id proves nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from persys.model.action import Action, ActionKind, ActionState
from persys.model.observation import Actual, Observation
from persys.model.workload import Desired

# Task times are whole seconds, and the clock of the node is known only as of its last heartbeat.
TOLERANCE = timedelta(seconds=3)

_UNDER_WAY = (ActionState.PENDING, ActionState.RUNNING)
TASK_STATUS = "task_status"
LAST_ERROR = "last_error"


@dataclass(frozen=True, slots=True)
class Operation:
    """What was sent to a node."""

    desired: Desired
    sent_at: datetime  # by the clock of the node
    task_id: str = ""  # what the node calls it, if it said so


@dataclass(frozen=True, slots=True)
class Ending:
    """What the tasks say: gone, failed for a cause, or still at it."""

    actual: Actual
    text: str = ""


def is_unclear(seen: Observation, desired: Desired) -> bool:
    """Whether only the tasks can tell how the operation ended."""
    if desired is Desired.DELETED:
        return seen.actual not in (Actual.ABSENT, Actual.RUNNING)
    if seen.actual is Actual.PENDING:
        return seen.metadata.get(TASK_STATUS) == ActionState.FAILED
    return seen.actual is Actual.UNKNOWN


def ending(
    seen: Observation,
    actions: Sequence[Action],
    sent: Operation,
    *,
    is_not_found: Callable[[str], bool],
) -> Ending | None:
    """None: the tasks add nothing to what was seen. `is_not_found` reads the error of a task."""
    if sent.desired is Desired.DELETED:
        gone = _proves_absence(actions, sent, is_not_found)
        return Ending(Actual.ABSENT) if gone else None
    task = _apply_of(actions, sent)
    if task is None:
        # Without tasks of this id the error in the status is all there is.
        error = "" if any(action.kind is ActionKind.APPLY for action in actions) else _error(seen)
        return Ending(Actual.FAILED, error) if error else None
    if task.state is ActionState.FAILED:
        return Ending(Actual.FAILED, task.error or _error(seen) or seen.message)
    return Ending(Actual.PENDING) if task.state in _UNDER_WAY else None


def finished(actions: Iterable[Action]) -> list[Action]:
    return [action for action in actions if action.state not in _UNDER_WAY]


def _proves_absence(
    actions: Sequence[Action], sent: Operation, is_not_found: Callable[[str], bool]
) -> bool:
    """The last removals of the id have all ended, began after it was sent, and nothing was applied since."""
    deletes = [action for action in actions if action.kind is ActionKind.DELETE]
    newest = max((action.created_at for action in deletes), default=None)
    if newest is None or newest < sent.sent_at - TOLERANCE:
        return False
    if any(action.kind is ActionKind.APPLY and action.created_at > newest for action in actions):
        return False
    return all(
        action.state is ActionState.COMPLETED
        or (action.state is ActionState.FAILED and is_not_found(action.error))
        for action in deletes
        if action.created_at == newest
    )


def _apply_of(actions: Sequence[Action], sent: Operation) -> Action | None:
    applies = [action for action in actions if action.kind is ActionKind.APPLY]
    for action in applies:
        if sent.task_id and action.id == sent.task_id:
            return action
    since = [action for action in applies if action.created_at >= sent.sent_at - TOLERANCE]
    return max(since, key=lambda action: action.created_at, default=None)


def _error(seen: Observation) -> str:
    return seen.metadata.get(LAST_ERROR, "") or (seen.failure.message if seen.failure else "")
