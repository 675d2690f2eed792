"""Changes made into units of the store: guarded by the versions this process last saw, with numbered events.

Old events go with the new ones, a few per unit. A number that a failed commit used up belongs to no event.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from persys.model.event import Event, Numbered
from persys.scheduler.changes import Change
from persys.scheduler.sizes import OUTDATED_PER_UNIT_MAX
from persys.store import keys
from persys.store.port import Change as Stored
from persys.store.port import Snapshot, Unit
from persys.wire import records

EVENT_TEXT_LENGTH_MAX = 1024


@dataclass(frozen=True, slots=True)
class EventLimits:
    count_max: int = 5_000
    age_max: timedelta = timedelta(days=7)


class Units:
    def __init__(self, limits: EventLimits) -> None:
        self._limits = limits
        self._event_keys: deque[str] = deque()
        self._event_number = 0
        self.versions: dict[str, int] = {}

    def learn(self, snapshot: Snapshot) -> None:
        """This is all that is stored."""
        self.versions = {record.key: record.version for record in snapshot.records}
        stored = (key for key in self.versions if key.startswith(keys.EVENTS))
        # By number and not by time: the clock of another machine may have been ahead.
        self._event_keys = deque(sorted(stored, key=keys.event_sequence))
        if self._event_keys:
            newest = keys.event_sequence(self._event_keys[-1])
            self._event_number = max(self._event_number, newest)

    def follow(self, changes: Iterable[Stored]) -> None:
        """Another has written these."""
        told: list[str] = []
        gone: set[str] = set()
        for change in changes:
            if change.value is None:
                self.versions.pop(change.key, None)
                gone.add(change.key)
            else:
                self.versions[change.key] = change.version
                if change.key.startswith(keys.EVENTS):
                    told.append(change.key)
        while self._event_keys and self._event_keys[0] in gone:
            self._event_keys.popleft()
        for key in sorted(told, key=keys.event_sequence):
            self._put_in_order(key)

    def _put_in_order(self, key: str) -> None:
        """Its transaction may have been heard of later than those of its successors, but not by much."""
        number = keys.event_sequence(key)
        later: list[str] = []
        while self._event_keys and keys.event_sequence(self._event_keys[-1]) > number:
            later.append(self._event_keys.pop())
        self._event_keys.append(key)
        self._event_keys.extend(reversed(later))
        self._event_number = max(self._event_number, number)

    def number(self, events: Iterable[Event]) -> list[Numbered]:
        numbered = []
        for event in events:
            self._event_number += 1
            numbered.append(Numbered(self._event_number, _short(event)))
        return numbered

    def unit(
        self, change: Change, values: Mapping[str, bytes], events: list[Numbered], now: datetime
    ) -> Unit:
        guarded = (*values, *change.drops)
        told = self.event_puts(events)
        self._event_keys.extend(told)
        return Unit(
            guards={key: self.versions.get(key, 0) for key in guarded},
            puts={**values, **told},
            deletes=[*change.drops, *self._outdated(now)],
        )

    @staticmethod
    def event_puts(events: Iterable[Numbered]) -> dict[str, bytes]:
        return {keys.event_key(event.at, number): records.encode(event) for number, event in events}

    def stored(self, unit: Unit, revision: int) -> None:
        self.versions.update(dict.fromkeys(unit.puts, revision))
        for key in unit.deletes:
            self.versions.pop(key, None)

    def stored_events(self, written: Mapping[str, int]) -> None:
        """Written apart from any change, with other records perhaps; at which revisions."""
        self.versions.update(written)
        self._event_keys.extend(key for key in written if key.startswith(keys.EVENTS))

    def _outdated(self, now: datetime) -> list[str]:
        """At most a few, so that a unit stays small. The last one stays: it knows the number."""
        oldest_kept = keys.event_key(now - self._limits.age_max, 0)
        outdated: list[str] = []
        while (
            len(self._event_keys) > 1
            and len(outdated) < OUTDATED_PER_UNIT_MAX
            and (
                len(self._event_keys) > self._limits.count_max or self._event_keys[0] < oldest_kept
            )
        ):
            outdated.append(self._event_keys.popleft())
        return outdated


def _short(event: Event) -> Event:
    if len(event.message) <= EVENT_TEXT_LENGTH_MAX:
        return event
    return replace(event, message=event.message[: EVENT_TEXT_LENGTH_MAX - 1] + "…")
