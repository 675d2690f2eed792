"""Writes node records: one transaction with the event, the lease record and expired removals."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import structlog
from msgspec.structs import replace

from persys.core.event_retention import Repeats
from persys.infra.clock import Clock
from persys.model.event import Event, EventKind
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Lease, Node, NodeStatus
from persys.scheduler.commit.committer import Committer
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.membership.removed_nodes import RemovedNodes
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys

log = structlog.get_logger()


class NodeRecords:
    def __init__(
        self,
        cluster: ClusterState,
        committer: Committer,
        clock: Clock,
        *,
        lease: timedelta,
        removed: RemovedNodes,
        wake_many: Callable[[Iterable[WorkloadId]], None],
        node_changed: Callable[[NodeId], None],
    ) -> None:
        """`wake_many` gets the workloads of a node whose record has changed."""
        self._cluster = cluster
        self._committer = committer
        self._clock = clock
        self._lease = lease
        self._removed = removed
        self._wake_many = wake_many
        self._node_changed = node_changed
        self._repeats = Repeats()

    async def put(self, node: Node, kind: EventKind) -> None:
        """Does nothing if the record is unchanged. Raises the errors of a commit."""
        known = self._cluster.nodes.get(node.id)
        if known is not None and known.node == node:
            return
        now = self._clock.now()
        text = node.status_reason
        if keys.node_key(node.id) in self._cluster.quarantine:
            text = "its unreadable record was replaced: cordon, drain and taints are lost"
        change = Transaction(
            done=lambda: self.show(node),
            puts={keys.node_key(node.id): node},
            drops=self._removed.forget(now),
            events=self._events(node, kind, text, now),
        )
        if known is not None and _is_only_another_process(known.node, node):
            change.events.clear()
        if kind in (EventKind.NODE_REGISTERED, EventKind.NODE_REGISTERED_AGAIN):
            change.puts[keys.node_lease_key(node.id)] = Lease(node.id, now, self._lease)
        await self._committer.commit(change)
        log.info("node.changed", node_id=node.id, kind=kind, status=node.status)

    def _events(self, node: Node, kind: EventKind, text: str, now: datetime) -> list[Event]:
        """Repeated registrations of a ready node are aggregated into few events with a count."""
        known = self._cluster.nodes.get(node.id)
        ready = known is not None and known.node.status is not NodeStatus.NOT_READY
        if kind is EventKind.NODE_REGISTERED_AGAIN and ready:
            left_out = self._repeats.take(node.id, now)
            if left_out is None:
                return []
            if left_out:
                text = f"{text}; {left_out} earlier registrations omitted".removeprefix("; ")
        return [Event(now, kind, text, node_id=node.id)]

    def show(self, node: Node) -> None:
        """Put the record into memory."""
        self._cluster.put_node(node, lease_until=None if node.id in self._cluster.nodes else 0.0)
        self._wake_many(self._cluster.on_node.get(node.id, ()))
        self._node_changed(node.id)


def _is_only_another_process(old: Node, new: Node) -> bool:
    """Whether only the agent process has changed, not the node."""
    return (
        replace(
            new,
            instance_id=old.instance_id,
            instance_before=old.instance_before,
            session_id=old.session_id,
            registered_at=old.registered_at,
        )
        == old
    )
