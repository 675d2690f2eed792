"""Counts workloads for the metrics, in slices: with very many workloads no call waits for the count."""

import asyncio
from collections import Counter as Tally
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from persys.infra.clock import Clock
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

    def add(self, entries: Iterable[WorkloadState]) -> None:
        for entry in entries:
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
            count.add(entries[start : start + SLICE])
            await asyncio.sleep(0)
        self._taken_at = now
        self.latest = count
