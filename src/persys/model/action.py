"""One unit of work on a node, recorded with its times and result. The wire calls it a task."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from persys.model.ids import ActionId, NodeId, WorkloadId


class ActionKind(StrEnum):
    APPLY = "apply_workload"
    DELETE = "delete_workload"
    RECONCILE = "reconcile"


class ActionState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class Action(Struct, frozen=True, gc=False):  # no reference cycles, and there are very many
    id: ActionId
    workload_id: WorkloadId
    kind: ActionKind
    state: ActionState
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: str = ""

    @property
    def has_ended(self) -> bool:
        return self.state in (ActionState.COMPLETED, ActionState.FAILED)


ACTIONS_MAX = 20


class HistoryEntry(Struct, frozen=True):
    """An action of an agent, as it was when the scheduler fetched it."""

    node_id: NodeId
    fetched_at: datetime
    action: Action


class History(Struct, frozen=True):
    """Newest first, at most ACTIONS_MAX."""

    workload_id: WorkloadId
    sightings: tuple[HistoryEntry, ...] = ()
