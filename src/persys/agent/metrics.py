"""Prometheus metrics of the agent."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from persys.core.admission import Load
from persys.core.convergence import Step
from persys.core.garbage import Kind
from persys.infra.call_metrics import SECONDS, CallMetrics
from persys.model.action import ActionKind, ActionState
from persys.model.failure import FailureReason
from persys.model.ids import WorkloadId
from persys.model.spec import HealthType
from persys.model.usage import WorkloadUsage

WORKLOADS_SHOWN_MAX = 500
_SINCE_START = "since its containers started"
_FIGURES = {
    "cpu_percent": "Recent CPU usage, in percent of one core",
    "memory_bytes": "Memory in use, without reclaimable caches",
    "disk_read_bytes": f"Bytes read from disks {_SINCE_START}",
    "disk_write_bytes": f"Bytes written to disks {_SINCE_START}",
    "net_rx_bytes": f"Bytes received {_SINCE_START}",
    "net_tx_bytes": f"Bytes sent {_SINCE_START}",
}


class Metrics:
    def __init__(
        self,
        workloads: Callable[[], Mapping[str, int]],
        health: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """`workloads` and `health` count the workloads by actual state and by health."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.calls = CallMetrics(
            Counter(
                "persys_agent_grpc_requests",
                "RPCs served, directly or through the control stream",
                ["method", "code"],
                registry=self.registry,
            ),
            Histogram(
                "persys_agent_grpc_request_seconds",
                "Duration of an RPC",
                ["method", "code"],
                buckets=SECONDS,
                registry=self.registry,
            ),
        )
        self._reconcile_seconds = Histogram(
            "persys_agent_reconcile_cycle_seconds",
            "Duration of a pass over all workloads, until each was inspected",
            buckets=(0.01, 0.05, 0.25, 1, 2.5, 5, 10, 30, 60, 300, 1800),
            registry=self.registry,
        )
        self._journal_writes = Counter(
            "persys_agent_journal_writes",
            "Journal transactions by outcome",
            ["outcome"],
            registry=self.registry,
        )
        self._journal_seconds = Histogram(
            "persys_agent_journal_write_seconds",
            "Duration of a journal transaction, with its fsync",
            buckets=SECONDS,
            registry=self.registry,
        )
        self._actions = Counter(
            "persys_agent_actions",
            "Actions that ended",
            ["kind", "outcome"],
            registry=self.registry,
        )
        self._action_seconds = Histogram(
            "persys_agent_action_seconds",
            "Time from the order to the end of its action",
            ["kind"],
            buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
            registry=self.registry,
        )
        self._step_seconds = Histogram(
            "persys_agent_step_seconds",
            "Duration of a runtime step, such as pull, create or start",
            ["step"],
            buckets=(0.01, 0.05, 0.25, 1, 2.5, 5, 10, 30, 300, 1800),
            registry=self.registry,
        )
        self._failures = Counter(
            "persys_agent_failures",
            "Workload failures by reason",
            ["reason"],
            registry=self.registry,
        )
        self._denials = Counter(
            "persys_agent_denied",
            "RPCs denied by authorization",
            ["role", "method"],
            registry=self.registry,
        )
        self._pulls = Counter(
            "persys_agent_pulls",
            "Image pulls by outcome",
            ["outcome"],
            registry=self.registry,
        )
        self._pull_seconds = Histogram(
            "persys_agent_pull_seconds",
            "Duration of an image pull",
            buckets=(0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
            registry=self.registry,
        )
        self._pulled_bytes = Counter(
            "persys_agent_pulled_bytes", "Bytes pulled from registries", registry=self.registry
        )
        self._probes = Counter(
            "persys_agent_probes",
            "Health probes sent by the agent",
            ["type", "outcome"],
            registry=self.registry,
        )
        self.health_restarts = Counter(
            "persys_agent_health_restarts",
            "Restarts of unhealthy workloads",
            registry=self.registry,
        )
        self._refusals = Counter(
            "persys_agent_admission_refusals",
            "New workloads refused because the node was full",
            ["kind"],
            registry=self.registry,
        )
        self._load = Gauge(
            "persys_agent_admission_load_percent",
            "Smoothed utilization that admission control uses",
            ["resource"],
            registry=self.registry,
        )
        self._thresholds = Gauge(
            "persys_agent_admission_threshold_percent",
            "Utilization above which new workloads are refused",
            ["resource"],
            registry=self.registry,
        )
        self._garbage = Counter(
            "persys_agent_gc_items",
            "Garbage items by outcome of their removal",
            ["kind", "outcome"],
            registry=self.registry,
        )
        self._gc_seconds = Histogram(
            "persys_agent_gc_seconds",
            "Duration of a garbage collection",
            buckets=(0.01, 0.05, 0.25, 1, 5, 30, 120),
            registry=self.registry,
        )
        self.unclaimed = Gauge(
            "persys_agent_gc_unclaimed",
            "Containers and networks of this agent without a workload in its journal",
            registry=self.registry,
        )
        self.scheduler_connected = Gauge(
            "persys_agent_scheduler_connected",
            "1 while the scheduler acknowledges heartbeats",
            registry=self.registry,
        )
        self.runtime_up = Gauge(
            "persys_agent_runtime_up",
            "1 while the runtime responds",
            ["runtime"],
            registry=self.registry,
        )
        self.registry.register(
            _WorkloadCounts("persys_agent_workloads", "Workloads on this node", "actual", workloads)
        )
        self.registry.register(
            _WorkloadCounts(
                "persys_agent_workload_health",
                "Workloads with a health check",
                "health",
                health,
            )
        )

    def tell_usage(self, usage: Callable[[], Mapping[WorkloadId, WorkloadUsage]]) -> None:
        """`usage` is called on each scrape."""
        self.registry.register(_WorkloadUsages(usage))

    def reconciled(self, seconds: float) -> None:
        self._reconcile_seconds.observe(seconds)

    def journal_written(self, seconds: float, *, stored: bool) -> None:
        self._journal_writes.labels("stored" if stored else "failed").inc()
        self._journal_seconds.observe(seconds)

    def action_ended(self, kind: ActionKind, outcome: ActionState, seconds: float) -> None:
        self._actions.labels(kind.value, outcome.value).inc()
        self._action_seconds.labels(kind.value).observe(seconds)

    def step_ended(self, step: Step, seconds: float) -> None:
        self._step_seconds.labels(step.value).observe(seconds)

    def denied(self, role: str, method: str) -> None:
        self._denials.labels(role, method).inc()

    def failed(self, reason: FailureReason) -> None:
        self._failures.labels(reason.value).inc()

    def refused(self, kind: str) -> None:
        """`kind`: load or allocation."""
        self._refusals.labels(kind).inc()

    def show_load(self, load: Load) -> None:
        _show(self._load, load)

    def show_thresholds(self, most: Load) -> None:
        _show(self._thresholds, most)

    def garbage(self, kind: Kind, *, removed: bool, count: int = 1) -> None:
        self._garbage.labels(kind.value, "removed" if removed else "kept").inc(count)

    def collected(self, seconds: float) -> None:
        self._gc_seconds.observe(seconds)

    def probed(self, kind: HealthType, *, well: bool) -> None:
        self._probes.labels(kind.value, "passed" if well else "failed").inc()

    def pull_ended(self, outcome: str, seconds: float, byte_count: int) -> None:
        self._pulls.labels(outcome).inc()
        self._pull_seconds.observe(seconds)
        self._pulled_bytes.inc(byte_count)


def _show(gauge: Gauge, load: Load) -> None:
    for resource in ("cpu", "memory", "disk"):
        gauge.labels(resource).set(getattr(load, resource))


class _WorkloadCounts(Collector):
    """Workload counts, computed on each scrape."""

    def __init__(
        self, name: str, about: str, label: str, count: Callable[[], Mapping[str, int]]
    ) -> None:
        self._name = name
        self._about = about
        self._label = label
        self._count = count

    def collect(self) -> list[Metric]:
        family = GaugeMetricFamily(self._name, self._about, labels=[self._label])
        for word, count in self._count().items():
            family.add_metric([word], count)
        return [family]


class _WorkloadUsages(Collector):
    """Usage per workload, limited to WORKLOADS_SHOWN_MAX to bound the number of time series."""

    def __init__(self, usage: Callable[[], Mapping[WorkloadId, WorkloadUsage]]) -> None:
        self._usage = usage

    def collect(self) -> list[Metric]:
        shown = sorted(self._usage().items())[:WORKLOADS_SHOWN_MAX]
        families: list[Metric] = []
        for figure, about in _FIGURES.items():
            family = GaugeMetricFamily(
                f"persys_agent_workload_{figure}", about, labels=["workload_id"]
            )
            for workload_id, used in shown:
                family.add_metric([workload_id], getattr(used, figure))
            families.append(family)
        return families
