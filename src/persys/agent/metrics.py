"""What the agent counts for Prometheus."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from persys.model.action import ActionKind, ActionState
from persys.model.spec import HealthType


class Metrics:
    def __init__(self, workloads: Callable[[], Mapping[str, int]]) -> None:
        """`workloads` counts the workloads by their actual state."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._actions = Counter(
            "persys_agent_actions",
            "Actions that have ended",
            ["kind", "outcome"],
            registry=self.registry,
        )
        self._action_seconds = Histogram(
            "persys_agent_action_seconds",
            "From the order to the end of the action",
            ["kind"],
            buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
            registry=self.registry,
        )
        self._pulls = Counter(
            "persys_agent_pulls",
            "Images fetched or not, by what came of it",
            ["outcome"],
            registry=self.registry,
        )
        self._pull_seconds = Histogram(
            "persys_agent_pull_seconds",
            "From asking the registry to having the image",
            buckets=(0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
            registry=self.registry,
        )
        self._pulled_bytes = Counter(
            "persys_agent_pulled_bytes", "Fetched from registries", registry=self.registry
        )
        self._probes = Counter(
            "persys_agent_probes",
            "Health probes of the agent itself",
            ["type", "outcome"],
            registry=self.registry,
        )
        self.health_restarts = Counter(
            "persys_agent_health_restarts",
            "Restarts of workloads because they were unhealthy",
            registry=self.registry,
        )
        self.scheduler_connected = Gauge(
            "persys_agent_scheduler_connected",
            "1 while the scheduler acknowledges heartbeats",
            registry=self.registry,
        )
        self.runtime_up = Gauge(
            "persys_agent_runtime_up",
            "1 while the runtime answers",
            ["runtime"],
            registry=self.registry,
        )
        self.registry.register(_WorkloadCounts(workloads))

    def action_ended(self, kind: ActionKind, outcome: ActionState, seconds: float) -> None:
        self._actions.labels(kind.value, outcome.value).inc()
        self._action_seconds.labels(kind.value).observe(seconds)

    def probed(self, kind: HealthType, *, well: bool) -> None:
        self._probes.labels(kind.value, "passed" if well else "failed").inc()

    def pull_ended(self, outcome: str, seconds: float, byte_count: int) -> None:
        self._pulls.labels(outcome).inc()
        self._pull_seconds.observe(seconds)
        self._pulled_bytes.inc(byte_count)


class _WorkloadCounts(Collector):
    """Counted when asked, so that it cannot go wrong in between."""

    def __init__(self, workloads: Callable[[], Mapping[str, int]]) -> None:
        self._workloads = workloads

    def collect(self) -> list[Metric]:
        family = GaugeMetricFamily(
            "persys_agent_workloads", "Workloads on this node", labels=["actual"]
        )
        for actual, count in self._workloads().items():
            family.add_metric([actual], count)
        return [family]
