"""What the scheduler counts, and what it measures when somebody looks."""

from collections import Counter as Tally
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from persys.model.belief import Status
from persys.model.node import NodeStatus
from persys.model.workload import Desired
from persys.scheduler.cluster import Cluster


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "persys_scheduler_grpc_requests",
            "Calls answered",
            ["method", "code"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "persys_scheduler_grpc_request_seconds",
            "Time to answer a call",
            ["method"],
            registry=self.registry,
        )


class ClusterCollector(Collector):
    """Counts nodes and workloads at the moment of the look, so that nothing is counted twice."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        transactions: Callable[[], int],
        depths: Callable[[], dict[str, int]],
    ) -> None:
        self._cluster = cluster
        self._transactions = transactions
        self._depths = depths

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        nodes = GaugeMetricFamily("persys_scheduler_nodes", "Nodes by status", labels=["status"])
        by_status = Tally(member.node.status for member in self._cluster.members.values())
        for node_status in NodeStatus:
            nodes.add_metric([node_status], by_status[node_status])
        yield nodes
        entries = self._cluster.entries.values()
        statuses = Tally(entry.belief.status for entry in entries if entry.belief is not None)
        workloads = GaugeMetricFamily(
            "persys_scheduler_workloads", "Workloads by status", labels=["status"]
        )
        for status in Status:
            workloads.add_metric([status], statuses[status])
        yield workloads
        desired = Tally(entry.workload.desired for entry in entries)
        wanted = GaugeMetricFamily(
            "persys_scheduler_workloads_desired", "Workloads by desired state", labels=["desired"]
        )
        for word in Desired:
            wanted.add_metric([word], desired[word])
        yield wanted
        depth = GaugeMetricFamily(
            "persys_scheduler_queue_depth", "Work that waits", labels=["queue"]
        )
        for queue, length in self._depths().items():
            depth.add_metric([queue], length)
        yield depth
        yield CounterMetricFamily(
            "persys_scheduler_store_transactions",
            "Write transactions committed to the store",
            value=self._transactions(),
        )
