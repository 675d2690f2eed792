"""A workload: the intent of a user, its copies on agents (orders, stored intents), and suggestions to change
it."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.placement import Resources, Rules
from persys.model.spec import Spec, WorkloadType


class Desired(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    DELETED = "deleted"


class Membership(Struct, frozen=True, omit_defaults=True, gc=False):
    """The set or the run of a job that a workload belongs to. Only its owner changes it."""

    owner: str  # the id of the set, or of the run
    index: int  # from 0, the value of PERSYS_INDEX
    number: (
        int  # the last part of the workload id; it differs from `index` during a start-first update
    )
    revision: int = 1  # the revision of the set that it runs; of a run: the attempt, from 1
    node_id: NodeId = NodeId("")  # of a set with one member per node: its node
    job_id: str = ""  # "": a member of a set


class Workload(Struct, frozen=True, gc=False):  # no reference cycles, and there are very many
    id: WorkloadId
    spec: Spec
    revision: Revision
    created_at: datetime
    updated_at: datetime
    desired: Desired = Desired.RUNNING
    resources: Resources = Resources()
    metadata: dict[str, str] = {}
    rules: Rules = Rules()
    stop_after_seconds: int = 0  # 0: never
    stopped_because: str = ""  # why the scheduler set the desired state to stopped; "": a user did
    membership: Membership | None = None  # None: it is not a member
    run_deadline_seconds: int = 0  # of a member of a job: since its first start; 0: no limit
    networks: tuple[str, ...] = ()  # that it joins

    @property
    def runs_once(self) -> bool:
        """Whether it is a member of a job: only the retries of the job run it again."""
        return self.membership is not None and bool(self.membership.job_id)


class StoredIntent(Struct, frozen=True):
    node_id: NodeId
    workload: Workload
    epoch: int  # of its order


class Order(Struct, frozen=True):
    workload_id: WorkloadId
    type: WorkloadType
    revision: Revision
    epoch: int  # 0: the scheduler does not use epochs
    desired: Desired
    spec: Spec
    stop_after_seconds: int = 0  # without the scheduler; 0: never
    keeps_data: bool = False  # of a delete: its volumes stay
    secret_env: tuple[str, ...] = ()  # variables whose values are never shown
    proof: bytes = b""  # of the assignment; the agent stores and reports it
    run_once: bool = False  # a member of a job: it is started at most once
    run_deadline_seconds: int = 0  # since its first start; 0: no limit
    networks: tuple[str, ...] = ()  # that it joins


class SuggestedAction(StrEnum):
    SET_DESIRED_STATE = "set_desired_state"
    RETRY_WORKLOAD = "retry_workload"
    DELETE_WORKLOAD = "delete_workload"
    SCALE_REPLICAS = "scale_replicas"


class Suggestion(Struct, frozen=True):
    id: str
    target_workload: str = ""
    action: SuggestedAction | None = None  # None: missing or unknown
    desired_state: str = ""  # as submitted
    desired_replicas: int = 0
    replica_delta: int = 0
    policy_id: str = ""
    policy_name: str = ""
    reason: str = ""

    def is_same_request_as(self, other: "Suggestion") -> bool:
        """Whether both request the same change. Policy and reason may differ."""
        return self._request() == other._request()

    def _request(self) -> tuple[str, SuggestedAction | None, str, int, int]:
        return (
            self.target_workload,
            self.action,
            self.desired_state.lower(),
            self.desired_replicas,
            self.replica_delta,
        )


class SuggestionDecision(Struct, frozen=True):
    """The decision about a suggestion, the same each time it is submitted.

    With `pending_until` it is rejected for now and can be approved until then.
    """

    suggestion: Suggestion
    accepted: bool
    decided_at: datetime
    reason: str = ""
    applied_action: str = ""  # empty when it was rejected
    submitted_by: str = ""
    decided_by: str = ""  # who approved or rejected it
    pending_until: datetime | None = None

    def is_pending(self, now: datetime) -> bool:
        return self.pending_until is not None and now < self.pending_until
