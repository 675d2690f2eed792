"""A standby scheduler: it follows the writes of the leader in the store until it leads itself.

The age of its data is the time since it last confirmed the connection to the store. A store that has lost
records that are still in memory is not followed: an operator decides, and no new cluster is created.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import structlog

from persys.core.recovery.mode import (
    NewCluster,
    RecordsLost,
    SameCluster,
    StoreHealthy,
    StoreUnreachable,
)
from persys.errors import ConflictError, FencedError, PersysError, StoreUnavailableError
from persys.infra.aio.task_group import task_group
from persys.infra.clock import Clock
from persys.model.cluster import Leader
from persys.scheduler.ha.leader_key import LeaderKey, leader_of
from persys.scheduler.recovery.mode import ModeTracker
from persys.store import keys
from persys.store.port import Record, Snapshot, Store, WatchEvent

log = structlog.get_logger()

CHECK_SECONDS = 1.0
READ_AGAIN_SECONDS = 0.1
CATCH_UP_SECONDS = 1.0
# A live leader writes its key again within one lease after the store has lost its records.
LEADERLESS_LEASES = 2


class Standby:
    def __init__(
        self,
        store: Store,
        leader_key: LeaderKey,
        modes: ModeTracker,
        clock: Clock,
        *,
        load: Callable[[Snapshot], Awaitable[None]],
        take: Callable[[Sequence[WatchEvent]], None],
        has_records: Callable[[], bool],
        leader_changed: Callable[[], None],
    ) -> None:
        """`load` replaces memory by a snapshot, `take` applies the changes of one revision."""
        self._store = store
        self._leader_key = leader_key
        self._modes = modes
        self._clock = clock
        self._load = load
        self._take = take
        self._has_records = has_records
        self._leader_changed = leader_changed
        self._confirmed_at = clock.monotonic()
        self._leaderless_since: float | None = None
        self._revision = 0
        self._leader_version = 0  # of the leader key, as followed; 0: there is none
        self._moved = asyncio.Event()
        self.leader: Leader | None = None  # the last known one, None if its key is gone
        self.has_read = False

    def data_age(self) -> float:
        """Seconds since memory was last confirmed equal to the store."""
        return self._clock.monotonic() - self._confirmed_at

    async def catch_up(self, revision: int) -> None:
        """Wait briefly until memory has this revision: an older response is better than none."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                while self._revision < revision:
                    await self._moved.wait()

    async def until_leading(self) -> bool:
        """Returns when this scheduler leads and memory equals what the last leader wrote.

        False: there is no leader, and the store has lost records that are still in memory.
        """
        while True:
            try:
                snapshot = await self._store.read("/")
            except StoreUnavailableError as err:
                self._modes.take(StoreUnreachable(str(err)))
                await asyncio.sleep(CHECK_SECONDS)
                continue
            leads = snapshot.get(keys.LEADER)
            match self._leader_key.classify(snapshot, remembers=self._has_records()):
                case RecordsLost() as lost:
                    if self._must_wait(lost, leads):
                        await asyncio.sleep(CHECK_SECONDS)
                        continue
                    return False
                case SameCluster(marker=marker):
                    self._leader_key.marker = marker
                case NewCluster():
                    pass
            await self._load_snapshot(snapshot)
            self.leader = None
            self._leader_version = leads.version if leads is not None else 0
            if leads is not None:
                self._note_leader(leader_of(leads))
            try:
                await self._follow(snapshot.revision)
            except StoreUnavailableError as err:
                # The next read shows whether the store, one of its members or our position was the cause.
                log.info("watch.lost", reason=str(err))
                await self._give_up()
                await asyncio.sleep(READ_AGAIN_SECONDS)
            else:
                return True

    def _must_wait(self, lost: RecordsLost, leads: Record | None) -> bool:
        """True: wait. A leader is in recovery too, and an operator will decide there. Without a leader a
        standby with records in memory has to lead in recovery mode, so that an operator can reach it.
        """
        self._modes.take(lost)
        now = self._clock.monotonic()
        if leads is not None:
            self._leaderless_since = None
            self._note_leader(leader_of(leads))
            return True
        if self._leaderless_since is None:
            self._leaderless_since = now
        return now < self._leaderless_since + LEADERLESS_LEASES * self._leader_key.lease_seconds

    async def _load_snapshot(self, snapshot: Snapshot) -> None:
        await self._load(snapshot)
        self._modes.take(StoreHealthy("the store is followed"))
        self._confirmed_at = self._clock.monotonic()
        self._leaderless_since = None
        self.has_read = True
        self._move_to(snapshot.revision)

    async def _follow(self, revision: int) -> None:
        """Returns when this scheduler leads."""
        async with task_group() as group:
            looking = group.create_task(self._keep_checking())
            await self._take_changes(revision)
            looking.cancel()

    async def _take_changes(self, revision: int) -> None:
        """Apply changes until our own leader key appears: all earlier writes have been applied then."""
        taken = await self._try_to_lead() if self.leader is None else 0
        async for changes in self._store.watch("/", after=revision):
            if any(change.key == keys.CLUSTER and change.value is None for change in changes):
                # A leader deletes it only in a recovery: our memory may hold the only copy.
                raise StoreUnavailableError("the cluster marker was deleted")
            self._take(changes)
            self._move_to(max(change.version for change in changes))
            for change in changes:
                if change.key == keys.CLUSTER and change.value is not None:
                    self._leader_key.take_marker(Record(change.key, change.value, change.version))
                if change.key != keys.LEADER:
                    continue
                self._leader_version = change.version if change.value is not None else 0
                if change.value is None:
                    self.leader = None
                    taken = await self._try_to_lead()
                elif change.version == taken:
                    return
                else:
                    self._note_leader(_leader(change))

    async def _try_to_lead(self) -> int:
        """The version of our leader key; 0 if another scheduler was faster."""
        try:
            await self._leader_key.take()
        except (FencedError, ConflictError) as err:
            log.info("leadership.missed", reason=str(err))
            if await self._store.get(keys.LEADER) is None:
                raise StoreUnavailableError(
                    "there is no leader, and the leader key could not be written"
                ) from err
            return 0
        assert self._leader_key.fence is not None
        return self._leader_key.fence[1]

    async def _give_up(self) -> None:
        """The leader key may or may not be written: remove it, because we do not lead."""
        with suppress(PersysError, TimeoutError):
            async with asyncio.timeout(CHECK_SECONDS):
                await self._leader_key.resign()

    async def _keep_checking(self) -> None:
        """Confirm the connection by reads; changes arrive by the watch.

        The watch may be connected to another, frozen member of the store: a change of the leader that was
        visible at the previous read must have arrived by the watch, otherwise the watch is stuck.
        """
        missed = (0, 0)
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            started_at = self._clock.monotonic()
            found = await self._store.get(keys.LEADER)
            versions = (found.version if found is not None else 0, self._leader_version)
            if versions[0] == versions[1]:
                self._confirmed_at = started_at
            elif versions == missed:
                raise StoreUnavailableError("the watch does not deliver the leader key")
            missed = versions

    def _move_to(self, revision: int) -> None:
        self._revision = revision
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _note_leader(self, leader: Leader) -> None:
        if self.leader != leader:
            log.info("leader.followed", leader=leader.name, endpoint=leader.endpoint)
        self.leader = leader
        self._leader_changed()


def _leader(change: WatchEvent) -> Leader:
    assert change.value is not None
    return leader_of(Record(change.key, change.value, change.version))
