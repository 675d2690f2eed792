"""Safety checks, run at each step that could violate a promise. The first violation ends the run.

Numbers are those of the promises in the README. `Invariants` receives every event of the cluster and passes
it to the checks of the promise that it could violate. Liveness is checked in `liveness.py`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Node, NodeStatus
from persys.model.placement import Assignment, Tombstone
from persys.scheduler.ha.leader_key import leader_of
from persys.sim.checks.acknowledged import UserRequest, state_of
from persys.sim.checks.agent_contact import Heartbeats
from persys.sim.checks.assignments import AssignmentChecks, OrderChecks
from persys.sim.checks.containers import ContainerChecks
from persys.sim.checks.context import Facts, Probe, Violation
from persys.sim.checks.store_loss import RECOVERY_CALLS
from persys.sim.checks.store_mirror import ReadChecks, StoreMirror, changed_keys
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import Trace
from persys.store import keys
from persys.store.port import Record, Unit
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.metadata_keys import ROLE

# A request from before the removal may be processed this much later.
LATE_SECONDS = 60.0
NEVER = float("-inf")


class Invariants:
    """Implements docker.Witness; also receives commits, requests and responses."""

    def __init__(
        self,
        probe: Probe,
        trace: Trace,
        *,
        lease_seconds: float,
        failed: Callable[[Violation], None],
    ) -> None:
        self._facts = facts = Facts(probe, trace, failed)
        self.fail = facts.fail
        self.mirror = facts.mirror
        self.contacts = facts.contacts
        self.losses = facts.losses
        self.has_unaccounted = False
        self.removals = RemovalChecks(
            facts.mirror, probe.time, facts.fail, lambda: facts.losses.open
        )
        self.reads = ReadChecks(facts.mirror)
        self.heartbeats = Heartbeats(probe.time, facts.fail, lease_seconds=lease_seconds)
        self._assignments = AssignmentChecks(facts, self.heartbeats)
        self._orders = OrderChecks(facts)
        self._containers = ContainerChecks(facts)
        self.order_received = self._orders.order_received
        self.order_accepted = self._orders.order_accepted
        self.start_requested = self._containers.start_requested
        self.stop_requested = self._containers.stop_requested
        self.container_starts = self._containers.container_starts
        self.container_stops = self._containers.container_stops
        self.container_ended = self._containers.container_ended
        self.volumes_go = self._containers.volumes_go
        self.heard = facts.contacts.heard

    # Commits

    def committed(self, process: SimProcess, units: Sequence[Unit], leader: Record | None) -> None:
        """`leader` is the leader key before the commit."""
        mirror, now = self.mirror, self._facts.probe.time()
        self._check_fence(process, units, leader)
        self._facts.trace.add(process.title, f"commits {changed_keys(units)}")
        self._assignments.released(process, units)
        self.losses.committed(process, units)
        bound_before, nodes_before = dict(mirror.assignments), dict(mirror.nodes)
        tombstones_before = set(mirror.tombstones)
        for key in sorted(key for unit in units for key in unit.deletes):
            if key in nodes_before:
                self._mark_unaccounted(nodes_before[key].id)
            elif self.losses.ever:
                self._mark_orphan(mirror.assignments.get(key), mirror.tombstones.get(key))
        touched = mirror.take(units, now)
        self.removals.committed(touched, nodes_before)
        workload_ids = sorted(
            WorkloadId(key.removeprefix(keys.WORKLOADS))
            for key in touched
            if key.startswith(keys.WORKLOADS)
        )
        self.reads.committed(workload_ids, now)
        for workload_id in workload_ids:
            self._check_intent(workload_id)
        for key in sorted(touched & mirror.nodes.keys()):
            self._check_not_ready(process, nodes_before.get(key), mirror.nodes[key])
        self._assignments.committed(process, touched, bound_before, tombstones_before)
        self._orders.committed(touched)
        self._containers.check_all_accounted()

    def store_lost(self, nodes: Iterable[NodeId], with_records: frozenset[str]) -> None:
        """`with_records`: the schedulers with the lost records in memory."""
        for node_id in nodes:
            self._mark_unaccounted(node_id)
        self.losses.lose(with_records)
        self.removals.removed.clear()  # an older snapshot may contain them
        self.reads.forget()

    def joins(self, node_id: NodeId) -> None:
        self.removals.registered_at[node_id] = self._facts.probe.time()

    def _mark_unaccounted(self, node_id: NodeId) -> None:
        """Call before the records of a node are lost or deleted: its copies need no records any more.

        They include copies that it has not started yet: an order that its agent received before may be
        executed long after, for example when its disk is slow.
        """
        self.has_unaccounted = True
        held = {*self._facts.probe.holds(node_id), *self.mirror.holds(node_id)}
        self._facts.unaccounted |= {(node_id, workload_id) for workload_id in held}

    def _mark_orphan(self, bound: Assignment | None, tombstone: Tombstone | None) -> None:
        """A record is about to be deleted after a loss of the store; its copy may become an orphan.

        A recovery leaves out what does not fit. A tombstone from an old snapshot is dropped when its node
        reports a copy of a later assignment.
        """
        stale = tombstone.assignment if tombstone is not None else bound
        if stale is None:
            return
        entry = self._facts.probe.journal_entry(stale.node_id, stale.workload_id)
        is_newer = entry is not None and entry.order.epoch > stale.epoch
        if self.losses.open or (tombstone is not None and is_newer):
            self._facts.unaccounted.add((stale.node_id, stale.workload_id))

    def _check_fence(
        self, process: SimProcess, units: Sequence[Unit], leader: Record | None
    ) -> None:
        if any(keys.LEADER in unit.puts for unit in units):
            self.heartbeats.leads(process)
        elif units and (leader is None or leader_of(leader).name != process.title):
            led = leader_of(leader).name if leader is not None else "none"
            text = f"{process.title} wrote {sorted(units[0].puts)}, but the leader is {led}"
            self.fail("fence", text)

    def _check_not_ready(self, process: SimProcess, old: Node | None, new: Node) -> None:
        if self.losses.open:
            return  # a snapshot contains the status of then
        if new.status is NodeStatus.NOT_READY and (
            old is None or old.status is not NodeStatus.NOT_READY
        ):
            self.heartbeats.check_not_ready(process, new.id)

    # Requests of users

    def requested(self, workload_id: WorkloadId, change: UserRequest) -> None:
        self.losses.last_requests[workload_id] = change
        self._facts.intents.request(workload_id, change, now=self._facts.probe.time())

    def answered(
        self,
        process: SimProcess,
        method: str,
        request: Any,
        answer: Any,
        metadata: Mapping[str, str],
    ) -> None:
        """`metadata`: response metadata with the role of the scheduler and the data age."""
        if method == "Heartbeat" and answer.acknowledged:
            self.heartbeats.acknowledged(NodeId(request.node_id), process)
        if method == "RegisterNode" and answer.accepted:
            self.heartbeats.registered(NodeId(request.node_id))
        if method in RECOVERY_CALLS:
            self.losses.recovered(process, method, answer)
        if isinstance(
            answer, control_pb2.ApplyWorkloadResponse | control_pb2.DeleteWorkloadResponse
        ):
            if not answer.success or self.losses.open:
                return  # until the loss is noticed, responses may reflect the state before it
            workload_id = WorkloadId(request.workload_id)
            self._facts.intents.acknowledge(workload_id, self.losses.last_requests[workload_id])
            self._check_intent(workload_id)
        is_read = method in ("GetNode", "ListNodes") and ROLE not in metadata
        if is_read and self.heartbeats.is_leader(process):
            for node in answer.nodes if method == "ListNodes" else [answer.node]:
                if node.HasField("drain") and node.drain.state == "drained":
                    self._check_empty(NodeId(node.node_id))

    def check_read(self, answer: control_pb2.ListWorkloadsResponse, age_seconds: float) -> None:
        now = self._facts.probe.time()
        problem = self.reads.too_old(answer.workloads, age_seconds=age_seconds, now=now)
        self._facts.fail_if("stale read", problem)

    def _check_intent(self, workload_id: WorkloadId) -> None:
        """Members are changed by their set or run."""
        state = state_of(self.mirror.workload(workload_id))
        if workload_id in self.mirror.memberships:
            return
        if state not in self._facts.intents.of(workload_id):
            self.fail(
                "1 acknowledged", f"{workload_id} is stored as {state}, which no user requested"
            )

    def _check_empty(self, node_id: NodeId) -> None:
        if found := self._facts.probe.live().get(node_id):
            names = ", ".join(each.workload_id for each in found)
            self.fail("12 drained", f"{node_id} is reported as drained and runs {names}")


@dataclass(slots=True)
class RemovalChecks:
    """A removed node returns only if its agent registers again. Instants are on the loop's clock."""

    mirror: StoreMirror
    time: Callable[[], float]
    fail: Callable[[str, str], None]
    recovers: Callable[[], bool]  # records are being restored, in any order
    # The last registration request of each agent.
    registered_at: dict[NodeId, float] = field(default_factory=dict)
    restricted_at: dict[NodeId, float] = field(
        default_factory=dict
    )  # last cordon or drain by an operator
    removed: dict[NodeId, float] = field(default_factory=dict)

    def committed(self, touched: Collection[str], before: Mapping[str, Node]) -> None:
        for key in sorted(touched):
            if key in before and key not in self.mirror.nodes:
                self._check_gone(before[key].id)
            elif key in self.mirror.nodes and key not in before:
                self._check_back(self.mirror.nodes[key])
        self._check_bound(touched)

    def _check_gone(self, node_id: NodeId) -> None:
        self.removed[node_id] = self.time()
        for key in (*self.mirror.tombstones, *self.mirror.drifts):
            if key.startswith((f"{keys.TOMBSTONES}{node_id}/", keys.node_drifts(node_id))):
                self.fail("removal", f"{node_id} was removed, but {key} still exists")

    def _check_back(self, node: Node) -> None:
        gone_at = self.removed.get(node.id)
        if gone_at is None:
            return
        if self.registered_at.get(node.id, NEVER) < gone_at - LATE_SECONDS:
            self.fail("removal", f"{node.id} was removed and is back without a registration")
        closed = node.cordoned or node.drain is not None or bool(node.taints)
        if closed and self.restricted_at.get(node.id, NEVER) < gone_at - LATE_SECONDS:
            self.fail("removal", f"{node.id} was removed and is back cordoned, drained or tainted")

    def _check_bound(self, touched: Collection[str]) -> None:
        """No assignment to a node that does not exist."""
        for key in sorted(touched) if not self.recovers() else ():
            bound = self.mirror.assignments.get(key)
            if bound is not None and keys.node_key(bound.node_id) not in self.mirror.nodes:
                text = f"{bound.workload_id} was assigned to {bound.node_id}, which does not exist"
                self.fail("removal", text)
