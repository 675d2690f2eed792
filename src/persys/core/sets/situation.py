"""The input and the output of `rollout.decide`: members as the cluster sees them, and what to change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from persys.core.agent.health import UNHEALTHY
from persys.core.agent.next_step import COMPLETED
from persys.model.event import EventKind
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Node, NodeStatus
from persys.model.placement import Assignment
from persys.model.sets import Template, WorkloadSet
from persys.model.status import Status, WorkloadStatus
from persys.model.workload import Desired, Workload

_LOST_CODES = frozenset({"NodeNotReady", "NodeLost"})


class MemberHealth(StrEnum):
    """Judged by the intended revision and the epoch of the assignment only, never by an older failure."""

    STARTING = "starting"  # pending, being placed or started, or its check has not passed yet
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"  # its health check fails
    FAILED = "failed"
    LOST = "lost"  # its node does not send heartbeats
    UNKNOWN = "unknown"  # its node cannot read its state; it may be healthy
    STOPPED = "stopped"
    DELETING = "deleting"


def current_status(
    workload: Workload, assignment: Assignment | None, status: WorkloadStatus | None
) -> WorkloadStatus | None:
    """The status, if it is about the intended revision and the present assignment."""
    if status is None or status.revision != workload.revision:
        return None
    if assignment is not None and status.epoch != assignment.epoch:
        return None
    return status


def health_of(
    workload: Workload,
    assignment: Assignment | None,
    status: WorkloadStatus | None,
    node: Node | None,
) -> MemberHealth:
    """The health of a workload. `node`: the record of the node that it is assigned to, if it exists."""
    if workload.desired is Desired.DELETED:
        return MemberHealth.DELETING
    if assignment is not None and _is_lost(status, node):
        return MemberHealth.LOST
    current = current_status(workload, assignment, status)
    if workload.desired is Desired.STOPPED:
        is_stopped = current is not None and current.status is Status.STOPPED
        return MemberHealth.STOPPED if is_stopped else MemberHealth.STARTING
    if current is None:
        return MemberHealth.STARTING
    if current.status is Status.FAILED or current.code == COMPLETED:
        return MemberHealth.FAILED
    if current.status is Status.UNKNOWN:
        return MemberHealth.UNKNOWN
    if current.status is not Status.RUNNING:
        return MemberHealth.STARTING
    if current.code == UNHEALTHY:
        return MemberHealth.UNHEALTHY
    return MemberHealth.HEALTHY if current.healthy_since else MemberHealth.STARTING


def _is_lost(status: WorkloadStatus | None, node: Node | None) -> bool:
    if node is None or node.status is NodeStatus.NOT_READY:
        return True
    return status is not None and status.status is Status.UNKNOWN and status.code in _LOST_CODES


@dataclass(frozen=True, slots=True)
class MemberState:
    """`waiting_since`: the latest of its last change, its last health, the return of its node and the start
    of this leader. `changed_at`: the last change of its intent by the set.
    """

    workload_id: WorkloadId
    number: int
    index: int
    revision: int
    desired: Desired
    health: MemberHealth
    waiting_since: datetime
    changed_at: datetime
    healthy_since: datetime | None = None
    final: bool = False  # of FAILED: the scheduler does not try again by itself
    restarts: int = 0  # at this revision and epoch
    reason: str = ""  # of UNHEALTHY and FAILED, or why it is pending
    node_id: NodeId | None = None  # None: not assigned
    pinned_node: NodeId | None = None  # of a set with one member per node


@dataclass(frozen=True, slots=True)
class SetSituation:
    """`taken_numbers`: numbers whose ids are used by other sets and by workloads that are not members.

    `nodes`: the nodes that should have a member, of a set with one member per node. `replaced_exists`: the
    workload that the set replaces still exists and is not being deleted. `homes`: those of the record whose
    nodes exist.
    """

    record: WorkloadSet
    templates: Mapping[int, Template]
    members: tuple[MemberState, ...]
    taken_numbers: frozenset[int] = frozenset()
    nodes: tuple[NodeId, ...] = ()
    homes: Mapping[WorkloadId, NodeId] = field(default_factory=dict)
    replaced_exists: bool = False


@dataclass(frozen=True, slots=True)
class MemberIntent:
    """Create the member with this number, or change it to this revision and desired state."""

    number: int
    index: int
    revision: int
    desired: Desired
    pinned_node: NodeId | None = None


@dataclass(frozen=True, slots=True)
class SetEvent:
    kind: EventKind
    message: str


@dataclass(frozen=True, slots=True)
class SetDecision:
    """What to store and change now. The order is: the record with its events, then `put`, then `delete`.

    Each member is changed in a transaction of its own, and the decision may be interrupted after any of them:
    the next one starts from the members as they are. `record` None: the set is deleted and has no members.
    """

    record: WorkloadSet | None
    put: tuple[MemberIntent, ...] = ()
    delete: tuple[WorkloadId, ...] = ()
    delete_replaced: bool = False
    wake_at: datetime | None = None
    events: tuple[SetEvent, ...] = ()
    rule: str = ""  # the name of the rule that decided, shown by `rollout status` and `explain`
    waits_for: str = ""  # why nothing more is changed now; "" if steady
