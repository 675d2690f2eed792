"""The status of a workload, as the scheduler stores and shows it. Only `core.reconcile` sets it."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from persys.model.failure import Failure
from persys.model.ids import Revision, WorkloadId


class Status(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    STOPPED = "Stopped"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    DELETING = "Deleting"


class Belief(Struct, frozen=True):
    workload_id: WorkloadId
    status: Status
    changed_at: datetime
    code: str = ""
    message: str = ""
    failure: Failure | None = None
    revision: Revision = Revision("")  # last reported by its node
    epoch: int = 0
    metadata: dict[str, str] = {}


class Retry(Struct, frozen=True):
    """The plan to retry the same revision."""

    workload_id: WorkloadId
    revision: Revision
    attempts: int
    next_at: datetime | None  # None: given up until a new revision or a retry request
