"""The drift records by node, and the transaction for each: one event when detected, one when resolved."""

from collections.abc import Iterator
from datetime import datetime

from persys.model.event import Event, EventKind
from persys.model.ids import NodeId, WorkloadId
from persys.model.status import Drift, DriftType
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
