"""The metrics of the CA, served at /metrics."""

from collections.abc import Callable
from datetime import datetime

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from persys.ca.key_files import Keys
from persys.infra.clock import Clock
from persys.infra.telemetry.call_metrics import SECONDS

PAGE = "text/plain"

# Creation timestamps would add one series per counter.
disable_created_metrics()  # type: ignore[no-untyped-call]  # its library has no types here


class Metrics:
    def __init__(self, clock: Clock) -> None:
        self.registry = CollectorRegistry()
        self._clock = clock
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "persys_ca_requests",
            "Requests, by route and status",
            ["route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "persys_ca_request_seconds",
            "Request duration in seconds, by route",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )

    def register_route(self, route: str) -> None:
        """Create the series of a route before its first request, so that a rate sees the first one."""
        self._requests.labels(route, "200")

    def observe(self, route: str, status: int, seconds: float) -> None:
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def watch_keys(self, keys: Callable[[], Keys]) -> None:
        """`keys` is called at each scrape, because the keys are renewed."""
        self._watch("root", lambda: keys().root.not_valid_after_utc)
        self._watch("intermediate", lambda: keys().issuer.certificate.not_valid_after_utc)

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def _watch(self, which: str, ends_at: Callable[[], datetime]) -> None:
        gauge = Gauge(
            f"persys_ca_{which}_expiry_seconds",
            f"Seconds until the {which} certificate of the CA expires",
            registry=self.registry,
        )
        gauge.set_function(lambda: (ends_at() - self._clock.now()).total_seconds())
