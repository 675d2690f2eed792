"""The leases of nodes: renewed by heartbeats in memory; a node whose lease has expired is not ready.

After the grace period the node is lost, and its workloads are reconciled.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from persys.core.nodes import INTERVALS_KEPT, lease_seconds, status_with_lease
from persys.errors import ConflictError, StoreUnavailableError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.supervisor import KeyedWork, Supervisor
from persys.infra.clock import Clock
from persys.model import feature
from persys.model.event import EventKind
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Node, NodeStatus
from persys.scheduler.membership.node_records import NodeRecords
from persys.scheduler.recovery.mode import ModeTracker
from persys.scheduler.state.cluster import ClusterState, NodeState

JUDGE_AGAIN_SECONDS = 1.0
SLICE = 500  # nodes


class NodeLeases:
    def __init__(
        self,
        cluster: ClusterState,
        records: NodeRecords,
        modes: ModeTracker,
        clock: Clock,
        *,
        supervisor: Supervisor,
        lease: timedelta,
        grace: timedelta,
        wake_many: Callable[[Iterable[WorkloadId]], None],
        node_returned: Callable[[NodeId], None],
        locks: KeyedLock[NodeId],
    ) -> None:
        """`locks` serialize the changes of a node record."""
        self._cluster = cluster
        self._records = records
        self._modes = modes
        self._clock = clock
        self._lease = lease
        self._grace = grace
        self._wake_many = wake_many
        self._node_returned = node_returned
        self._work: KeyedWork[NodeId] = KeyedWork(supervisor, "lease", clock)
        self._locks = locks

    @property
    def seconds(self) -> float:
        return self._lease.total_seconds()

    def ends(self) -> float:
        """When a lease that is renewed now expires, on the monotonic clock."""
        return self._clock.monotonic() + self.seconds

    def ends_at(self, member: NodeState) -> datetime:
        return self._clock.now() + self._lease + timedelta(seconds=member.lease_extra)

    def renew_all(self) -> None:
        """Give every node a full lease: heartbeats may have been missed because of this scheduler."""
        for member in self._cluster.nodes.values():
            member.lease_until = max(member.lease_until, self.ends() + member.lease_extra)
            member.lost_noted = False

    async def run(self) -> None:
        """Mark nodes as not ready when their lease expires."""
        while True:
            if self._modes.is_frozen:
                await asyncio.sleep(JUDGE_AGAIN_SECONDS)
                continue  # no node is declared lost because the scheduler cannot write
            next_end = await self._evaluate_all(now := self._clock.monotonic())
            await asyncio.sleep(min(max(next_end - now, 0.01), JUDGE_AGAIN_SECONDS))

    async def _evaluate_all(self, now: float) -> float:
        """Check all nodes in slices. Returns when the next lease expires.

        Nodes whose leases expire together share transactions: one by one, the last of thousands would be
        marked minutes late.
        """
        next_end = now + JUDGE_AGAIN_SECONDS
        members = list(self._cluster.nodes.values())
        for start in range(0, len(members), SLICE):
            async with asyncio.TaskGroup() as group:
                for member in members[start : start + SLICE]:
                    if member.lease_until > now:
                        next_end = min(next_end, member.lease_until)
                    elif not self._work.is_due(member.node.id):
                        continue
                    elif member.node.status is not NodeStatus.NOT_READY:
                        group.create_task(self._expire(member, now))
                    elif not member.lost_noted:
                        with self._work.contain(member.node.id):
                            self._note_lost(member, now)
            await asyncio.sleep(0)
        return next_end

    async def _expire(self, member: NodeState, now: float) -> None:
        with self._work.contain(member.node.id):
            await self._evaluate(member)
            self._note_lost(member, now)

    def _note_lost(self, member: NodeState, now: float) -> None:
        """Reconcile the workloads of a node once its grace period is over."""
        if member.lost_noted or now < member.lease_until + self._grace.total_seconds():
            return
        member.lost_noted = True
        self._wake_many(self._cluster.on_node.get(member.node.id, ()))

    def on_contact(self, member: NodeState) -> None:
        if member.node.drain is not None and not member.in_contact(
            lease_seconds=self.seconds, now=self._clock.monotonic()
        ):
            # Workloads with stop_after leave it only while it is in contact.
            self._wake_many(self._cluster.on_node.get(member.node.id, ()))
        member.lost_noted = False
        self._note_interval(member)
        member.lease_until = self.ends() + member.lease_extra
        member.last_heartbeat = self._clock.now()

    def _note_interval(self, member: NodeState) -> None:
        """Persys agents use the configured heartbeat interval; third-party agents have their own."""
        now, before = self._clock.monotonic(), member.heartbeat_at
        member.heartbeat_at = now
        if before is None or feature.PUSHES_STATUS in member.node.capabilities.features:
            return
        member.intervals = (*member.intervals, now - before)[-INTERVALS_KEPT:]
        lease = self._lease.total_seconds()
        member.lease_extra = lease_seconds(lease, member.intervals) - lease

    async def _evaluate(self, member: NodeState) -> None:
        async with self._locks.hold(member.node.id):
            if self._was_removed(member):
                return
            if member.lease_until > self._clock.monotonic():
                return  # it sent a heartbeat meanwhile
            silent = self._lease.total_seconds() + member.lease_extra
            lost = self._with_status(
                member.node, NodeStatus.NOT_READY, f"no heartbeat for {silent:g}s"
            )
            try:
                await self._records.put(lost, EventKind.NODE_NOT_READY)
            except (StoreUnavailableError, ConflictError):
                return  # retried in a second

    async def set_ready(self, member: NodeState) -> None:
        async with self._locks.hold(member.node.id):
            if self._was_removed(member) or member.node.status is not NodeStatus.NOT_READY:
                return
            alive = replace(member.node, confirmed_dead=False)
            ready = self._with_status(alive, status_with_lease(alive), "heartbeats resumed")
            await self._records.put(ready, EventKind.NODE_READY)
        self._node_returned(member.node.id)

    def _was_removed(self, member: NodeState) -> bool:
        """While this waited for the lock. A change of its record would create the node again."""
        return self._cluster.nodes.get(member.node.id) is not member

    def _with_status(self, node: Node, status: NodeStatus, reason: str) -> Node:
        return replace(node, status=status, status_reason=reason, status_at=self._clock.now())
