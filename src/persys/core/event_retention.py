"""Retention of events: bounded by count and age, and shared fairly between their sources.

Below the limit every source keeps all of its events. At the limit, the source with the most events loses its
oldest one. So a node or a user that causes many events shortens only its own history. The newest event is
always kept: numbering continues from it.
"""

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta

from persys.model.event import Event

SCHEDULER = "scheduler"
_AGENT = "agent/"
REPEATS_WINDOW = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class EventLimits:
    count_max: int = 5_000
    age_max: timedelta = timedelta(days=7)


def source_of(event: Event) -> str:
    """Who caused the event: a caller, whichever gateway it came through, or a node, or the scheduler."""
    caller = event.identity.partition(" ")[0]
    if caller and not caller.startswith(_AGENT):
        return caller
    if event.node_id:
        return f"{_AGENT}{event.node_id}"
    return caller or SCHEDULER


@dataclass(frozen=True, slots=True)
class _Kept:
    source: str
    at: datetime


class EventRetention:
    def __init__(self, limits: EventLimits) -> None:
        self._limits = limits
        self._kept: dict[int, _Kept] = {}
        # Both may contain deleted numbers until those are first.
        self._order: deque[int] = deque()
        self._of_source: dict[str, deque[int]] = {}
        self._counts: dict[str, int] = {}
        self._by_count: dict[int, dict[str, None]] = {}
        self._largest = 0
        self._newest = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, sequence: int, event: Event) -> None:
        """Call it in the order of the numbers, or nearly so."""
        if sequence in self._kept:
            return
        source = source_of(event)
        self._kept[sequence] = _Kept(source, event.at)
        self._newest = max(self._newest, sequence)
        _insert(self._order, sequence)
        _insert(self._of_source.setdefault(source, deque()), sequence)
        self._recount(source, +1)

    def discard(self, sequence: int) -> None:
        kept = self._kept.pop(sequence, None)
        if kept is not None:
            self._recount(kept.source, -1)

    def take_excess(self, now: datetime, *, limit: int, stored_until: int) -> list[int]:
        """At most `limit` numbers that are to be deleted. They are no longer kept here.

        Events above `stored_until` are being written and cannot be deleted at the same time.
        """
        excess: list[int] = []
        while len(excess) < limit:
            sequence = self._expired(now, stored_until)
            if sequence is None and len(self._kept) > self._limits.count_max:
                sequence = self._oldest_of_largest(stored_until)
            if sequence is None:
                break
            self.discard(sequence)
            excess.append(sequence)
        return excess

    def _expired(self, now: datetime, stored_until: int) -> int | None:
        oldest = self._first(self._order)
        if oldest is None or oldest == self._newest or oldest > stored_until:
            return None
        return oldest if self._kept[oldest].at < now - self._limits.age_max else None

    def _oldest_of_largest(self, stored_until: int) -> int | None:
        for source in self._by_count.get(self._largest, ()):
            oldest = self._first(self._of_source[source])
            if oldest is not None and oldest != self._newest and oldest <= stored_until:
                return oldest
        return None

    def _first(self, sequences: deque[int]) -> int | None:
        while sequences and sequences[0] not in self._kept:
            sequences.popleft()
        return sequences[0] if sequences else None

    def _recount(self, source: str, difference: int) -> None:
        old = self._counts.get(source, 0)
        new = old + difference
        if old:
            del self._by_count[old][source]
            if not self._by_count[old]:
                del self._by_count[old]
        if new:
            self._counts[source] = new
            self._by_count.setdefault(new, {})[source] = None
        else:
            del self._counts[source], self._of_source[source]
        self._largest = max(self._largest, new)
        while self._largest and self._largest not in self._by_count:
            self._largest -= 1


class Repeats:
    """Limits an event that one source can repeat at will to one in each window."""

    def __init__(self, window: timedelta = REPEATS_WINDOW) -> None:
        self._window = window
        self._noted: dict[str, tuple[datetime, int]] = {}

    def take(self, source: str, now: datetime) -> int | None:
        """How many were left out since the last that was written. None: leave this one out too."""
        self._forget(now)
        noted_at, left_out = self._noted.get(source, (None, 0))
        if noted_at is not None and now < noted_at + self._window:
            self._noted[source] = (noted_at, left_out + 1)
            return None
        self._noted.pop(source, None)
        self._noted[source] = (now, 0)
        return left_out

    def __len__(self) -> int:
        return len(self._noted)

    def _forget(self, now: datetime) -> None:
        """The oldest first. Events that were left out a window ago are no longer counted."""
        while self._noted:
            source = next(iter(self._noted))
            noted_at, _ = self._noted[source]
            if now < noted_at + 2 * self._window:
                return
            del self._noted[source]


def _insert(sequences: deque[int], sequence: int) -> None:
    """A transaction may arrive shortly after its successors."""
    later: list[int] = []
    while sequences and sequences[-1] > sequence:
        later.append(sequences.pop())
    sequences.append(sequence)
    sequences.extend(reversed(later))
