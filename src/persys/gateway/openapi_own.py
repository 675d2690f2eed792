"""OpenAPI paths of the gateway's own routes. The paths of RPCs are generated from the route table."""

from typing import Any

from persys.gateway.answering import JSON
from persys.wire.rest.openapi_schema import Schema
from persys.wire.rest.routes import API

_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "integer"}
_TIME: Schema = {"type": ["string", "null"], "format": "date-time"}
_ANYTHING: Schema = {"type": "object"}


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
        f"{API}/specs/parse": {"post": _PARSE},
        f"{API}/gitops": {
            "get": _get(
                "ListGitops", _object(workloads=_list(_ANYTHING), problems=_list(_ANYTHING))
            )
        },
        f"{API}/audit": {
            "get": _get(
                "ListAudit",
                _object(deeds=_list(_DEED), next_cursor=_TEXT),
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
_DEED = _object(
    number=_TEXT,
    at=_TIME,
    who=_TEXT,
    address=_TEXT,
    deed=_TEXT,
    cluster=_TEXT,
    target=_TEXT,
    status=_NUMBER,
    request_id=_TEXT,
)
