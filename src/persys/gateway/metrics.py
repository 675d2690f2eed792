"""Prometheus metrics of the gateway. `routes/gateway.py` serves them."""

from collections.abc import Mapping
from functools import lru_cache, partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from persys.gateway.upstream.cluster import Cluster
from persys.infra.tls.metrics import register_certificate_metrics
from persys.infra.tls.tls import Tls

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
            "Duration from request to end of response; streams count until they end",
            registry=self.registry,
        )
        self._cross_site = Counter(
            "persys_gateway_cross_site_refused_total",
            "Refused cross-site requests",
            registry=self.registry,
        )
        reachable = Gauge(
            "persys_gateway_schedulers_reachable",
            "Reachable schedulers of each cluster",
            ("cluster",),
            registry=self.registry,
        )
        for name, cluster in clusters.items():
            reachable.labels(name).set_function(partial(_reachable, cluster))
        if tls is not None:
            register_certificate_metrics(self.registry, "gateway", tls)
        # A label lookup costs more than the increment.
        self._counter = lru_cache(256)(self._requests.labels)

    def served(self, method: str, status: int, seconds: float) -> None:
        self._counter(method, str(status)).inc()
        self._seconds.observe(seconds)

    def refused_cross_site(self) -> None:
        self._cross_site.inc()


def _reachable(cluster: Cluster) -> float:
    return sum(upstream.healthy for upstream in cluster.upstreams)
