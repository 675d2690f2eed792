"""The JSON schema (draft 7) of spec files: workloads, sets, jobs, services and node pools."""

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from persys.wire.gen.control.v1 import control_pb2
from persys.wire.limits.table import COUNTS, MAPS, NUMBERS, REALS, TEXTS
from persys.wire.schema.descriptions import (
    DURATION_PATTERN,
    PERCENT_PATTERN,
    POOL,
    SOFTWARE,
    WORKLOAD,
    Field,
)
from persys.wire.schema.sections import SECTIONS, Section
from persys.wire.schema.service_descriptions import SERVICE
from persys.wire.schema.set_job_descriptions import (
    JOB,
    JOB_OPTIONS,
    PROMETHEUS,
    SCALE,
    SCHEDULE,
    SET,
    UPDATE,
)

Schema = dict[str, Any]

# In lists and maps of texts, numbers and booleans are read as they are written.
_AS_WRITTEN: Schema = {"type": ["string", "number", "boolean"]}
_STATUS: Schema = {"type": "object", "description": "printed by `get -o yaml`; ignored"}
_TYPES = ("container", "compose", "vm")
_OCTAL = "mode"
_DOCUMENTS = ("Workload", "Set", "Job", "Service", "NodePool")
_BY_MESSAGE = {section.message: section for section in SECTIONS if section.message}
_BY_DEFINITION = {section.definition: section for section in SECTIONS if section.definition}
# The mappings of sets and jobs.
_OWN_REFERENCES = {
    "update": "UpdatePolicy",
    "scale": "ScalePolicy",
    "prometheus": "Prometheus",
    "job": "JobOptions",
    "schedule": "Schedule",
}
# The type stubs have two kinds of descriptors; at run time there is one.
_Descriptor = Any


def text() -> str:
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def document() -> Schema:
    definitions = {
        "Workload": _workload(),
        "WorkloadOfTheContract": _of_the_contract(),
        "NodePool": _node_pool(),
        "Software": _own_mapping(SOFTWARE),
        "Service": _service(),
        "Set": _workload_with(SET, without=("revision_id",)),
        "UpdatePolicy": _own_mapping(UPDATE),
        "ScalePolicy": _own_mapping(SCALE),
        "Prometheus": _own_mapping(PROMETHEUS),
        "Job": _workload_with(JOB, without=("revision_id", "desired_state")),
        "JobOptions": _own_mapping(JOB_OPTIONS),
        "Schedule": _with_short_form(_BY_DEFINITION["Schedule"], _own_mapping(SCHEDULE)),
        **{name: _of_message(section) for name, section in _BY_MESSAGE.items()},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Spec file of Persys Compute",
        "anyOf": [
            *(_reference(name) for name in _DOCUMENTS),
            _reference("WorkloadOfTheContract"),
            {"type": "array", "items": {"anyOf": [_reference(name) for name in _DOCUMENTS]}},
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
    return _workload_with({}, without=())


def _workload_with(own: Mapping[str, Field], *, without: tuple[str, ...]) -> Schema:
    """A workload with the keys of a set or job."""
    fields = {name: field for name, field in WORKLOAD.items() if name not in without}
    schemas = {name: _top_level(name) for name in fields}
    found = _mapping_of({**own, **fields}, {**_own_schemas(own), **schemas})
    pairs = [(one, two) for one in _TYPES for two in _TYPES if one < two]
    found["properties"]["status"] = _STATUS
    return {**found, "not": {"anyOf": [{"required": list(pair)} for pair in pairs]}}


def _own_mapping(fields: Mapping[str, Field]) -> Schema:
    return _mapping_of(fields, _own_schemas(fields))


def _own_schemas(fields: Mapping[str, Field]) -> dict[str, Schema]:
    """Of keys that are not fields of the contract: the type is that of the example."""
    return {name: _own(name, field) for name, field in fields.items()}


def _own(name: str, field: Field) -> Schema:
    bounds = {"minimum": field.least, "maximum": field.most}
    if name in _OWN_REFERENCES:
        return _reference(_OWN_REFERENCES[name])
    if field.choices:
        return {"type": "string", "enum": list(field.choices)}
    if field.pattern == DURATION_PATTERN:
        return _duration()
    if field.pattern == PERCENT_PATTERN:
        text = {"type": "string", "pattern": PERCENT_PATTERN}
        return {"anyOf": [text, {"type": "integer", **bounds}]}
    match field.example:
        case list():
            items = {"type": "integer", **bounds}
            return {"type": "array", "items": items, "maxItems": field.items_max}
        case int():
            return {"type": "integer", **bounds}
        case float():
            return {"type": "number", "exclusiveMinimum": 0}
        case _:
            return {"type": "string"}


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


def _service() -> Schema:
    known = control_pb2.ServiceSpec.DESCRIPTOR.fields_by_name
    schemas = _own_schemas({name: SERVICE[name] for name in ("kind", "id")})
    schemas["id"] = {"type": "string", "pattern": SERVICE["id"].pattern}
    limits = {"minimum": SERVICE["port"].least, "maximum": SERVICE["port"].most}  # of a number
    schemas["port"] = {"allOf": [_reference("ServicePort")], **limits}
    schemas |= {name: _of_field(known[name], SERVICE[name]) for name in SERVICE if name in known}
    found = _mapping_of(SERVICE, schemas)
    found["properties"]["status"] = _STATUS
    return {**found, "oneOf": [{"required": ["port"]}, {"required": ["ports"]}]}


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
    return _with_short_form(section, found) if section.short else found


def _with_short_form(section: Section, found: Schema) -> Schema:
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
