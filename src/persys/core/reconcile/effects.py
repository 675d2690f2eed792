"""Effects that core returns and a shell performs. Each is idempotent: after a crash it is repeated."""

from dataclasses import dataclass
from datetime import datetime

from persys.model.ids import NodeId, WorkloadId
from persys.model.workload import Workload


@dataclass(frozen=True, slots=True)
class Apply:
    """Order the node to apply this revision."""

    node_id: NodeId
    workload: Workload
    epoch: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Order the node to remove its copy."""

    node_id: NodeId
    workload_id: WorkloadId
    epoch: int
    keeps_data: bool = False  # volumes and files stay on the node


@dataclass(frozen=True, slots=True)
class PollStatus:
    """Poll the status of the workload from an agent that does not report changes."""

    node_id: NodeId
    workload_id: WorkloadId


@dataclass(frozen=True, slots=True)
class FetchActions:
    """Fetch the actions of the workload from its node after a time-out. `about` names the operation."""

    node_id: NodeId
    workload_id: WorkloadId
    epoch: int
    about: str


@dataclass(frozen=True, slots=True)
class KeepActions:
    """Store the ended actions of the workload from an agent that does not report them.

    `sent_at` identifies the order that has ended: its actions are stored once.
    """

    node_id: NodeId
    workload_id: WorkloadId
    sent_at: datetime


Effect = Apply | Remove | PollStatus | FetchActions | KeepActions
