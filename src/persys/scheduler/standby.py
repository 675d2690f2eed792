"""A scheduler that does not lead: it follows what the leader writes, until nobody leads.

What it shows is as old as its last proof of being in touch with the store. A store that has lost what this
memory still knows is not followed: that is for an operator to mend, not for a newcomer to begin anew.
"""

import asyncio
from collections.abc import Callable

import structlog

from persys.core.modes import Lost, Silent, Whole
from persys.errors import CompactedError, StoreUnavailableError
from persys.infra.clock import Clock
from persys.model.event import Numbered
from persys.model.leader import Leader
from persys.scheduler.cluster import Cluster
from persys.scheduler.following import follow
from persys.scheduler.lead import Lead, leader_of
from persys.scheduler.modes import Modes
from persys.store import keys
from persys.store.port import Change, Record, Snapshot, Store

log = structlog.get_logger()

LOOK_SECONDS = 1.0


class Standby:
    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        lead: Lead,
        modes: Modes,
        clock: Clock,
        *,
        load: Callable[[Snapshot], None],
        told: Callable[[list[Numbered]], None],
        notice: Callable[[], None],
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._lead = lead
        self._modes = modes
        self._clock = clock
        self._load = load
        self._told = told
        self._notice = notice
        self._sure_at = clock.monotonic()
        self.leader: Leader | None = None

    def data_age(self) -> float:
        """Seconds since memory was last known to be what the store had."""
        return self._clock.monotonic() - self._sure_at

    async def until_vacant(self) -> None:
        """Returns when nobody leads, and what is in memory is what the last leader left."""
        while True:
            try:
                if await self._follow():
                    return
            except CompactedError:
                continue  # it fell too far behind, and reads everything again
            except StoreUnavailableError as err:
                self._modes.take(Silent(str(err)))
            self.leader = None
            await asyncio.sleep(LOOK_SECONDS)

    async def _follow(self) -> bool:
        """True when nobody leads; False when it should be looked at again."""
        snapshot = await self._store.read("/")
        match self._lead.judge(snapshot, remembers=self._remembers()):
            case Lost() as lost:
                self._modes.take(lost)
                return False
            case _:
                pass
        self._load(snapshot)
        self._modes.take(Whole("the store is followed"))
        self._sure_at = self._clock.monotonic()
        leads = next((one for one in snapshot.records if one.key == keys.LEADER), None)
        if leads is None:
            return True
        self._note_leader(leader_of(leads))
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._keep_looking())
            await self._take_changes(snapshot.revision)
            looking.cancel()
        return True

    async def _take_changes(self, revision: int) -> None:
        """Until the leader's key is gone."""
        async for changes in self._store.watch("/", after=revision):
            self._told(follow(self._cluster, changes, lease_until=self._clock.monotonic()))
            for change in changes:
                if change.key == keys.LEADER:
                    if change.value is None:
                        return
                    self._note_leader(_leader(change))

    async def _keep_looking(self) -> None:
        """An answer proves that the store is there; what it changes comes by the watch."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            asked_at = self._clock.monotonic()
            await self._store.get(keys.LEADER)
            self._sure_at = asked_at

    def _remembers(self) -> bool:
        return bool(self._cluster.entries or self._cluster.members)

    def _note_leader(self, leader: Leader) -> None:
        if self.leader != leader:
            log.info("leader.followed", leader=leader.name, endpoint=leader.endpoint)
        self.leader = leader
        self._notice()


def _leader(change: Change) -> Leader:
    assert change.value is not None
    return leader_of(Record(change.key, change.value, change.version))
