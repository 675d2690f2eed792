"""The action history of a workload: ended actions, and those in progress when an operation timed out."""

from datetime import datetime

from msgspec import Struct

from persys.model.action import Action
from persys.model.ids import NodeId, WorkloadId

ACTIONS_MAX = 20


class Sighting(Struct, frozen=True):
    """An action of an agent, as it was when the scheduler fetched it."""

    node_id: NodeId
    fetched_at: datetime
    action: Action


class History(Struct, frozen=True):
    """Newest first, at most ACTIONS_MAX."""

    workload_id: WorkloadId
    sightings: tuple[Sighting, ...] = ()
