"""Checks of orders: an order follows from a commit, and an accepted order is in the agent's journal."""

from typing import Any

from persys.model.ids import NodeId, WorkloadId
from persys.model.workload import Desired
from persys.sim.checks.assignments import order_problem
from persys.sim.checks.context import Facts
from persys.wire.gen.agent.v1 import agent_pb2

# An order that was correct when it was sent may be executed this much later.
STALE_ORDER_SECONDS = 60.0


class OrderChecks:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        # By request: the epoch and the cluster that the agent knew when it arrived.
        self._known: dict[int, tuple[int, str]] = {}

    def ordered(self, node_id: NodeId, request: Any) -> None:
        """An order has reached an agent."""
        if not isinstance(
            request, agent_pb2.ApplyWorkloadRequest | agent_pb2.DeleteWorkloadRequest
        ):
            return
        workload_id = WorkloadId(request.id)
        entry = self._facts.probe.journal_entry(node_id, workload_id)
        if entry is not None:
            self._known[id(request)] = (entry.order.epoch, entry.cluster_uid)
        if isinstance(request, agent_pb2.ApplyWorkloadRequest):
            self._facts.trace.add(
                node_id,
                f"receives apply {workload_id} {request.revision_id} epoch {request.epoch}",
            )
            self._check_apply(node_id, workload_id, request)
        else:
            self._facts.trace.add(node_id, f"receives delete {workload_id} epoch {request.epoch}")
            self._check_delete(node_id, workload_id, request.epoch)
            self._facts.losses.check_delete(node_id, workload_id)

    def obeyed(self, node_id: NodeId, request: Any, answer: Any) -> None:
        """An agent accepted an order: it must be in the journal, and not older than the entry before it."""
        known, cluster_uid = self._known.pop(id(request), (0, ""))
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
