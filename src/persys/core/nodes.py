"""Removal of a node: its steps, the validity of its certificates, and how long the removal is remembered."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from heapq import heapify, heappop, heappush

from msgspec.structs import replace

from persys.core.auth.enrolment import SERVICE_LIFE_MOST
from persys.errors import RefusedError
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Drain, Node, NodeStatus, RemovedNode

HEARTBEATS_PER_LEASE = 3
INTERVALS_KEPT = 3
LEASE_LONGEST_SECONDS = 600.0


class Phase(StrEnum):
    ALIVE = "alive"  # the lease is valid
    SUSPECT = "suspect"  # the lease is over, the grace is not
    LOST = "lost"  # the grace is over too, or the node does not exist


def lease_seconds(configured: float, intervals: Sequence[float]) -> float:
    """The lease of a node, from the last intervals between its heartbeats.

    The median counts: neither a single gap nor a heartbeat right after a registration changes it.
    """
    middle = sorted(intervals)[len(intervals) // 2] if intervals else 0.0
    return max(configured, min(HEARTBEATS_PER_LEASE * middle, LEASE_LONGEST_SECONDS))


def phase_of(*, lease_until: float, grace: float, now: float) -> Phase:
    """All three in seconds of one monotonic clock."""
    if now < lease_until:
        return Phase.ALIVE
    if now < lease_until + grace:
        return Phase.SUSPECT
    return Phase.LOST


OPERATOR = "operator"


def cordon(node: Node, *, now: datetime) -> Node:
    return _with_reason(node, "cordoned: accepts no new workloads", now, cordoned=True)


def uncordon(node: Node, *, now: datetime) -> Node:
    """Also ends a drain. Workloads that have left do not return."""
    if not node.cordoned and node.drain is None:
        return node
    opened = replace(node, cordoned=False, drain=None)
    return _with_reason(opened, "accepts workloads again", now, cordoned=False)


def taint(node: Node, taints: frozenset[str], *, now: datetime) -> Node:
    """Replace all taints. They keep new workloads away and evict none."""
    if node.taints == taints:
        return node
    reason = f"tainted: {', '.join(sorted(taints))}" if taints else "no longer tainted"
    return _with_reason(replace(node, taints=taints), reason, now, cordoned=node.cordoned)


def drain(node: Node, *, deadline: timedelta | None, now: datetime) -> Node:
    ordered = Drain(now, now + deadline if deadline else None)
    return _with_reason(
        replace(node, drain=ordered), "draining: its workloads move away", now, cordoned=True
    )


def confirm_dead(node: Node, *, now: datetime) -> Node:
    if node.status is not NodeStatus.NOT_READY:
        raise RefusedError(
            f"node {node.id} is {node.status}: only a NotReady node can be confirmed dead"
        )
    return replace(
        node,
        confirmed_dead=True,
        status_reason="confirmed dead",
        status_by=OPERATOR,
        status_at=now,
    )


def status_with_lease(node: Node) -> NodeStatus:
    """The status of a node that holds its lease."""
    return NodeStatus.DRAINING if node.drain is not None else NodeStatus.READY


def closed_because(node: Node) -> str:
    """Why placement excludes this node; empty if it does not."""
    if node.removing_since is not None:
        return "being removed"
    if node.status is NodeStatus.NOT_READY:
        return "not ready"
    if node.drain is not None:
        return "draining"
    return "cordoned" if node.cordoned else ""


def _with_reason(node: Node, reason: str, now: datetime, *, cordoned: bool) -> Node:
    lost = node.status is NodeStatus.NOT_READY
    return replace(
        node,
        cordoned=cordoned,
        status=node.status if lost else status_with_lease(node),
        status_reason=node.status_reason if lost else reason,
        status_by=OPERATOR,
        status_at=now,
    )


# By then every certificate from before the removal has expired, with a margin for clock skew.
REMEMBERED = SERVICE_LIFE_MOST + timedelta(days=1)
# Records that one transaction of a removal deletes, besides the node itself.
DEPENDENTS_PER_STEP_MAX = 64
# Old removals that are deleted with one change of a node.
FORGOTTEN_PER_CHANGE_MAX = 16


@dataclass(frozen=True, slots=True)
class RemovalBlocked:
    """The node has workloads: it is not removed, and a mark is cleared."""

    why: str


@dataclass(frozen=True, slots=True)
class MarkRemoving:
    """First store that the node is being removed: from then on it takes no work and cannot register."""

    node: Node


@dataclass(frozen=True, slots=True)
class RemoveDependents:
    """Delete these keys; the node record stays until all are deleted."""

    keys: Sequence[str]


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """Delete these keys and the node record."""

    keys: Sequence[str]


RemovalStep = RemovalBlocked | MarkRemoving | RemoveDependents | RemoveNode


def next_removal_step(
    node: Node,
    dependents: Sequence[str],
    bound: Collection[WorkloadId],
    *,
    count: int,
    now: datetime,
) -> RemovalStep:
    """`dependents` are the keys of the first DEPENDENTS_PER_STEP_MAX of `count` records that belong to the
    node; `bound` are its workloads.

    A node with few records is removed in one step. After a crash the next step follows from the records.
    """
    if bound:
        return RemovalBlocked(
            f"node {node.id} still has {len(bound)} workloads, such as {min(bound)}; "
            "drain it or delete them first"
        )
    if count <= DEPENDENTS_PER_STEP_MAX:
        return RemoveNode(dependents)
    if node.removing_since is None:
        return MarkRemoving(
            replace(
                node,
                removing_since=now,
                status_reason=f"being removed with {count} records",
                status_by=OPERATOR,
                status_at=now,
            )
        )
    return RemoveDependents(dependents)


def is_from_before_removal(removal: RemovedNode | None, enrolled_at: datetime) -> bool:
    """Whether a certificate of the node is from before its removal. A renewal does not change that."""
    return removal is not None and enrolled_at <= removal.removed_at


class RemovedNodes:
    """The removed nodes, indexed by name and by age."""

    def __init__(self) -> None:
        self._of: dict[NodeId, RemovedNode] = {}
        # May hold dropped or replaced removals until they are first.
        self._by_age: list[tuple[datetime, NodeId]] = []

    def __len__(self) -> int:
        return len(self._of)

    def get(self, node_id: NodeId) -> RemovedNode | None:
        return self._of.get(node_id)

    def values(self) -> Iterable[RemovedNode]:
        return self._of.values()

    def put(self, removal: RemovedNode) -> None:
        if self._of.get(removal.node_id) == removal:
            return
        self._of[removal.node_id] = removal
        heappush(self._by_age, (removal.removed_at, removal.node_id))
        if len(self._by_age) > 2 * len(self._of) + FORGOTTEN_PER_CHANGE_MAX:
            self._by_age = [(one.removed_at, one.node_id) for one in self._of.values()]
            heapify(self._by_age)

    def drop(self, node_id: NodeId) -> None:
        self._of.pop(node_id, None)

    def take_outdated(self, now: datetime, *, held: Callable[[NodeId], bool]) -> list[RemovedNode]:
        """Remove and return the expired ones that are not `held`, up to FORGOTTEN_PER_CHANGE_MAX."""
        old: list[RemovedNode] = []
        kept: list[tuple[datetime, NodeId]] = []
        while self._by_age and len(old) < FORGOTTEN_PER_CHANGE_MAX:
            removed_at, node_id = self._by_age[0]
            if now - removed_at <= REMEMBERED:
                break
            entry = heappop(self._by_age)
            removal = self._of.get(node_id)
            if removal is None or removal.removed_at != removed_at:
                continue
            if held(node_id):
                kept.append(entry)
                continue
            old.append(self._of.pop(node_id))
        for entry in kept:
            heappush(self._by_age, entry)
        return old
