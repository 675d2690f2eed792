"""Stored records: the JSON of a struct, behind a checksum and a schema number.

    {"crc":"5d3ef0a1","schema":2,<the fields of the struct>}

`crc` is the CRC-32 of everything behind it, so that a flipped or missing byte is detected. Every later schema
begins in the same way: so a schema number that is newer only because a bit flipped is known for damage.
Records of schema 1 have no checksum and are still read: fields that they lack get their defaults, so a field
that is added needs one. A record of a newer schema is refused, never read in part: writing it back would
lose what this version does not know. So a field may only be added, renamed or dropped together with the
number.
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

# Deterministic: sets and maps are sorted, so equal structs are equal bytes in every process.
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
        raise RefusedError(f"a stored {kind.__name__} cannot be read: {err}") from err
    return record


def _check(data: bytes, kind: type[Struct]) -> None:
    is_intact = data.startswith(_CRC % crc32(data[_BODY_AT:]))
    if is_intact and data.startswith(_CURRENT, _BODY_AT):
        return
    schema = _schema_decoder.decode(data).schema
    if schema > SCHEMA and (is_intact or not data.startswith(_CRC[:_CRC_AT])):
        raise NewerSchemaError(
            f"a stored {kind.__name__} has schema {schema}; this version reads up to {SCHEMA}: upgrade it"
        )
    if schema < OLDEST:
        raise RefusedError(f"a stored {kind.__name__} has no schema number")
    if schema > OLDEST or data.startswith(b"crc", 2):
        raise RefusedError(f"a stored {kind.__name__} is damaged: its checksum does not match")


@cache
def _decoder(kind: type[StructT]) -> msgspec.json.Decoder[StructT]:
    reserved = {"schema", "crc"} & set(kind.__struct_fields__)
    assert not reserved, f"{kind.__name__} has a field with a reserved name: {reserved}"
    return msgspec.json.Decoder(kind)
