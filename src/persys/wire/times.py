"""Conversion of times. Peers encode an unset time in three ways; all of them are None in the model."""

from datetime import UTC, datetime, timedelta

from google.protobuf.timestamp_pb2 import Timestamp

from persys.wire.agent.legacy_agents import ZERO_TIME_SECONDS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_UNSET = frozenset({0, ZERO_TIME_SECONDS})
_SECOND = timedelta(seconds=1)


def timestamp(at: datetime) -> Timestamp:
    span = at - EPOCH
    return Timestamp(seconds=span // _SECOND, nanos=span.microseconds * 1000)


def instant(message: Timestamp) -> datetime | None:
    """The time, or None if it is unset or out of range."""
    if not message.nanos:
        return from_unix_seconds(message.seconds)
    try:
        return EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    except OverflowError:
        return None


def unix_seconds(at: datetime | None) -> int:
    return 0 if at is None else (at - EPOCH) // _SECOND


def from_unix_seconds(seconds: int) -> datetime | None:
    if seconds in _UNSET:
        return None
    try:
        return EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None
