"""A transaction: records to write and delete together, and the update of memory that follows."""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from persys.model.event import Event


@dataclass(slots=True)
class Change:
    """`done` updates memory after the commit, before the caller resumes; it must not block."""

    done: Callable[[], None]
    puts: dict[str, Struct] = field(default_factory=dict)
    drops: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.puts or self.drops or self.events)


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
