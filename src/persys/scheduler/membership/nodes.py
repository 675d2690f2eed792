"""Registers nodes, processes their heartbeats and applies the commands of operators.

A heartbeat renews the lease in memory; only a change of a node's record or status is written. The workload
statuses of a heartbeat become observations, like those of all other sources.
"""

from collections.abc import Callable
from datetime import datetime

from msgspec.structs import replace

from persys.core.nodes import status_with_lease
from persys.core.recovery.mode import detect_lost_records, is_of_other_cluster
from persys.core.registration import (
    Refusals,
    RegisteredAgent,
    Registration,
    cluster_refusal,
    host_refusal,
    is_registered_agent,
    is_superseded,
    registered_node,
    registration_refusal,
)
from persys.errors import (
    ConflictError,
    NotFoundError,
    RefusedError,
    StoreUnavailableError,
    SupersededError,
)
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.infra.clock import Clock
from persys.model.cluster import ClusterMarker
from persys.model.event import EventKind
from persys.model.ids import NodeId
from persys.model.node import Node, NodeStatus
from persys.model.status import Actual, Observation
from persys.scheduler.commit.committer import Committer, retry_on_conflict
from persys.scheduler.dispatch.observations import Observations
from persys.scheduler.membership.heartbeat import Report, ReportedStatuses
from persys.scheduler.membership.leases import NodeLeases
from persys.scheduler.membership.node_records import NodeRecords
from persys.scheduler.membership.node_removal import NodeRemoval
from persys.scheduler.recovery.pending_nodes import PendingNode, PendingNodes
from persys.scheduler.state.cluster import ClusterState, NodeState


class Membership:
    def __init__(
        self,
        cluster: ClusterState,
        committer: Committer,
        records: NodeRecords,
        leases: NodeLeases,
        observations: Observations,
        clock: Clock,
        *,
        supervisor: Supervisor,
        cluster_id: str,
        capacity_freed: Callable[[NodeId], None],
        node_returned: Callable[[NodeId], None],
        mark_stale: Callable[[], None],
        is_connected: Callable[[NodeId], bool],
        agent_replaced: Callable[[NodeId], None],
        new_instance_id: Callable[[], str],
        removal: NodeRemoval,
        locks: KeyedLock[NodeId],
    ) -> None:
        """`locks` serialize the changes of a node record."""
        self._cluster = cluster
        self._committer = committer
        self._records = records
        self._leases = leases
        self._observations = observations
        self._clock = clock
        self._cluster_id = cluster_id
        self._capacity_freed = capacity_freed
        self._node_returned = node_returned
        self._mark_stale = mark_stale
        self._is_connected = is_connected
        self._agent_replaced = agent_replaced
        self._new_instance_id = new_instance_id
        self._refusals = Refusals()
        self._removal = removal
        self._supervisor = supervisor
        self._locks = locks
        self.pending_nodes = PendingNodes()

    def lease_ends_at(self, node_id: NodeId) -> datetime:
        return self._leases.ends_at(self._known(node_id))

    async def register(
        self, application: Registration, *, cluster_uid: str = "", workload_count: int = 0
    ) -> ClusterMarker:
        """Returns the cluster marker. `cluster_uid` and `workload_count` are reported by the agent."""
        node = application.node
        known = self._cluster.nodes.get(node.id)
        if why := cluster_refusal(node, known.node if known else None, self._cluster_id):
            raise RefusedError(why)
        pending_node = PendingNode(node, cluster_uid, workload_count, self._clock.now())
        self._admit(pending_node)
        await self._register(application)
        self.pending_nodes.drop(node.id)
        assert self._committer.leader_key.marker is not None
        return self._committer.leader_key.marker

    def _admit(self, pending_node: PendingNode) -> None:
        modes, marker = self._committer.modes, self._committer.leader_key.marker
        if not modes.is_frozen:
            assert marker is not None
            uid = pending_node.cluster_uid
            if is_of_other_cluster(marker, uid):
                self.pending_nodes.claim(pending_node.node.id, uid)
            claiming = self.pending_nodes.claiming(uid)
            lost = detect_lost_records(
                marker,
                reported_uid=uid,
                workload_count=pending_node.workload_count,
                holds_workloads=bool(self._cluster.workloads),
                claims=len(claiming),
                others=len(self._cluster.nodes.keys() - claiming),
            )
            if lost is None:
                return
            modes.take(lost)
            self._mark_stale()  # so that the store is probed for the lost records
        self.pending_nodes.note(pending_node)
        if member := self._cluster.nodes.get(pending_node.node.id):
            self._leases.on_contact(member)
        raise modes.refusal()

    async def _register(self, application: Registration) -> None:
        node = application.node

        async def attempt() -> Node:
            known = self._cluster.nodes.get(node.id)
            holder = self._holder(known) if known is not None else None
            if why := registration_refusal(application, holder):
                assert holder is not None, "only a registered holder is a reason to refuse"
                raise self._refused(application, holder, why)
            admitted_node = registered_node(application, holder, self._new_instance_id())
            if known is None:
                # With its taints from the first moment: no workload is placed before they are set.
                taints = admitted_node.taints | self._cluster.pool_taints(node.id)
                admitted_node = replace(admitted_node, taints=taints)
                await self._records.put(admitted_node, EventKind.NODE_REGISTERED)
                return admitted_node
            _check_not_removing(known.node)
            renewed = _renewed(known.node, admitted_node)
            if renewed.session_id != known.node.session_id:
                renewed = replace(renewed, registered_at=self._clock.now())
                self._agent_replaced(node.id)
                known.instance_confirmed = known.has_listed = False
            await self._records.put(renewed, EventKind.NODE_REGISTERED_AGAIN)
            return renewed

        async with self._locks.hold(node.id):
            shown = await retry_on_conflict(attempt)
            member = self._cluster.nodes[node.id]
            self._leases.on_contact(member)
            member.boot_id = application.boot_id
            self._refusals.forget(node.id)
            if application.instance_id and application.instance_id == shown.instance_id:
                member.instance_confirmed = True
            if member.refused_types:
                member.refused_types.clear()
                self._records.show(shown)
        self._node_returned(node.id)

    def _refused(
        self, application: Registration, holder: RegisteredAgent, why: str
    ) -> RefusedError:
        now = self._clock.monotonic()
        since = self._refusals.note(application.node.id, application.session_id, now)
        lease_seconds = self._leases.seconds
        if is_superseded(application, holder, refused_since=since, lease_seconds=lease_seconds):
            return SupersededError(why)
        return RefusedError(why)

    def _holder(self, member: NodeState) -> RegisteredAgent:
        return RegisteredAgent(
            member.node,
            has_lease=member.lease_until > self._clock.monotonic(),
            is_connected=self._is_connected(member.node.id),
            is_confirmed=member.instance_confirmed,
            boot_id=member.boot_id,
            reported_at=member.reported_at,
        )

    def instance_of(self, node_id: NodeId) -> str:
        """The instance id that the agent of the node has to use."""
        return self._known(node_id).node.instance_id

    def check_instance(self, node_id: NodeId, instance_id: str) -> None:
        """Raises RefusedError for a heartbeat of an agent that is not the registered one."""
        member = self._known(node_id)
        if not is_registered_agent(member.node, instance_id):
            raise RefusedError(
                f"another agent is registered as node {node_id}; this heartbeat is ignored: register again"
            )
        member.instance_confirmed = member.instance_confirmed or bool(instance_id)

    def check_host(self, node_id: NodeId, shared_from: str | None) -> None:
        """Raises RefusedError for a heartbeat from a host that does not belong to the node."""
        if why := host_refusal(self._known(node_id).node, shared_from):
            raise RefusedError(why)

    def stream_opened(self, node_id: NodeId) -> None:
        """A node without an inbound port can receive orders from now on."""
        if node_id in self._cluster.nodes:
            self._node_returned(node_id)

    def statuses_of(self, node_id: NodeId) -> ReportedStatuses:
        """The last reported statuses. Raises NotFoundError for a node that is not registered."""
        return self._known(node_id).statuses

    async def heartbeat(self, node_id: NodeId, report: Report) -> None:
        """Raises NotFoundError for a node that is not registered: it must register first."""
        member = self._known(node_id)
        if member.node.removing_since is not None:
            raise NotFoundError("node", node_id)
        self._leases.on_contact(member)
        member.reported_at = self._clock.monotonic()
        member.clock_skew = report.clock_skew
        member.usage = report.usage
        member.internal_errors = report.internal_errors
        member.journal_problem = report.journal_problem
        member.runtime_problem = report.runtime_problem
        if self._cluster.set_unavailable(node_id, report.unavailable_types):
            self._capacity_freed(node_id)
        self._take_contained(node_id, report)
        if member.node.status is NodeStatus.NOT_READY:
            try:
                await self._leases.set_ready(member)
            except (StoreUnavailableError, ConflictError):
                return  # retried with the next heartbeat

    async def change(self, node_id: NodeId, kind: EventKind, make: Callable[[Node], Node]) -> None:
        """Apply a command of an operator to the node record. `make` may raise to refuse."""

        async def attempt() -> None:
            node = self._known(node_id).node
            _check_not_removing(node)
            await self._records.put(make(node), kind)

        async with self._locks.hold(node_id):
            await retry_on_conflict(attempt)

    async def remove(self, node_id: NodeId) -> None:
        """Remove a node without workloads. Its present certificate cannot register again."""
        await self._removal.remove(node_id)

    def is_draining(self, node_id: NodeId) -> bool:
        return self._known(node_id).node.drain is not None

    def _known(self, node_id: NodeId) -> NodeState:
        member = self._cluster.nodes.get(node_id)
        if member is None:
            raise NotFoundError("node", node_id)
        return member

    def _take_contained(self, node_id: NodeId, report: Report) -> None:
        """Process a report so that a defect affects neither the lease of the node nor other workloads."""
        failures: list[InternalError] = []
        with self._supervisor.contain("report", node_id, failed=failures.append):
            self._take(node_id, report)
        if failures:
            for seen in report.observations:
                with self._supervisor.contain(
                    "report", f"{node_id}/{seen.workload_id}", failed=failures.append
                ):
                    self._observations.take(seen, from_heartbeat=True)

    def _take(self, node_id: NodeId, report: Report) -> None:
        now = self._clock.now()
        if report.complete:
            self._observations.take_all(node_id, report.observations, now)
        else:
            for seen in report.observations:
                self._observations.take(seen, from_heartbeat=True)
        for workload_id in report.removed:
            self._observations.take(Observation(workload_id, node_id, Actual.ABSENT, now))
        for used in report.workload_usage:
            entry = self._cluster.workloads.get(used.workload_id)
            # The usage of a stale copy on another node does not belong to this assignment.
            if entry and entry.assignment and entry.assignment.node_id == node_id:
                entry.usage = used


def _check_not_removing(node: Node) -> None:
    if node.removing_since is not None:
        raise RefusedError(f"node {node.id} is being removed; try again when it is gone")


def _renewed(old: Node, new: Node) -> Node:
    """The record of a node that registers again; equal to the old one if nothing changed."""
    kept = replace(new, cordoned=old.cordoned, drain=old.drain, taints=old.taints)
    if old.status is NodeStatus.NOT_READY:
        return replace(kept, status=status_with_lease(kept))
    return replace(
        kept,
        registered_at=old.registered_at,
        status=old.status,
        status_reason=old.status_reason,
        status_by=old.status_by,
        status_at=old.status_at,
    )
