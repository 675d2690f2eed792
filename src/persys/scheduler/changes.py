"""A change: records to write and drop together, as keys and values, and what it does to the memory."""

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import Struct

from persys.model.event import Event


@dataclass(slots=True)
class Change:
    """`done` runs when it is stored, before anybody is told; it must not wait."""

    done: Callable[[], None]
    puts: dict[str, Struct] = field(default_factory=dict)
    drops: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.puts or self.drops or self.events)
