"""The stored events in memory, and the watchers that follow them.

A watcher holds only its position and reads the shared log at its own pace. If its position was trimmed, it
ends with OutOfRangeError; a slow watcher delays no other and uses no memory. Numbers increase, but a failed
commit may have used some, so the next event may not have the next number. Events trimmed beyond the share of
their source are skipped by watchers that have not reached them; that is not a gap.
"""

import asyncio
from bisect import bisect_right, insort
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from persys.errors import OutOfRangeError, UnavailableError
from persys.model.event import Event, EventKind, NumberedEvent

SLICE_MAX = 256  # events checked before yielding to other tasks
BOOKMARK_EVERY = 500


@dataclass(frozen=True, slots=True)
class Filter:
    """An empty field matches everything."""

    workload_id: str = ""
    node_id: str = ""
    kinds: Collection[EventKind] = ()
    since: datetime | None = None
    prefix: str = ""  # of the workload id

    def matches(self, event: Event) -> bool:
        return (
            (not self.workload_id or event.workload_id == self.workload_id)
            and (not self.node_id or event.node_id == self.node_id)
            and (not self.kinds or event.kind in self.kinds)
            and (self.since is None or event.at >= self.since)
            and event.workload_id.startswith(self.prefix)
        )


@dataclass(frozen=True, slots=True)
class Bookmark:
    """No matching event up to this sequence: a watch may resume after it."""

    sequence: int


class EventLog:
    def __init__(self) -> None:
        self._kept: list[NumberedEvent] = []
        self._trimmed = 0  # no event up to this sequence is stored
        self._last = 0
        self._wakeup = asyncio.Event()
        self._closed = False

    @property
    def first_sequence(self) -> int:
        return self._kept[0].sequence if self._kept else self._last + 1

    @property
    def last_sequence(self) -> int:
        return self._last

    def __iter__(self) -> Iterator[NumberedEvent]:
        """The oldest first."""
        return iter(self._kept)

    def put(self, numbered: NumberedEvent) -> None:
        """Add a stored event. A standby may receive events out of the order of their numbers."""
        if numbered.sequence > self._last:
            self._kept.append(numbered)
            self._last = numbered.sequence
        else:
            self._remove(numbered.sequence)
            insort(self._kept, numbered, key=_sequence)
        self._wake()

    def drop(self, sequence: int) -> None:
        """Remove an event that is no longer stored."""
        if self._kept and self._kept[0].sequence == sequence:
            self._trimmed = max(self._trimmed, sequence)
        self._remove(sequence)

    def take(self, events: Iterable[NumberedEvent], trimmed: Iterable[int] = ()) -> None:
        """Apply a commit: events written, and numbers of events deleted."""
        for numbered in events:
            self.put(numbered)
        for sequence in trimmed:
            self.drop(sequence)

    def loaded(self) -> None:
        """The log is fully loaded: events older than the first are trimmed."""
        if self._kept:
            self._trimmed = max(self._trimmed, self.first_sequence - 1)

    def close(self) -> None:
        """End every watch."""
        self._closed = True
        self._wake()

    def listed(self, wanted: Filter, *, after: int = 0, limit: int = 0) -> list[NumberedEvent]:
        """Oldest first. `limit`: only this many of the newest; 0: all."""
        found = [numbered for numbered in self._after(after) if wanted.matches(numbered.event)]
        return found[-limit:] if limit else found

    async def watch(
        self, wanted: Filter, *, after: int | None = None, bookmarks: bool = False
    ) -> AsyncIterator[NumberedEvent | Bookmark]:
        """The matching events after `after` (None: new ones only), without gaps, until closed.

        Raises OutOfRangeError when the next event is no longer stored, or `after` is beyond the newest.
        """
        place = reported = self._last if after is None else after
        if place > self._last:
            raise OutOfRangeError(
                f"invalid sequence {place}: expected at most {self._last}, the newest event; "
                "the cluster was restored to an earlier time, or is a different one"
            )
        while not self._closed:
            if place < self._trimmed:
                raise OutOfRangeError(
                    f"events after {place} are no longer stored: the oldest is {self.first_sequence}; "
                    "list the events again and watch from the newest"
                )
            wakeup = self._wakeup
            for numbered in self._after(place, limit=SLICE_MAX):
                place = numbered.sequence
                if wanted.matches(numbered.event):
                    reported = place
                    yield numbered
            if bookmarks and place >= reported + BOOKMARK_EVERY:
                reported = place
                yield Bookmark(place)
            if place >= self._last:
                await wakeup.wait()
            else:
                await asyncio.sleep(0)
        raise UnavailableError("the scheduler is stopping")

    def _after(self, sequence: int, *, limit: int | None = None) -> list[NumberedEvent]:
        start = bisect_right(self._kept, sequence, key=_sequence)
        return self._kept[start : None if limit is None else start + limit]

    def _remove(self, sequence: int) -> None:
        position = bisect_right(self._kept, sequence - 1, key=_sequence)
        if position < len(self._kept) and self._kept[position].sequence == sequence:
            del self._kept[position]

    def _wake(self) -> None:
        wakeup, self._wakeup = self._wakeup, asyncio.Event()
        wakeup.set()


def _sequence(numbered: NumberedEvent) -> int:
    return numbered.sequence
