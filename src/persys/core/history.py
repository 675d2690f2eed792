"""What is remembered of the actions of nodes, and how a time-out is told.

Every action that has ended is kept, and those under way when an operation did not end in time.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from persys.model.action import Action
from persys.model.history import ACTIONS_MAX, History, Sighting
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
    """Newest first. An action that was seen before is shown as it is now."""
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
    """Whether an action that has ended is on record as such. One older than all that is kept counts too."""
    sightings = history.sightings if history is not None else ()
    for sighting in sightings:
        if (sighting.node_id, sighting.action.id) == (node_id, action.id[:ID_LENGTH_MAX]):
            return sighting.action.has_ended
    is_full = len(sightings) >= ACTIONS_MAX
    return is_full and action.created_at < sightings[-1].action.created_at


def tell(about: str, actions: Sequence[Action], problem: str, health: str = "") -> str:
    """One sentence for the event. `problem`: why the node did not say what it was doing.

    `health`: what its health check says; "" if that is well or not known.
    """
    return "; ".join(part for part in (_told(about, actions, problem), health) if part)


def _told(about: str, actions: Sequence[Action], problem: str) -> str:
    if problem:
        return f"{about}; its node did not say what it was doing: {problem}"
    if not actions:
        return f"{about}; its node knows of no task for it"
    newest = max(actions, key=lambda action: action.created_at)
    error = f": {newest.error}" if newest.error else ""
    return f"{about}; task {newest.id} ({newest.kind}) is {newest.state}{error}"


def _bounded(action: Action) -> Action:
    return replace(
        action,
        id=ActionId(action.id[:ID_LENGTH_MAX]),
        error=action.error[:TEXT_LENGTH_MAX],
    )
