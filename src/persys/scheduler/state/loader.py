"""Loads snapshots of the store into memory and follows the leader's changes; reports unreadable records."""

from collections.abc import Callable, Sequence
from datetime import timedelta

import structlog

from persys.errors import QuarantinedError
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import Clock
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.sync import follow, load_in_slices
from persys.store.port import Snapshot, WatchEvent

log = structlog.get_logger()

QUARANTINED_NAMED_MAX = 50


class StateLoader:
    def __init__(
        self,
        cluster: ClusterState,
        clock: Clock,
        supervisor: Supervisor,
        *,
        lease: timedelta,
        loaded: Callable[[None], None],
    ) -> None:
        """Nodes get a full `lease` after a load. `loaded` is called after each load."""
        self._cluster = cluster
        self._clock = clock
        self._supervisor = supervisor
        self._lease = lease
        self._loaded = loaded
        self.has_loaded = False  # whether memory was loaded from the store once

    async def load(self, snapshot: Snapshot) -> None:
        """Replace the records in memory by the snapshot."""
        lease_until = self._clock.monotonic() + self._lease.total_seconds()
        await load_in_slices(self._cluster, snapshot, lease_until=lease_until, clock=self._clock)
        self._report_quarantined()
        self.has_loaded = True
        self._loaded(None)

    def follow(self, changes: Sequence[WatchEvent]) -> None:
        """Apply the changes of one revision that the leader has written."""
        clock = self._clock
        follow(self._cluster, changes, lease_until=clock.monotonic(), now=clock.now())
        self._report_quarantined()

    def _report_quarantined(self) -> None:
        """Report each unreadable record by its key, unless there are very many, as after a downgrade."""
        quarantine = self._cluster.quarantine
        for key in quarantine.take_released():
            self._supervisor.resolved("record", key)
        unreported = quarantine.take_unreported()
        for one in unreported[:QUARANTINED_NAMED_MAX]:
            self._supervisor.record("record", one.key, QuarantinedError(one.reason))
        if len(unreported) > QUARANTINED_NAMED_MAX:
            log.error("records.quarantined", count=len(quarantine), last=unreported[-1].key)
