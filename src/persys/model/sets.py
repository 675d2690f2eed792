"""Sets: members from one template, and the state of their rollout.

A member is an ordinary workload with a `Membership`. Only its set changes it. The rollout is data: a new
leader continues where the last one stopped.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import NewType

from msgspec import Struct

from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.placement import Resources, Rules
from persys.model.spec import Spec
from persys.model.workload import Desired

SetId = NewType("SetId", str)

REVISIONS_MAX = 10
REPLICAS_MAX = 10_000
INDEX_VARIABLE = "PERSYS_INDEX"
RESTARTED_AT = "persys.restarted_at"  # in the metadata of a template: makes it a new revision


class Template(Struct, frozen=True):
    """What each member runs. Its revision is a hash of the content."""

    spec: Spec
    revision: Revision
    resources: Resources = Resources()
    metadata: dict[str, str] = {}
    rules: Rules = Rules()
    stop_after_seconds: int = 0  # 0: never
    networks: tuple[str, ...] = ()  # that each member joins


class SetRevision(Struct, frozen=True):
    """One template of a set. Numbers start with 1 and are not used again."""

    set_id: SetId
    number: int
    template: Template
    created_at: datetime
    created_by: str = ""  # the identity of the caller


class UpdateOrder(StrEnum):
    START_FIRST = "start-first"  # the new member is healthy before the old one is removed
    IN_PLACE = "in-place"  # the member is stopped, changed and started


class OnFailure(StrEnum):
    ROLLBACK = "rollback"  # once, to the last stable revision
    PAUSE = "pause"


class UpdatePolicy(Struct, frozen=True, omit_defaults=True):
    max_parallel: int = 1
    order: UpdateOrder | None = None  # None: start-first if two members can run on one node
    min_healthy_seconds: int = 10
    healthy_deadline_seconds: int = 300
    on_failure: OnFailure = OnFailure.ROLLBACK
    canary: int = 0
    bake_seconds: int = 0  # 0: promoted only by command

    @property
    def min_healthy(self) -> timedelta:
        return timedelta(seconds=self.min_healthy_seconds)

    @property
    def healthy_deadline(self) -> timedelta:
        return timedelta(seconds=self.healthy_deadline_seconds)

    @property
    def bake(self) -> timedelta:
        return timedelta(seconds=self.bake_seconds)


class ScalePolicy(Struct, frozen=True, omit_defaults=True):
    """Automatic scaling. A target of 0 is not used."""

    min_replicas: int
    max_replicas: int
    cpu_percent: int = 0  # of the requested CPU, on average
    memory_percent: int = 0  # of the requested memory, on average
    prometheus_url: str = ""
    prometheus_query: str = ""
    prometheus_target: float = 0.0  # per member
    cooldown_seconds: int = 60


class Phase(StrEnum):
    STEADY = "Steady"  # all members run the target revision, or a missing one is being replaced
    CANARY = "Canary"  # the first members run the target revision; the others wait for a promotion
    ROLLING = "Rolling"
    ROLLING_BACK = "RollingBack"  # to the stable revision, after a failure
    PAUSED = "Paused"


class Rollout(Struct, frozen=True, omit_defaults=True):
    phase: Phase = Phase.STEADY
    started_at: datetime | None = None
    resumed_at: datetime | None = None  # after the last pause
    # The last time that a member passed its gate or that the rollout changed a member.
    progressed_at: datetime | None = None
    canary_since: datetime | None = None  # all canary members have passed their gates since then
    promoted: bool = False
    rolled_back_from: int = 0  # the revision that failed; 0: none
    resumes_as: Phase = Phase.STEADY  # the phase before PAUSED
    reason: str = ""  # why it is paused or rolled back


class WorkloadSet(Struct, frozen=True):
    """`target` is the revision that members should run, `stable` the last one that all members ran."""

    set_id: SetId
    replicas: int
    target: int
    created_at: datetime
    updated_at: datetime
    every_node: bool = False  # one member on each matching node; then `replicas` is 0
    update: UpdatePolicy = UpdatePolicy()
    scale: ScalePolicy | None = None
    desired: Desired = Desired.RUNNING
    stable: int = 0  # 0: none yet
    revisions: tuple[int, ...] = ()  # the numbers of the stored revisions, ascending
    rollout: Rollout = Rollout()
    # A workload with the id of the set that is deleted when the members are healthy.
    replaces: WorkloadId = WorkloadId("")
    scaled_at: datetime | None = None  # by automatic scaling
    scale_reason: str = ""
    # The nodes with data of members that were scaled in: a new member with the same id uses it again.
    homes: dict[WorkloadId, NodeId] = {}
