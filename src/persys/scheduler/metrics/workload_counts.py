"""Counts workloads for the metrics, in slices: with very many workloads no call waits for the count."""

import asyncio
from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from persys.core.placement.index.node_slot import NodeSlot
from persys.infra.clock import Clock
from persys.model.ids import NodeId
from persys.model.spec import WorkloadType, type_of
from persys.model.status import FailureReason, Status
from persys.model.workload import Desired
from persys.scheduler.state.cluster import ClusterState, WorkloadState

SLICE = 500
FRESH_SECONDS = 1.0


@dataclass(slots=True)
class WorkloadCount:
    statuses: Tally[Status] = field(default_factory=Tally)
    desired: Tally[Desired] = field(default_factory=Tally)
    failures: Tally[FailureReason] = field(default_factory=Tally)
    retrying: int = 0
    given_up: int = 0
    removals_overdue: int = 0
    pending_since: datetime | None = None  # of the longest pending workload
    offloaded: Tally[tuple[WorkloadType, int]] = field(default_factory=Tally)  # by type and tier
    offload_spend: float = 0.0  # per hour

    def add(
        self, entries: Iterable[WorkloadState], higher_tiers: Mapping[NodeId, NodeSlot]
    ) -> None:
        """`higher_tiers`: the nodes of tiers above 0."""
        for entry in entries:
            if higher_tiers:
                self._note_offloaded(entry, higher_tiers)
            self.desired[entry.workload.desired] += 1
            if (workload_status := entry.workload_status) is not None:
                self.statuses[workload_status.status] += 1
                if workload_status.status is Status.PENDING:
                    self._note_pending(workload_status.changed_at)
                elif (
                    workload_status.status is Status.FAILED and workload_status.failure is not None
                ):
                    self.failures[workload_status.failure.reason] += 1
            if (retry := entry.retry) is not None:
                if entry.workload.desired is Desired.DELETED:
                    self.removals_overdue += 1
                elif retry.next_at is None:
                    self.given_up += 1
                else:
                    self.retrying += 1

    def _note_offloaded(
        self, entry: WorkloadState, higher_tiers: Mapping[NodeId, NodeSlot]
    ) -> None:
        bound = entry.assignment
        slot = higher_tiers.get(bound.node_id) if bound is not None else None
        if bound is None or slot is None:
            return
        self.offloaded[type_of(entry.workload.spec), slot.tier] += 1
        self.offload_spend += slot.price * bound.reserved.cpu_millicores / 1000

    def _note_pending(self, since: datetime) -> None:
        if self.pending_since is None or since < self.pending_since:
            self.pending_since = since


class WorkloadCounter:
    def __init__(self, cluster: ClusterState, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._taken_at: float | None = None
        self.latest = WorkloadCount()

    async def take(self) -> None:
        """Count again, unless the last count is recent."""
        now = self._clock.monotonic()
        if self._taken_at is not None and now - self._taken_at < FRESH_SECONDS:
            return
        count = WorkloadCount()
        entries = list(self._cluster.workloads.values())
        for start in range(0, len(entries), SLICE):
            count.add(entries[start : start + SLICE], self._cluster.node_index.beyond)
            await asyncio.sleep(0)
        self._taken_at = now
        self.latest = count
