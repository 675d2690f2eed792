"""A difference between what is recorded and what a node says, noted until it is gone."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.observation import Actual


class DriftType(StrEnum):
    ORPHAN = "orphan_on_agent"
    STATE = "state_mismatch"
    REVISION = "revision_mismatch"
    MISSING = "missing_on_agent"


class Drift(Struct, frozen=True):
    node_id: NodeId
    workload_id: WorkloadId
    type: DriftType
    detected_at: datetime
    detail: str = ""
    revision: Revision = Revision("")  # as the node says
    epoch: int = 0
    actual: Actual = Actual.UNKNOWN
    # Of an orphan: it counts when its workload is placed. Records of older versions do not say; those count.
    counts: bool = True
