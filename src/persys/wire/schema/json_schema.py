"""The JSON schema (draft 7) of spec files: workloads and node pools."""

import json
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from persys.wire.gen.control.v1 import control_pb2
from persys.wire.limits.table import COUNTS, MAPS, NUMBERS, REALS, TEXTS
from persys.wire.schema.descriptions import (
    DURATION_PATTERN,
    POOL,
    SECTIONS,
    SOFTWARE,
    WORKLOAD,
    Field,
    Section,
)

Schema = dict[str, Any]

# In lists and maps of texts, numbers and booleans are read as they are written.
_AS_WRITTEN: Schema = {"type": ["string", "number", "boolean"]}
_STATUS: Schema = {"type": "object", "description": "printed by `get -o yaml`; ignored"}
_TYPES = ("container", "compose", "vm")
_OCTAL = "mode"
_BY_MESSAGE = {section.message: section for section in SECTIONS if section.message}
# The type stubs have two kinds of descriptors; at run time there is one.
_Descriptor = Any


def text() -> str:
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def document() -> Schema:
    definitions = {
        "Workload": _workload(),
        "WorkloadOfTheContract": _of_the_contract(),
        "NodePool": _node_pool(),
        "Software": _mapping_of(SOFTWARE, {name: {"type": "string"} for name in SOFTWARE}),
        **{name: _of_message(section) for name, section in _BY_MESSAGE.items()},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Spec file of Persys Compute",
        "anyOf": [
            _reference("Workload"),
            _reference("NodePool"),
            _reference("WorkloadOfTheContract"),
            {
                "type": "array",
                "items": {"anyOf": [_reference("Workload"), _reference("NodePool")]},
            },
        ],
        "definitions": definitions,
    }


def field_schema(message: str, name: str) -> Schema:
    """The schema of one field, without its texts. `message` is empty for the top level."""
    if not message:
        return _top_level(name)
    descriptor = control_pb2.DESCRIPTOR.message_types_by_name[message]
    return _of_field(descriptor.fields_by_name[name], _BY_MESSAGE[message].fields[name])


def _workload() -> Schema:
    found = _mapping_of(WORKLOAD, {name: _top_level(name) for name in WORKLOAD})
    pairs = [(one, two) for one in _TYPES for two in _TYPES if one < two]
    found["properties"]["status"] = _STATUS
    return {**found, "not": {"anyOf": [{"required": list(pair)} for pair in pairs]}}


def _of_the_contract() -> Schema:
    """The form of the API. Other keys of it are ignored."""
    of_spec = control_pb2.WorkloadSpec.DESCRIPTOR.fields_by_name
    spec = {
        "type": "object",
        "properties": {name: _top_level(name) for name in of_spec},
    }
    return {
        "type": "object",
        "required": ["workload_id"],
        "properties": {
            "workload_id": _top_level("id"),
            "desired_state": _top_level("desired_state"),
            "spec": spec,
        },
    }


def _node_pool() -> Schema:
    found = _mapping_of(POOL, {name: _of_pool(name) for name in POOL})
    found["properties"]["status"] = _STATUS
    return found


def _of_pool(name: str) -> Schema:
    known = control_pb2.NodePoolSpec.DESCRIPTOR.fields_by_name
    field = POOL[name]
    if name == "software":
        return _reference("Software")
    if field.pattern == DURATION_PATTERN:
        return _duration()
    if name in known:
        return _of_field(known[name], field)
    return {"type": "string", "enum": list(field.choices)}


def _top_level(name: str) -> Schema:
    field = WORKLOAD[name]
    if name == "id":
        return {"type": "string", "pattern": field.pattern}
    if name == "stop_after":
        return _duration()
    of_spec = control_pb2.WorkloadSpec.DESCRIPTOR.fields_by_name
    of_request = control_pb2.ApplyWorkloadRequest.DESCRIPTOR.fields_by_name
    return _of_field(of_spec.get(name) or of_request[name], field)


def _duration() -> Schema:
    return {
        "anyOf": [{"type": "string", "pattern": DURATION_PATTERN}, {"type": "number", "minimum": 0}]
    }


def _of_message(section: Section) -> Schema:
    names = control_pb2.DESCRIPTOR.message_types_by_name[section.message].fields_by_name
    found = _mapping_of(
        section.fields,
        {name: _of_field(names[name], field) for name, field in section.fields.items()},
    )
    if not section.short:
        return found
    short = {"type": ["string", "integer"], "pattern": section.short}
    return {"anyOf": [{**short, "description": section.short_text}, found]}


def _mapping_of(fields: Any, schemas: dict[str, Schema]) -> Schema:
    required = [name for name, field in fields.items() if field.required]
    return {
        "type": "object",
        "additionalProperties": False,
        **({"required": required} if required else {}),
        "properties": {name: _described(fields[name], schema) for name, schema in schemas.items()},
    }


def _described(field: Field, schema: Schema) -> Schema:
    # Beside a $ref, draft 7 ignores other keys.
    plain = {"allOf": [schema]} if "$ref" in schema else schema
    default = {} if field.default is None else {"default": field.default}
    return {"description": field.text, **plain, **default, "examples": [field.example]}


def _of_field(descriptor: _Descriptor, field: Field) -> Schema:
    message, owner, name = descriptor.message_type, descriptor.containing_type, descriptor.name
    if message is not None and message.GetOptions().map_entry:
        _, _, most = _limit(MAPS, owner, name)
        return {
            "type": "object",
            "additionalProperties": _AS_WRITTEN,
            "maxProperties": min(most, field.items_max or most),
        }
    if descriptor.is_repeated:
        most = _limit(COUNTS, owner, name)
        items = _reference(message.name) if message is not None else _AS_WRITTEN
        return {"type": "array", "items": items, "maxItems": min(most, field.items_max or most)}
    if message is not None:
        return _reference(message.name)
    return _scalar(descriptor, field)


def _scalar(descriptor: _Descriptor, field: Field) -> Schema:
    owner, name = descriptor.containing_type, descriptor.name
    match descriptor.cpp_type:
        case FieldDescriptor.CPPTYPE_BOOL:
            return {"type": "boolean"}
        case FieldDescriptor.CPPTYPE_STRING:
            return _string(_limit(TEXTS, owner, name), field)
        case FieldDescriptor.CPPTYPE_DOUBLE:
            least, most = _limit(REALS, owner, name)
            return {"type": "number", "minimum": least, "maximum": most}
    lowest, highest = _limit(NUMBERS, owner, name)
    bounds = {
        "minimum": lowest if field.least is None else field.least,
        "maximum": highest if field.most is None else field.most,
    }
    if name == _OCTAL:
        permissions = {"type": "string", "pattern": "^0o?[0-7]{1,4}$"}
        return {"anyOf": [permissions, {"type": "integer", "minimum": 0}]}
    return {"type": "integer", **bounds}


def _string(longest: int, field: Field) -> Schema:
    if field.choices and field.pattern:
        either = [{"enum": list(field.choices)}, {"pattern": field.pattern}]
        return {"type": "string", "anyOf": either}
    if field.choices:
        return {"type": "string", "enum": list(field.choices)}
    if field.pattern:
        return {"type": "string", "pattern": field.pattern}
    return {"type": "string", "maxLength": longest}


def _limit(table: dict[str, Any], owner: _Descriptor, name: str) -> Any:
    return table.get(f"{owner.name}.{name}", table.get(name))


def _reference(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}
