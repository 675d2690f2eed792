"""The events that are kept, in memory, as they were committed; and whoever follows them.

A watcher holds nothing but its place: it reads from the one log at its own pace. One that is so slow that its
place is no longer kept is told so; it delays nobody and costs no memory. Numbers rise, but a commit that
failed may have used some up, so the next event is the next that is kept, not the next number.
"""

import asyncio
from bisect import bisect_right, insort
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from datetime import datetime

from persys.errors import OutOfRangeError, UnavailableError
from persys.model.event import Event, EventKind, Numbered
from persys.scheduler.units import EventLimits
from persys.store import keys
from persys.store.port import Snapshot
from persys.wire import records

SLICE_MAX = 256  # events looked at before others get their turn
BOOKMARK_EVERY = 500


@dataclass(frozen=True, slots=True)
class Filter:
    """Empty means any."""

    workload_id: str = ""
    node_id: str = ""
    kinds: Collection[EventKind] = ()
    since: datetime | None = None

    def matches(self, event: Event) -> bool:
        return (
            (not self.workload_id or event.workload_id == self.workload_id)
            and (not self.node_id or event.node_id == self.node_id)
            and (not self.kinds or event.kind in self.kinds)
            and (self.since is None or event.at >= self.since)
        )


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing that matches came up to here: a watch may go on from it."""

    sequence: int


class EventLog:
    def __init__(self, limits: EventLimits) -> None:
        self._limits = limits
        self._kept: list[Numbered] = []
        self._trimmed = 0  # the highest number that is no longer kept
        self._last = 0
        self._news = asyncio.Event()
        self._closed = False

    @property
    def first_sequence(self) -> int:
        return self._kept[0].sequence if self._kept else self._last + 1

    @property
    def last_sequence(self) -> int:
        return self._last

    def load(self, snapshot: Snapshot) -> None:
        """Make the log what the store has. Those who watch go on where they were."""
        stored = (
            Numbered(keys.event_sequence(record.key), records.decode(record.value, Event))
            for record in snapshot.records
            if record.key.startswith(keys.EVENTS)
        )
        self._kept = sorted(stored, key=_sequence)
        if self._kept:
            self._trimmed = max(self._trimmed, self.first_sequence - 1)
        self._settle()

    def take(self, events: list[Numbered]) -> None:
        """These were committed. A standby may hear of them in another order than that of their numbers."""
        for numbered in events:
            if numbered.sequence > self._last:
                self._kept.append(numbered)
            else:
                insort(self._kept, numbered, key=_sequence)
        self._settle()

    def close(self) -> None:
        """End every watch: nothing more comes."""
        self._closed = True
        self._wake()

    def listed(self, wanted: Filter, *, after: int = 0, limit: int = 0) -> list[Numbered]:
        """Oldest first. `limit`: only the newest so many; 0: all."""
        found = [numbered for numbered in self._after(after) if wanted.matches(numbered.event)]
        return found[-limit:] if limit else found

    async def watch(
        self, wanted: Filter, *, after: int | None = None, bookmarks: bool = False
    ) -> AsyncIterator[Numbered | Bookmark]:
        """What matches, from `after` on (None: from now on), without gaps, until closed.

        Raises OutOfRangeError when what comes next is no longer kept, or was never reached.
        """
        place = said = self._last if after is None else after
        if place > self._last:
            raise OutOfRangeError(
                f"events after {place} were asked for, and the newest is {self._last}: "
                "the cluster was restored to an earlier time, or is another one"
            )
        while not self._closed:
            if place < self._trimmed:
                raise OutOfRangeError(
                    f"events after {place} were asked for, and the oldest that is kept is "
                    f"{self.first_sequence}"
                )
            news = self._news
            for numbered in self._after(place, limit=SLICE_MAX):
                place = numbered.sequence
                if wanted.matches(numbered.event):
                    said = place
                    yield numbered
            if bookmarks and place >= said + BOOKMARK_EVERY:
                said = place
                yield Bookmark(place)
            if place >= self._last:
                await news.wait()
            else:
                await asyncio.sleep(0)
        raise UnavailableError("the scheduler is stopping")

    def _after(self, sequence: int, *, limit: int | None = None) -> list[Numbered]:
        start = bisect_right(self._kept, sequence, key=_sequence)
        return self._kept[start : None if limit is None else start + limit]

    def _settle(self) -> None:
        if self._kept:
            self._last = max(self._last, self._kept[-1].sequence)
            self._trim()
        self._wake()

    def _trim(self) -> None:
        excess = max(0, len(self._kept) - self._limits.count_max)
        oldest_kept = self._kept[-1].event.at - self._limits.age_max
        while excess < len(self._kept) - 1 and self._kept[excess].event.at < oldest_kept:
            excess += 1
        if excess:
            self._trimmed = max(self._trimmed, self._kept[excess - 1].sequence)
            del self._kept[:excess]

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def _sequence(numbered: Numbered) -> int:
    return numbered.sequence
