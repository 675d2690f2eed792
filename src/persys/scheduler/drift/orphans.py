"""Detects orphans, copies that no assignment asks for, and records them for an operator to adopt or delete.

A third-party agent may list removed workloads forever; its tasks show the removal, and no orphan is recorded.

Each full list of a node is compared with its assignments; only differences cost work. An orphan is written
once; a failed write is retried with the node's next list.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

import structlog

from persys.core import drift
from persys.core.drift import UnassignedCopy
from persys.core.reconcile.task_history import shows_removed
from persys.errors import (
    AgentUnreachableError,
    ConflictError,
    InvalidError,
    PersysError,
    StoreUnavailableError,
)
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.keyed_queue import KeyedQueue
from persys.infra.aio.supervisor import KeyedWork, Supervisor
from persys.infra.clock import Clock
from persys.model import feature
from persys.model.ids import NodeId, WorkloadId
from persys.model.ids import workload_id as checked_workload_id
from persys.model.status import Actual, Drift, Observation
from persys.scheduler.commit.committer import Committer
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.drift.records import add_detected, add_resolved
from persys.scheduler.ports import Agents
from persys.scheduler.state.cluster import ClusterState
from persys.wire.agent import legacy_agents

log = structlog.get_logger()

# More than a node can run: bounds the cost of a node with an invalid list.
COPIES_MAX = 10_000


class Orphans:
    def __init__(
        self,
        cluster: ClusterState,
        committer: Committer,
        agents: Agents,
        clock: Clock,
        *,
        supervisor: Supervisor,
        grace: timedelta,
        wake: Callable[[WorkloadId], None],
        locks: KeyedLock[NodeId],
    ) -> None:
        """`locks` serialize the changes of a node record, also its removal."""
        self._cluster = cluster
        self._committer = committer
        self._clock = clock
        self._grace = grace
        self._wake = wake
        self._agents = agents
        self._locks = locks
        self._nodes: KeyedWork[NodeId] = KeyedWork(supervisor, "orphans", clock)
        self._due: set[NodeId] = set()
        self._removed: dict[NodeId, set[WorkloadId]] = {}  # removed, but still listed as stopped
        self._queues: KeyedQueue[NodeId] | None = None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._due.clear()
            self._queues = KeyedQueue(group, contain=self._nodes.contain)
            await asyncio.Event().wait()  # until cancelled, and the queues with it

    def listed(self, node_id: NodeId, listed: Sequence[Observation]) -> None:
        """Process a full list of a node. A node that is being removed is ignored."""
        member = self._cluster.nodes.get(node_id)
        if member is None or member.node.removing_since is not None:
            return
        member.has_listed = True
        found = drift.unassigned_copies(
            listed,
            self._cluster.bound_to(node_id),
            self._cluster.tombstones.get(node_id, {}),
        )
        found = self._without_removed(node_id, found)
        if not found and not self._cluster.unassigned_copies.on(node_id):
            return
        self._remember(node_id, found)
        if self._queues is None or node_id in self._due:
            return
        if self._nodes.is_due(node_id):
            self._due.add(node_id)
            self._queues.submit(node_id, partial(self._note, node_id))

    def _without_removed(
        self, node_id: NodeId, found: dict[WorkloadId, Observation]
    ) -> dict[WorkloadId, Observation]:
        removed = {
            name
            for name in self._removed.pop(node_id, ())
            if name in found and found[name].actual is Actual.STOPPED
        }
        if not removed:
            return found
        self._removed[node_id] = removed
        return {name: seen for name, seen in found.items() if name not in removed}

    def _remember(self, node_id: NodeId, found: dict[WorkloadId, Observation]) -> None:
        unassigned_copies, now = self._cluster.unassigned_copies, self._clock.now()
        known = unassigned_copies.on(node_id)
        for gone in known.keys() - found.keys():
            unassigned_copies.drop(node_id, gone)
            self._wake(gone)
        for name, seen in islice(found.items(), COPIES_MAX):
            old = known.get(name)
            if old is None and not _is_name(name):
                continue
            new = self._updated(old, seen) if old is not None else self._first_seen(seen, now)
            unassigned_copies.put(new)
            if old is None or (old.counts, old.proven) != (new.counts, new.proven):
                self._wake(name)

    def _first_seen(self, seen: Observation, now: datetime) -> UnassignedCopy:
        proven = self._cluster.is_proven(seen)
        return UnassignedCopy(seen, now, counts=proven, proven=proven)

    def _updated(self, old: UnassignedCopy, seen: Observation) -> UnassignedCopy:
        proven = old.proven
        if (seen.epoch, seen.proof) != (old.seen.epoch, old.seen.proof):
            proven = self._cluster.is_proven(seen)
        return replace(old, seen=seen, counts=old.counts or proven, proven=proven)

    async def _note(self, node_id: NodeId) -> None:
        """Record the new orphans of one node and drop the resolved ones."""
        self._due.discard(node_id)
        unassigned_copies = self._cluster.unassigned_copies
        changes = drift.orphans(
            node_id,
            unassigned_copies.on(node_id),
            self._cluster.drifts.orphans_on(node_id),
            self._cluster.assignments_of(unassigned_copies.on(node_id)),
            grace=self._grace,
            now=self._clock.now(),
        )
        if changes.unrecorded and not unassigned_copies.unrecorded.get(node_id):
            log.warning("orphans.unrecorded", node_id=node_id, count=changes.unrecorded)
        unassigned_copies.unrecorded[node_id] = changes.unrecorded
        orphans = [one for one in changes.found if not await self._was_removed(one)]
        async with self._locks.hold(node_id):
            await self._write(node_id, orphans, changes.gone)
        if any(
            unassigned.adoptable is None for unassigned in unassigned_copies.on(node_id).values()
        ):
            await self._check_adoptable(node_id)

    async def _write(self, node_id: NodeId, found: Sequence[Drift], gone: Sequence[Drift]) -> None:
        """Nothing is written for a node that is being removed: its removal deletes the known drifts."""
        member = self._cluster.nodes.get(node_id)
        if member is None or member.node.removing_since is not None:
            return
        async with asyncio.TaskGroup() as group:
            for one in found:
                group.create_task(self._put(one))
            for one in gone:
                group.create_task(self._drop(one))

    async def _was_removed(self, orphan: Drift) -> bool:
        """Whether a third-party agent has removed a workload that it lists as stopped."""
        member = self._cluster.nodes.get(orphan.node_id)
        if member is None or feature.PUSHES_STATUS in member.node.capabilities.features:
            return False
        if orphan.actual is not Actual.STOPPED:
            return False
        try:
            actions = await self._agents.actions(
                orphan.node_id, member.node.endpoint, orphan.workload_id
            )
        except PersysError:  # also if the agent does not support this call
            return False
        if not shows_removed(actions, is_not_found=legacy_agents.says_not_found):
            return False
        self._removed.setdefault(orphan.node_id, set()).add(orphan.workload_id)
        return True

    async def _put(self, orphan: Drift) -> None:
        change = Transaction(done=lambda: self._cluster.drifts.put(orphan))
        add_detected(change, orphan)
        await self._commit(change)

    async def _drop(self, orphan: Drift) -> None:
        change = Transaction(done=lambda: self._cluster.drifts.drop(orphan))
        add_resolved(change, orphan, "no longer on the node", now=self._clock.now())
        await self._commit(change)

    async def _commit(self, change: Transaction) -> None:
        try:
            await self._committer.commit(change)
        except (StoreUnavailableError, ConflictError):
            return  # retried with the next list of the node

    async def _check_adoptable(self, node_id: NodeId) -> None:
        """Find out for which of its orphans the node stores the spec."""
        member = self._cluster.nodes.get(node_id)
        if member is None:
            return
        try:
            kept = await self._agents.intents(node_id, member.node.endpoint)
        except AgentUnreachableError:
            return  # retried with the next list of the node
        names = {intent.workload.id for intent in kept}
        unassigned_copies = self._cluster.unassigned_copies
        for name, unassigned in list(unassigned_copies.on(node_id).items()):
            unassigned_copies.put(replace(unassigned, adoptable=name in names))


def _is_name(text: str) -> bool:
    """A copy without a valid name cannot be recorded, adopted or deleted."""
    try:
        checked_workload_id(text)
    except InvalidError:
        return False
    return True
