"""A transaction: records to write and delete together, the update of memory, and the size limits.

A transaction that is too large is refused alone, before it joins a batch.
"""

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from persys.errors import InvalidError
from persys.model.event import Event
from persys.store import keys
from persys.store.limits import OPERATIONS_MAX, check
from persys.store.port import VALUE_BYTES_MAX, Unit
from persys.wire.stored import records


@dataclass(slots=True)
class Transaction:
    """`done` updates memory after the commit, before the caller resumes; it must not block."""

    done: Callable[[], None]
    puts: dict[str, Struct] = field(default_factory=dict)
    drops: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.puts or self.drops or self.events)

    def also_when_done(self, update: Callable[[], None]) -> None:
        """Add an update of memory, for records that are committed with the transaction."""
        first = self.done

        def both() -> None:
            first()
            update()

        self.done = both


@dataclass(slots=True)
class Origin:
    """The caller of the request that is being served. It is closed when the request ends."""

    identity: str
    source: str
    is_open: bool = True


ORIGIN: ContextVar[Origin | None] = ContextVar("origin", default=None)


def attributed(events: Iterable[Event]) -> list[Event]:
    """The events with the identity and source address of the request in which they are committed."""
    origin = ORIGIN.get()
    if origin is None or not origin.is_open:
        return list(events)
    return [
        event
        if event.identity or event.source
        else replace(event, identity=origin.identity, source=origin.source)
        for event in events
    ]


# An etcd transaction has at most 128 operations; this leaves room for trimmed events.
CHANGE_RECORDS_MAX = 112
# Old events that are deleted with each unit, so that the store does not grow.
OUTDATED_PER_UNIT_MAX = 8
# Below this a change of few records fits into a transaction with any events.
_CHECKED_FROM_BYTES = 512 * 1024
_EVENT_BYTES = 8 * 1024


def encoded(change: Transaction) -> dict[str, bytes]:
    """The values to write. Raises InvalidError with a record that is too large.

    The number of records in a change is bounded: callers split work that grows with the cluster.
    """
    count = len(change.puts) + len(change.drops) + len(change.events)
    assert count <= CHANGE_RECORDS_MAX, (
        f"a change of {count} records, such as {_any_key(change)}, is over {CHANGE_RECORDS_MAX}: "
        "it must be split into bounded steps"
    )
    values = {key: records.encode(record) for key, record in change.puts.items()}
    for key, value in values.items():
        if len(value) > VALUE_BYTES_MAX:
            raise InvalidError(
                key,
                f"{len(value)} bytes: expected at most {VALUE_BYTES_MAX}, the limit of the store",
            )
    writes = len(values) + len(change.drops) + len(change.events) + OUTDATED_PER_UNIT_MAX
    if writes >= OPERATIONS_MAX or sum(map(len, values.values())) >= _CHECKED_FROM_BYTES:
        check([_largest_unit(change, values)])
    return values


def _any_key(change: Transaction) -> str:
    return next(iter((*change.puts, *change.drops)), "an event")


def _largest_unit(change: Transaction, values: Mapping[str, bytes]) -> Unit:
    """The unit at its maximum size: the keys of its events are not known yet."""
    numbers = range(len(change.events))
    events = {f"{keys.EVENTS}{'0' * 48}{number}": bytes(_EVENT_BYTES) for number in numbers}
    outdated = [f"{keys.EVENTS}{'1' * 48}{number}" for number in range(OUTDATED_PER_UNIT_MAX)]
    return Unit(
        guards=dict.fromkeys((*values, *change.drops), 0),
        puts={**values, **events},
        deletes=[*change.drops, *outdated],
    )
