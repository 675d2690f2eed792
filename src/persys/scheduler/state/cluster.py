"""The cluster state in memory: the stored records, and what only this process has observed.

Records change here only after they were committed. Observations, dispatches, leases and usage are not
stored: they are collected again after a restart.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from persys.core.epochs import Epochs, is_proven, prove
from persys.core.federation.home_contacts import HomeWorkloads
from persys.core.nodes import RemovedNodes, closed_because
from persys.core.placement.index.node_index import NodeIndex, hold_of
from persys.core.placement.index.node_slot import accounts_of
from persys.core.placement.pending_queue import PendingQueue
from persys.core.placement.requirements import facts_of, traits_of
from persys.core.reconcile.dispatch import Dispatch
from persys.core.reconcile.situation import RejectedNode, satisfies
from persys.infra.aio.supervisor import InternalError
from persys.model.action import History
from persys.model.identity import Token
from persys.model.ids import NodeId, WorkloadId
from persys.model.job import Job
from persys.model.node import Node, NodeUsage, WorkloadUsage
from persys.model.nodepool import Machine, NodePool
from persys.model.placement import Assignment, EpochCounter, Strategy, Tombstone
from persys.model.secret import Secret
from persys.model.service import Service, ServiceId
from persys.model.sets import SetRevision, WorkloadSet
from persys.model.spec import WorkloadType
from persys.model.status import Observation, Retry, WorkloadStatus
from persys.model.workload import SuggestionDecision, Workload
from persys.scheduler.drift.records import Drifts, UnassignedCopies
from persys.scheduler.membership.heartbeat import ReportedStatuses
from persys.scheduler.secrets.references import SecretReferences
from persys.scheduler.state.event_log import EventLog
from persys.scheduler.state.members import Members
from persys.scheduler.state.quarantine import Quarantine, Quarantined
from persys.scheduler.state.runs import Runs
from persys.scheduler.state.service_members import MemberChange, ServiceMembers
from persys.store import keys

INTERNAL_ERROR = "InternalError"  # the reason code of a workload that is set aside


@dataclass(frozen=True, slots=True)
class BackOff:
    """Deciding about a workload raised an unexpected error: it is not reconciled until `until`."""

    why: str
    until: datetime

    @property
    def text(self) -> str:
        return f"internal error in the scheduler: {self.why}; it is retried automatically"


NOT_ANSWERING = "not answering orders"


@dataclass(slots=True)
class WorkloadState:
    """One workload: its five records, and what was observed and sent."""

    workload: Workload
    assignment: Assignment | None = None
    workload_status: WorkloadStatus | None = None
    retry: Retry | None = None
    history: History | None = None
    observation: Observation | None = None
    observed_since: datetime | None = None
    dispatch: Dispatch | None = None
    usage: WorkloadUsage | None = None
    rejected_nodes: tuple[RejectedNode, ...] = ()
    back_off: BackOff | None = None
    # A refusal of the node that was not decided on yet: heartbeats do not overwrite it.
    refusal: Observation | None = None
    revision_from: NodeId | None = None  # the node that reports its revision when polled
    traced_at: datetime | None = None  # when the order whose tasks are in the history was sent
    rule: str = ""  # of the last decision

    def reset_observations(self) -> None:
        """The intent has changed: earlier observations and dispatches do not apply to it."""
        self.observation = self.observed_since = self.dispatch = self.refusal = None
        self.rejected_nodes = ()


@dataclass(slots=True)
class NodeState:
    """One node: its record, its lease on the monotonic clock, and what it last reported."""

    node: Node
    lease_until: float
    last_heartbeat: datetime | None = None
    heartbeat_at: float | None = None  # on the monotonic clock
    reported_at: float | None = None  # its last heartbeat as the registered agent, also monotonic
    intervals: tuple[
        float, ...
    ] = ()  # seconds between its last heartbeats; third-party agents only
    lease_extra: float = 0.0  # seconds of its lease beyond the configured length
    usage: NodeUsage | None = None
    refused_types: set[WorkloadType] = field(default_factory=set)
    unavailable_types: frozenset[WorkloadType] = frozenset()  # their runtime does not respond now
    unhealthy_types: frozenset[WorkloadType] = frozenset()  # by HealthCheck; third-party agents
    boot_id: str = ""  # of its kernel, as registered
    instance_confirmed: bool = False  # the agent has sent its instance id to this scheduler
    unreachable: str = ""  # why calls to it fail although it sends heartbeats
    clock_skew: timedelta = timedelta()
    lost_noted: bool = False
    has_listed: bool = False  # its present agent has sent a full list to this scheduler
    statuses: ReportedStatuses = field(default_factory=ReportedStatuses)
    internal_errors: tuple[InternalError, ...] = ()  # as its agent last reported them
    journal_problem: str = ""  # why its agent accepts no orders, as last reported
    runtime_problem: str = ""  # why runtimes do not respond, as last reported

    def in_contact(self, *, lease_seconds: float, now: float) -> bool:
        """Whether it has contacted this scheduler within its lease, which may be valid without contact."""
        if self.heartbeat_at is None:
            return False
        return now < self.heartbeat_at + lease_seconds + self.lease_extra


class ClusterState:
    def __init__(
        self,
        strategy: Strategy = Strategy.SPREAD,
        *,
        node_changed: Callable[[NodeId], None] = lambda _node_id: None,
        member_changed: Callable[[Workload], None] = lambda _workload: None,
        service_changed: Callable[[MemberChange], None] = lambda _change: None,
    ) -> None:
        """`node_changed` is called after each change of a node's record.

        `member_changed` is called after each change of a member of a set or a run, or of its state, and
        `service_changed` after each change of a service, of one of its members or of the state of that.
        """
        self.workloads: dict[WorkloadId, WorkloadState] = {}
        self.nodes: dict[NodeId, NodeState] = {}
        self._pending: dict[WorkloadId, Assignment] = {}
        # Assignments whose workload record is unreadable or missing. They keep their reservations, and are
        # attached again when the record becomes readable or the workload is applied again.
        self.detached: dict[WorkloadId, Assignment] = {}
        self.tombstones: dict[NodeId, dict[WorkloadId, Tombstone]] = {}
        self._tombstone_nodes: dict[WorkloadId, set[NodeId]] = {}
        # Offloaded copies that are kept until their workload runs in tier 0.
        self.kept_copies: set[tuple[NodeId, WorkloadId]] = set()
        self.may_return: set[WorkloadId] = set()  # may start to return to tier 0 now
        self.epochs = Epochs()
        self.on_node: dict[NodeId, set[WorkloadId]] = {}
        self.waiting = PendingQueue()
        self.node_index = NodeIndex(strategy)
        self.drifts: Drifts = Drifts()
        self.unassigned_copies = UnassignedCopies()
        self.removed: RemovedNodes = RemovedNodes()
        self.tokens: dict[str, Token] = {}
        self.secrets: dict[str, Secret] = {}
        self.secret_uses = SecretReferences()
        self.home_workloads = HomeWorkloads()
        self.suggestion_decisions: dict[str, SuggestionDecision] = {}
        self.node_pools: dict[str, NodePool] = {}
        self.machines: dict[str, Machine] = {}  # by name, of all node pools
        self.sets: dict[str, WorkloadSet] = {}
        self.set_revisions: dict[str, SetRevision] = {}  # by <set>/<number>
        self.members = Members(member_changed)
        self.jobs: dict[str, Job] = {}
        self.runs = Runs()
        self.services: dict[str, Service] = {}
        self.service_members = ServiceMembers(service_changed)
        self.events = EventLog()
        self.quarantine = Quarantine()
        self._node_changed = node_changed

    @property
    def quarantined(self) -> list[Quarantined]:
        """Stored records that cannot be read, in the order of their keys."""
        return list(self.quarantine)

    def blocked_because(self, workload_id: WorkloadId) -> str:
        """Why this workload is not reconciled: a record that the decision needs is unreadable. "": none.

        Without its assignment it would be placed a second time, without the record of its node moved,
        without a tombstone placed beside a stale copy.
        """
        if not self.quarantine:
            return ""
        needed = [keys.workload_key(workload_id), keys.assignment_key(workload_id)]
        entry = self.workloads.get(workload_id)
        if entry is not None and entry.assignment is not None:
            needed.append(keys.node_key(entry.assignment.node_id))
        else:
            needed += [one.key for one in self.quarantine.named(keys.TOMBSTONES, workload_id)]
        return next((why for key in needed if (why := self.quarantine.reason(key))), "")

    def put_workload(self, workload: Workload) -> WorkloadState:
        entry = self.workloads.get(workload.id)
        if entry is None:
            entry = self.workloads[workload.id] = WorkloadState(workload)
            self.members.put(None, workload)
        elif entry.workload is not workload:
            self.members.put(entry.workload, workload)
        entry.workload = workload
        self.service_members.put(workload)
        self.secret_uses.put(workload)
        self.home_workloads.put(workload)
        return entry

    def put_state(
        self, entry: WorkloadState, workload_status: WorkloadStatus | None, retry: Retry | None
    ) -> None:
        """Set the status and the planned retry of a workload."""
        is_same = entry.workload_status is workload_status and entry.retry is retry
        entry.workload_status, entry.retry = workload_status, retry
        if not is_same:
            self.members.note(entry.workload)
            self.service_members.note(entry.workload.id)

    def put_assignment(self, workload_id: WorkloadId, assignment: Assignment | None) -> None:
        entry = self.workloads[workload_id]
        if entry.assignment is not assignment:
            self.members.note(entry.workload)
            self.service_members.note(workload_id)
        if entry.assignment is not None:
            self.on_node[entry.assignment.node_id].discard(workload_id)
        entry.assignment = assignment
        if assignment is not None:
            self.on_node.setdefault(assignment.node_id, set()).add(workload_id)
            self.unassigned_copies.drop(assignment.node_id, workload_id)

    def drop_workload(self, workload_id: WorkloadId) -> None:
        self.put_assignment(workload_id, None)
        self.members.drop(self.workloads.pop(workload_id).workload)
        self.service_members.drop(workload_id)
        self.secret_uses.drop(workload_id)
        self.home_workloads.drop(workload_id)
        self.waiting.discard(workload_id)

    def put_job(self, job: Job) -> None:
        """Its template counts as a user of secrets, also between two runs."""
        self.jobs[job.job_id] = job
        self.secret_uses.put_spec(f"job {job.job_id}", None if job.deleting else job.template.spec)

    def drop_job(self, job_id: str) -> None:
        self.jobs.pop(job_id, None)
        self.secret_uses.drop(f"job {job_id}")

    def put_service(self, service: Service) -> None:
        self.services[service.service_id] = service
        self.service_members.put_service(
            service, (entry.workload for entry in self.workloads.values())
        )

    def drop_service(self, service_id: str) -> None:
        if self.services.pop(service_id, None) is not None:
            self.service_members.drop_service(ServiceId(service_id))

    def put_node(self, node: Node, *, lease_until: float | None = None) -> NodeState:
        member = self.nodes.get(node.id)
        if member is None:
            assert lease_until is not None
            member = self.nodes[node.id] = NodeState(node, lease_until)
        member.node = node
        if lease_until is not None:
            member.lease_until = lease_until
        self.update_placement(member)
        self._node_changed(node.id)
        return member

    def update_placement(self, member: NodeState) -> None:
        """Update the node in the placement index."""
        node = member.node
        unusable = member.unavailable_types | member.unhealthy_types
        silent = frozenset(f"type:{kind}" for kind in unusable)
        traits = traits_of(node.capabilities) - {f"type:{kind}" for kind in member.refused_types}
        self.node_index.put_node(
            node.id,
            allocatable=node.capabilities.allocatable,
            traits=traits - silent,
            closed=closed_because(node) or (NOT_ANSWERING if member.unreachable else ""),
            labels=facts_of(node),
            taints=node.taints,
            accounts=accounts_of(node.capabilities),
            silent=silent & traits,
            tier=node.capabilities.tier,
            price=node.capabilities.core_hour_price,
            largest=node.capabilities.largest,
        )

    def set_unreachable(self, node_id: NodeId, problem: str) -> None:
        """Set why the node does not reply to calls, "" if it does: it gets no new work meanwhile."""
        member = self.nodes[node_id]
        member.unreachable = problem
        self.update_placement(member)

    def is_known_by_host(self, node_id: NodeId) -> bool:
        """Whether the agent's certificate identifies only a host: it is third-party or shared."""
        member = self.nodes.get(node_id)
        if member is None:
            return False
        return member.node.known_by_host or bool(member.node.bound_host)

    def set_unavailable(self, node_id: NodeId, types: frozenset[WorkloadType]) -> bool:
        """Set the types whose runtime does not respond on the node. True: one of them responds again."""
        member = self.nodes[node_id]
        if member.unavailable_types == types:
            return False
        recovered = bool(member.unavailable_types - types)
        member.unavailable_types = types
        self.update_placement(member)
        return recovered

    def set_unhealthy(self, node_id: NodeId, types: frozenset[WorkloadType]) -> bool:
        """Set the types that HealthCheck reports unhealthy. True: one of them is healthy again."""
        member = self.nodes[node_id]
        types &= member.node.capabilities.types
        recovered = bool(member.unhealthy_types - types)
        if member.unhealthy_types != types:
            member.unhealthy_types = types
            self.update_placement(member)
        return recovered

    def exclude_type(self, node_id: NodeId, kind: WorkloadType) -> None:
        """The node cannot run this type: it is not offered this type until it registers again."""
        member = self.nodes.get(node_id)
        if member is not None and kind not in member.refused_types:
            member.refused_types.add(kind)
            self.update_placement(member)

    def exclude_node(self, workload_id: WorkloadId, rejected: RejectedNode) -> None:
        """The node rejected this workload for lack of capacity: it is excluded for a while."""
        entry = self.workloads[workload_id]
        others = [one for one in entry.rejected_nodes if one.node_id != rejected.node_id]
        entry.rejected_nodes = (*others, rejected)

    def exclusions_of(self, workload_id: WorkloadId, now: datetime) -> tuple[RejectedNode, ...]:
        """The rejections that have not expired."""
        entry = self.workloads.get(workload_id)
        if entry is None or not entry.rejected_nodes:
            return ()
        entry.rejected_nodes = tuple(one for one in entry.rejected_nodes if now < one.until)
        return entry.rejected_nodes

    def pool_taints(self, node_id: NodeId) -> frozenset[str]:
        """The taints of a new node that is a machine of a node pool."""
        machine = self.machines.get(node_id)
        pool = self.node_pools.get(machine.pool_id) if machine is not None else None
        return pool.taints if pool is not None else frozenset()

    def drop_node(self, node_id: NodeId) -> None:
        del self.nodes[node_id]
        # A node that registers with this id again starts without reservations.
        self.node_index.give_back_all(node_id)
        self.node_index.remove_node(node_id)
        for workload_id in self.tombstones.pop(node_id, {}):
            self._unlist_tombstone(node_id, workload_id)
        self.unassigned_copies.drop_node(node_id)
        self.drifts.drop_node(node_id)
        self._node_changed(node_id)

    def assignments_of(self, workload_ids: Iterable[WorkloadId]) -> dict[WorkloadId, Assignment]:
        """The assignments of those that are assigned."""
        return {
            workload_id: entry.assignment
            for workload_id in workload_ids
            if (entry := self.workloads.get(workload_id)) is not None
            and entry.assignment is not None
        }

    def bound_to(self, node_id: NodeId) -> set[WorkloadId]:
        """The workloads assigned to a node, including those whose own record is unreadable."""
        bound = self.on_node.get(node_id, set())
        if not self.detached:
            return bound
        return bound | {name for name, one in self.detached.items() if one.node_id == node_id}

    def unconverged_on(self, node_id: NodeId) -> list[WorkloadId]:
        """The workloads of a node that have not converged: in progress, or not in the desired state."""
        return [
            workload_id
            for workload_id in self.on_node.get(node_id, ())
            if not _is_settled(self.workloads[workload_id])
        ]

    def put_tombstone(self, tombstone: Tombstone) -> None:
        assignment = tombstone.assignment
        self.tombstones.setdefault(assignment.node_id, {})[assignment.workload_id] = tombstone
        copy = (assignment.node_id, assignment.workload_id)
        (self.kept_copies.add if tombstone.after_running else self.kept_copies.discard)(copy)
        self._tombstone_nodes.setdefault(assignment.workload_id, set()).add(assignment.node_id)

    def drop_tombstone(self, node_id: NodeId, workload_id: WorkloadId) -> None:
        if self.tombstones.get(node_id, {}).pop(workload_id, None) is None:
            return
        if not self.tombstones[node_id]:
            del self.tombstones[node_id]
        self._unlist_tombstone(node_id, workload_id)

    def _unlist_tombstone(self, node_id: NodeId, workload_id: WorkloadId) -> None:
        self.kept_copies.discard((node_id, workload_id))
        self._tombstone_nodes[workload_id].discard(node_id)
        if not self._tombstone_nodes[workload_id]:
            del self._tombstone_nodes[workload_id]

    def raise_epochs(self) -> None:
        """Raise the counter above all recorded epochs: stores of older versions have no counter."""
        bound = (entry.assignment for entry in self.workloads.values())
        known = [one.epoch for one in bound if one is not None]
        known += [
            entry.workload_status.epoch
            for entry in self.workloads.values()
            if entry.workload_status is not None
        ]
        for stale in self.tombstones.values():
            known += [tombstone.assignment.epoch for tombstone in stale.values()]
        self.epochs.skip_reserved(EpochCounter(max(known, default=0)))

    def prove(self, workload_id: WorkloadId, node_id: NodeId, epoch: int) -> bytes:
        """The proof that this cluster assigned the epoch to the node."""
        return prove(self.epochs.proof_key, workload_id, node_id, epoch)

    def is_proven(self, seen: Observation) -> bool:
        """Whether this cluster assigned the reported workload to the node."""
        key = self.epochs.proof_key
        return is_proven(key, seen.workload_id, seen.node_id, seen.epoch, seen.proof)

    def tombstones_of(self, workload_id: WorkloadId) -> list[Tombstone]:
        """Its stale copies that are not confirmed removed, sorted by node."""
        nodes = self._tombstone_nodes.get(workload_id)
        return [self.tombstones[node_id][workload_id] for node_id in sorted(nodes)] if nodes else []

    def recorded_reservation(self, workload_id: WorkloadId, node_id: NodeId) -> Assignment | None:
        """The record for which capacity is reserved for a workload on a node."""
        entry = self.workloads.get(workload_id)
        if (
            entry is not None
            and entry.assignment is not None
            and entry.assignment.node_id == node_id
        ):
            return entry.assignment
        detached = self.detached.get(workload_id)
        if detached is not None and detached.node_id == node_id:
            return detached
        tombstone = self.tombstones.get(node_id, {}).get(workload_id)
        return tombstone.assignment if tombstone is not None else None

    def update_reservations(self, workload_id: WorkloadId, node_ids: Iterable[NodeId]) -> None:
        """Update the reservations on these nodes from the records and from a pending commit.

        Until the commit ends the larger of the two is reserved: a workload that shrinks frees nothing
        before its smaller record is stored, and one that grows reserves from the moment of the decision.
        """
        assignment = self._pending.get(workload_id)
        for node_id in node_ids:
            recorded = self.recorded_reservation(workload_id, node_id)
            hold = hold_of(recorded) if recorded is not None else None
            if assignment is not None and assignment.node_id == node_id:
                pending = hold_of(assignment)
                hold = pending if hold in (None, pending) else pending.covering(hold)
            if hold is None:
                self.node_index.give_back(workload_id, node_id)
            else:
                self.node_index.put_hold(workload_id, node_id, hold)

    def reserve_pending(self, assignment: Assignment) -> None:
        """Reserve for a pending commit: removing a stale copy meanwhile does not free that capacity."""
        self._pending[assignment.workload_id] = assignment
        self.update_reservations(assignment.workload_id, (assignment.node_id,))

    def pending_on(self, node_id: NodeId) -> set[WorkloadId]:
        """The workloads whose assignment to a node is being committed."""
        return {name for name, one in self._pending.items() if one.node_id == node_id}

    def end_pending(self, workload_id: WorkloadId) -> None:
        """The pending commit has ended."""
        self._pending.pop(workload_id, None)


def _is_settled(entry: WorkloadState) -> bool:
    return (
        entry.dispatch is None
        and entry.retry is None
        and entry.workload_status is not None
        and satisfies(entry.workload_status, entry.workload)
    )
