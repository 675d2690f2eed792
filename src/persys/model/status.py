"""What is reported and stored about a workload: observations, failures, status, retries and drift.

Only `core.reconcile` sets the status. Structs with `gc=False` have no reference cycles, and there are very
many: the collector skips them.
"""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from persys.model.action import Action
from persys.model.ids import NodeId, Revision, WorkloadId


class FailureReason(StrEnum):
    IMAGE_PULL_FAILED = "IMAGE_PULL_FAILED"
    IMAGE_NOT_FOUND = "IMAGE_NOT_FOUND"
    INSUFFICIENT_RESOURCES = "INSUFFICIENT_RESOURCES"
    INVALID_SPEC = "INVALID_SPEC"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    NETWORK_ERROR = "NETWORK_ERROR"
    STORAGE_ERROR = "STORAGE_ERROR"
    VM_BOOT_FAILED = "VM_BOOT_FAILED"

    @property
    def retryable(self) -> bool:
        """An invalid spec or a missing image needs a change by a user."""
        return self not in _PERMANENT


_PERMANENT = frozenset({FailureReason.INVALID_SPEC, FailureReason.IMAGE_NOT_FOUND})


class Failure(Struct, frozen=True, gc=False):
    """A workload could not reach its desired state."""

    reason: FailureReason
    message: str
    retryable: bool = True
    code: str = ""  # more specific than the reason, for example CrashLoop


class Status(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    STOPPED = "Stopped"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    DELETING = "Deleting"


class WorkloadStatus(Struct, frozen=True, gc=False):
    workload_id: WorkloadId
    status: Status
    changed_at: datetime
    code: str = ""
    message: str = ""
    failure: Failure | None = None
    revision: Revision = Revision("")  # last reported by its node
    epoch: int = 0
    metadata: dict[str, str] = {}
    # Since when it is running without a restart and its health check, if any, passes. None: it is not.
    healthy_since: datetime | None = None


class Retry(Struct, frozen=True, gc=False):
    """The plan to retry the same revision."""

    workload_id: WorkloadId
    revision: Revision
    attempts: int
    next_at: datetime | None  # None: given up until a new revision or a retry request


class Actual(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    UNKNOWN = "unknown"
    ABSENT = "absent"  # confirmed absent; never sent when the runtime could not be read


class Observation(Struct, frozen=True, gc=False):
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
