"""Prometheus metrics of the agent: one class per concern, and the gauges that are computed on each scrape."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from persys.core.agent.admission import Load
from persys.core.agent.garbage import Kind
from persys.core.agent.progress import Step
from persys.infra.telemetry.call_metrics import SECONDS, CallMetrics
from persys.infra.tls.tls import Tls
from persys.model.action import ActionKind, ActionState
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import WorkloadUsage
from persys.model.spec import HealthType, WorkloadType
from persys.model.status import FailureReason

WORKLOADS_SHOWN_MAX = 500
_PREFIX = "persys_agent"
_SINCE_START = "since its containers started"
_FIGURES = {
    "cpu_percent": "Recent CPU usage, in percent of one core",
    "memory_bytes": "Memory in use, without reclaimable caches",
    "disk_read_bytes": f"Bytes read from disks {_SINCE_START}",
    "disk_write_bytes": f"Bytes written to disks {_SINCE_START}",
    "net_rx_bytes": f"Bytes received {_SINCE_START}",
    "net_tx_bytes": f"Bytes sent {_SINCE_START}",
}
OK = "ok"


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        new = _Factory(self.registry)
        self.calls = CallMetrics(
            new.counter(
                "grpc_requests",
                "RPCs served, directly or through the control stream",
                "method",
                "code",
            ),
            new.histogram("grpc_request_seconds", "Duration of an RPC", SECONDS, "method", "code"),
        )
        self._denials = new.counter("denied", "RPCs denied by authorization", "role", "method")
        self.scheduler_connected = new.gauge(
            "scheduler_connected", "1 while the scheduler acknowledges heartbeats"
        )
        self.runtime_up = new.gauge("runtime_up", "1 while the runtime responds", "runtime")
        self.journal = JournalMetrics(new)
        self.work = WorkMetrics(new)
        self.pulls = PullMetrics(new)
        self.health = HealthMetrics(new)
        self.admission = AdmissionMetrics(new)
        self.garbage = GarbageMetrics(new)
        self._dns = new.counter("dns_queries", "DNS queries of members, by result", "result")

    def dns_queries(self, result: str) -> None:
        self._dns.labels(result).inc()

    def denied(self, role: str, method: str) -> None:
        self._denials.labels(role, method).inc()


class _Factory:
    """Creates metrics with the common prefix in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", about, labels, registry=self._registry)

    def gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", about, labels, registry=self._registry)

    def histogram(self, name: str, about: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(
            f"{_PREFIX}_{name}", about, labels, buckets=buckets, registry=self._registry
        )


class JournalMetrics:
    def __init__(self, new: _Factory) -> None:
        self._writes = new.counter("journal_writes", "Journal transactions by outcome", "outcome")
        self._seconds = new.histogram(
            "journal_write_seconds", "Duration of a journal transaction, with its fsync", SECONDS
        )

    def written(self, seconds: float, *, stored: bool) -> None:
        self._writes.labels("stored" if stored else "failed").inc()
        self._seconds.observe(seconds)


class WorkMetrics:
    """Reconcile passes, actions, steps and failures."""

    def __init__(self, new: _Factory) -> None:
        self._reconcile_seconds = new.histogram(
            "reconcile_cycle_seconds",
            "Duration of a pass over all workloads, until each was inspected",
            (0.01, 0.05, 0.25, 1, 2.5, 5, 10, 30, 60, 300, 1800),
        )
        self._actions = new.counter("actions", "Actions that ended", "kind", "outcome")
        self._action_seconds = new.histogram(
            "action_seconds",
            "Time from the order to the end of its action",
            (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
            "kind",
        )
        self._step_seconds = new.histogram(
            "step_seconds",
            "Duration of a runtime step, such as pull, create or start",
            (0.01, 0.05, 0.25, 1, 2.5, 5, 10, 30, 300, 1800),
            "step",
        )
        self._failures = new.counter("failures", "Workload failures by reason", "reason")

    def reconciled(self, seconds: float) -> None:
        self._reconcile_seconds.observe(seconds)

    def action_ended(self, kind: ActionKind, outcome: ActionState, seconds: float) -> None:
        self._actions.labels(kind.value, outcome.value).inc()
        self._action_seconds.labels(kind.value).observe(seconds)

    def step_ended(self, step: Step, seconds: float) -> None:
        self._step_seconds.labels(step.value).observe(seconds)

    def failed(self, reason: FailureReason) -> None:
        self._failures.labels(reason.value).inc()


class PullMetrics:
    def __init__(self, new: _Factory) -> None:
        self._pulls = new.counter("pulls", "Image pulls by outcome", "outcome")
        self._seconds = new.histogram(
            "pull_seconds", "Duration of an image pull", (0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
        )
        self._bytes = new.counter("pulled_bytes", "Bytes pulled from registries")

    def ended(self, outcome: str, seconds: float, byte_count: int) -> None:
        self._pulls.labels(outcome).inc()
        self._seconds.observe(seconds)
        self._bytes.inc(byte_count)


class HealthMetrics:
    def __init__(self, new: _Factory) -> None:
        self._probes = new.counter("probes", "Health probes sent by the agent", "type", "outcome")
        self.restarts = new.counter("health_restarts", "Restarts of unhealthy workloads")

    def probed(self, kind: HealthType, *, passed: bool) -> None:
        self._probes.labels(kind.value, "passed" if passed else "failed").inc()


class AdmissionMetrics:
    def __init__(self, new: _Factory) -> None:
        self._refusals = new.counter(
            "admission_refusals", "New workloads refused because the node was full", "kind"
        )
        self._load = new.gauge(
            "admission_load_percent",
            "Smoothed utilization that admission control uses",
            "resource",
        )
        self._thresholds = new.gauge(
            "admission_threshold_percent",
            "Utilization above which new workloads are refused",
            "resource",
        )

    def refused(self, kind: str) -> None:
        """`kind`: load or allocation."""
        self._refusals.labels(kind).inc()

    def show_load(self, load: Load) -> None:
        _show(self._load, load)

    def show_thresholds(self, most: Load) -> None:
        _show(self._thresholds, most)


class GarbageMetrics:
    def __init__(self, new: _Factory) -> None:
        self._items = new.counter(
            "gc_items", "Garbage items by outcome of their removal", "kind", "outcome"
        )
        self._seconds = new.histogram(
            "gc_seconds", "Duration of a garbage collection", (0.01, 0.05, 0.25, 1, 5, 30, 120)
        )
        self.unclaimed = new.gauge(
            "gc_unclaimed",
            "Containers and networks of this agent without a workload in its journal",
        )

    def removed(self, kind: Kind, *, removed: bool, count: int = 1) -> None:
        self._items.labels(kind.value, "removed" if removed else "kept").inc(count)

    def collected(self, seconds: float) -> None:
        self._seconds.observe(seconds)


def export_workloads(
    registry: CollectorRegistry,
    *,
    actual: Callable[[], Mapping[str, int]],
    health: Callable[[], Mapping[str, int]],
    usage: Callable[[], Mapping[WorkloadId, WorkloadUsage]],
) -> None:
    """Export the workloads by actual state and by health, and their usage: computed on each scrape."""
    registry.register(
        _WorkloadCounts(f"{_PREFIX}_workloads", "Workloads on this node", "actual", actual)
    )
    registry.register(
        _WorkloadCounts(
            f"{_PREFIX}_workload_health", "Workloads with a health check", "health", health
        )
    )
    registry.register(_WorkloadUsages(usage))


def _show(gauge: Gauge, load: Load) -> None:
    for resource in ("cpu", "memory", "disk"):
        gauge.labels(resource).set(getattr(load, resource))


class _WorkloadCounts(Collector):
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
    """Limited to WORKLOADS_SHOWN_MAX workloads, to bound the number of time series."""

    def __init__(self, usage: Callable[[], Mapping[WorkloadId, WorkloadUsage]]) -> None:
        self._usage = usage

    def collect(self) -> list[Metric]:
        shown = sorted(self._usage().items())[:WORKLOADS_SHOWN_MAX]
        families: list[Metric] = []
        for figure, about in _FIGURES.items():
            family = GaugeMetricFamily(
                f"{_PREFIX}_workload_{figure}", about, labels=["workload_id"]
            )
            for workload_id, used in shown:
                family.add_metric([workload_id], getattr(used, figure))
            families.append(family)
        return families


def health_of(
    node_id: NodeId,
    version: str,
    *,
    responding: Mapping[WorkloadType, bool],
    runtime_problem: str,
    journal_problem: str,
    scheduler: str,
    leader_silent_for: timedelta | None,
    workload_count: int,
    tls: Tls | None,
) -> dict[str, Any]:
    """`responding`: whether each runtime of the node responds; `runtime_problem`: why one does not.

    Machines of node pools read the last contact with the leader and the number of workloads.
    """
    silent = None if leader_silent_for is None else leader_silent_for.total_seconds()
    works = all(responding.values()) and not journal_problem
    return {
        "status": OK if works else "degraded",
        "service": "persys-agent",
        "version": version,
        "node_id": node_id,
        "runtimes": {
            kind.value: OK if answers else runtime_problem or "no answer"
            for kind, answers in responding.items()
        },
        "journal": journal_problem or OK,
        "scheduler": scheduler,
        "leader_contact_seconds": silent,
        "workloads": workload_count,
        **({"certificate": tls.health()} if tls is not None else {}),
    }
