"""Group commit: changes that arrive while a transaction is under way share the next one.

Every write of the scheduler passes here. Each record is guarded by the version this process last saw, each
transaction by the leader's fence. When the store gave no answer, nobody knows what was written: everything
is read again before the next write, and what was decided before that is void (ConflictError: decide again).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import structlog
from msgspec import Struct
from msgspec.structs import replace

from persys.errors import (
    ConflictError,
    InvalidError,
    PersysError,
    SettingsError,
    StoreUnavailableError,
)
from persys.infra.clock import Clock
from persys.model.event import Event, EventKind, Numbered
from persys.scheduler.changes import Change
from persys.store import keys
from persys.store.port import VALUE_BYTES_MAX, Committed, Conflict, Snapshot, Store, Unit
from persys.wire import records

log = structlog.get_logger()

T = TypeVar("T")

BATCH_MAX = 1024
CROWD_SECONDS = 0.004
LOOK_AGAIN_SECONDS = 1.0
ATTEMPTS_MAX = 4
EVENT_TEXT_LENGTH_MAX = 1024


@dataclass(frozen=True, slots=True)
class Pending:
    change: Change
    values: dict[str, bytes]
    stored: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class EventLimits:
    count_max: int = 5_000
    age_max: timedelta = timedelta(days=7)

    def __post_init__(self) -> None:
        if self.count_max < 1 or self.age_max <= timedelta():
            raise SettingsError("events_max and events_max_age must be more than nothing")


class Committer:
    def __init__(self, store: Store, clock: Clock, *, events: EventLimits | None = None) -> None:
        self._store = store
        self._clock = clock
        self._limits = events or EventLimits()
        self._versions: dict[str, int] = {}
        self._event_keys: deque[str] = deque()
        self._event_number = 0
        self._fence: tuple[str, int] | None = None
        self._queue: list[Pending] = []
        self._news = asyncio.Event()
        self._doubtful = False
        self._crowded = False
        self.trouble = ""  # why nothing can be written now, as far as is known
        self.on_reload: Callable[[Snapshot], None] = lambda _snapshot: None
        # Told in the order of their numbers. A number that a failed commit used up belongs to no event.
        self.on_events: Callable[[list[Numbered]], None] = lambda _events: None

    async def take_over(self, name: str) -> Snapshot:
        """Become the one who writes, then read everything as it is."""
        previous = await self._store.get(keys.LEADER)
        outcome = (
            await self._store.commit(
                [
                    Unit(
                        guards={keys.LEADER: previous.version if previous else 0},
                        puts={keys.LEADER: name.encode()},
                    )
                ]
            )
        )[0]
        if isinstance(outcome, Conflict):
            raise ConflictError("another scheduler is starting on this store at the same moment")
        self._fence = (keys.LEADER, outcome.revision)
        return await self._read_all()

    async def commit(self, change: Change) -> None:
        """Returns when it is stored and done.

        Raises InvalidError for a record that is too large, ConflictError when a record moved,
        StoreUnavailableError when the store did not take it.
        """
        if change.is_empty:
            change.done()
            return
        values = {key: _encoded(key, record) for key, record in change.puts.items()}
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(Pending(change, values, stored))
        self._news.set()
        await stored

    async def run(self) -> None:
        try:
            while True:
                await self._wait_for_news()
                if self._doubtful:
                    await self._read_again()
                    continue
                if self.trouble and not self._queue:
                    self._queue.append(self._sign_of_life())
                await self._gather()
                batch = self._next_batch()
                if not self._queue:
                    self._news.clear()
                await self._commit(batch)
        finally:
            for pending in self._queue:
                _fail(pending, StoreUnavailableError("the scheduler is stopping"))

    async def _wait_for_news(self) -> None:
        """In trouble not for ever: its end shall be noticed even if nobody wants to write."""
        in_trouble = self._doubtful or self.trouble
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_SECONDS if in_trouble else None):
                await self._news.wait()

    async def _read_again(self) -> None:
        try:
            self.on_reload(await self._read_all())
        except StoreUnavailableError as err:
            self._note_trouble(err)
            self._void(err)
            return
        self._doubtful = False
        self._void(ConflictError("the store was read again; decide again"))

    def _void(self, err: PersysError) -> None:
        waiting, self._queue = self._queue, []
        self._news.clear()
        for pending in waiting:
            _fail(pending, err)

    def _sign_of_life(self) -> Pending:
        """Something to write, to see whether that works again."""
        event = Event(self._clock.now(), EventKind.STORE_AVAILABLE, f"it was not: {self.trouble}")
        change = Change(done=lambda: None, events=[event])
        return Pending(change, {}, asyncio.get_running_loop().create_future())

    async def _gather(self) -> None:
        """Let others join: a change that comes alone is not held up, a crowd is, for a moment."""
        if self._crowded:
            await asyncio.sleep(CROWD_SECONDS)
        gathered = 0
        while gathered < len(self._queue) < BATCH_MAX:
            gathered = len(self._queue)
            await asyncio.sleep(0)
        self._crowded = gathered > 1

    def _next_batch(self) -> list[Pending]:
        """The first changes that do not touch each other's records; the others go with the next."""
        batch: list[Pending] = []
        left: list[Pending] = []
        touched: set[str] = set()
        for pending in self._queue:
            keys_touched = (*pending.values, *pending.change.drops)
            if len(batch) < BATCH_MAX and touched.isdisjoint(keys_touched):
                batch.append(pending)
            else:
                left.append(pending)
            touched.update(keys_touched)
        self._queue = left
        return batch

    async def _commit(self, batch: list[Pending]) -> None:
        try:
            oldest_kept = keys.event_key(self._clock.now() - self._limits.age_max, 0)
            told = [self._numbered(pending.change) for pending in batch]
            units = [
                self._unit(pending, events, oldest_kept)
                for pending, events in zip(batch, told, strict=True)
            ]
            outcomes = await self._store.commit(units, fence=self._fence)
        except StoreUnavailableError as err:
            self._note_trouble(err)
            for pending in batch:
                _fail(pending, err)
            return
        self._note_recovery()
        for pending, events, unit, outcome in zip(batch, told, units, outcomes, strict=True):
            match outcome:
                case Committed(revision=revision):
                    self._versions.update(dict.fromkeys(unit.puts, revision))
                    for key in unit.deletes:
                        self._versions.pop(key, None)
                    pending.change.done()
                    if events:
                        self.on_events(events)
                    if not pending.stored.done():
                        pending.stored.set_result(None)
                case Conflict() as conflict:
                    self._doubtful = True
                    _fail(pending, ConflictError(f"{conflict.key} was changed by someone else"))

    def _numbered(self, change: Change) -> list[Numbered]:
        first = self._event_number + 1
        self._event_number += len(change.events)
        return [
            Numbered(number, replace(event, message=event.message[:EVENT_TEXT_LENGTH_MAX]))
            for number, event in enumerate(change.events, first)
        ]

    def _unit(self, pending: Pending, events: list[Numbered], oldest_kept: str) -> Unit:
        change = pending.change
        guarded = (*pending.values, *change.drops)
        puts = dict(pending.values)
        deletes = list(change.drops)
        for number, event in events:
            key = keys.event_key(event.at, number)
            puts[key] = records.encode(event)
            self._event_keys.append(key)
        deletes.extend(self._outdated_events(oldest_kept))
        return Unit(
            guards={key: self._versions.get(key, 0) for key in guarded}, puts=puts, deletes=deletes
        )

    def _outdated_events(self, oldest_kept: str) -> list[str]:
        """At most a few per unit, so that a unit stays small. The last one stays: it knows the number."""
        outdated: list[str] = []
        while (
            len(self._event_keys) > 1
            and len(outdated) < 8
            and (
                len(self._event_keys) > self._limits.count_max or self._event_keys[0] < oldest_kept
            )
        ):
            outdated.append(self._event_keys.popleft())
        return outdated

    async def _read_all(self) -> Snapshot:
        snapshot = await self._store.read("/")
        self._versions = {record.key: record.version for record in snapshot.records}
        stored = (record.key for record in snapshot.records if record.key.startswith(keys.EVENTS))
        # By number and not by time: the clock of another machine may have been ahead.
        self._event_keys = deque(sorted(stored, key=keys.event_sequence))
        if self._event_keys:
            newest = keys.event_sequence(self._event_keys[-1])
            self._event_number = max(self._event_number, newest)
        return snapshot

    def _note_trouble(self, err: StoreUnavailableError) -> None:
        if not self.trouble:
            log.warning("store.unavailable", reason=str(err))
        self.trouble = str(err)
        self._doubtful = True

    def _note_recovery(self) -> None:
        if self.trouble:
            log.info("store.available")
        self.trouble = ""


async def insist(attempt: Callable[[], Awaitable[T]]) -> T:
    """Decide again when what it was decided on has changed."""
    for _ in range(ATTEMPTS_MAX - 1):
        with suppress(ConflictError):
            return await attempt()
    return await attempt()


def _encoded(key: str, record: Struct) -> bytes:
    value = records.encode(record)
    if len(value) > VALUE_BYTES_MAX:
        raise InvalidError(key, f"is {len(value)} bytes; the store takes at most {VALUE_BYTES_MAX}")
    return value


def _fail(pending: Pending, err: Exception) -> None:
    if not pending.stored.done():
        pending.stored.set_exception(err)
        pending.stored.exception()  # whoever waited may have left; that is no reason to complain
