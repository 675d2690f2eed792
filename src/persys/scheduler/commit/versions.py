"""Converts changes into store units, guarded by the record versions this process last saw; numbers events.

Each unit also deletes a few expired events. A number that a failed commit used belongs to no event.
Unreadable events are neither counted nor deleted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from persys.core.event_retention import EventLimits, EventRetention
from persys.errors import RefusedError
from persys.model.event import Event, NumberedEvent
from persys.scheduler.commit.transaction import OUTDATED_PER_UNIT_MAX, Transaction
from persys.store import keys
from persys.store.port import Record, Snapshot, Unit
from persys.store.port import WatchEvent as Stored
from persys.wire.stored import records

EVENT_TEXT_LENGTH_MAX = 1024


@dataclass(frozen=True, slots=True)
class Prepared:
    """A unit, the events that it writes, and the numbers of those that it deletes."""

    unit: Unit
    events: list[NumberedEvent]
    trimmed: list[int]


class RecordVersions:
    def __init__(self, limits: EventLimits) -> None:
        self._limits = limits
        self._retention = EventRetention(limits)
        self._event_keys: dict[int, str] = {}
        self._event_number = 0
        self.versions: dict[str, int] = {}

    def set_versions(self, snapshot: Snapshot) -> None:
        """Set the versions from a full snapshot. DNS names are not records of the cluster."""
        versions: dict[str, int] = {}
        events: list[Record] = []
        for record in snapshot.records:
            key = record.key
            if not keys.is_name(key):
                versions[key] = record.version
                if keys.is_event(key):
                    events.append(record)
        self.versions = versions
        self._retention = EventRetention(self._limits)
        self._event_keys = {}
        # By number, not by time: the clock of another machine may have been ahead.
        for record in sorted(events, key=lambda one: keys.event_sequence(one.key)):
            self._add_event(record.key, record.value)

    def follow(self, changes: Iterable[Stored]) -> None:
        """Take over changes that the leader has written."""
        for change in changes:
            if change.value is None:
                self.versions.pop(change.key, None)
            else:
                self.versions[change.key] = change.version
            if keys.is_event(change.key):
                self._forget_event(keys.event_sequence(change.key))
                if change.value is not None:
                    self._add_event(change.key, change.value)

    def number(self, events: Iterable[Event]) -> list[NumberedEvent]:
        numbered = []
        for event in events:
            self._event_number += 1
            numbered.append(NumberedEvent(self._event_number, _short(event)))
        return numbered

    def prepare(
        self, changes: Iterable[tuple[Transaction, Mapping[str, bytes]]], now: datetime
    ) -> list[Prepared]:
        """The units of one commit, from changes with their encoded records."""
        stored_until = self._event_number
        return [self._prepare(change, values, now, stored_until) for change, values in changes]

    def _prepare(
        self, change: Transaction, values: Mapping[str, bytes], now: datetime, stored_until: int
    ) -> Prepared:
        events = self.number(change.events)
        guarded = (*values, *change.drops)
        puts = dict(values)
        for sequence, event in events:
            key = keys.event_key(event.at, sequence)
            puts[key] = records.encode(event)
            self._keep_event(sequence, key, event)
        trimmed = self._retention.take_excess(
            now, limit=OUTDATED_PER_UNIT_MAX, stored_until=stored_until
        )
        outdated = [self._event_keys.pop(sequence) for sequence in trimmed]
        unit = Unit(
            guards={key: self.versions.get(key, 0) for key in guarded},
            puts=puts,
            deletes=[*change.drops, *outdated],
        )
        return Prepared(unit, events, trimmed)

    @staticmethod
    def event_puts(events: Iterable[NumberedEvent]) -> dict[str, bytes]:
        return {keys.event_key(event.at, number): records.encode(event) for number, event in events}

    def stored(self, unit: Unit, revision: int) -> None:
        self.versions.update(dict.fromkeys(unit.puts, revision))
        for key in unit.deletes:
            self.versions.pop(key, None)

    def stored_events(self, events: Iterable[NumberedEvent], written: Mapping[str, int]) -> None:
        """These events were written outside a change. `written`: the new versions by key."""
        self.versions.update(written)
        for sequence, event in events:
            self._keep_event(sequence, keys.event_key(event.at, sequence), event)

    def _add_event(self, key: str, value: bytes) -> None:
        self._event_number = max(self._event_number, keys.event_sequence(key))
        try:
            event = records.decode(value, Event)
        except RefusedError:
            return
        self._keep_event(keys.event_sequence(key), key, event)

    def _keep_event(self, sequence: int, key: str, event: Event) -> None:
        self._event_keys[sequence] = key
        self._retention.add(sequence, event)

    def _forget_event(self, sequence: int) -> None:
        self._event_keys.pop(sequence, None)
        self._retention.discard(sequence)


def _short(event: Event) -> Event:
    if len(event.message) <= EVENT_TEXT_LENGTH_MAX:
        return event
    return replace(event, message=event.message[: EVENT_TEXT_LENGTH_MAX - 1] + "…")
