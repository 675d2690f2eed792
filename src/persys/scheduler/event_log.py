"""The events that are kept, in memory, as they are stored; and the watchers that follow them.

A watcher holds nothing but its place: it reads from the one log at its own pace. One that is so slow that its
place is no longer kept is told so; it delays nobody and costs no memory. Numbers rise, but a commit that
failed may have used some up, so the next event is the next that is kept, not the next number. Events beyond
the share of their source are gone for watchers that have not reached them; that is not a gap.
"""

import asyncio
from bisect import bisect_right, insort
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from persys.errors import OutOfRangeError, UnavailableError
from persys.model.event import Event, EventKind, Numbered

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
    def __init__(self) -> None:
        self._kept: list[Numbered] = []
        self._trimmed = 0  # up to here nothing is kept any more
        self._last = 0
        self._news = asyncio.Event()
        self._closed = False

    @property
    def first_sequence(self) -> int:
        return self._kept[0].sequence if self._kept else self._last + 1

    @property
    def last_sequence(self) -> int:
        return self._last

    def __iter__(self) -> Iterator[Numbered]:
        """The oldest first."""
        return iter(self._kept)

    def put(self, numbered: Numbered) -> None:
        """This one is stored. A standby may learn of events in another order than that of their numbers."""
        if numbered.sequence > self._last:
            self._kept.append(numbered)
            self._last = numbered.sequence
        else:
            self._remove(numbered.sequence)
            insort(self._kept, numbered, key=_sequence)
        self._wake()

    def drop(self, sequence: int) -> None:
        """This one is no longer stored."""
        if self._kept and self._kept[0].sequence == sequence:
            self._trimmed = max(self._trimmed, sequence)
        self._remove(sequence)

    def take(self, events: Iterable[Numbered], trimmed: Iterable[int] = ()) -> None:
        """A commit wrote these events and deleted those."""
        for numbered in events:
            self.put(numbered)
        for sequence in trimmed:
            self.drop(sequence)

    def loaded(self) -> None:
        """All that is stored is here: what is older than the first is gone."""
        if self._kept:
            self._trimmed = max(self._trimmed, self.first_sequence - 1)

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

    def _remove(self, sequence: int) -> None:
        position = bisect_right(self._kept, sequence - 1, key=_sequence)
        if position < len(self._kept) and self._kept[position].sequence == sequence:
            del self._kept[position]

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def _sequence(numbered: Numbered) -> int:
    return numbered.sequence
