"""Routes of the gateway itself: health, metrics, clusters, overview, endpoints for Traefik and the audit log.

The overview queries all clusters in parallel with a deadline. A slow or unreachable cluster is reported as
a problem and does not delay the others.

The configuration for Traefik is what its HTTP provider polls: services with their servers, and routers that
choose a service for a request. A port of protocol `http` becomes a service of the section `http`, whose
servers are URLs; other ports are in `tcp` and `udp`, whose servers are addresses. Traefik refuses empty
mappings, so a service without endpoints, and its router, are left out.
"""

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import grpc
from aiohttp import web
from prometheus_client import generate_latest

from persys.core.numbers import whole_number
from persys.errors import InvalidError, PersysError
from persys.gateway.audit import AuditLog, NumberedEntry
from persys.gateway.http.middleware import Handler, RequestContext, RequestPipeline
from persys.gateway.http.problems import problem_from, problem_from_rpc
from persys.gateway.http.responses import json_response
from persys.gateway.metrics import PAGE, Metrics
from persys.gateway.upstream.cluster import Cluster
from persys.model.identity import Permission
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.rest.json_codec import to_plain
from persys.wire.rest.routes import API

SERVICE = "persys-gateway"
CLUSTER_SECONDS = 5.0
MILLICORES = 1000
LIMIT_MAX = 1000
LIMIT_USUAL = 100
HTTP = "http"


def gateway_routes(
    pipeline: RequestPipeline, metrics: Metrics, audit: AuditLog
) -> Iterator[web.RouteDef]:
    """/metrics is on the API port, so it requires a certificate or a token; Prometheus can send either."""
    read = partial(pipeline.serve, permission=Permission.READ)
    yield web.get("/health", pipeline.serve(health, open_to_all=True, contract=True))
    yield web.get("/metrics", read(_metrics_page(metrics)))
    yield web.get("/clusters", read(list_clusters, contract=True))
    yield web.get("/clusters/{cluster}", read(get_cluster, contract=True))
    yield web.get(f"{API}/clusters", read(list_clusters))
    yield web.get(f"{API}/clusters/{{cluster}}", read(get_cluster))
    yield web.get(f"{API}/overview", read(overview))
    yield web.get(f"{API}/traefik", read(traefik))
    yield web.get(f"{API}/clusters/{{cluster}}/traefik", read(traefik))
    yield web.get(f"{API}/audit", pipeline.serve(_audit_list(audit), permission=Permission.TOKENS))


def _metrics_page(metrics: Metrics) -> Handler:
    async def handle(_context: RequestContext) -> web.StreamResponse:
        return web.Response(body=generate_latest(metrics.registry), content_type=PAGE)

    return handle


async def health(context: RequestContext) -> web.StreamResponse:
    return json_response(context.request, {"status": "ok", "service": SERVICE})


async def list_clusters(context: RequestContext) -> web.StreamResponse:
    views = [cluster_view(cluster) for cluster in context.clusters.values()]
    return json_response(
        context.request, {"default_cluster_id": context.default_cluster, "clusters": views}
    )


async def get_cluster(context: RequestContext) -> web.StreamResponse:
    view = cluster_view(context.cluster)
    return json_response(
        context.request, {"default_cluster_id": context.default_cluster, "cluster": view}
    )


async def overview(context: RequestContext) -> web.StreamResponse:
    async with asyncio.TaskGroup() as group:
        views = [group.create_task(_state_of(context, one)) for one in context.clusters.values()]
    return json_response(context.request, {"clusters": [view.result() for view in views]})


async def traefik(context: RequestContext) -> web.StreamResponse:
    """The endpoints of the services of one cluster, for the HTTP provider of Traefik."""
    request = pb.ListServicesRequest(endpoints=True)
    found = await _call(context, context.cluster, "ListServices", request)
    return json_response(context.request, traefik_configuration(found.services))


def traefik_configuration(services: Iterable[pb.ServiceView]) -> dict[str, Any]:
    """`services`: with their endpoints. The name of a service with several ports has the name of the port."""
    found: dict[str, Any] = {}
    for service in services:
        spec = service.spec
        for port in spec.ports:
            port_name = port.name or str(port.port)
            endpoints = [one for one in service.endpoints if one.port_name == port_name]
            if not endpoints:
                continue
            name = spec.service_id if len(spec.ports) == 1 else f"{spec.service_id}-{port_name}"
            section = found.setdefault(port.protocol or "tcp", {})
            servers = list(map(_server, endpoints))
            section.setdefault("services", {})[name] = {"loadBalancer": {"servers": servers}}
            if port.protocol == HTTP and spec.hosts:
                rule = " || ".join(f"Host(`{host}`)" for host in spec.hosts)
                section.setdefault("routers", {})[name] = {"rule": rule, "service": name}
    return found


def _server(endpoint: pb.ServiceEndpoint) -> dict[str, Any]:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    address = f"{host}:{endpoint.port}"
    if endpoint.protocol != HTTP:
        return {"address": address}
    found: dict[str, Any] = {"url": f"http://{address}"}
    # Versions before 3.2 refuse weights.
    return found if endpoint.weight == 1 else {**found, "weight": endpoint.weight}


def cluster_view(cluster: Cluster) -> dict[str, Any]:
    schedulers = [
        {
            "id": upstream.id,
            "address": upstream.address,
            "is_leader": upstream.is_leader,
            "healthy": upstream.healthy,
            "last_seen": upstream.last_seen,
        }
        for upstream in cluster.upstreams
    ]
    return {
        "id": cluster.id,
        "name": cluster.entry.name or cluster.id,
        "routing_strategy": cluster.entry.routing_strategy,
        "total_schedulers": len(schedulers),
        "healthy_schedulers": sum(upstream.healthy for upstream in cluster.upstreams),
        "schedulers": schedulers,
    }


async def _state_of(context: RequestContext, cluster: Cluster) -> dict[str, Any]:
    view = cluster_view(cluster)
    del view["schedulers"]
    try:
        async with asyncio.timeout(CLUSTER_SECONDS):
            summary = await _call(
                context, cluster, "GetClusterSummary", pb.GetClusterSummaryRequest()
            )
            mode = await _call(context, cluster, "GetMode", pb.GetModeRequest())
            nodes = await _call(context, cluster, "ListNodes", pb.ListNodesRequest())
    except PersysError as err:
        return view | {"problem": problem_from(err).plain(context.id)}
    except grpc.aio.AioRpcError as err:
        return view | {"problem": problem_from_rpc(err).plain(context.id)}
    except TimeoutError:
        return view | {"problem": {"status": 504, "detail": "deadline exceeded"}}
    return view | {
        "summary": to_plain(summary),
        "mode": to_plain(mode),
        "capacity": capacity_of(nodes.nodes),
    }


async def _call(context: RequestContext, cluster: Cluster, rpc: str, request: Any) -> Any:
    key = context.routing_key(cluster)
    answered = await cluster.call(
        rpc, request, key=key, metadata=context.metadata, idempotent=True, seconds=CLUSTER_SECONDS
    )
    return answered.answer


def capacity_of(nodes: Any) -> dict[str, dict[str, int]]:
    """Total, reserved and used resources of all nodes."""
    cpu = {
        "total": round(sum(node.total_cpu_cores for node in nodes) * MILLICORES),
        "reserved": round(
            sum(node.total_cpu_cores - node.available_cpu_cores for node in nodes) * MILLICORES
        ),
        "used": sum(node.usage.cpu_used_millicores for node in nodes),
    }
    memory = {
        "total": sum(node.total_memory_mb for node in nodes),
        "reserved": sum(node.total_memory_mb - node.available_memory_mb for node in nodes),
        "used": sum(node.usage.memory_used_mb for node in nodes),
    }
    disk = {
        "total": sum(node.total_disk_gb for node in nodes),
        "reserved": sum(node.total_disk_gb - node.available_disk_gb for node in nodes),
        "used": sum(node.usage.disk_used_gb for node in nodes),
    }
    return {"cpu_millicores": cpu, "memory_mb": memory, "disk_gb": disk}


def _audit_entry(line: NumberedEntry) -> dict[str, object]:
    entry = line.entry
    return {
        "number": str(line.number),
        "at": entry.at,
        "who": entry.who,
        "address": entry.address,
        "action": entry.action,
        "deed": entry.action,  # the name in earlier versions
        "cluster": entry.cluster,
        "target": entry.target,
        "status": entry.status,
        "request_id": entry.request_id,
    }


def _audit_list(audit: AuditLog) -> Handler:
    async def handle(context: RequestContext) -> web.StreamResponse:
        limit = _number(context, "limit", LIMIT_USUAL)
        if not 1 <= limit <= LIMIT_MAX:
            raise InvalidError("limit", f"expected 1 to {LIMIT_MAX}")
        lines = await audit.lines(limit=limit + 1, before=_number(context, "cursor", 0))
        shown, more = lines[:limit], len(lines) > limit
        entries = [_audit_entry(line) for line in shown]
        plain = {
            "entries": entries,
            "deeds": entries,  # the name in earlier versions
            "next_cursor": str(shown[-1].number) if more else "",
        }
        return json_response(context.request, plain)

    return handle


def _number(context: RequestContext, name: str, usual: int) -> int:
    text = context.request.query.get(name, str(usual))
    number = whole_number(text)
    if number is None:
        raise InvalidError(name, f"{text[:40]!r}: expected a number")
    return number
