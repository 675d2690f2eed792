"""Counters and histograms of calls by method and code, and metrics that are exported under two names."""

from collections.abc import Iterator

from prometheus_client import Counter, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class CallMetrics:
    """Calls by method and code. The series are cached: a lookup costs more than counting."""

    def __init__(self, total: Counter, seconds: Histogram) -> None:
        self._total = total
        self._seconds = seconds
        self._known: dict[tuple[str, str], tuple[Counter, Histogram]] = {}

    def expect(self, method: str) -> None:
        """Export a method before its first call, so that rate() includes the first call."""
        self._total.labels(method, "OK")

    def count(self, method: str, code: str) -> None:
        self._total.labels(method, code).inc()

    def add(self, method: str, code: str, seconds: float) -> None:
        known = self._known.get((method, code))
        if known is None:
            labelled = (self._total.labels(method, code), self._seconds.labels(method, code))
            known = self._known[(method, code)] = labelled
        known[0].inc()
        known[1].observe(seconds)


class SecondName(Collector):
    """Exports the samples of a metric under a second name, copied when they are collected."""

    def __init__(self, metric: Counter | Histogram, name: str) -> None:
        self._metric = metric
        self._name = name

    def collect(self) -> Iterator[Metric]:
        for family in self._metric.collect():
            named = Metric(self._name, family.documentation, family.type)
            named.samples = [
                sample._replace(name=sample.name.replace(family.name, self._name, 1))
                for sample in family.samples
            ]
            yield named
