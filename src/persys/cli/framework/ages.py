"""Ages in the two or three characters of a table column."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.message import Message

_STEPS = ((2 * 86400, 86400, "d"), (2 * 3600, 3600, "h"), (2 * 60, 60, "m"))
BLANK = "-"


def short_duration(seconds: float) -> str:
    for least, size, unit in _STEPS:
        if seconds >= least:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def age(message: "Message", field: str, *, now: datetime) -> str:
    """The age of a Timestamp field, or '-' where it is not set."""
    then = timestamp(message, field)
    return BLANK if then is None else short_duration((now - then).total_seconds())


def timestamp(message: "Message", field: str) -> datetime | None:
    if not message.HasField(field):
        return None
    found: datetime = getattr(message, field).ToDatetime(tzinfo=UTC)
    return found


def unix_age(seconds: int, *, now: datetime) -> str:
    # Other agents send the zero time of their language, long before 1970, for times that are not set.
    return BLANK if seconds <= 0 else short_duration(now.timestamp() - seconds)
