"""Metrics of persys-federation, in addition to those of the agent."""

from collections import Counter
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client import Counter as PrometheusCounter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from persys.agent.journal.store import Journal
from persys.federation.mapping import requested
from persys.model.status import Failure
from persys.model.workload import Desired, Order

_PREFIX = "persys_federation"


class FederationMetrics:
    def __init__(self) -> None:
        self._refusals = PrometheusCounter(
            f"{_PREFIX}_refusals",
            "New workloads that the remote cluster did not take",
            ["reason"],
            registry=None,
        )
        self._up = Gauge(
            f"{_PREFIX}_remote_up",
            "Whether the remote cluster responds in normal mode",
            registry=None,
        )

    def register(
        self, registry: CollectorRegistry, journal: Journal, core_hour_price: float
    ) -> None:
        for metric in (self._refusals, self._up):
            registry.register(metric)
        registry.register(
            _Workloads(lambda: [entry.order for entry in journal.entries.values()], core_hour_price)
        )

    def refused(self, failure: Failure) -> None:
        self._refusals.labels(failure.code or failure.reason.value).inc()

    def set_up(self, up: bool) -> None:
        self._up.set(up)


class _Workloads(Collector):
    """Computed on each scrape."""

    def __init__(self, orders: Callable[[], Iterable[Order]], core_hour_price: float) -> None:
        self._orders = orders
        self._price = core_hour_price

    def collect(self) -> list[Metric]:
        orders = list(self._orders())
        counts = GaugeMetricFamily(
            f"{_PREFIX}_workloads", "Workloads in the remote cluster", labels=["type"]
        )
        for kind, count in Counter(order.type.value for order in orders).items():
            counts.add_metric([kind], count)
        spend = GaugeMetricFamily(
            f"{_PREFIX}_spend_per_hour",
            "Price of the cores that running workloads reserve",
            value=self._price * _cores(orders),
        )
        return [counts, spend]


def _cores(orders: Iterable[Order]) -> float:
    running = (order.spec for order in orders if order.desired is Desired.RUNNING)
    return sum(requested(spec).cpu_millicores for spec in running) / 1000
