"""Contacts of the clusters that run workloads here, and the stop of workloads whose home cluster is silent.

A contact is any call with a token that has the prefix of the cluster. Contacts are only in memory of the
leader: nothing is written while they arrive. A leader whose store does not accept writes stops nothing; the
agents stop such workloads themselves, because `stop_after` is set for them too.
"""

import asyncio
from functools import partial
from itertools import islice

import structlog
from msgspec.structs import replace

from persys.core.federation.home_contacts import Overdue, limit_of
from persys.core.intent.apply import Accepted, Unchanged, stop_because
from persys.errors import ConflictError, NotFoundError, RefusedError, StoreUnavailableError
from persys.infra.clock import Clock
from persys.model.workload import Workload
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.reconcile.reconciler import Reconciler
from persys.scheduler.recovery.mode import ModeTracker
from persys.scheduler.state.cluster import ClusterState

log = structlog.get_logger()

CHECK_SECONDS = 1.0
STOPS_AT_ONCE = 64
HOMES_MAX = 1000
IDENTITY = "system/home-contact"  # in events


class HomeContacts:
    def __init__(
        self, cluster: ClusterState, reconciler: Reconciler, modes: ModeTracker, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._reconciler = reconciler
        self._modes = modes
        self._clock = clock
        self._since = clock.monotonic()
        self._contacted_at: dict[str, float] = {}

    def begin_to_lead(self) -> None:
        """The previous leader knew the contacts before now."""
        self._since = self._clock.monotonic()
        self._contacted_at.clear()

    def note(self, home: str) -> None:
        """A call of this cluster was authorized."""
        self._contacted_at.pop(home, None)
        self._contacted_at[home] = self._clock.monotonic()
        if len(self._contacted_at) > HOMES_MAX:  # only without authentication
            del self._contacted_at[next(iter(self._contacted_at))]

    def contacted_at(self, home: str) -> float:
        """The last contact of a cluster, or the start of the leadership, on the monotonic clock."""
        return max(self._contacted_at.get(home, self._since), self._since)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            while not self._modes.is_frozen and (due := self._due()):
                if not await self._stop_all(due):
                    break  # the store does not respond: retried in a second

    def _due(self) -> list[Overdue]:
        now = self._clock.monotonic()
        found = self._cluster.home_workloads.overdue(self._contacted_at, since=self._since, now=now)
        return list(
            islice(
                (one for one in found if not self._cluster.blocked_because(one.workload_id)),
                STOPS_AT_ONCE,
            )
        )

    async def _stop_all(self, due: list[Overdue]) -> bool:
        """False: at least one could not be stopped."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._stop(one)) for one in due]
        return all(task.result() for task in tasks)

    async def _stop(self, one: Overdue) -> bool:
        transition = partial(self._stopped, one)
        try:
            await self._reconciler.submit(
                one.workload_id, transition, extra_writes=partial(_explain, one)
            )
        except RefusedError as err:
            if not isinstance(err, NotFoundError):
                log.warning("workload.not_stopped", workload_id=one.workload_id, reason=str(err))
            return True
        except (StoreUnavailableError, ConflictError) as err:
            log.warning("workload.not_stopped", workload_id=one.workload_id, reason=str(err))
            return False
        return True

    def _stopped(self, one: Overdue, old: Workload | None) -> Accepted | Unchanged:
        """Decided again with the present intent: it may have changed, and the contact may be back."""
        if old is None:
            raise NotFoundError("workload", one.workload_id)
        limit = limit_of(old)
        if limit is None:
            return Unchanged(old)
        if self._clock.monotonic() - self.contacted_at(limit.home) < limit.seconds:
            return Unchanged(old)
        return stop_because(old, one.why, now=self._clock.now())


def _explain(one: Overdue, outcome: Accepted | Unchanged, change: Transaction) -> None:
    """The event of the stop has the reason; its identity is this scheduler."""
    if isinstance(outcome, Accepted):
        asked, *others = change.events
        change.events[:] = [replace(asked, message=one.why, identity=IDENTITY), *others]
