"""Events in the control contract. Requests filter by known kinds; responses may have any kind."""

from collections.abc import Iterable

from persys.errors import InvalidError
from persys.model.event import EventKind, Numbered
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import timestamp

_KINDS = {kind.value.lower(): kind for kind in EventKind}


def event_message(numbered: Numbered) -> control_pb2.EventView:
    sequence, event = numbered
    return control_pb2.EventView(
        sequence=sequence,
        at=timestamp(event.at),
        kind=event.kind,
        message=event.message,
        workload_id=event.workload_id,
        node_id=event.node_id,
        revision_id=event.revision,
        epoch=event.epoch,
        identity=event.identity,
        source=event.source,
        task_id=event.task_id,
    )


def event_kinds(words: Iterable[str]) -> frozenset[EventKind]:
    """The kinds with these names, in any case."""
    return frozenset(_kind(word) for word in words)


def _kind(word: str) -> EventKind:
    kind = _KINDS.get(word.lower())
    if kind is None:
        raise InvalidError("kinds", f"{word!r} is unknown; expected {', '.join(EventKind)}")
    return kind
