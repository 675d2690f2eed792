"""Stored records: the JSON of a struct, with `"schema": 1` beside its fields.

A record written by a newer version is refused, never half read: writing it back would lose what this
version does not know. So a field may only be added, renamed or dropped together with the number.
"""

from functools import cache
from typing import TypeVar

import msgspec
from msgspec import Struct

from persys.errors import RefusedError

SCHEMA = 1

StructT = TypeVar("StructT", bound=Struct)

# Deterministic: sets and maps are sorted, so equal structs are equal bytes in every process.
_encoder = msgspec.json.Encoder(order="deterministic")
_HEAD = b'{"schema":%d' % SCHEMA
_HEAD_AND_FIELDS = _HEAD + b","


class _Schema(Struct):
    schema: int = 0


_schema_decoder = msgspec.json.Decoder(_Schema)


def encode(record: Struct) -> bytes:
    body = _encoder.encode(record)
    return (_HEAD_AND_FIELDS if len(body) > 2 else _HEAD) + body[1:]


def decode(data: bytes, kind: type[StructT]) -> StructT:
    """The struct these bytes hold. RefusedError: they are no such record, or of a newer schema."""
    try:
        if not data.startswith(_HEAD_AND_FIELDS):
            _check_schema(_schema_decoder.decode(data).schema, kind)
        record: StructT = _decoder(kind).decode(data)
    # A string that is no UTF-8 is a UnicodeDecodeError, not one of msgspec's own.
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise RefusedError(f"a stored {kind.__name__} cannot be read: {err}") from err
    return record


def _check_schema(schema: int, kind: type[Struct]) -> None:
    if schema > SCHEMA:
        raise RefusedError(
            f"a stored {kind.__name__} has schema {schema}; this version reads up to {SCHEMA}: upgrade it"
        )
    if schema < 1:
        raise RefusedError(f"a stored {kind.__name__} does not say its schema")


@cache
def _decoder(kind: type[StructT]) -> msgspec.json.Decoder[StructT]:
    assert "schema" not in kind.__struct_fields__, "the name is taken by the schema number"
    return msgspec.json.Decoder(kind)
