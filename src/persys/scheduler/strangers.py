"""Copies that nodes list and nobody bound there, found by node and by workload. In memory only.

After a restart the recorded orphans stand in for them until their nodes list again.
"""

from collections.abc import Mapping

from persys.core.drift import Stranger
from persys.model.drift import Drift
from persys.model.ids import NodeId, WorkloadId
from persys.model.observation import Observation


class Strangers:
    def __init__(self) -> None:
        self._on: dict[NodeId, dict[WorkloadId, Stranger]] = {}
        self._of: dict[WorkloadId, set[NodeId]] = {}
        self.unrecorded: dict[NodeId, int] = {}  # beyond what is recorded of one node

    def on(self, node_id: NodeId) -> Mapping[WorkloadId, Stranger]:
        return self._on.get(node_id, {})

    def of(self, workload_id: WorkloadId) -> list[Stranger]:
        """Copies of one workload, in the order of their nodes."""
        nodes = self._of.get(workload_id)
        return [self._on[node_id][workload_id] for node_id in sorted(nodes)] if nodes else []

    def put(self, stranger: Stranger) -> None:
        seen = stranger.seen
        self._on.setdefault(seen.node_id, {})[seen.workload_id] = stranger
        self._of.setdefault(seen.workload_id, set()).add(seen.node_id)

    def drop(self, node_id: NodeId, workload_id: WorkloadId) -> None:
        if self._on.get(node_id, {}).pop(workload_id, None) is None:
            return
        if not self._on[node_id]:
            del self._on[node_id]
        self._of[workload_id].discard(node_id)
        if not self._of[workload_id]:
            del self._of[workload_id]

    def drop_node(self, node_id: NodeId) -> None:
        for workload_id in list(self.on(node_id)):
            self.drop(node_id, workload_id)
        self.unrecorded.pop(node_id, None)

    def stand_in(self, orphan: Drift) -> None:
        """An orphan is on record, and its node has not listed since we started."""
        if orphan.workload_id not in self.on(orphan.node_id):
            seen = Observation(
                orphan.workload_id,
                orphan.node_id,
                orphan.actual,
                orphan.detected_at,
                revision=orphan.revision,
                epoch=orphan.epoch,
            )
            self.put(Stranger(seen, orphan.detected_at, counts=orphan.counts))
