"""What an operator's word makes of a node: a new record, or a refusal that says why."""

from datetime import datetime, timedelta

from msgspec.structs import replace

from persys.errors import RefusedError
from persys.model.node import Drain, Node, NodeStatus

OPERATOR = "operator"


def cordon(node: Node, *, now: datetime) -> Node:
    return _told(node, "cordoned: takes no new work", now, cordoned=True)


def uncordon(node: Node, *, now: datetime) -> Node:
    """Ends a drain too; what has left does not come back."""
    if not node.cordoned and node.drain is None:
        return node
    opened = replace(node, cordoned=False, drain=None)
    return _told(opened, "takes work again", now, cordoned=False)


def taint(node: Node, taints: frozenset[str], *, now: datetime) -> Node:
    """From now on it has these taints and no others. They keep new work away; they evict nothing."""
    if node.taints == taints:
        return node
    reason = f"tainted: {', '.join(sorted(taints))}" if taints else "no longer tainted"
    return _told(replace(node, taints=taints), reason, now, cordoned=node.cordoned)


def drain(node: Node, *, deadline: timedelta | None, now: datetime) -> Node:
    ordered = Drain(now, now + deadline if deadline else None)
    return _told(replace(node, drain=ordered), "draining: gives up what it has", now, cordoned=True)


def confirm_dead(node: Node, *, now: datetime) -> Node:
    if node.status is not NodeStatus.NOT_READY:
        raise RefusedError(
            f"node {node.id} is {node.status}: only a node that gives no sign can be confirmed dead"
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
    """Why placement gives this node nothing; empty if it may."""
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
