"""Protobuf messages as JSON: snake_case names, zero values omitted, int64 as strings.

The encoder of each message type is built once and cached. Maps are sorted, so equal messages have equal bytes
and an ETag of the bytes is stable.
"""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any

import msgspec
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from persys.errors import InvalidError

Write = Callable[[Any], Any]
Descriptor = Any  # protobuf has two classes, depending on its implementation

_LONG = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT64,
    }
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOS_PER = ((1_000_000, 3), (1_000, 6), (1, 9))
_SECONDS_KEPT = 4096
_TIMESTAMP = "google.protobuf.Timestamp"
# Raised by the library for JSON that does not match the message.
_UNREADABLE = (json_format.ParseError, TypeError, ValueError, AttributeError, RecursionError)


def to_json(message: Message) -> bytes:
    return msgspec.json.encode(_writer(message.DESCRIPTOR)(message))


def to_plain(message: Message) -> dict[str, Any]:
    """The value that `to_json` encodes."""
    plain: dict[str, Any] = _writer(message.DESCRIPTOR)(message)
    return plain


def read_json(body: bytes) -> dict[str, Any]:
    """Parse a request body. An empty body is an empty request. Raises InvalidError."""
    if not body:
        return {}
    try:
        plain = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        raise InvalidError("body", f"invalid JSON: {err}") from err
    if not isinstance(plain, dict):
        raise InvalidError("body", "expected a JSON object")
    return plain


def fill(message: Message, plain: dict[str, Any]) -> None:
    """Set the fields, named in snake_case or camelCase. Raises InvalidError with the field."""
    _check_names(message.DESCRIPTOR, plain, "")
    try:
        json_format.ParseDict(plain, message)
    except _UNREADABLE as err:
        raise InvalidError("body", str(err).partition("\n")[0]) from err


def _check_names(descriptor: Descriptor, plain: Mapping[str, Any], where: str) -> None:
    """Check the field names first: errors of the library do not name the field."""
    fields = _fields_by_name(descriptor)
    for name, value in plain.items():
        field = fields.get(name)
        if field is None:
            raise InvalidError(f"{where}{name}", "unknown field")
        inner = field.message_type
        if inner is None or inner.full_name == _TIMESTAMP or inner.GetOptions().map_entry:
            continue
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, dict):
                _check_names(inner, one, f"{where}{name}.")


@cache
def _fields_by_name(descriptor: Descriptor) -> dict[str, FieldDescriptor]:
    return {
        name: field for field in descriptor.fields for name in (field.name, field.camelcase_name)
    }


@cache
def _writer(descriptor: Descriptor) -> Write:
    if descriptor.full_name == _TIMESTAMP:
        return _timestamp
    # Filled on first use, because a message may contain its own type.
    known: dict[FieldDescriptor, tuple[str, Write | None]] = {}

    def write(message: Message) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for field, value in message.ListFields():
            found = known.get(field)
            if found is None:
                found = known[field] = (field.name, _field_writer(field))
            name, inner = found
            plain[name] = value if inner is None else inner(value)
        return plain

    return write


def _field_writer(field: FieldDescriptor) -> Write | None:
    """The encoder of a field. None: the value is written unchanged."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _map_writer(field.message_type)
    one = _value_writer(field)
    if not field.is_repeated:
        return one
    if one is None:
        return list
    return lambda values: [one(value) for value in values]


def _map_writer(entry: Descriptor) -> Write:
    key_field = entry.fields_by_name["key"]
    inner = _value_writer(entry.fields_by_name["value"])
    if key_field.cpp_type == FieldDescriptor.CPPTYPE_STRING and inner is None:
        return lambda values: dict(sorted(values.items()))
    return lambda values: {
        _key(key): value if inner is None else inner(value) for key, value in sorted(values.items())
    }


def _key(key: Any) -> str:
    return ("false", "true")[key] if isinstance(key, bool) else str(key)


def _value_writer(field: FieldDescriptor) -> Write | None:
    if field.message_type is not None:
        return _writer(field.message_type)
    if field.cpp_type in _LONG:
        return str
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, number)
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return _number
    assert field.cpp_type != FieldDescriptor.CPPTYPE_FLOAT, "the contract has no float fields"
    return None  # text, integers and bools unchanged; msgspec encodes bytes in base64


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _timestamp(message: Any) -> str:
    nanos = message.nanos
    if not nanos:
        return _seconds(message.seconds) + "Z"
    for unit, digits in _NANOS_PER:
        if nanos % unit == 0:
            return f"{_seconds(message.seconds)}.{nanos // unit:0{digits}d}Z"
    raise AssertionError("every number is a multiple of 1")


@lru_cache(_SECONDS_KEPT)
def _seconds(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
