"""Deletes stale copies of moved or deleted workloads; retries until the node confirms.

A removal is requested until the node has acknowledged it and reports the copy absent. Absence alone is not
enough: an earlier apply may still be in flight, and only the removal makes the node refuse it. Then the
tombstone is dropped at once, because its capacity and its workload may be waited for. Nodes that do not push
status changes are polled until then. A copy that is kept until its workload runs on another node is not
removed before it is released.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import islice

from persys.core.reconcile.effects import Effect, PollStatus, Remove
from persys.errors import ConflictError, StoreUnavailableError
from persys.infra.aio.offload import TimeSlice
from persys.infra.clock import Clock
from persys.model import feature
from persys.model.event import Event, EventKind
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import NodeStatus
from persys.model.placement import Tombstone
from persys.scheduler.commit.committer import Committer
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys

DROPS_AT_ONCE = 256
POLLED_PER_NODE_MAX = 16


class TombstoneCleaner:
    def __init__(
        self,
        cluster: ClusterState,
        committer: Committer,
        clock: Clock,
        *,
        capacity_freed: Callable[[NodeId], None],
        submit_effect: Callable[[Effect], None],
        wake: Callable[[WorkloadId], None],
        poll_interval: timedelta,
    ) -> None:
        """`submit_effect` submits an effect for dispatch."""
        self._cluster = cluster
        self._committer = committer
        self._clock = clock
        self._capacity_freed = capacity_freed
        self._submit_effect = submit_effect
        self._wake = wake
        self._poll_seconds = poll_interval.total_seconds()
        self._poll_at: float | None = None  # when copies are polled next; None: there are none
        self._wakeup = asyncio.Event()
        self._due_nodes: dict[NodeId, None] = {}
        self._gone: dict[tuple[NodeId, WorkloadId], None] = {}
        # The epochs of acknowledged removals, for existing tombstones.
        self._acknowledged: dict[tuple[NodeId, WorkloadId], int] = {}

    def request_removals(self, node_id: NodeId) -> None:
        """Request the removal of all stale copies on a node, if it is ready."""
        if self._is_ready(node_id) and self._cluster.tombstones.get(node_id):
            self._due_nodes[node_id] = None
            self._wakeup.set()

    def request_removal(self, tombstone: Tombstone) -> None:
        """Request the removal of a new tombstone only: all of a node would be quadratic during a drain."""
        if not tombstone.after_running and self._is_ready(tombstone.assignment.node_id):
            self._submit_effect(_removal(tombstone))
            self._wakeup.set()

    def acknowledged(self, removal: Remove) -> None:
        """The node has accepted the removal: it refuses orders of that epoch from now on."""
        if removal.workload_id in self._cluster.tombstones.get(removal.node_id, {}):
            self._acknowledged[(removal.node_id, removal.workload_id)] = removal.epoch

    def removed(self, node_id: NodeId, workload_id: WorkloadId) -> None:
        """The node reports the copy absent. An unacknowledged removal is sent again."""
        tombstone = self._cluster.tombstones.get(node_id, {}).get(workload_id)
        if (
            tombstone is not None
            and self._acknowledged.get((node_id, workload_id), -1) >= tombstone.assignment.epoch
        ):
            self.replaced(node_id, workload_id)

    def replaced(self, node_id: NodeId, workload_id: WorkloadId) -> None:
        """The copy is permanently gone: the node would refuse the order that created it."""
        if workload_id in self._cluster.tombstones.get(node_id, {}):
            self._gone[(node_id, workload_id)] = None
            self._wakeup.set()

    async def run(self) -> None:
        """Send removals, and drop tombstones as their copies are reported absent; many share a commit."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_due()):
                    await self._wakeup.wait()
            self._wakeup.clear()
            await self._request_due()
            while self._gone:
                together = list(islice(self._gone, DROPS_AT_ONCE))
                async with asyncio.TaskGroup() as group:
                    for node_id, workload_id in together:
                        del self._gone[(node_id, workload_id)]
                        group.create_task(self._drop(node_id, workload_id))

    async def _request_due(self) -> None:
        """In slices: a node may have thousands of stale copies."""
        slices = TimeSlice(self._clock)
        while self._due_nodes:
            node_id = next(iter(self._due_nodes))
            del self._due_nodes[node_id]
            for tombstone in list(self._cluster.tombstones.get(node_id, {}).values()):
                await slices.between()
                if not tombstone.after_running:
                    self._submit_effect(_removal(tombstone))

    def _poll_due(self) -> float | None:
        """Poll the removals of nodes that do not push status, once per interval.

        Returns the seconds until the next poll; None: there is nothing to poll. A removal polls the status
        itself, so the first poll follows one interval after it.
        """
        polls = self._polls()
        now = self._clock.monotonic()
        if not polls:
            self._poll_at = None
            return None
        if self._poll_at is None:
            self._poll_at = now + self._poll_seconds
        elif now >= self._poll_at:
            self._poll_at = now + self._poll_seconds
            for poll in polls:
                self._submit_effect(poll)
        return self._poll_at - now

    def _polls(self) -> list[PollStatus]:
        found: list[PollStatus] = []
        for node_id, stale in self._cluster.tombstones.items():
            removing = [name for name, one in stale.items() if not one.after_running]
            if removing and self._is_polled(node_id):
                few = islice(removing, POLLED_PER_NODE_MAX)
                found += [PollStatus(node_id, workload_id) for workload_id in few]
        return found

    def _is_polled(self, node_id: NodeId) -> bool:
        if not self._is_ready(node_id):
            return False
        has = self._cluster.nodes[node_id].node.capabilities
        return feature.PUSHES_STATUS not in has.features

    def _is_ready(self, node_id: NodeId) -> bool:
        member = self._cluster.nodes.get(node_id)
        return member is not None and member.node.status is not NodeStatus.NOT_READY

    async def sweep(self) -> None:
        """Request the removal of all remaining tombstones again."""
        self._acknowledged = {
            (node_id, name): epoch
            for (node_id, name), epoch in self._acknowledged.items()
            if name in self._cluster.tombstones.get(node_id, {})
        }
        for node_id in list(self._cluster.tombstones):
            self.request_removals(node_id)

    async def _drop(self, node_id: NodeId, workload_id: WorkloadId) -> None:
        if workload_id not in self._cluster.tombstones.get(node_id, {}):
            return
        self._acknowledged.pop((node_id, workload_id), None)

        def done() -> None:
            self._cluster.drop_tombstone(node_id, workload_id)
            self._cluster.update_reservations(workload_id, (node_id,))

        change = Transaction(
            done=done,
            drops=[keys.tombstone_key(node_id, workload_id)],
            events=[
                Event(
                    self._clock.now(),
                    EventKind.OLD_COPY_REMOVED,
                    workload_id=workload_id,
                    node_id=node_id,
                )
            ],
        )
        try:
            await self._committer.commit(change)
        except (StoreUnavailableError, ConflictError):
            return  # the next sweep requests it again
        self._capacity_freed(node_id)
        self._wake(workload_id)


def _removal(tombstone: Tombstone) -> Remove:
    stale = tombstone.assignment
    return Remove(stale.node_id, stale.workload_id, stale.epoch, tombstone.keeps_data)
