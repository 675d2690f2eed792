"""The action history of a workload, and the description of a time-out.

The history holds every ended action, and those in progress when an operation timed out.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from persys.model.action import ACTIONS_MAX, Action, History, Sighting
from persys.model.ids import ActionId, NodeId, WorkloadId

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
        sighting = Sighting(node_id, now, _bounded(action))
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


def tell(about: str, actions: Sequence[Action], problem: str, health: str = "") -> str:
    """One sentence for the event. `problem`: why the actions could not be fetched from the node.

    `health`: the result of its health check; "" if healthy or unknown.
    """
    return "; ".join(part for part in (_told(about, actions, problem), health) if part)


def _told(about: str, actions: Sequence[Action], problem: str) -> str:
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
