"""Commits transactions in groups: those that arrive during a commit share the next one.

All writes of the scheduler pass through here. Each record is guarded by the version this process last saw,
each commit by the leader's fence. After a commit without a reply it is unknown what was written: everything
is read again before the next write (`store_watch.py`), and queued transactions fail with ConflictError:
decide again. Outside normal mode they are refused with FrozenError. An unreadable record is never overwritten
(QuarantinedError).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

import structlog

from persys.errors import (
    ConflictError,
    FencedError,
    InvalidError,
    PersysError,
    StoreUnavailableError,
)
from persys.infra.aio.group_commit import GroupCommit, Pending
from persys.infra.clock import Clock
from persys.infra.telemetry import tracing
from persys.model.event import NumberedEvent
from persys.scheduler.commit.store_watch import StoreWatch
from persys.scheduler.commit.transaction import Transaction, attributed, encoded
from persys.scheduler.commit.versions import Prepared, RecordVersions
from persys.scheduler.ha.leader_key import LeaderKey, not_leading
from persys.scheduler.metrics.counters import Metrics
from persys.scheduler.recovery.mode import ModeTracker
from persys.scheduler.state.quarantine import Quarantine
from persys.store.port import Committed, Conflict, Outcome, Store

log = structlog.get_logger()

T = TypeVar("T")

BATCH_MAX = 1024
GATHER_SECONDS = 0.004
PROBE_SECONDS = 1.0
ATTEMPTS_MAX = 4


class EncodedTransaction(NamedTuple):
    """A queued transaction with its encoded records."""

    change: Transaction
    values: dict[str, bytes]


CommitQueue = GroupCommit[EncodedTransaction]


def new_commit_queue() -> CommitQueue:
    return GroupCommit(batch_max=BATCH_MAX, keys_of=_keys_of, gather_seconds=GATHER_SECONDS)


def _keys_of(queued: EncodedTransaction) -> tuple[str, ...]:
    return (*queued.values, *queued.change.drops)


class Committer:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        queue: CommitQueue,
        watch: StoreWatch,
        versions: RecordVersions,
        leader_key: LeaderKey,
        modes: ModeTracker,
        quarantine: Quarantine,
        metrics: Metrics,
        on_events: Callable[[list[NumberedEvent], list[int]], None],
    ) -> None:
        """`queue` is the one that `watch` wakes.

        `on_events` gets the stored events in the order of their numbers, and the numbers of deleted events.
        """
        self._store = store
        self._clock = clock
        self._queue = queue
        self._watch = watch
        self._versions = versions
        self._quarantine = quarantine
        self._metrics = metrics
        self._on_events = on_events
        self._ended: FencedError | None = None
        self.modes = modes
        self.leader_key = leader_key

    async def commit(self, change: Transaction, *, repairs: bool = False) -> None:
        """Returns when the change is stored and memory updated. `repairs`: it may replace unreadable records.

        Raises InvalidError for a record that is too large, ConflictError when a record has changed,
        FrozenError when the store did not reply or the mode is not normal, FencedError when this scheduler
        no longer leads.
        """
        stored = self.enqueue(change, repairs=repairs)
        if stored is not None:
            with tracing.internal_span("commit"):
                await stored

    def enqueue(self, change: Transaction, *, repairs: bool = False) -> asyncio.Future[None] | None:
        """Queue a change. The future completes as `commit` does; None: there is nothing to write.

        For callers with many changes at once: those that are queued together share transactions.
        """
        if change.is_empty:
            change.done()
            return None
        if self._ended is not None:
            raise self._ended
        if self.modes.is_frozen:
            raise self.modes.refusal()
        if not repairs:
            self._quarantine.check_writable((*change.puts, *change.drops))
        change.events = attributed(change.events)
        values = encoded(change)
        return self._queue.submit(EncodedTransaction(change, values))

    def depth(self) -> int:
        return len(self._queue)

    async def run(self) -> None:
        try:
            while True:
                await self._wait_for_work()
                if self._watch.has_restores:
                    await self._watch.restore_next()
                elif self._watch.is_stale or self.modes.is_frozen:
                    self._queue.fail_queued(await self._watch.probe())
                else:
                    await self._queue.gather()
                    await self._commit(self._queue.next_batch())
        finally:
            ended = self._ended = not_leading()
            self._queue.fail_queued(ended)
            self._watch.end(ended)

    async def _wait_for_work(self) -> None:
        """While the store is unavailable, return after a timeout: the store is probed without writes too."""
        if self.modes.is_frozen and not self._watch.has_restores:
            self._queue.clear_wakeup()
        is_unavailable = self._watch.is_stale or self.modes.is_frozen
        await self._queue.wait(PROBE_SECONDS if is_unavailable else None)

    async def _commit(self, batch: list[Pending[EncodedTransaction]]) -> None:
        began = self._clock.monotonic()
        try:
            now = self._clock.now()
            prepared = self._versions.prepare((pending.item for pending in batch), now)
            outcomes = await self._store.commit(
                [one.unit for one in prepared], fence=self.leader_key.fence
            )
        except StoreUnavailableError as err:
            self._measure(began, failed=len(batch))
            self._watch.note_outage(err)
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
        self._watch.note_revisions(outcomes)
        self.modes.confirm()
        self._apply_outcomes(batch, prepared, outcomes)

    def _apply_outcomes(
        self,
        batch: Sequence[Pending[EncodedTransaction]],
        prepared: Sequence[Prepared],
        outcomes: Sequence[Outcome],
    ) -> None:
        """Update memory with what is stored, and answer the callers."""
        for pending, one, outcome in zip(batch, prepared, outcomes, strict=True):
            match outcome:
                case Committed(revision=revision):
                    self._versions.stored(one.unit, revision)
                    for key in (*one.unit.puts, *one.unit.deletes) if self._quarantine else ():
                        self._quarantine.release(key)
                    pending.item.change.done()
                    if one.events or one.trimmed:
                        self._on_events(one.events, one.trimmed)
                    pending.succeed()
                case Conflict() as conflict:
                    self._watch.is_stale = True
                    changed = ConflictError(f"{conflict.key} was changed by another writer")
                    pending.fail(changed)

    async def _commit_apart(
        self, batch: list[Pending[EncodedTransaction]], err: InvalidError
    ) -> None:
        """The store refuses the whole batch because of a defect: commit each change alone."""
        log.error("commit.refused", reason=str(err), changes=len(batch))
        if len(batch) == 1:
            batch[0].fail(err)
        else:
            for pending in batch:
                await self._commit([pending])
        self._watch.is_stale = True  # events were numbered and trimmed for what was not written

    async def _note_fence(self, batch: list[Pending[EncodedTransaction]]) -> None:
        """The leader key has changed. Another name in it ends leadership."""
        failure: PersysError = ConflictError("the store has changed; decide again")
        try:
            await self._watch.check_leader_key()
        except FencedError as err:
            failure = err
            raise
        finally:
            for pending in batch:
                pending.fail(failure)

    def _measure(
        self, began: float, *, stored: int = 0, conflicts: int = 0, failed: int = 0
    ) -> None:
        seconds = self._clock.monotonic() - began
        self._metrics.committed(seconds=seconds, stored=stored, conflicts=conflicts, failed=failed)


async def retry_on_conflict(attempt: Callable[[], Awaitable[T]]) -> T:
    """Repeat on ConflictError: read, decide and commit again."""
    for _ in range(ATTEMPTS_MAX - 1):
        with suppress(ConflictError):
            return await attempt()
    return await attempt()
