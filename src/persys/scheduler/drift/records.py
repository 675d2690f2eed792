"""Drift records and unassigned copies in memory, and the transactions of drift: one event when detected, one
when resolved.

Unassigned copies are not stored. After a restart the recorded orphans are used until their nodes send a full
list.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime

from persys.core.drift import UnassignedCopy
from persys.model.event import Event, EventKind
from persys.model.ids import NodeId, WorkloadId
from persys.model.status import Drift, DriftType, Observation
from persys.scheduler.commit.transaction import Transaction
from persys.store import keys


class Drifts:
    def __init__(self) -> None:
        self._on: dict[NodeId, dict[tuple[WorkloadId, DriftType], Drift]] = {}

    def __iter__(self) -> Iterator[Drift]:
        """By node, then by workload."""
        for node_id in sorted(self._on):
            recorded = self._on[node_id]
            yield from (recorded[key] for key in sorted(recorded))

    def on(self, node_id: NodeId) -> list[Drift]:
        return list(self._on.get(node_id, {}).values())

    def orphans_on(self, node_id: NodeId) -> dict[WorkloadId, Drift]:
        return {
            drift.workload_id: drift for drift in self.on(node_id) if drift.type is DriftType.ORPHAN
        }

    def of(self, node_id: NodeId, workload_id: WorkloadId) -> list[Drift]:
        recorded = self._on.get(node_id)
        if not recorded:
            return []
        return [recorded[key] for kind in DriftType if (key := (workload_id, kind)) in recorded]

    def put(self, drift: Drift) -> None:
        self._on.setdefault(drift.node_id, {})[(drift.workload_id, drift.type)] = drift

    def drop(self, drift: Drift) -> None:
        """Does nothing if it was dropped already."""
        recorded = self._on.get(drift.node_id, {})
        recorded.pop((drift.workload_id, drift.type), None)
        if not recorded:
            self._on.pop(drift.node_id, None)

    def drop_node(self, node_id: NodeId) -> None:
        self._on.pop(node_id, None)

    def clear(self) -> None:
        self._on.clear()


def add_detected(change: Transaction, drift: Drift) -> None:
    change.puts[key_of(drift)] = drift
    change.events.append(
        _event(EventKind.DRIFT_DETECTED, drift, drift.detail, at=drift.detected_at)
    )


def add_resolved(change: Transaction, drift: Drift, because: str, *, now: datetime) -> None:
    change.drops.append(key_of(drift))
    change.events.append(_event(EventKind.DRIFT_RESOLVED, drift, because, at=now))


def key_of(drift: Drift) -> str:
    return keys.drift_key(drift.node_id, drift.workload_id, drift.type)


def _event(kind: EventKind, drift: Drift, message: str, *, at: datetime) -> Event:
    return Event(
        at,
        kind,
        f"{drift.type}: {message}",
        workload_id=drift.workload_id,
        node_id=drift.node_id,
        revision=drift.revision,
        epoch=drift.epoch,
    )


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
