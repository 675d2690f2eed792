"""What one agent said about one workload at one time."""

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
    ABSENT = "absent"  # positively not there; never sent when the agent could not look


class Observation(Struct, frozen=True, gc=False):  # it holds no cycle, and there are very many
    workload_id: WorkloadId
    node_id: NodeId
    actual: Actual
    seen_at: datetime
    revision: Revision = Revision("")  # "": the agent did not say
    epoch: int = 0  # 0: the agent knows no epochs
    failure: Failure | None = None
    message: str = ""
    metadata: dict[str, str] = {}
    known_epoch: int = 0  # it refused an order because of this epoch; 0: it did not
    proof: bytes = b""  # that the scheduler gave it this epoch; b"": the agent has none
    action: Action | None = None  # the last one for it, once it has ended
