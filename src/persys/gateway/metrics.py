"""What the gateway counts, and GET /metrics for those who may read.

On the same port as all else, so it is asked for with a certificate or a token; Prometheus can show either.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from persys.gateway.cluster import Cluster
from persys.gateway.door import Ask, Door
from persys.gateway.proving import needing
from persys.infra.gauges import watch_certificate
from persys.infra.tls import Tls
from persys.model.identity import Deed

PAGE = "text/plain"


class Metrics:
    def __init__(self, clusters: Mapping[str, Cluster], tls: Tls | None) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "persys_gateway_requests_total",
            "Requests, by method and status",
            ("method", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "persys_gateway_request_seconds",
            "From a request to the end of its answer; streams count until they end",
            registry=self.registry,
        )
        reachable = Gauge(
            "persys_gateway_schedulers_reachable",
            "Schedulers of each cluster that can be reached",
            ("cluster",),
            registry=self.registry,
        )
        for name, cluster in clusters.items():
            reachable.labels(name).set_function(partial(_reachable, cluster))
        if tls is not None:
            watch_certificate(self.registry, "gateway", tls)
        # Looking up labels would cost every request more than counting it.
        self._counter = lru_cache(256)(self._requests.labels)

    def served(self, method: str, status: int, seconds: float) -> None:
        self._counter(method, str(status)).inc()
        self._seconds.observe(seconds)


def metrics_routes(door: Door, metrics: Metrics) -> Iterator[web.RouteDef]:
    async def page(ask: Ask) -> web.StreamResponse:
        return web.Response(body=generate_latest(metrics.registry), content_type=PAGE)

    yield web.get("/metrics", door.behind(needing(Deed.READ, page)))


def _reachable(cluster: Cluster) -> float:
    return sum(upstream.healthy for upstream in cluster.upstreams)
