"""Which clusters there are and how their schedulers do, and whether this gateway is well."""

from collections.abc import Iterator
from typing import Any

import msgspec
from aiohttp import web

from persys.gateway.cluster import Cluster
from persys.gateway.door import Ask, Door

JSON = "application/json"
SERVICE = "persys-gateway"


def overview_routes(door: Door) -> Iterator[web.RouteDef]:
    yield web.get("/health", door.behind(health, open_to_all=True, contract=True))
    yield web.get("/clusters", door.behind(list_clusters, contract=True))
    yield web.get("/clusters/{cluster}", door.behind(get_cluster, contract=True))
    yield web.get("/api/v1/clusters", door.behind(list_clusters))
    yield web.get("/api/v1/clusters/{cluster}", door.behind(get_cluster))


async def health(ask: Ask) -> web.StreamResponse:
    return answer({"status": "ok", "service": SERVICE})


async def list_clusters(ask: Ask) -> web.StreamResponse:
    views = [cluster_view(cluster) for cluster in ask.clusters.values()]
    return answer({"default_cluster_id": ask.default_cluster, "clusters": views})


async def get_cluster(ask: Ask) -> web.StreamResponse:
    view = cluster_view(ask.cluster)
    return answer({"default_cluster_id": ask.default_cluster, "cluster": view})


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


def answer(plain: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(plain), content_type=JSON)
