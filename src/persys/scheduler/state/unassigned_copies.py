"""The index of unassigned copies on nodes, by node and by workload. In memory only.

After a restart the recorded orphans are used until their nodes send a full list.
"""

from collections.abc import Mapping

from persys.core.drift import UnassignedCopy
from persys.model.ids import NodeId, WorkloadId
from persys.model.status import Drift, Observation


class UnassignedCopies:
    def __init__(self) -> None:
        self._on: dict[NodeId, dict[WorkloadId, UnassignedCopy]] = {}
        self._of: dict[WorkloadId, set[NodeId]] = {}
        self.unrecorded: dict[NodeId, int] = {}  # orphans beyond the limit per node

    def on(self, node_id: NodeId) -> Mapping[WorkloadId, UnassignedCopy]:
        return self._on.get(node_id, {})

    def of(self, workload_id: WorkloadId) -> list[UnassignedCopy]:
        """The copies of one workload, sorted by node."""
        nodes = self._of.get(workload_id)
        return [self._on[node_id][workload_id] for node_id in sorted(nodes)] if nodes else []

    def put(self, unassigned: UnassignedCopy) -> None:
        seen = unassigned.seen
        self._on.setdefault(seen.node_id, {})[seen.workload_id] = unassigned
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
        """Use a recorded orphan until its node sends a full list after the start."""
        if orphan.workload_id not in self.on(orphan.node_id):
            seen = Observation(
                orphan.workload_id,
                orphan.node_id,
                orphan.actual,
                orphan.detected_at,
                revision=orphan.revision,
                epoch=orphan.epoch,
            )
            self.put(UnassignedCopy(seen, orphan.detected_at, counts=orphan.counts))
