"""Removes nodes with all their records, in transactions of bounded size.

A node with few tombstones and drifts is removed in one transaction. A node with many is first marked, so that
it gets no work and cannot register; then its records are deleted in parts, and the node with the last part.
The process continues if the caller disconnects, and a new leader resumes marked removals. The event of the
first step names the caller.
"""

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import assert_never

import structlog
from msgspec.structs import replace

from persys.core.nodes import (
    DEPENDENTS_PER_STEP_MAX,
    MarkRemoving,
    RemovalBlocked,
    RemoveDependents,
    RemoveNode,
    next_removal_step,
)
from persys.errors import (
    ConflictError,
    NotFoundError,
    RefusedError,
    StoreUnavailableError,
    UnavailableError,
)
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.clock import Clock
from persys.model.event import Event, EventKind
from persys.model.ids import NodeId
from persys.model.node import Node, RemovedNode
from persys.model.placement import Tombstone
from persys.model.status import Drift
from persys.scheduler.commit.committer import Committer, retry_on_conflict
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.drift.records import key_of
from persys.scheduler.membership.removed_nodes import RemovedNodes
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys

log = structlog.get_logger()

RETRY_SECONDS = 1.0
WAIT_SECONDS = 60.0


class NodeRemoval:
    def __init__(
        self,
        cluster: ClusterState,
        committer: Committer,
        clock: Clock,
        *,
        removed: RemovedNodes,
        locks: KeyedLock[NodeId],
    ) -> None:
        """`locks` serialize the changes of a node record."""
        self._cluster = cluster
        self._committer = committer
        self._clock = clock
        self._removed = removed
        self._locks = locks
        self._wanted = asyncio.Event()
        self._moved = asyncio.Event()

    async def remove(self, node_id: NodeId) -> None:
        """Returns when the node is removed. Raises RefusedError while it has workloads, and UnavailableError
        if the removal takes longer; it continues then."""
        await self._step(node_id, is_request=True)
        self._wanted.set()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._until_gone(node_id)
        except TimeoutError as err:
            raise UnavailableError(f"node {node_id} is still being removed; try again") from err

    async def _until_gone(self, node_id: NodeId) -> None:
        while (member := self._cluster.nodes.get(node_id)) is not None:
            if member.node.removing_since is None:
                raise RefusedError(
                    f"node {node_id} was assigned a workload and is not removed; drain it first"
                )
            await self._moved.wait()

    def resume(self) -> None:
        """Resume marked removals: this scheduler leads now."""
        self._wanted.set()

    async def run(self) -> None:
        """Complete every marked removal."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            for node_id in self._marked():
                await self._finish(node_id)
            if self._marked():
                await asyncio.sleep(RETRY_SECONDS)
                self._wanted.set()

    def _marked(self) -> list[NodeId]:
        return [
            node_id
            for node_id, member in self._cluster.nodes.items()
            if member.node.removing_since is not None
        ]

    async def _finish(self, node_id: NodeId) -> None:
        while (member := self._cluster.nodes.get(node_id)) and member.node.removing_since:
            try:
                await self._step(node_id, is_request=False)
            except RefusedError:
                return  # it has a workload: the mark was removed
            except (StoreUnavailableError, ConflictError):
                return  # retried in a second

    async def _step(self, node_id: NodeId, *, is_request: bool) -> None:
        async with self._locks.hold(node_id):
            await retry_on_conflict(lambda: self._make_step(node_id, is_request=is_request))
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def _make_step(self, node_id: NodeId, *, is_request: bool) -> None:
        member = self._cluster.nodes.get(node_id)
        if member is None:
            raise NotFoundError("node", node_id)
        node, now = member.node, self._clock.now()
        bound = self._cluster.bound_to(node_id) | self._cluster.pending_on(node_id)
        events = [Event(now, EventKind.NODE_REMOVAL_ASKED, node_id=node_id)] if is_request else []
        dependents, count = self._dependents(node_id)
        match next_removal_step(node, list(dependents), bound, count=count, now=now):
            case RemovalBlocked(why=why):
                if node.removing_since is not None:
                    await self._put(replace(node, removing_since=None), [])
                raise RefusedError(why)
            case MarkRemoving(node=marked):
                await self._put(marked, events)
            case RemoveDependents(keys=gone):
                await self._committer.commit(
                    Transaction(
                        done=lambda: self._forget(dependents[key] for key in gone),
                        drops=list(gone),
                        events=events,
                    )
                )
            case RemoveNode(keys=gone):
                await self._remove(node, list(gone), events)
            case unreachable:
                assert_never(unreachable)

    def _dependents(self, node_id: NodeId) -> tuple[dict[str, Tombstone | Drift], int]:
        """The first records of the node, as many as one step deletes, and the total count."""
        tombstones = self._cluster.tombstones.get(node_id, {})
        drifts = self._cluster.drifts.on(node_id)
        found: dict[str, Tombstone | Drift] = {
            keys.tombstone_key(node_id, workload_id): tombstone
            for workload_id, tombstone in islice(tombstones.items(), DEPENDENTS_PER_STEP_MAX)
        }
        for drift in islice(drifts, DEPENDENTS_PER_STEP_MAX - len(found)):
            found[key_of(drift)] = drift
        return found, len(tombstones) + len(drifts)

    async def _put(self, node: Node, events: list[Event]) -> None:
        change = Transaction(
            done=lambda: _show(self._cluster, node),
            puts={keys.node_key(node.id): node},
            events=events,
        )
        await self._committer.commit(change)

    async def _remove(self, node: Node, gone: list[str], events: list[Event]) -> None:
        """During the commit the node is marked in memory, so that nothing is assigned to it."""
        marked = replace(node, removing_since=self._clock.now())
        _show(self._cluster, marked)
        try:
            await self._commit_removal(node.id, gone, events)
        finally:
            member = self._cluster.nodes.get(node.id)
            if member is not None and member.node is marked:
                _show(self._cluster, node)

    async def _commit_removal(self, node_id: NodeId, gone: list[str], events: list[Event]) -> None:
        now = self._clock.now()
        removal = RemovedNode(node_id, now)

        def done() -> None:
            self._cluster.drop_node(node_id)
            self._removed.note(removal)
            log.info("node.removed", node_id=node_id)

        await self._committer.commit(
            Transaction(
                done=done,
                puts={keys.removed_key(node_id): removal},
                drops=[
                    *self._removed.forget(now),
                    keys.node_key(node_id),
                    keys.node_lease_key(node_id),
                    *gone,
                ],
                events=[*events, Event(now, EventKind.NODE_REMOVED, node_id=node_id)],
            )
        )

    def _forget(self, gone: Iterable[Tombstone | Drift]) -> None:
        for one in gone:
            if isinstance(one, Drift):
                self._cluster.drifts.drop(one)
                continue
            copy = one.assignment
            self._cluster.drop_tombstone(copy.node_id, copy.workload_id)
            self._cluster.update_reservations(copy.workload_id, (copy.node_id,))


def _show(cluster: ClusterState, node: Node) -> None:
    if node.id in cluster.nodes:
        cluster.put_node(node)
