"""Explains why a workload is where it is, and reports the free capacity of the cluster. Read-only.

The search for workloads that a node loss would strand visits every workload, so it runs in slices on a copy
of the placement index, and other tasks run between the slices.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import ceil

from persys.core.drift import describe_copies
from persys.core.nodes import Phase
from persys.core.placement.capacity import capacity_of, simulate_loss
from persys.core.placement.explain import Explanation, explain
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.placer import without_workload
from persys.core.placement.requirements import Requirements, holds_data, requirements_of
from persys.core.placement.tiers import needs_on_any_tier, offload_at, placement_needs
from persys.core.reconcile.evacuate import awaits_contact, must_leave, stays_because
from persys.core.reconcile.situation import Situation, is_finished
from persys.errors import NotFoundError
from persys.infra.aio.offload import TimeSlice, off_loop
from persys.infra.clock import Clock
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.placement import Assignment
from persys.model.status import Status
from persys.model.workload import Desired, Workload
from persys.scheduler.queries.plan import CompleteSituation
from persys.scheduler.reconcile.situation_builder import situation_of
from persys.scheduler.sets.set_views import SetExplained
from persys.scheduler.state.cluster import ClusterState, WorkloadState
from persys.wire.control.planning import capacity_message, explanation_message, loss_message
from persys.wire.control.spec_decode import ParsedSpec, holds_yaml, parse_spec
from persys.wire.gen.control.v1 import control_pb2

NODES_SHOWN = 20
EXPLAINED_AT_ONCE = 200  # more are explained in a thread, on a copy of the placement index


class Explainer:
    def __init__(
        self,
        cluster: ClusterState,
        complete_situation: CompleteSituation,
        clock: Clock,
        *,
        growth: Callable[[WorkloadId], str],
        explain_set: Callable[[str], SetExplained | None],
    ) -> None:
        """`growth`: which node pool grows for a waiting workload; empty if none does.

        `explain_set`: what the set with an id does now; None: there is no such set.
        """
        self._cluster = cluster
        self._growth = growth
        self._explain_set = explain_set
        self._complete_situation = complete_situation
        self._clock = clock

    async def explain(self, wanted: str, *, limit: int) -> control_pb2.ExplainWorkloadResponse:
        found_set = self._explain_set(wanted)
        if found_set is not None:
            return await self._of_set(wanted, found_set, limit=limit)
        entry = self._cluster.workloads.get(WorkloadId(wanted))
        if entry is None:
            raise NotFoundError("workload", wanted)
        return await self._of_workload(entry, limit=limit)

    async def _of_set(
        self, set_id: str, found: SetExplained, *, limit: int
    ) -> control_pb2.ExplainWorkloadResponse:
        """The nodes are those of its first member that is not healthy."""
        response = control_pb2.ExplainWorkloadResponse()
        summary = found.summary
        entry = self._cluster.workloads.get(found.pending) if found.pending else None
        if entry is not None:
            response = await self._of_workload(entry, limit=limit)
            summary = f"{summary}; {entry.workload.id} {response.summary}"
        response.workload_id, response.summary, response.rule = set_id, summary, found.rule
        return response

    async def _of_workload(
        self, entry: WorkloadState, *, limit: int
    ) -> control_pb2.ExplainWorkloadResponse:
        node_index = self._cluster.node_index
        count = min(limit or NODES_SHOWN, len(node_index.slots))
        if count <= EXPLAINED_AT_ONCE:
            found = _explained(self._needs_now(entry), entry.assignment, node_index, count)
            return self._message(entry, found)()
        found = await asyncio.to_thread(
            _explained, self._needs_now(entry), entry.assignment, node_index.copy(), count
        )
        return await asyncio.to_thread(self._message(entry, found))

    def _needs_now(self, entry: WorkloadState) -> Requirements:
        """The requirements with the tiers that are open to it now. An offloaded one has not to wait again."""
        situation = self._complete_situation(situation_of(entry))
        if situation.tier:
            return needs_on_any_tier(entry.workload)
        return placement_needs(situation, self._clock.now())

    def _message(
        self, entry: WorkloadState, found: Explanation
    ) -> Callable[[], control_pb2.ExplainWorkloadResponse]:
        """Builds the response. Everything in the cluster state is read before this returns."""
        workload, assignment = entry.workload, entry.assignment
        return partial(
            explanation_message,
            found,
            workload_id=workload.id,
            node_id=assignment.node_id if assignment is not None else "",
            summary=self._summary(entry, found),
            rule=entry.rule,
            changes=found.changes() if workload.id in self._cluster.waiting else (),
            copies=describe_copies(
                workload.id, self._complete_situation(situation_of(entry)).copies
            ),
        )

    def _summary(self, entry: WorkloadState, found: Explanation) -> str:
        workload, assignment = entry.workload, entry.assignment
        message = entry.workload_status.message if entry.workload_status is not None else ""
        if entry.back_off is not None:
            return f"is not reconciled: {entry.back_off.text}"
        if workload.stopped_because and workload.desired is Desired.STOPPED:
            on = f" on {assignment.node_id}" if assignment is not None else ""
            return f"is stopped{on}: {workload.stopped_because}"
        if assignment is None:
            if workload.id not in self._cluster.waiting:
                return f"has no node: {message}"
            if found.fit_count:
                return f"waits, although it fits on {found.fit_count} nodes: {message}"
            growth = self._growth(workload.id)
            pools = f"; {growth}" if growth else ""
            return f"waits: {found.refusals()}{self._opening(entry)}{pools}"
        where = self._complete_situation(
            Situation(workload, assignment, entry.workload_status, entry.retry)
        )
        node_id = assignment.node_id
        if workload.id in self._cluster.waiting:
            return f"is assigned to {node_id} and waits for capacity on another node: {message}"
        if where.phase is Phase.LOST and not must_leave(where, self._clock.now()):
            stays = (
                f"stays assigned to {node_id}, which is lost: {stays_because(workload) or message}"
            )
            if workload.runs_once:
                return f"{stays}; the retries of its job run it again"
            return f"{stays}; it moves after `persysctl node confirm-dead {node_id}`"
        if where.draining and (because := stays_because(workload)):
            return f"stays on {node_id}, which is draining: {because}"
        if where.draining and awaits_contact(where):
            return (
                f"stays on {node_id}, which is draining and sends no heartbeats: it has stop_after, and its "
                "agent may not have stopped it yet"
            )
        return f"is on {node_id}: {assignment.why}{_returning(where)}{_failing(entry)}"

    def _opening(self, entry: WorkloadState) -> str:
        """When it may be offloaded, if it has to wait for that."""
        now = self._clock.now()
        opens_at = offload_at(self._complete_situation(situation_of(entry)), now)
        if opens_at is None or opens_at <= now or not self._cluster.node_index.beyond:
            return ""
        return f"; it may be offloaded in {ceil((opens_at - now).total_seconds())} s"

    async def capacity(self, spec: control_pb2.WorkloadSpec) -> control_pb2.GetCapacityResponse:
        parsed = await off_loop(partial(parse_spec, spec)) if holds_yaml(spec) else parse_spec(spec)
        needs = self._needs(parsed)
        node_index = self._cluster.node_index.copy()
        capacities = []
        losses = []
        slices = TimeSlice(self._clock)
        for node_id, slot in node_index.slots.items():
            capacities.append(capacity_of(slot, needs))
            if not slot.tier:
                losses.append(self._loss(node_id, node_index))
            await slices.between()
        survives = len(losses) > 1 and not any(loss.stranded for loss in losses)
        return capacity_message(capacities, losses, survives=survives)

    def _needs(self, parsed: ParsedSpec) -> Requirements:
        now = self._clock.now()
        return needs_on_any_tier(
            Workload(
                WorkloadId(""),
                parsed.spec,
                Revision(""),
                now,
                now,
                resources=parsed.resources,
                metadata=parsed.metadata,
                rules=parsed.rules,
            )
        )

    def _loss(self, node_id: NodeId, node_index: NodeIndex) -> control_pb2.LossView:
        movable: dict[WorkloadId, Requirements] = {}
        bound: list[WorkloadId] = []
        for entry in self._on(node_id):
            lost = Situation(
                entry.workload, entry.assignment, entry.workload_status, phase=Phase.LOST
            )
            # With stop_after it moves after its agent has stopped it.
            if not entry.workload.stop_after_seconds and not must_leave(lost, self._clock.now()):
                bound.append(entry.workload.id)
            elif entry.workload.desired is Desired.RUNNING and not is_finished(lost):
                movable[entry.workload.id] = requirements_of(entry.workload)
        return loss_message(simulate_loss(node_id, movable, node_index), bound)

    def _on(self, node_id: NodeId) -> Iterator[WorkloadState]:
        here: Iterable[WorkloadId] = self._cluster.on_node.get(node_id, ())
        entries = (self._cluster.workloads[workload_id] for workload_id in here)
        return (entry for entry in entries if entry.workload.desired is not Desired.DELETED)


def _failing(entry: WorkloadState) -> str:
    """Why it has failed on its node: the placement is not the problem then."""
    status = entry.workload_status
    if status is None or status.status is not Status.FAILED:
        return ""
    cause = ": ".join(part for part in (status.code, status.message) if part)
    return f"; it has failed there: {cause}"


def _returning(situation: Situation) -> str:
    """Whether an offloaded workload returns to tier 0."""
    workload = situation.workload
    if not situation.tier or not workload.rules.return_when_free:
        return ""
    if holds_data(workload):
        return "; it does not return to tier 0: it has data"
    if situation.retry is not None:
        return "; it returns to tier 0 later: the last attempt failed"
    return "; it returns to tier 0 when a node there has capacity"


def _explained(
    needs: Requirements, assignment: Assignment | None, node_index: NodeIndex, count: int
) -> Explanation:
    """An assigned workload is explained as if it had no reservation."""
    if assignment is None:
        return explain(needs, node_index, limit=count)
    with without_workload(assignment.workload_id, assignment.node_id, node_index):
        return explain(needs, node_index, limit=count)
