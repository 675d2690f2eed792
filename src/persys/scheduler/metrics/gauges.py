"""Gauges, computed when the metrics are scraped, so that they cannot drift from the state."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from persys.core.nodes import Phase, phase_of
from persys.infra.clock import Clock
from persys.model.cluster import Mode
from persys.model.ids import NodeId
from persys.model.node import NodeStatus
from persys.model.nodepool import MachineState, PoolId
from persys.model.service import Service
from persys.model.sets import Phase as SetPhase
from persys.model.status import DriftType, FailureReason, Status
from persys.model.workload import Desired
from persys.scheduler.metrics.counters import SECOND_NAMES
from persys.scheduler.metrics.workload_counts import WorkloadCount, WorkloadCounter
from persys.scheduler.state.cluster import ClusterState, NodeState
from persys.wire.control.sets import DELETING
from persys.wire.control.sets import phase_of as phase_of_set

Value = TypeVar("Value", bound=str)

SET_PHASES = (*(phase.value for phase in SetPhase), DELETING)

# With more nodes than this, only the nodes with the oldest heartbeats have series of their own.
NODES_SHOWN_MAX = 1_000


@dataclass(frozen=True, slots=True)
class GaugeSources:
    """The sources of values that are not in the cluster state."""

    transactions: Callable[[], int]
    depths: Callable[[], Mapping[str, int]]
    mode: Callable[[], Mode]
    leads: Callable[[], bool]
    unanswered: Callable[[NodeId], int]
    records: Callable[[], int]
    endpoint_count: Callable[[Service], int]
    file_bytes: Callable[[], int] | None  # None: the store is not a file


class ClusterCollector(Collector):
    def __init__(
        self,
        cluster: ClusterState,
        workload_counter: WorkloadCounter,
        clock: Clock,
        sources: GaugeSources,
        *,
        lease: float,
        grace: float,
    ) -> None:
        self._cluster = cluster
        self._workload_counter = workload_counter
        self._clock = clock
        self._sources = sources
        self._lease = lease
        self._grace = grace

    def collect(self) -> Iterator[Metric]:
        """Cluster gauges are exported only by the leader: a standby receives no heartbeats."""
        leads = self._sources.leads()
        yield _gauge("leading", "1 for the scheduler that writes", leads)
        if leads:
            yield from self._workloads()
            yield from self._nodes()
            drifts = Tally(drift.type for drift in self._cluster.drifts)
            yield _by("drifts", "Differences between records and nodes", DriftType, drifts, "type")
            yield from self._node_pools()
            phases = Tally(map(phase_of_set, self._cluster.sets.values()))
            yield _by("sets", "Sets by phase of their rollout", SET_PHASES, phases, "phase")
            yield self._services()
        yield from self._store()
        mode = {self._sources.mode(): 1}
        yield _by("mode", "1 for the mode of the control plane", Mode, mode, "mode")
        depths = self._sources.depths()
        yield _by("queue_depth", "Work that waits", depths, depths, "queue")

    def _workloads(self) -> Iterator[Metric]:
        count = self._workload_counter.latest
        yield from _by_status("workloads", "Workloads by status", Status, count.statuses)
        yield _by(
            "workloads_desired", "Workloads by desired state", Desired, count.desired, "desired"
        )
        yield _by(
            "workloads_failed",
            "Failed workloads by reason",
            FailureReason,
            count.failures,
            "reason",
        )
        plans = {
            "planned": count.retrying,
            "given_up": count.given_up,
            "removal_overdue": count.removals_overdue,
        }
        yield _by("workloads_retrying", "Workloads that failed, by plan", plans, plans, "plan")
        waiting = 0.0
        if count.pending_since is not None:
            waiting = (self._clock.now() - count.pending_since).total_seconds()
        yield _gauge("pending_age_seconds", "How long the oldest pending workload waits", waiting)
        yield from _offloaded(count)

    def _nodes(self) -> Iterator[Metric]:
        members = self._cluster.nodes.values()
        statuses = Tally(member.node.status for member in members)
        yield from _by_status("nodes", "Nodes by status", NodeStatus, statuses)
        now = self._clock.monotonic()
        phases = Tally(self._phase(member, now) for member in members)
        yield _by("nodes_phase", "Nodes by what their leases say", Phase, phases, "phase")
        out_of_service = GaugeMetricFamily(
            "persys_scheduler_node_out_of_service",
            "1 per node that is not Ready or whose lease is over",
            labels=["node_id", "status", "phase"],
        )
        silence = GaugeMetricFamily(
            "persys_scheduler_node_heartbeat_age_seconds",
            "Time since the last heartbeat of the node, or since the start of the scheduler",
            labels=["node_id"],
        )
        unanswered = GaugeMetricFamily(
            "persys_scheduler_node_unanswered_calls",
            "Calls to the node's agent since the last that it answered; absent if it answers",
            labels=["node_id"],
        )
        # A node without a first lease is not overdue yet: it is neither suspect nor lost.
        leased = (member for member in members if member.lease_until)
        for member in nsmallest(NODES_SHOWN_MAX, leased, key=_lease_until):
            node_id = member.node.id
            status, phase = member.node.status, self._phase(member, now)
            silence.add_metric(
                [node_id], max(0.0, now - (member.lease_until - member.lease_extra - self._lease))
            )
            if status is not NodeStatus.READY or phase is not Phase.ALIVE:
                out_of_service.add_metric([node_id, status, phase], 1)
            if count := self._sources.unanswered(node_id):
                unanswered.add_metric([node_id], count)
        yield from (out_of_service, silence, unanswered)

    def _node_pools(self) -> Iterator[Metric]:
        machines = GaugeMetricFamily(
            "persys_scheduler_nodepool_machines",
            "Machines of node pools that may exist",
            labels=["pool", "state"],
        )
        spend = GaugeMetricFamily(
            "persys_scheduler_nodepool_spend_per_hour",
            "Price per hour of the machines of a node pool that may exist",
            labels=["pool"],
        )
        every = self._cluster.machines.values()
        counts = Tally((machine.pool_id, machine.state) for machine in every)
        for pool_id in sorted(self._cluster.node_pools):
            for state in MachineState:
                machines.add_metric([pool_id, state], counts[PoolId(pool_id), state])
            prices = [machine.hour_price for machine in every if machine.pool_id == pool_id]
            spend.add_metric([pool_id], sum(prices))
        yield from (machines, spend)

    def _services(self) -> Metric:
        family = GaugeMetricFamily(
            "persys_scheduler_service_members",
            "Members of services: endpoints, and those that are excluded",
            labels=["service", "state"],
        )
        for service_id, service in sorted(self._cluster.services.items()):
            members = len(self._cluster.service_members.of(service.service_id))
            healthy = self._sources.endpoint_count(service)
            family.add_metric([service_id, "endpoint"], healthy)
            family.add_metric([service_id, "excluded"], members - healthy)
        return family

    def _phase(self, member: NodeState, now: float) -> Phase:
        if member.node.confirmed_dead:
            return Phase.LOST
        return phase_of(lease_until=member.lease_until, grace=self._grace, now=now)

    def _store(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "persys_scheduler_store_transactions",
            "Write transactions committed to the store",
            value=self._sources.transactions(),
        )
        yield _gauge("store_records", "Records in the store", self._sources.records())
        if self._sources.file_bytes is not None:
            size = self._sources.file_bytes()
            yield _gauge("store_file_bytes", "Size of the store's file and its log", size)


def _offloaded(count: WorkloadCount) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "persys_offloaded_workloads",
        "Workloads on nodes of tiers above 0, by type and tier",
        labels=["type", "tier"],
    )
    for (kind, tier), number in sorted(count.offloaded.items()):
        family.add_metric([kind, str(tier)], number)
    yield family
    yield GaugeMetricFamily(
        "persys_offload_spend_per_hour",
        "Price of the reserved cores of offloaded workloads, per hour",
        value=count.offload_spend,
    )


def _lease_until(member: NodeState) -> float:
    return member.lease_until


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"persys_scheduler_{name}", about, value=value)


def _by_status(
    name: str, about: str, values: Iterable[Value], counts: Mapping[Value, int]
) -> Iterator[GaugeMetricFamily]:
    """The gauge under both of its names."""
    values = list(values)
    for one in (name, SECOND_NAMES[name]):
        yield _by(one, about, values, counts, "status")


def _by(
    name: str, about: str, values: Iterable[Value], counts: Mapping[Value, int], label: str
) -> GaugeMetricFamily:
    """One series for each value of a closed set, also for those with count 0."""
    family = GaugeMetricFamily(f"persys_scheduler_{name}", about, labels=[label])
    for value in values:
        family.add_metric([value], counts.get(value, 0))
    return family
