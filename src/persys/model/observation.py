"""What one agent reported about one workload at one time."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from persys.model.action import Action
from persys.model.failure import Failure
from persys.model.ids import NodeId, Revision, WorkloadId


class Actual(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    UNKNOWN = "unknown"
    ABSENT = "absent"  # confirmed absent; never sent when the runtime could not be read


class Observation(Struct, frozen=True, gc=False):  # no reference cycles, and there are very many
    workload_id: WorkloadId
    node_id: NodeId
    actual: Actual
    seen_at: datetime
    revision: Revision = Revision("")  # "": not reported
    epoch: int = 0  # 0: the agent does not use epochs
    failure: Failure | None = None
    message: str = ""
    metadata: dict[str, str] = {}
    known_epoch: int = 0  # the agent refused an order because of this epoch; 0: it did not
    proof: bytes = b""  # of the assignment with this epoch; b"": the agent has none
    action: Action | None = None  # the last action for it, once it has ended
