"""An entry of the audit history. Past tense, never read by core.

Only kinds of this table are written. A stored event may be from an older or newer version, so a kind that is
not in the table still loads unchanged; `list(EventKind)` does not contain it.
"""

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct


class EventKind(StrEnum):
    WORKLOAD_CREATED = "WorkloadCreated"
    WORKLOAD_UPDATED = "WorkloadUpdated"
    WORKLOAD_START_ASKED = "WorkloadStartAsked"
    WORKLOAD_STOP_ASKED = "WorkloadStopAsked"
    WORKLOAD_DELETE_ASKED = "WorkloadDeleteAsked"
    WORKLOAD_RETRY_ASKED = "WorkloadRetryAsked"
    WORKLOAD_REDEPLOY_ASKED = "WorkloadRedeployAsked"
    WORKLOAD_PLACED = "WorkloadPlaced"
    WORKLOAD_UNPLACEABLE = "WorkloadUnplaceable"
    WORKLOAD_RUNNING = "WorkloadRunning"
    WORKLOAD_UNHEALTHY = "WorkloadUnhealthy"
    WORKLOAD_HEALTHY = "WorkloadHealthy"
    WORKLOAD_STOPPED = "WorkloadStopped"
    WORKLOAD_FAILED = "WorkloadFailed"
    WORKLOAD_UNKNOWN = "WorkloadUnknown"
    WORKLOAD_DELETED = "WorkloadDeleted"
    OPERATION_TIMED_OUT = "OperationTimedOut"
    OLD_COPY_REMOVED = "OldCopyRemoved"
    DRIFT_DETECTED = "DriftDetected"
    DRIFT_RESOLVED = "DriftResolved"
    ORPHAN_ADOPTED = "OrphanAdopted"
    ORPHAN_DELETE_ASKED = "OrphanDeleteAsked"
    NODE_REGISTERED = "NodeRegistered"
    NODE_REGISTERED_AGAIN = "NodeRegisteredAgain"
    NODE_READY = "NodeReady"
    NODE_NOT_READY = "NodeNotReady"
    NODE_CORDONED = "NodeCordoned"
    NODE_UNCORDONED = "NodeUncordoned"
    NODE_TAINTED = "NodeTainted"
    NODE_UNTAINTED = "NodeUntainted"
    NODE_DRAIN_ASKED = "NodeDrainAsked"
    NODE_CERTIFICATE_EXPIRES = "NodeCertificateExpires"
    NODE_CONFIRMED_DEAD = "NodeConfirmedDead"
    NODE_REMOVAL_ASKED = "NodeRemovalAsked"
    NODE_REMOVED = "NodeRemoved"
    TOKEN_CREATED = "TokenCreated"  # noqa: S105 - no secret
    TOKEN_REVOKED = "TokenRevoked"  # noqa: S105 - no secret
    ACCESS_DENIED = "AccessDenied"
    MODE_CHANGED = "ModeChanged"
    SECRET_STORED = "SecretStored"  # noqa: S105 - no secret
    SECRET_DELETED = "SecretDeleted"  # noqa: S105 - no secret
    SUGGESTION_ACCEPTED = "SuggestionAccepted"
    SUGGESTION_REJECTED = "SuggestionRejected"
    SUGGESTION_PENDING = "SuggestionPending"
    EXEC_STARTED = "ExecStarted"
    CONSOLE_OPENED = "ConsoleOpened"
    PORT_FORWARDED = "PortForwarded"
    FILES_COPIED = "FilesCopied"
    IMAGE_ADDED = "ImageAdded"
    IMAGE_REMOVED = "ImageRemoved"
    VOLUME_DELETED = "VolumeDeleted"
    SNAPSHOT_SAVED = "SnapshotSaved"
    SNAPSHOT_RESTORED = "SnapshotRestored"
    CLUSTER_REBUILT = "ClusterRebuilt"
    STORE_ACCEPTED = "StoreAccepted"
    NODE_POOL_CREATED = "NodePoolCreated"
    NODE_POOL_UPDATED = "NodePoolUpdated"
    NODE_POOL_PAUSED = "NodePoolPaused"
    NODE_POOL_RESUMED = "NodePoolResumed"
    NODE_POOL_DELETE_ASKED = "NodePoolDeleteAsked"
    NODE_POOL_DELETED = "NodePoolDeleted"
    MACHINE_CREATING = "MachineCreating"
    MACHINE_CREATED = "MachineCreated"
    MACHINE_REFUSED = "MachineRefused"
    MACHINE_READY = "MachineReady"
    MACHINE_DRAINING = "MachineDraining"
    MACHINE_DESTROYING = "MachineDestroying"
    MACHINE_REMOVED = "MachineRemoved"
    SET_CREATED = "SetCreated"
    SET_UPDATED = "SetUpdated"
    SET_SCALED = "SetScaled"
    SET_DELETE_ASKED = "SetDeleteAsked"
    SET_DELETED = "SetDeleted"
    ROLLOUT_STARTED = "RolloutStarted"
    ROLLOUT_CANARY_READY = "RolloutCanaryReady"
    ROLLOUT_PROMOTED = "RolloutPromoted"
    ROLLOUT_PAUSED = "RolloutPaused"
    ROLLOUT_RESUMED = "RolloutResumed"
    ROLLOUT_UNDONE = "RolloutUndone"
    ROLLOUT_ROLLED_BACK = "RolloutRolledBack"
    ROLLOUT_COMPLETED = "RolloutCompleted"
    JOB_CREATED = "JobCreated"
    JOB_UPDATED = "JobUpdated"
    JOB_SUSPENDED = "JobSuspended"
    JOB_RESUMED = "JobResumed"
    JOB_DELETE_ASKED = "JobDeleteAsked"
    JOB_DELETED = "JobDeleted"
    JOB_OCCURRENCES_SKIPPED = "JobOccurrencesSkipped"
    RUN_STARTED = "RunStarted"
    RUN_SUCCEEDED = "RunSucceeded"
    RUN_FAILED = "RunFailed"
    RUN_CANCELLED = "RunCancelled"
    SERVICE_CREATED = "ServiceCreated"
    SERVICE_UPDATED = "ServiceUpdated"
    SERVICE_DELETED = "ServiceDeleted"
    RECORD_READ = "RecordRead"
    RECORD_DELETED = "RecordDeleted"

    @classmethod
    def _missing_(cls, value: object) -> "EventKind | None":
        if not isinstance(value, str):
            return None
        unknown = str.__new__(cls, value)
        unknown._name_ = unknown._value_ = value
        return unknown


class Event(Struct, frozen=True, gc=False):  # no reference cycles, and there are very many
    at: datetime
    kind: EventKind
    message: str = ""
    workload_id: str = ""
    node_id: str = ""
    revision: str = ""
    epoch: int = 0
    identity: str = ""  # of the caller whose request caused it: role/name, maybe "via gateway/g1"
    source: str = ""  # network address of that caller
    task_id: str = ""  # of the action on the node that caused it
    rule: str = ""  # of the decision that caused it; "": no decision of `core.reconcile`


class NumberedEvent(NamedTuple):
    """An event with its sequence number in the cluster."""

    sequence: int
    event: Event
