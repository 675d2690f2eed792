"""A difference between the records and what a node reports, stored until it is resolved."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.status import Actual


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
    revision: Revision = Revision("")  # as the node reports it
    epoch: int = 0
    actual: Actual = Actual.UNKNOWN
    # For an orphan: whether placement considers it. Older records lack the field and count.
    counts: bool = True
