"""Checks of assignments and orders.

Epochs rise, nodes are not overcommitted, tombstones match, nodes are usable. An order follows from a commit,
and an accepted order is in the journal of the agent.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.requirements import requirements_of
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Assignment, Resources
from persys.model.status import Status
from persys.model.workload import Desired
from persys.sim.checks.agent_contact import Heartbeats
from persys.sim.checks.context import Facts
from persys.sim.checks.store_mirror import StoreMirror
from persys.sim.engine.process import SimProcess
from persys.sim.fakes.docker import Container
from persys.store import keys
from persys.store.port import Unit
from persys.wire.gen.agent.v1 import agent_pb2

# Until a node reports that its runtimes do not respond, and until earlier decisions are stored.
NOTICE_SECONDS = 12.0
DECIDED_SECONDS = 8.0
# An order that was correct when it was sent may be executed this much later.
STALE_ORDER_SECONDS = 60.0


class AssignmentChecks:
    def __init__(self, facts: Facts, heartbeats: Heartbeats) -> None:
        self._facts = facts
        self._heartbeats = heartbeats

    def released(self, process: SimProcess, units: Sequence[Unit]) -> None:
        """Before the commit is applied: the leader still reserves what is stored."""
        facts = self._facts
        if (columns := facts.probe.reserved_by(process)) is not None and not facts.losses.open:
            facts.fail_if("3 released early", release_problem(facts.mirror, columns, units))

    def committed(
        self,
        process: SimProcess,
        touched: Collection[str],
        bound_before: Mapping[str, Assignment],
        tombstones_before: Collection[str],
    ) -> None:
        mirror = self._facts.mirror
        changed: set[NodeId] = set()
        for key in sorted(touched):
            if (
                key.startswith(keys.ASSIGNMENTS)
                and (new := mirror.assignments.get(key)) is not None
            ):
                self._check(process, bound_before.get(key), new)
                changed.add(new.node_id)
        changed |= {
            stale.assignment.node_id for key, stale in mirror.tombstones.items() if key in touched
        }
        for node_id in sorted(changed):
            self._facts.fail_if("3 reservation", capacity_problem(mirror, node_id))
        self._check_tombstones(touched, bound_before, tombstones_before)

    def _check(self, process: SimProcess, old: Assignment | None, new: Assignment) -> None:
        self._check_epoch(old, new)
        if old is None or old.node_id != new.node_id:
            self._check_runtimes(process, new)
        if old is None or old.node_id == new.node_id:
            return
        live = self._facts.probe.live()[old.node_id]
        if not self._facts.mirror.tombstone(old.node_id, new.workload_id) and any(
            each.workload_id == new.workload_id for each in live
        ):
            text = f"{new.workload_id} left {old.node_id} without a tombstone"
            self._facts.fail("3 reservation", text)
        self._check_stopped_alone(old, live)

    def _check_epoch(self, old: Assignment | None, new: Assignment) -> None:
        """A new assignment has a higher epoch than all earlier ones, also after a deletion."""
        epochs = self._facts.mirror.epochs
        highest = epochs.get(new.workload_id, 0)
        is_same = old is not None and (old.node_id, old.epoch) == (new.node_id, new.epoch)
        if not is_same and new.epoch <= highest and not self._facts.losses.open:
            text = f"{new.workload_id} assigned to {new.node_id}: epoch {new.epoch} after {highest}"
            self._facts.fail("epoch", text)
        epochs[new.workload_id] = max(highest, new.epoch)

    def _check_runtimes(self, process: SimProcess, new: Assignment) -> None:
        """No assignment to a node that has reported that its runtimes do not respond.

        After a loss of the store the node registers as a new one: earlier reports do not count.
        """
        since, now = self._facts.probe.silent_since(new.node_id), self._facts.probe.time()
        if since is None or self._facts.losses.open:
            return
        earliest = max(since + NOTICE_SECONDS, self._facts.losses.lost_at)
        for heard in self._heartbeats.of_leader(new.node_id):
            if heard.by is process and earliest <= heard.at <= now - DECIDED_SECONDS:
                silent = f"runtimes of {new.node_id} not responding for {now - since:.0f}s"
                self._facts.fail("unhealthy node", f"{new.workload_id} assigned, {silent}")
                return

    def _check_stopped_alone(self, old: Assignment, live: Sequence[Container]) -> None:
        """A workload with stop_after that leaves an unreachable node must be stopped there by now."""
        if self._heartbeats.silent_for(old.node_id) < self._heartbeats.lease_seconds:
            return
        for container in live:
            if (
                container.workload_id == old.workload_id
                and container.stop_after_seconds
                and not self._facts.contacts.was_blocked(old.node_id, container)
            ):
                text = f"{old.workload_id} still runs on the unreachable {old.node_id} it leaves"
                self._facts.fail("4 stopped alone", text)

    def _check_tombstones(
        self,
        touched: Collection[str],
        bound_before: Mapping[str, Assignment],
        tombstones_before: Collection[str],
    ) -> None:
        """A tombstone is written only for a node with an assignment, or for found copies in a recovery."""
        mirror = self._facts.mirror
        for key, stale in mirror.tombstones.items():
            if key not in touched or key in tombstones_before or self._facts.losses.open:
                continue
            copy = stale.assignment
            new = mirror.assignment(copy.workload_id)
            if new is not None and new.node_id == copy.node_id:
                text = f"{copy.workload_id} has a tombstone and an assignment on {copy.node_id}"
                self._facts.fail("3 reservation", text)
            old = bound_before.get(keys.assignment_key(copy.workload_id))
            if old is None or old.node_id != copy.node_id:
                text = f"{copy.workload_id} has a tombstone on {copy.node_id}, never assigned there"
                self._facts.fail("11 recovery", text)


def capacity_problem(mirror: StoreMirror, node_id: NodeId) -> str:
    """Resources or host ports of a node that are reserved twice."""
    node = mirror.nodes.get(keys.node_key(node_id))
    if node is None:
        return ""
    total = Resources()
    ports: dict[object, WorkloadId] = {}
    for workload_id, held in sorted(mirror.holds(node_id).items()):
        total = total + held.reserved
        for port in held.host_ports:
            if port in ports:
                return f"{ports[port]} and {workload_id} both reserve port {port} on {node_id}"
            ports[port] = workload_id
    if node.capabilities.tier or total.fits_in(node.capabilities.allocatable):
        return ""  # the capacity of another cluster may shrink at any time
    return f"{node_id} has {node.capabilities.allocatable}, but {total} is reserved"


def release_problem(mirror: StoreMirror, node_index: NodeIndex, units: Sequence[Unit]) -> str:
    """A reservation that the leader released in memory while its record was still in the store.

    `mirror` is the state before these units, `node_index` the current reservations of the leader.
    """
    for key in (key for unit in units for key in (*unit.puts, *unit.deletes)):
        old = mirror.assignments.get(key)
        if old is None or old.node_id not in node_index.slots:
            continue
        held = node_index.held(old.workload_id, old.node_id)
        if held is None or not old.reserved.fits_in(held.resources):
            has = held.resources if held is not None else "nothing"
            return f"{old.workload_id} has {old.reserved} on {old.node_id}, but {has} in memory"
    return ""


def order_problem(
    mirror: StoreMirror, node_id: NodeId, request: agent_pb2.ApplyWorkloadRequest
) -> str:
    """An order for more than is reserved, if it belongs to the current records.

    A member of a run that has stopped is not started again, so its reservation is released.
    """
    workload = mirror.workload(WorkloadId(request.id))
    bound = mirror.assignment(WorkloadId(request.id))
    if workload is None or bound is None or workload.revision != request.revision_id:
        return ""
    if (bound.node_id, bound.epoch) != (node_id, request.epoch):
        return ""
    needed = requirements_of(workload).resources
    if needed.fits_in(bound.reserved):
        return ""
    if workload.runs_once and request.desired_state == agent_pb2.DESIRED_STATE_STOPPED:
        return ""
    return f"{node_id} received {workload.id} with {needed}, but {bound.reserved} is reserved"


class OrderChecks:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        # By request: the epoch and the cluster that the agent knew when it arrived.
        self._known: dict[tuple[int, int], tuple[int, str]] = {}
        self._received: set[tuple[WorkloadId, NodeId, int]] = set()

    def committed(self, touched: Collection[str]) -> None:
        """A workload is stored as running in an epoch only after its node received an order of this epoch."""
        mirror = self._facts.mirror
        for key in sorted(mirror.workload_statuses.keys() & touched):
            stored = mirror.workload_statuses[key]
            bound = mirror.assignment(stored.workload_id)
            if bound is None or stored.epoch != bound.epoch or stored.status is not Status.RUNNING:
                continue
            if (bound.workload_id, bound.node_id, bound.epoch) not in self._received:
                text = f"{bound.workload_id} is stored as running in epoch {bound.epoch}"
                self._facts.fail("epoch", f"{text}, which {bound.node_id} does not know")

    def order_received(self, node_id: NodeId, request: Any) -> None:
        """An order, or a batch of orders, has reached an agent."""
        match request:
            case agent_pb2.ApplyWorkloadRequest() | agent_pb2.DeleteWorkloadRequest():
                self._order_received(node_id, request, (id(request), 0))
            case agent_pb2.ApplyWorkloadsRequest(orders=orders):
                for number, order in enumerate(orders):
                    self._order_received(node_id, order, (id(request), number))

    def _order_received(self, node_id: NodeId, request: Any, key: tuple[int, int]) -> None:
        workload_id = WorkloadId(request.id)
        entry = self._facts.probe.journal_entry(node_id, workload_id)
        if entry is not None:
            self._known[key] = (entry.order.epoch, entry.cluster_uid)
        if isinstance(request, agent_pb2.ApplyWorkloadRequest):
            self._facts.trace.add(
                node_id,
                f"receives apply {workload_id} {request.revision_id} epoch {request.epoch}",
            )
            self._received.add((workload_id, node_id, request.epoch))
            self._check_apply(node_id, workload_id, request)
        else:
            self._facts.trace.add(node_id, f"receives delete {workload_id} epoch {request.epoch}")
            self._check_delete(node_id, workload_id, request.epoch)
            self._facts.losses.check_delete(node_id, workload_id)

    def order_accepted(self, node_id: NodeId, request: Any, answer: Any) -> None:
        """An agent accepted an order: it must be in the journal, and not older than the entry before it."""
        if not isinstance(request, agent_pb2.ApplyWorkloadsRequest):
            self._order_accepted(node_id, request, answer, (id(request), 0))
            return
        if [order.id for order in request.orders] != [result.id for result in answer.results]:
            self._facts.fail("batch", f"{node_id} did not answer each order of a batch in sequence")
        for number, (order, result) in enumerate(zip(request.orders, answer.results, strict=True)):
            self._order_accepted(node_id, order, result.response, (id(request), number))

    def _order_accepted(
        self, node_id: NodeId, request: Any, answer: Any, key: tuple[int, int]
    ) -> None:
        known, cluster_uid = self._known.pop(key, (0, ""))
        workload_id = WorkloadId(getattr(request, "id", ""))
        entry = self._facts.probe.journal_entry(node_id, workload_id)
        match answer:
            case (
                agent_pb2.ApplyWorkloadResponse(applied=True)
                | agent_pb2.ApplyWorkloadResponse(skipped=True)
            ):
                lost = entry is None or entry.order.epoch < request.epoch
            case agent_pb2.DeleteWorkloadResponse(success=True) if known:
                lost = entry is not None and entry.order.desired is not Desired.DELETED
            case _:
                return
        same_cluster = entry is None or entry.cluster_uid == cluster_uid
        if 0 < request.epoch < known and same_cluster:
            text = f"{node_id} accepted {workload_id} epoch {request.epoch} after epoch {known}"
            self._facts.fail("epoch", text)
        elif lost:
            text = f"{node_id} accepted {workload_id} and did not store it"
            self._facts.fail("1 acknowledged", text)

    def _check_apply(
        self, node_id: NodeId, workload_id: WorkloadId, request: agent_pb2.ApplyWorkloadRequest
    ) -> None:
        facts = self._facts
        desired = (
            Desired.STOPPED
            if request.desired_state == agent_pb2.DESIRED_STATE_STOPPED
            else Desired.RUNNING
        )
        order = (workload_id, request.revision_id, desired)
        if order not in facts.mirror.wanted:
            facts.fail("commit before act", f"{node_id} received {order}, which was never stored")
        if (workload_id, node_id, request.epoch) not in facts.mirror.bound:
            text = f"{node_id} received {workload_id} epoch {request.epoch}, never stored"
            facts.fail("commit before act", text)
        facts.fail_if("3 reservation", order_problem(facts.mirror, node_id, request))
        if facts.losses.open:
            facts.unaccounted.add((node_id, workload_id))  # it was sent before the loss

    def _check_delete(self, node_id: NodeId, workload_id: WorkloadId, epoch: int) -> None:
        mirror = self._facts.mirror
        workload, bound = mirror.workload(workload_id), mirror.assignment(workload_id)
        if (
            workload is not None
            and workload.desired is not Desired.DELETED
            and bound is not None
            and bound.node_id == node_id
            and bound.epoch <= epoch
            and self._facts.probe.time() - mirror.changed_at[workload_id] > STALE_ORDER_SECONDS
        ):
            text = f"{node_id} received delete of {workload_id}, which must stay"
            self._facts.fail("5 nothing stops", text)
