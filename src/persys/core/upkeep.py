"""Node maintenance by an operator: cordon, drain, taint, confirm dead. Each returns the new node record."""

from datetime import datetime, timedelta

from msgspec.structs import replace

from persys.errors import RefusedError
from persys.model.node import Drain, Node, NodeStatus

OPERATOR = "operator"


def cordon(node: Node, *, now: datetime) -> Node:
    return _told(node, "cordoned: accepts no new workloads", now, cordoned=True)


def uncordon(node: Node, *, now: datetime) -> Node:
    """Also ends a drain. Workloads that have left do not return."""
    if not node.cordoned and node.drain is None:
        return node
    opened = replace(node, cordoned=False, drain=None)
    return _told(opened, "accepts workloads again", now, cordoned=False)


def taint(node: Node, taints: frozenset[str], *, now: datetime) -> Node:
    """Replace all taints. They keep new workloads away and evict none."""
    if node.taints == taints:
        return node
    reason = f"tainted: {', '.join(sorted(taints))}" if taints else "no longer tainted"
    return _told(replace(node, taints=taints), reason, now, cordoned=node.cordoned)


def drain(node: Node, *, deadline: timedelta | None, now: datetime) -> Node:
    ordered = Drain(now, now + deadline if deadline else None)
    return _told(
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


def standing(node: Node) -> NodeStatus:
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


def _told(node: Node, reason: str, now: datetime, *, cordoned: bool) -> Node:
    lost = node.status is NodeStatus.NOT_READY
    return replace(
        node,
        cordoned=cordoned,
        status=node.status if lost else standing(node),
        status_reason=node.status_reason if lost else reason,
        status_by=OPERATOR,
        status_at=now,
    )
