"""Tracks whether memory equals the store, and brings both together again.

After a write without a reply, a conflict or an outage memory may be stale: everything is read before the next
write. In degraded mode the store is probed until it accepts writes; in recovery mode until the lost records
are back or an operator restores others. The committer's loop drives this and writes nothing meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from persys.core.recovery.mode import (
    NewCluster,
    RecordsLost,
    SameCluster,
    StoreHealthy,
    StoreUnreachable,
    is_awaited,
)
from persys.errors import ConflictError, FencedError, PersysError, StoreUnavailableError
from persys.infra.aio.group_commit import fail
from persys.model.cluster import ClusterMarker
from persys.model.event import NumberedEvent
from persys.scheduler.commit.versions import RecordVersions
from persys.scheduler.ha.leader_key import LeaderKey
from persys.scheduler.recovery.mode import ModeTracker
from persys.store import keys
from persys.store.port import Committed, Conflict, Outcome, Snapshot, Store, Unit
from persys.store.port import WatchEvent as Stored
from persys.wire.stored import records

log = structlog.get_logger()

# Replaces everything that is stored, and returns the reason for the mode's history.
Restore = Callable[[Store, LeaderKey], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class _RestoreRequest:
    make: Restore
    done: asyncio.Future[None]


class StoreWatch:
    def __init__(
        self,
        store: Store,
        *,
        versions: RecordVersions,
        leader_key: LeaderKey,
        modes: ModeTracker,
        has_records: Callable[[], bool],
        wake: Callable[[], None],
        on_reload: Callable[[Snapshot], Awaitable[None]],
        on_events: Callable[[list[NumberedEvent], list[int]], None],
    ) -> None:
        """`has_records`: whether memory has records. `wake` wakes the committer's loop. `on_reload` loads a
        snapshot into memory; nothing is written until it returns.

        `on_events` gets the stored events in the order of their numbers, and the numbers of deleted events.
        """
        self._store = store
        self._versions = versions
        self._leader_key = leader_key
        self._modes = modes
        self._wake = wake
        self._on_reload = on_reload
        self._on_events = on_events
        self._unanswered = False  # a request may still be in progress in the store
        self._restores: list[_RestoreRequest] = []
        self.has_records = has_records
        self.is_stale = False  # memory may differ from the store
        self.is_new_cluster = False  # created by this process
        self.revision = 0  # of the store, when it was read or after the last commit

    @property
    def has_restores(self) -> bool:
        return bool(self._restores)

    async def take_over(self) -> Snapshot:
        """Take the leader key, then read everything. An empty store becomes a new cluster."""
        await self._leader_key.take()
        snapshot = await self._read_all()
        match self._leader_key.classify(snapshot, remembers=self.has_records()):
            case SameCluster(marker=marker):
                self._leader_key.marker = marker
            case NewCluster():
                await self._create_cluster(self._leader_key.new_marker())
            case RecordsLost() as lost:
                self._modes.take(lost)
        return snapshot

    async def resume_as_leader(self) -> None:
        """Lead after standby, with all changes of the last leader. An empty store becomes a new cluster."""
        if self._leader_key.marker is None:
            await self._create_cluster(self._leader_key.new_marker())

    async def set_versions(self, snapshot: Snapshot) -> Snapshot:
        """Set the known versions from a full snapshot. Returns the snapshot.

        Runs in a thread, because there may be 100,000 records: nothing is committed or followed meanwhile.
        """
        await asyncio.to_thread(self._versions.set_versions, snapshot)
        self.revision = snapshot.revision
        return snapshot

    def follow(self, changes: Sequence[Stored]) -> None:
        """Take over changes that the leader has written."""
        self._versions.follow(change for change in changes if not keys.is_name(change.key))

    def record_count(self) -> int:
        return len(self._versions.versions)

    def mark_stale(self) -> None:
        """Memory may differ from the store: read everything before the next write."""
        self.is_stale = True
        self._wake()

    def note_outage(self, err: StoreUnavailableError) -> None:
        """The store did not reply: it is unknown what was written."""
        self._modes.take(StoreUnreachable(str(err)))
        self.is_stale = self._unanswered = True

    def note_revisions(self, outcomes: Sequence[Outcome]) -> None:
        """Detects a repeated revision: the store was restored from an older copy while we lead."""
        revisions = [one.revision for one in outcomes if isinstance(one, Committed)]
        if not revisions:
            return
        if min(revisions) <= self.revision:
            log.error("store.went_back", revision=min(revisions), known=self.revision)
            self.is_stale = True
        self.revision = max(self.revision, *revisions)

    async def check_leader_key(self) -> None:
        """The leader key has changed. Raises FencedError if another scheduler leads; a missing key means that
        the store has lost data, so everything is read again."""
        try:
            await self._leader_key.check_not_taken()
        except StoreUnavailableError as err:
            self.note_outage(err)
        finally:
            self.is_stale = True

    async def restore(self, make: Restore) -> None:
        """Replace everything that is stored. Only in recovery mode, in which nothing else is written.

        Raises ConflictError if the mode has changed, and the errors of the store.
        """
        request = _RestoreRequest(make, asyncio.get_running_loop().create_future())
        self._restores.append(request)
        self._wake()
        await request.done

    async def restore_next(self) -> None:
        """Execute the oldest request of `restore`."""
        request = self._restores.pop(0)
        try:
            if not self._modes.in_recovery:
                raise ConflictError(
                    f"the mode is {self._modes.state.mode}: expected recovery; check it with "
                    "`persysctl recovery status`"
                )
            await self._leader_key.take(again=True)
            why = await request.make(self._store, self._leader_key)
            self.is_stale = False  # a mark during the read causes another read
            await self._on_reload(await self._read_all())
            await self._resume(why)
            if self._modes.is_frozen:
                raise ConflictError("the store was changed at the same time; try again")
        except PersysError as err:
            self.is_stale = True
            fail(request.done, err)
            if isinstance(err, FencedError):
                raise
        else:
            if not request.done.done():
                request.done.set_result(None)

    def end(self, err: PersysError) -> None:
        """The loop has ended: fail the waiting requests of `restore`."""
        for request in self._restores:
            fail(request.done, err)

    async def probe(self) -> PersysError:
        """Read the store if memory may be stale; in a frozen mode also probe whether it accepts writes.

        Returns the error for changes that were queued before.
        """
        try:
            if self._modes.in_recovery and not await self._is_back():
                await self._leader_key.hold_key()
                return self._modes.refusal()
            if self.is_stale and not await self._read_again():
                return self._modes.refusal()
            if self._modes.is_frozen:
                await self._resume("the store is back")
        except StoreUnavailableError as err:
            self._modes.take(StoreUnreachable(str(err)))
            return self._modes.refusal()
        except ConflictError as err:
            self.is_stale = True  # it changed during the read: read again
            return err
        return ConflictError("the store was read again; decide again")

    async def _is_back(self) -> bool:
        marker = await self._leader_key.stored_marker()
        if marker is None or not is_awaited(self._modes.condition, marker):
            return False
        self._leader_key.marker = marker
        self.is_stale = True
        return True

    async def _read_again(self) -> bool:
        """False: the store has lost its records. Memory is kept in this case."""
        if self._unanswered:
            await self._leader_key.renew_fence()
            self._unanswered = False
        self.is_stale, is_read = False, False  # a mark during the read causes another read
        try:
            snapshot = await self._read_all()
            match self._leader_key.classify(snapshot, remembers=self.has_records()):
                case RecordsLost() as lost:
                    self._modes.take(lost)
                    await self._leader_key.hold_key()
                    return False
                case NewCluster():
                    await self._leader_key.take(again=True)
                    await self._create_cluster(
                        self._leader_key.marker or self._leader_key.new_marker()
                    )
                case SameCluster():
                    await self._leader_key.ensure_key(snapshot)
            is_read = True
        finally:
            self.is_stale = self.is_stale or not is_read
        await self._on_reload(snapshot)
        return True

    async def _read_all(self) -> Snapshot:
        return await self.set_versions(await self._store.read("/"))

    async def _create_cluster(self, marker: ClusterMarker) -> None:
        unit = Unit(guards={keys.CLUSTER: 0}, puts={keys.CLUSTER: records.encode(marker)})
        outcome = (await self._store.commit([unit], fence=self._leader_key.fence))[0]
        if isinstance(outcome, Conflict):
            raise ConflictError("another scheduler is starting on this store at the same time")
        self._versions.stored(unit, outcome.revision)
        self._leader_key.marker = marker
        self.is_new_cluster = True
        log.info("cluster.began", cluster_uid=marker.uid)

    async def _resume(self, why: str) -> None:
        """Write the leader key and the events of the outage: success proves that writes work."""
        numbered = self._versions.number(self._modes.history(why))
        try:
            written = await self._leader_key.take(
                puts=self._versions.event_puts(numbered),
                guards={keys.CLUSTER: self._versions.versions.get(keys.CLUSTER, 0)},
                again=True,
            )
        except ConflictError:
            self.is_stale = True
            return
        self._versions.stored_events(numbered, written)
        self._modes.events_written()
        self._on_events(numbered, [])
        self._modes.take(StoreHealthy(why))
