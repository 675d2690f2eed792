"""Copies that must go although their workload is gone or lives elsewhere: asked for until they are gone."""

from collections.abc import Callable

from persys.core.effects import Effect, Remove
from persys.errors import ConflictError, StoreUnavailableError
from persys.infra.clock import Clock
from persys.model.event import Event, EventKind
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import NodeStatus
from persys.scheduler.changes import Change
from persys.scheduler.cluster import Cluster
from persys.scheduler.committer import Committer
from persys.store import keys


class Burials:
    def __init__(
        self,
        cluster: Cluster,
        committer: Committer,
        clock: Clock,
        *,
        room_appeared: Callable[[NodeId], None],
        hand: Callable[[Effect], None],
    ) -> None:
        """`hand` takes over an effect."""
        self._cluster = cluster
        self._committer = committer
        self._clock = clock
        self._room_appeared = room_appeared
        self._hand = hand
        self._gone: dict[tuple[NodeId, WorkloadId], None] = {}

    def ask_for(self, node_id: NodeId) -> None:
        """The node can be asked: have it remove what it should no longer have."""
        member = self._cluster.members.get(node_id)
        if member is None or member.node.status is NodeStatus.NOT_READY:
            return
        for tombstone in self._cluster.tombstones.get(node_id, {}).values():
            buried = tombstone.assignment
            self._hand(Remove(node_id, buried.workload_id, buried.epoch, tombstone.keeps_data))

    def removed(self, node_id: NodeId, workload_id: WorkloadId) -> None:
        """The node says that it has no such copy."""
        if workload_id in self._cluster.tombstones.get(node_id, {}):
            self._gone[(node_id, workload_id)] = None

    async def pass_over(self) -> None:
        """Drop the tombstones of what is gone, ask again for the rest."""
        while self._gone:
            (node_id, workload_id), _ = self._gone.popitem()
            await self._drop(node_id, workload_id)
        for node_id in list(self._cluster.tombstones):
            self.ask_for(node_id)

    async def _drop(self, node_id: NodeId, workload_id: WorkloadId) -> None:
        if workload_id not in self._cluster.tombstones.get(node_id, {}):
            return

        def done() -> None:
            self._cluster.drop_tombstone(node_id, workload_id)
            self._cluster.settle_room(workload_id, (node_id,))

        change = Change(
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
            return  # still there at the next pass
        self._room_appeared(node_id)
