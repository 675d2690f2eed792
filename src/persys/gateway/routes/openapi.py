"""GET /openapi.json: the OpenAPI 3.1 document, generated from the route table and the protocol messages."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from aiohttp import web
from google.protobuf.descriptor import FieldDescriptor

from persys import __version__
from persys.gateway.http.middleware import RequestContext, RequestPipeline
from persys.gateway.http.paging import LISTS
from persys.gateway.http.preconditions import CONDITIONAL
from persys.gateway.http.problems import PROBLEM
from persys.gateway.http.responses import JSON, answer, json_body
from persys.gateway.http.transcoding import SERVICE, path_fields, request_descriptor
from persys.gateway.routes.streams import EVENT_STREAM, NDJSON
from persys.wire.rest.json_codec import Descriptor
from persys.wire.rest.routes import API, ROUTES, Form, Route

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
_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "integer"}
_TIME: Schema = {"type": ["string", "null"], "format": "date-time"}
_ANYTHING: Schema = {"type": "object"}
_METRICS: dict[str, Any] = {
    "operationId": "GetMetrics",
    "responses": {
        "200": {
            "description": "metrics in the Prometheus text format",
            "content": {"text/plain": {"schema": _TEXT}},
        },
        "default": {"$ref": "#/components/responses/Problem"},
    },
}
PATH = "/openapi.json"
_SEGMENT: Schema = {"type": "string", "minLength": 1, "pattern": r"^[^/{}]+$"}
_TEXTS = {"StreamLogs": "text/plain", "SaveSnapshot": "application/octet-stream"}
_PROBLEM_SCHEMA: Schema = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "request_id"],
    "properties": {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
        "request_id": _TEXT,
        "code": {"type": "string", "description": "gRPC status code"},
        "field": {"type": "string", "description": "the invalid field"},
        "reason": {"type": "string", "description": "a FailureReason"},
        "mode": {"type": "string", "description": "mode of the scheduler if it is not normal"},
        "answer": {"type": "object", "description": "response message with the refusal"},
    },
}
_PROBLEM_RESPONSE = {
    "description": "problem details (RFC 9457)",
    "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
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


def own_paths() -> dict[str, dict[str, Any]]:
    cluster = {
        "name": "cluster",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1, "pattern": r"^[^/{}]+$"},
    }
    return {
        "/health": {
            "get": _get("GetHealth", _object(status=_TEXT, service=_TEXT), open_to_all=True)
        },
        "/metrics": {"get": _METRICS},
        f"{API}/clusters": {
            "get": _get("ListClusters", _object(default_cluster_id=_TEXT, clusters=_list(_CLUSTER)))
        },
        f"{API}/clusters/{{cluster}}": {
            "get": _get("GetCluster", _object(default_cluster_id=_TEXT, cluster=_CLUSTER), cluster)
        },
        f"{API}/overview": {"get": _get("GetOverview", _object(clusters=_list(_ANYTHING)))},
        f"{API}/traefik": {"get": _get("GetTraefik", _ANYTHING)},
        f"{API}/clusters/{{cluster}}/traefik": {
            "get": _get("GetTraefikOfCluster", _ANYTHING, cluster)
        },
        f"{API}/usage": {"get": _get("GetUsage", _USAGE, *_USAGE_OF)},
        f"{API}/clusters/{{cluster}}/usage": {
            "get": _get("GetUsageOfCluster", _USAGE, cluster, *_USAGE_OF)
        },
        f"{API}/specs/parse": {"post": _PARSE},
        f"{API}/gitops": {
            "get": _get(
                "ListGitops", _object(workloads=_list(_ANYTHING), problems=_list(_ANYTHING))
            )
        },
        f"{API}/audit": {
            "get": _get(
                "ListAudit",
                _object(entries=_list(_AUDIT_ENTRY), deeds=_list(_AUDIT_ENTRY), next_cursor=_TEXT),
                {
                    "name": "limit",
                    "in": "query",
                    "schema": {**_NUMBER, "minimum": 1, "maximum": 1000},
                },
                {
                    "name": "cursor",
                    "in": "query",
                    "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
                },
            )
        },
    }


def _get(
    name: str, schema: Schema, *parameters: dict[str, Any], open_to_all: bool = False
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": name,
        "parameters": list(parameters),
        "responses": {
            "200": {"description": "success", "content": {JSON: {"schema": schema}}},
            "default": {"$ref": "#/components/responses/Problem"},
        },
    }
    return operation | ({"security": []} if open_to_all else {})


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_PARSE: dict[str, Any] = {
    "operationId": "ParseSpecs",
    "requestBody": {"required": True, "content": {"text/plain": {"schema": _TEXT}}},
    "responses": {
        "200": {
            "description": "the workloads of the file, and the line where each begins",
            "content": {
                JSON: {"schema": _object(workloads=_list(_ANYTHING), lines=_list(_NUMBER))}
            },
        },
        "default": {"$ref": "#/components/responses/Problem"},
    },
}


_SCHEDULER = _object(
    id=_TEXT,
    address=_TEXT,
    is_leader={"type": "boolean"},
    healthy={"type": "boolean"},
    last_seen=_TIME,
)


_CLUSTER = _object(
    id=_TEXT,
    name=_TEXT,
    routing_strategy=_TEXT,
    total_schedulers=_NUMBER,
    healthy_schedulers=_NUMBER,
    schedulers=_list(_SCHEDULER),
)


_USAGE = _object(
    interval_seconds={"type": "number"},
    times=_list({"type": "number", "description": "seconds since 1970"}),
    series=_list(_object(name=_TEXT, values=_list({"type": "number"}))),
)
_USAGE_OF = tuple(
    {"name": name, "in": "query", "schema": _TEXT} for name in ("node_id", "workload_id")
)


_AUDIT_ENTRY = _object(
    number=_TEXT,
    at=_TIME,
    who=_TEXT,
    address=_TEXT,
    action=_TEXT,
    deed=_TEXT,  # the name of `action` in earlier versions
    cluster=_TEXT,
    target=_TEXT,
    status=_NUMBER,
    request_id=_TEXT,
)


def openapi_routes(pipeline: RequestPipeline) -> Iterator[web.RouteDef]:
    found = json_body(msgspec.json.encode(document()))

    async def handle(context: RequestContext) -> web.StreamResponse:
        return answer(context.request, found)

    yield web.get(PATH, pipeline.serve(handle, open_to_all=True))


def document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(API + route.path, {})[route.method.lower()] = _operation(route)
    for path, operations in own_paths().items():
        paths.setdefault(path, {}).update(operations)
    methods = [SERVICE.methods_by_name[route.rpc] for route in ROUTES]
    messages = [one.output_type for one in methods] + [one.input_type for one in methods]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Persys Compute",
            "version": __version__,
            "description": "The REST API of persys-gateway. Every path under /api/v1 is also served "
            "under /api/v1/clusters/{cluster} for that cluster.",
        },
        "security": [{"token": []}, {"certificate": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": {**schemas_of(messages), "Problem": _PROBLEM_SCHEMA},
            "responses": {"Problem": _PROBLEM_RESPONSE},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "certificate": {"type": "mutualTLS"},
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.rpc,
        "summary": _words(route.rpc),
        "parameters": list(_parameters(route)),
        "responses": {**_answers(route), "default": {"$ref": "#/components/responses/Problem"}},
    }
    if route.body:
        body = reference(SERVICE.methods_by_name[route.rpc].input_type)
        operation["requestBody"] = {"content": {JSON: {"schema": body}}, "required": True}
    elif route.form is Form.UPLOAD:
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"content": content, "required": True}
    return operation


def _parameters(route: Route) -> Iterator[dict[str, Any]]:
    in_path = path_fields(route.path)
    for name in in_path:
        yield {"name": name, "in": "path", "required": True, "schema": _SEGMENT}
    descriptor = request_descriptor(route.rpc)
    for field in () if route.body else descriptor.fields:
        schema = field_schema(field)
        if field.name in in_path or "$ref" in schema:
            continue
        yield {"name": field.name, "in": "query", "schema": schema}
    if route.rpc in LISTS:
        if "limit" not in descriptor.fields_by_name:
            limit = {"type": "integer", "minimum": 1, "maximum": 1000}
            yield {"name": "limit", "in": "query", "schema": limit}
        yield {"name": "cursor", "in": "query", "schema": _TEXT}
    yield {"name": "cluster_id", "in": "query", "schema": _TEXT}
    if route.rpc in CONDITIONAL:
        yield {"name": "If-Match", "in": "header", "schema": _TEXT}
    if route.rpc == "WatchEvents":
        yield {"name": "Last-Event-ID", "in": "header", "schema": _TEXT}
    if route.method != "GET" and route.form is Form.UNARY:
        key = {"type": "string", "minLength": 1, "maxLength": 255}
        yield {"name": "Idempotency-Key", "in": "header", "schema": key}


def _answers(route: Route) -> dict[str, Any]:
    message = reference(SERVICE.methods_by_name[route.rpc].output_type)
    match route.form:
        case Form.SOCKET:
            return {"101": {"description": "WebSocket; frames are ExecInput and ExecOutput"}}
        case Form.EVENTS:
            content: dict[str, Any] = {EVENT_STREAM: {"schema": _TEXT}}
        case Form.TEXT:
            plain = {_TEXTS[route.rpc]: {"schema": {"type": "string", "format": "binary"}}}
            content = {**plain, NDJSON: {"schema": _TEXT}}
        case Form.UPLOAD if SERVICE.methods_by_name[route.rpc].server_streaming:
            content = {NDJSON: {"schema": _TEXT}}
        case _:
            content = {JSON: {"schema": message}}
    return {"200": {"description": "success", "content": content}}


def _words(rpc: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", lambda found: f" {found[1].lower()}", rpc)
