"""JSON Schema (OpenAPI 3.1) of the messages of the contract, generated from the protobuf descriptors."""

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from persys.wire.rest.json_codec import Descriptor

Schema = dict[str, Any]

_TIMESTAMP = "google.protobuf.Timestamp"
_INT32_MAX = 2**31 - 1
_DIGITS = r"^-?[0-9]{1,18}$"
_SCALARS: dict[int, Schema] = {
    FieldDescriptor.CPPTYPE_INT32: {
        "type": "integer",
        "minimum": -_INT32_MAX - 1,
        "maximum": _INT32_MAX,
    },
    FieldDescriptor.CPPTYPE_UINT32: {"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
    FieldDescriptor.CPPTYPE_INT64: {"type": "string", "format": "int64", "pattern": _DIGITS},
    FieldDescriptor.CPPTYPE_UINT64: {"type": "string", "format": "uint64", "pattern": _DIGITS},
    FieldDescriptor.CPPTYPE_DOUBLE: {"type": "number"},
    FieldDescriptor.CPPTYPE_BOOL: {"type": "boolean"},
}


def reference(descriptor: Descriptor) -> Schema:
    return {"$ref": f"#/components/schemas/{descriptor.name}"}


def schemas_of(descriptors: Iterable[Descriptor]) -> dict[str, Schema]:
    """The schemas of these messages and of all nested messages, by name."""
    found: dict[str, Schema] = {}
    waiting = list(descriptors)
    while waiting:
        descriptor = waiting.pop()
        if descriptor.name in found:
            continue
        found[descriptor.name] = _message(descriptor)
        waiting += [
            inner
            for field in descriptor.fields
            if (inner := _held(field)) is not None and inner.full_name != _TIMESTAMP
        ]
    return dict(sorted(found.items()))


def field_schema(field: FieldDescriptor) -> Schema:
    """The schema of a field; an array if the field is repeated."""
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return {
            "type": "object",
            "additionalProperties": _value(entry.fields_by_name["value"]),
        }
    one = _value(field)
    return {"type": "array", "items": one} if field.is_repeated else one


def _message(descriptor: Descriptor) -> Schema:
    return {
        "type": "object",
        "properties": {field.name: field_schema(field) for field in descriptor.fields},
        "additionalProperties": False,
    }


def _held(field: FieldDescriptor) -> Descriptor | None:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return entry.fields_by_name["value"].message_type
    return entry


def _value(field: FieldDescriptor) -> Schema:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return {"type": "string", "format": "date-time"}
        return reference(field.message_type)
    if field.enum_type is not None:
        return {"type": "string", "enum": [value.name for value in field.enum_type.values]}
    if field.type == FieldDescriptor.TYPE_BYTES:
        return {"type": "string", "contentEncoding": "base64"}
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return {"type": "string"}
    return dict(_SCALARS[field.cpp_type])
