"""Stored records: the JSON of a struct, preceded by a checksum and a schema number.

    {"crc":"5d3ef0a1","schema":2,<the fields of the struct>}

`crc` is the CRC-32 of everything after it, so a flipped or missing byte is detected. Every later schema
begins in the same way, so a newer schema number that is caused by a flipped bit is detected as damage.
Records of schema 1 have no checksum and are still read: missing fields get their defaults, so an added field
needs one. A record of a newer schema is refused, never read in part: writing it back would lose the fields
that this version does not know. A field may only be added, renamed or dropped with a new schema number.
"""

from functools import cache
from typing import TypeVar
from zlib import crc32

import msgspec
from msgspec import Struct

from persys.errors import InvalidError, RefusedError

SCHEMA = 2
OLDEST = 1

StructT = TypeVar("StructT", bound=Struct)

# Sets and maps are sorted, so equal structs have equal bytes in every process.
_encoder = msgspec.json.Encoder(order="deterministic")
_CRC = b'{"crc":"%08x",'
_CRC_AT = _CRC.index(b"%")
_BODY_AT = len(_CRC % 0)
_SCHEMA = b'"schema":%d' % SCHEMA
_CURRENT = (_SCHEMA + b",", _SCHEMA + b"}")


class NewerSchemaError(RefusedError):
    """The record was written by a newer version."""


class _Schema(Struct):
    schema: int = 0


_schema_decoder = msgspec.json.Decoder(_Schema)


def encode(record: Struct) -> bytes:
    """Raises InvalidError for a value that cannot be stored, such as text with lone surrogates."""
    try:
        fields = _encoder.encode(record)
    except (UnicodeEncodeError, OverflowError) as err:
        raise InvalidError(type(record).__name__, f"cannot be stored: {err}") from err
    body = _SCHEMA + (b"," if len(fields) > 2 else b"") + fields[1:]
    return _CRC % crc32(body) + body


def decode(data: bytes, kind: type[StructT]) -> StructT:
    """Raises RefusedError for bytes that are not an intact record of this kind."""
    try:
        _check(data, kind)
        record: StructT = _decoder(kind).decode(data)
    # Invalid UTF-8 in a string is a UnicodeDecodeError, not an error of msgspec.
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise RefusedError(f"stored {kind.__name__} cannot be read: {err}") from err
    return record


def _check(data: bytes, kind: type[Struct]) -> None:
    is_intact = data.startswith(_CRC % crc32(data[_BODY_AT:]))
    if is_intact and data.startswith(_CURRENT, _BODY_AT):
        return
    schema = _schema_decoder.decode(data).schema
    if schema > SCHEMA and (is_intact or not data.startswith(_CRC[:_CRC_AT])):
        raise NewerSchemaError(
            f"stored {kind.__name__} has schema {schema}; this version supports up to {SCHEMA}: upgrade it"
        )
    if schema < OLDEST:
        raise RefusedError(f"stored {kind.__name__} has no schema number")
    if schema > OLDEST or data.startswith(b"crc", 2):
        raise RefusedError(f"stored {kind.__name__} is damaged: its checksum does not match")


@cache
def _decoder(kind: type[StructT]) -> msgspec.json.Decoder[StructT]:
    reserved = {"schema", "crc"} & set(kind.__struct_fields__)
    assert not reserved, f"{kind.__name__} has a field with a reserved name: {reserved}"
    return msgspec.json.Decoder(kind)
