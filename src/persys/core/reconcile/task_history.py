"""Tasks of nodes: the result of an operation from a task list, and the stored action history.

A third-party agent reports a failed apply as UNKNOWN, or as the state before it, and may report a deleted
workload as STOPPED for ever. Its task list shows both. A task counts only if it was created after the
operation was sent, by the clock of the node, so that a task of an earlier workload with the same id does not
count.

The history of a workload holds every ended action, and those in progress when an operation timed out.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from msgspec.structs import replace

from persys.model.action import ACTIONS_MAX, Action, ActionKind, ActionState, History, HistoryEntry
from persys.model.ids import ActionId, NodeId, Revision, WorkloadId
from persys.model.status import Actual, Observation
from persys.model.workload import Desired

# Task times are whole seconds, and the clock of the node is known only as of its last heartbeat.
TOLERANCE = timedelta(seconds=3)

NO_REVISION = Revision("")
_WANTED = {Desired.RUNNING: Actual.RUNNING, Desired.STOPPED: Actual.STOPPED}
_UNDER_WAY = (ActionState.PENDING, ActionState.RUNNING)
TASK_STATUS = "task_status"
LAST_ERROR = "last_error"


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that was sent to a node."""

    desired: Desired
    sent_at: datetime  # by the clock of the node
    task_id: str = ""  # the node's id of the task, if known
    revision: Revision = NO_REVISION


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result according to the tasks: absent, failed with an error, or still in progress."""

    actual: Actual
    text: str = ""


def is_unclear(seen: Observation, sent: Operation) -> bool:
    """Whether only the tasks show if and how the operation ended."""
    if sent.desired is Desired.DELETED:
        return seen.actual is not Actual.ABSENT
    match seen.actual:
        case Actual.FAILED:
            return False
        case Actual.PENDING:
            return seen.metadata.get(TASK_STATUS) == ActionState.FAILED
        case Actual.UNKNOWN | Actual.ABSENT:
            return True
        case Actual.RUNNING | Actual.STOPPED:
            return seen.actual is not _WANTED[sent.desired] or seen.revision not in (
                NO_REVISION,
                sent.revision,
            )
        case unreachable:
            assert_never(unreachable)


def result_from_tasks(
    seen: Observation,
    actions: Sequence[Action],
    sent: Operation,
    *,
    is_not_found: Callable[[str], bool],
) -> TaskResult | None:
    """None: the tasks add nothing to the observation. `is_not_found` classifies the error of a task."""
    if sent.desired is Desired.DELETED:
        return _end_of_removal(seen, actions, sent, is_not_found)
    task = _apply_of(actions, sent)
    if task is None:
        # Without tasks for this id only the status has an error. A running workload may show an old one.
        silent = not any(action.kind is ActionKind.APPLY for action in actions)
        error = _error(seen) if silent and seen.actual is not Actual.RUNNING else ""
        return TaskResult(Actual.FAILED, error) if error else None
    if task.state is ActionState.FAILED:
        return TaskResult(Actual.FAILED, task.error or _error(seen) or seen.message)
    return TaskResult(Actual.PENDING) if task.state in _UNDER_WAY else None


def shows_removed(actions: Sequence[Action], *, is_not_found: Callable[[str], bool]) -> bool:
    """Whether the last tasks of an id are its completed removal."""
    last = _last_removals(actions)
    return bool(last) and all(
        action.state is ActionState.COMPLETED or is_not_found(action.error) for action in last
    )


def is_lost(actions: Sequence[Action], sent: Operation) -> bool:
    """Whether the node accepted the operation but has no task for it, as after a crash of the agent."""
    if sent.desired is Desired.DELETED:
        oldest = sent.sent_at - TOLERANCE
        return not any(
            action.kind is ActionKind.DELETE and action.created_at >= oldest for action in actions
        )
    return bool(sent.task_id) and _apply_of(actions, sent) is None


def finished(actions: Iterable[Action]) -> list[Action]:
    return [action for action in actions if action.state not in _UNDER_WAY]


def _end_of_removal(
    seen: Observation,
    actions: Sequence[Action],
    sent: Operation,
    is_not_found: Callable[[str], bool],
) -> TaskResult | None:
    """Absent: the last removals of the id ended, were created after the request, and no apply followed.

    A workload that is reported as running is never considered absent.
    """
    last = _last_removals(actions)
    if not last or last[0].created_at < sent.sent_at - TOLERANCE:
        return None
    for action in last:
        if action.state is ActionState.FAILED and not is_not_found(action.error):
            return TaskResult(Actual.FAILED, action.error or seen.message)
    return None if seen.actual is Actual.RUNNING else TaskResult(Actual.ABSENT)


def _last_removals(actions: Sequence[Action]) -> list[Action]:
    """The newest removals; none if one of them is in progress, or an apply followed."""
    deletes = [action for action in actions if action.kind is ActionKind.DELETE]
    newest = max((action.created_at for action in deletes), default=None)
    if newest is None:
        return []
    if any(action.kind is ActionKind.APPLY and action.created_at > newest for action in actions):
        return []
    last = [action for action in deletes if action.created_at == newest]
    return [] if any(action.state in _UNDER_WAY for action in last) else last


def _apply_of(actions: Sequence[Action], sent: Operation) -> Action | None:
    applies = [action for action in actions if action.kind is ActionKind.APPLY]
    for action in applies:
        if sent.task_id and action.id == sent.task_id:
            return action
    since = [action for action in applies if action.created_at >= sent.sent_at - TOLERANCE]
    return max(since, key=lambda action: action.created_at, default=None)


def _error(seen: Observation) -> str:
    return seen.metadata.get(LAST_ERROR, "") or (seen.failure.message if seen.failure else "")


ID_LENGTH_MAX = 256
TEXT_LENGTH_MAX = 1024


def remember(
    old: History | None,
    workload_id: WorkloadId,
    node_id: NodeId,
    actions: Iterable[Action],
    *,
    now: datetime,
) -> History:
    """Newest first. An action that is already in the history is updated."""
    seen = {
        (sighting.node_id, sighting.action.id): sighting
        for sighting in (old.sightings if old is not None else ())
    }
    for action in actions:
        sighting = HistoryEntry(node_id, now, _bounded(action))
        seen[(node_id, sighting.action.id)] = sighting
    newest = sorted(seen.values(), key=lambda sighting: sighting.action.created_at, reverse=True)
    return History(workload_id, tuple(newest[:ACTIONS_MAX]))


def is_remembered(history: History | None, node_id: NodeId, action: Action) -> bool:
    """Whether the history has the action as ended. An action older than the whole history counts too."""
    sightings = history.sightings if history is not None else ()
    for sighting in sightings:
        if (sighting.node_id, sighting.action.id) == (node_id, action.id[:ID_LENGTH_MAX]):
            return sighting.action.has_ended
    is_full = len(sightings) >= ACTIONS_MAX
    return is_full and action.created_at < sightings[-1].action.created_at


def describe_timeout(about: str, actions: Sequence[Action], problem: str, health: str = "") -> str:
    """One sentence for the event. `problem`: why the actions could not be fetched from the node.

    `health`: the result of its health check; "" if healthy or unknown.
    """
    return "; ".join(part for part in (_tasks_text(about, actions, problem), health) if part)


def _tasks_text(about: str, actions: Sequence[Action], problem: str) -> str:
    if problem:
        return f"{about}; cannot list the tasks of its node: {problem}"
    if not actions:
        return f"{about}; its node has no task for it"
    newest = max(actions, key=lambda action: action.created_at)
    error = f": {newest.error}" if newest.error else ""
    return f"{about}; task {newest.id} ({newest.kind}) is {newest.state}{error}"


def _bounded(action: Action) -> Action:
    return replace(
        action,
        id=ActionId(action.id[:ID_LENGTH_MAX]),
        error=action.error[:TEXT_LENGTH_MAX],
    )
