"""Group commit: changes that arrive during a transaction share the next one.

All writes of the scheduler pass through here. Each record is guarded by the version this process last saw,
each transaction by the leader's fence. After a commit without a reply it is unknown what was written:
everything is read again before the next write, and queued changes fail with ConflictError (decide again).
Outside normal mode changes are refused with FrozenError; the loop probes the store until it is available.
An unreadable record is never overwritten (QuarantinedError).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import structlog

from persys.core.event_retention import EventLimits
from persys.core.recovery.mode import Lost, New, Same, Silent, Whole, is_awaited
from persys.errors import (
    ConflictError,
    FencedError,
    InvalidError,
    PersysError,
    StoreUnavailableError,
)
from persys.infra.aio.group_commit import GroupCommit, Pending, fail
from persys.infra.clock import Clock
from persys.infra.telemetry import tracing
from persys.model.cluster import ClusterMarker
from persys.model.event import Numbered
from persys.scheduler.commit.transaction import Transaction, attributed, encoded
from persys.scheduler.commit.versions import RecordVersions
from persys.scheduler.ha.leader_key import LeaderKey, not_leading
from persys.scheduler.metrics.counters import Metrics
from persys.scheduler.recovery.mode import ModeTracker
from persys.scheduler.state.quarantine import Quarantine
from persys.store import keys
from persys.store.port import Change as Stored
from persys.store.port import Committed, Conflict, Outcome, Snapshot, Store, Unit
from persys.wire.stored import records

BATCH_MAX = 1024
CROWD_SECONDS = 0.004


class EncodedChange(NamedTuple):
    """A queued change with its encoded records."""

    change: Transaction
    values: dict[str, bytes]


def _keys_of(encoded_change: EncodedChange) -> tuple[str, ...]:
    return (*encoded_change.values, *encoded_change.change.drops)


log = structlog.get_logger()

T = TypeVar("T")

PROBE_SECONDS = 1.0
ATTEMPTS_MAX = 4

# Replaces everything that is stored, and returns the reason for the mode's history.
Restore = Callable[[Store, LeaderKey], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class _RestoreRequest:
    make: Restore
    done: asyncio.Future[None]


class Committer:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        events: EventLimits,
        modes: ModeTracker,
        quarantine: Quarantine,
        new_uid: Callable[[], str],
        metrics: Metrics,
        lease_seconds: int,
        remembers: Callable[[], bool],
        on_reload: Callable[[Snapshot], Awaitable[None]],
        on_events: Callable[[list[Numbered], list[int]], None],
    ) -> None:
        """`remembers`: whether memory has records. `on_reload` loads a snapshot into memory; nothing is
        written until it returns.

        `on_events` gets the stored events in the order of their numbers, and the numbers of deleted events.
        """
        self._store = store
        self._clock = clock
        self._units = RecordVersions(events)
        self._quarantine = quarantine
        self._queue: GroupCommit[EncodedChange] = GroupCommit(
            batch_max=BATCH_MAX, keys_of=_keys_of, gather_seconds=CROWD_SECONDS
        )
        self._stale = False
        self._unanswered = False  # a request may still be in progress in the store
        self._ended: FencedError | None = None
        self._restores: list[_RestoreRequest] = []
        self.is_new_cluster = False  # created by this process
        self._metrics = metrics
        self.modes = modes
        self.revision = 0  # of the store, when it was read or after the last commit
        self.lead = LeaderKey(store, clock, new_uid=new_uid, lease_seconds=lease_seconds)
        self.remembers = remembers
        self._on_reload = on_reload
        self._on_events = on_events

    async def take_over(self, name: str) -> Snapshot:
        """Take the leader key, then read everything. An empty store becomes a new cluster."""
        self.lead.name = name
        await self.lead.take()
        snapshot = await self._read_all()
        match self.lead.judge(snapshot, remembers=self.remembers()):
            case Same(marker=marker):
                self.lead.marker = marker
            case New():
                await self._create_cluster(self.lead.new_marker())
            case Lost() as lost:
                self.modes.take(lost)
        return snapshot

    async def set_versions(self, snapshot: Snapshot) -> Snapshot:
        """Set the known versions from a full snapshot. Returns it without DNS names, which are not records.

        Runs in a thread, because there may be 100,000 records: nothing is committed or followed meanwhile.
        """
        snapshot = await asyncio.to_thread(self._set_versions, snapshot)
        self.revision = snapshot.revision
        return snapshot

    def _set_versions(self, snapshot: Snapshot) -> Snapshot:
        ours = (one for one in snapshot.records if not keys.is_name(one.key))
        snapshot = Snapshot(snapshot.revision, tuple(ours))
        self._units.set_versions(snapshot)
        return snapshot

    def follow(self, changes: Sequence[Stored]) -> None:
        """Take over changes that the leader has written."""
        self._units.follow(change for change in changes if not keys.is_name(change.key))

    async def resume_as_leader(self) -> None:
        """Lead after standby, with all changes of the last leader. An empty store becomes a new cluster."""
        if self.lead.marker is None:
            await self._create_cluster(self.lead.new_marker())

    async def commit(self, change: Transaction, *, repairs: bool = False) -> None:
        """Returns when the change is stored and memory updated. `repairs`: it may replace unreadable records.

        Raises InvalidError for a record that is too large, ConflictError when a record has changed,
        FrozenError when the store did not reply or the mode is not normal, FencedError when this scheduler
        no longer leads.
        """
        if change.is_empty:
            change.done()
            return
        if self._ended is not None:
            raise self._ended
        if self.modes.is_frozen:
            raise self.modes.refusal()
        if not repairs:
            self._quarantine.check_writable((*change.puts, *change.drops))
        change.events = attributed(change.events)
        values = encoded(change)
        stored = self._queue.submit(EncodedChange(change, values))
        with tracing.within("commit"):
            await stored

    def mark_stale(self) -> None:
        """Memory may differ from the store: read everything before the next write."""
        self._stale = True
        self._queue.wake()

    def depth(self) -> int:
        return len(self._queue)

    def record_count(self) -> int:
        return len(self._units.versions)

    async def restore(self, make: Restore) -> None:
        """Replace everything that is stored. Only in recovery mode, in which nothing else is written.

        Raises ConflictError if the mode has changed, and the errors of the store.
        """
        request = _RestoreRequest(make, asyncio.get_running_loop().create_future())
        self._restores.append(request)
        self._queue.wake()
        await request.done

    async def run(self) -> None:
        try:
            while True:
                await self._wait_for_work()
                if self._restores:
                    await self._restore(self._restores.pop(0))
                elif self._stale or self.modes.is_frozen:
                    await self._probe_store()
                else:
                    await self._queue.gather()
                    await self._commit(self._queue.next_batch())
        finally:
            ended = self._ended = not_leading()
            self._queue.fail_queued(ended)
            for request in self._restores:
                fail(request.done, ended)

    async def _wait_for_work(self) -> None:
        """While the store is unavailable, return after a timeout: the store is probed without writes too."""
        if self.modes.is_frozen and not self._restores:
            self._queue.clear_wakeup()
        is_unavailable = self._stale or self.modes.is_frozen
        await self._queue.wait(PROBE_SECONDS if is_unavailable else None)

    async def _probe_store(self) -> None:
        """Read the store if memory may be stale; in a frozen mode also probe whether it accepts writes."""
        try:
            if self.modes.in_recovery and not await self._is_back():
                await self.lead.hold_place()
                self._queue.fail_queued(self.modes.refusal())
                return
            if self._stale and not await self._read_again():
                self._queue.fail_queued(self.modes.refusal())
                return
            if self.modes.is_frozen:
                await self._resume("the store is back")
        except StoreUnavailableError as err:
            self.modes.take(Silent(str(err)))
            self._queue.fail_queued(self.modes.refusal())
            return
        except ConflictError as err:
            self._stale = True  # it changed during the read: read again
            self._queue.fail_queued(err)
            return
        self._queue.fail_queued(ConflictError("the store was read again; decide again"))

    async def _is_back(self) -> bool:
        marker = await self.lead.stored_marker()
        if marker is None or not is_awaited(self.modes.standing, marker):
            return False
        self.lead.marker = marker
        self._stale = True
        return True

    async def _read_again(self) -> bool:
        """False: the store has lost its records. Memory is kept in this case."""
        if self._unanswered:
            await self.lead.renew_fence()
            self._unanswered = False
        self._stale, is_read = False, False  # a mark during the read causes another read
        try:
            snapshot = await self._read_all()
            match self.lead.judge(snapshot, remembers=self.remembers()):
                case Lost() as lost:
                    self.modes.take(lost)
                    await self.lead.hold_place()
                    return False
                case New():
                    await self.lead.take(again=True)
                    await self._create_cluster(self.lead.marker or self.lead.new_marker())
                case Same():
                    await self.lead.keep_place(snapshot)
            is_read = True
        finally:
            self._stale = self._stale or not is_read
        await self._on_reload(snapshot)
        return True

    async def _create_cluster(self, marker: ClusterMarker) -> None:
        unit = Unit(guards={keys.CLUSTER: 0}, puts={keys.CLUSTER: records.encode(marker)})
        outcome = (await self._store.commit([unit], fence=self.lead.fence))[0]
        if isinstance(outcome, Conflict):
            raise ConflictError("another scheduler is starting on this store at the same time")
        self._units.stored(unit, outcome.revision)
        self.lead.marker = marker
        self.is_new_cluster = True
        log.info("cluster.began", cluster_uid=marker.uid)

    async def _resume(self, why: str) -> None:
        """Write the leader key and the events of the outage: success proves that writes work."""
        numbered = self._units.number(self.modes.history(why))
        try:
            written = await self.lead.take(
                puts=self._units.event_puts(numbered),
                guards={keys.CLUSTER: self._units.versions.get(keys.CLUSTER, 0)},
                again=True,
            )
        except ConflictError:
            self._stale = True
            return
        self._units.stored_events(numbered, written)
        self.modes.events_written()
        self._on_events(numbered, [])
        self.modes.take(Whole(why))

    async def _restore(self, request: "_RestoreRequest") -> None:
        try:
            if not self.modes.in_recovery:
                raise ConflictError(
                    f"the mode is {self.modes.state.mode}: expected recovery; check it with "
                    "`persysctl recovery status`"
                )
            await self.lead.take(again=True)
            why = await request.make(self._store, self.lead)
            self._stale = False  # a mark during the read causes another read
            await self._on_reload(await self._read_all())
            await self._resume(why)
            if self.modes.is_frozen:
                raise ConflictError("the store was changed at the same time; try again")
        except PersysError as err:
            self._stale = True
            fail(request.done, err)
            if isinstance(err, FencedError):
                raise
        else:
            if not request.done.done():
                request.done.set_result(None)

    async def _commit(self, batch: list[Pending[EncodedChange]]) -> None:
        began = self._clock.monotonic()
        try:
            now = self._clock.now()
            prepared = self._units.prepare((pending.item for pending in batch), now)
            outcomes = await self._store.commit(
                [one.unit for one in prepared], fence=self.lead.fence
            )
        except StoreUnavailableError as err:
            self._measure(began, failed=len(batch))
            self._note_outage(err)
            for pending in batch:
                pending.fail(self.modes.refusal())
            return
        except FencedError:
            self._measure(began, failed=len(batch))
            await self._note_fence(batch)
            return
        except InvalidError as err:
            await self._commit_apart(batch, err)
            return
        except asyncio.CancelledError:
            for pending in batch:
                pending.fail(FencedError("this scheduler no longer leads; try again"))
            raise
        conflicts = sum(isinstance(outcome, Conflict) for outcome in outcomes)
        self._measure(began, stored=len(batch) - conflicts, conflicts=conflicts)
        self._note_revisions(outcomes)
        self.modes.confirm()
        for pending, one, outcome in zip(batch, prepared, outcomes, strict=True):
            match outcome:
                case Committed(revision=revision):
                    self._units.stored(one.unit, revision)
                    for key in (*one.unit.puts, *one.unit.deletes) if self._quarantine else ():
                        self._quarantine.release(key)
                    pending.item.change.done()
                    if one.events or one.trimmed:
                        self._on_events(one.events, one.trimmed)
                    pending.succeed()
                case Conflict() as conflict:
                    self._stale = True
                    changed = ConflictError(f"{conflict.key} was changed by another writer")
                    pending.fail(changed)

    def _note_revisions(self, outcomes: Sequence[Outcome]) -> None:
        """Detects a repeated revision: the store was restored from an older copy while we lead."""
        revisions = [one.revision for one in outcomes if isinstance(one, Committed)]
        if not revisions:
            return
        if min(revisions) <= self.revision:
            log.error("store.went_back", revision=min(revisions), known=self.revision)
            self._stale = True
        self.revision = max(self.revision, *revisions)

    async def _commit_apart(self, batch: list[Pending[EncodedChange]], err: InvalidError) -> None:
        """The store refuses the whole batch because of a defect: commit each change alone."""
        log.error("commit.refused", reason=str(err), changes=len(batch))
        if len(batch) == 1:
            batch[0].fail(err)
        else:
            for pending in batch:
                await self._commit([pending])
        self._stale = True  # events were numbered and trimmed for what was not written

    def _measure(
        self, began: float, *, stored: int = 0, conflicts: int = 0, failed: int = 0
    ) -> None:
        seconds = self._clock.monotonic() - began
        self._metrics.committed(seconds=seconds, stored=stored, conflicts=conflicts, failed=failed)

    async def _read_all(self) -> Snapshot:
        return await self.set_versions(await self._store.read("/"))

    async def _note_fence(self, batch: list[Pending[EncodedChange]]) -> None:
        """The leader key has changed. Another name in it ends leadership; a missing key means data loss."""
        failure: PersysError = ConflictError("the store has changed; decide again")
        try:
            await self.lead.check_not_taken()
        except StoreUnavailableError as err:
            self._note_outage(err)
        except FencedError as err:
            failure = err
            raise
        finally:
            self._stale = True
            for pending in batch:
                pending.fail(failure)

    def _note_outage(self, err: StoreUnavailableError) -> None:
        self.modes.take(Silent(str(err)))
        self._stale = self._unanswered = True


async def retry_on_conflict(attempt: Callable[[], Awaitable[T]]) -> T:
    """Repeat on ConflictError: read, decide and commit again."""
    for _ in range(ATTEMPTS_MAX - 1):
        with suppress(ConflictError):
            return await attempt()
    return await attempt()
