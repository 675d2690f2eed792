"""A dry run: each apply is decided as if those before it had been applied. Nothing is written or reserved.

It uses the parsing and the decision of a real apply, on a copy of the placement index. So a plan and the
apply that follows it agree, unless the cluster has changed in between.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from persys.core.intent.apply import Accepted, Unchanged
from persys.core.intent.diff import action_of, displaced
from persys.core.intent.field_changes import changed_fields
from persys.core.intent.ownership import Owners, check_change
from persys.core.placement.placer import placer_over
from persys.core.placement.requirements import Requirements
from persys.core.placement.select import choose
from persys.core.placement.tiers import offload_at, placement_needs
from persys.core.reconcile.decide import decide
from persys.core.reconcile.situation import Decision, Policy, Situation
from persys.errors import RefusedError
from persys.infra.aio.offload import TimeSlice
from persys.model.ids import WorkloadId, workload_id
from persys.model.placement import Assignment
from persys.model.status import WorkloadStatus
from persys.model.workload import Desired, Workload
from persys.scheduler.reconcile.intent import parse, parse_apply
from persys.scheduler.state.cluster import ClusterState
from persys.wire.control.planning import change_messages, fields_of
from persys.wire.gen.control.v1 import control_pb2

CompleteSituation = Callable[[Situation], Situation]


@dataclass(frozen=True, slots=True)
class PlannedWorkload:
    """A workload as the plan so far would leave it."""

    workload: Workload
    assignment: Assignment | None
    workload_status: WorkloadStatus | None
    waits: bool


class PlanBuilder:
    def __init__(
        self,
        cluster: ClusterState,
        complete_situation: CompleteSituation,
        policy: Policy,
        *,
        now: datetime,
        lease: timedelta,
        prefix: str,
    ) -> None:
        """`prefix`: the only names that the caller may use and see; "": all."""
        self._cluster = cluster
        self._complete_situation = complete_situation
        self._policy = policy
        self._now = now
        self._lease = lease
        self._prefix = prefix
        self._owners = Owners(cluster.sets, cluster.jobs, cluster.runs)
        self._index = cluster.node_index.copy()
        self._placer = placer_over(self._index)
        self._planned: dict[WorkloadId, PlannedWorkload] = {}
        self._queues: dict[Requirements, dict[WorkloadId, None]] = {}  # thousands may be equal
        self._queued: dict[WorkloadId, Requirements] = {}
        for waiting in cluster.waiting:
            self._enter_queue(waiting, cluster.waiting.pending_entry(waiting).needs)

    async def plan_all(
        self, requests: Iterable[control_pb2.ApplyWorkloadRequest], slices: TimeSlice
    ) -> list[control_pb2.WorkloadPlan]:
        plans = []
        for request in requests:
            plans.append(await self.transition(request))
            await slices.between()
        return plans

    async def transition(
        self, request: control_pb2.ApplyWorkloadRequest
    ) -> control_pb2.WorkloadPlan:
        plan = control_pb2.WorkloadPlan(workload_id=request.workload_id)
        before: PlannedWorkload | None = None
        try:
            wanted_id = workload_id(request.workload_id)
            parsed = await parse(request)
            before = self._of(wanted_id)
            transition = parse_apply(
                request,
                parsed,
                lambda: self._now,
                lease=self._lease,
                secrets=self._cluster.secrets,
                prefix=self._prefix,
            )
            old = before.workload if before else None
            outcome = transition(old)
            if isinstance(outcome, Accepted):
                check_change(old, outcome.workload, self._owners)
        except RefusedError as err:
            plan.action, plan.reason = "refused", str(err)
            return plan
        match outcome:
            case Unchanged():
                assert before is not None
                _set_current(plan, before)
                plan.action = "none"
                _set_place(plan, before)
            case Accepted(workload=workload):
                plan.changes.extend(
                    change_messages(
                        changed_fields(fields_of(old) if old else {}, fields_of(workload))
                    )
                )
                self._change(plan, before, workload)
        return plan

    def present(self, wanted: WorkloadId) -> Workload | None:
        """The workload as the plan so far would leave it."""
        before = self._of(wanted)
        return before.workload if before is not None else None

    def change(self, workload: Workload) -> control_pb2.WorkloadPlan:
        """Plan a changed or new workload, without the fields that differ."""
        plan = control_pb2.WorkloadPlan(workload_id=workload.id)
        self._change(plan, self._of(workload.id), workload)
        return plan

    def _change(
        self, plan: control_pb2.WorkloadPlan, before: PlannedWorkload | None, workload: Workload
    ) -> None:
        _set_current(plan, before)
        old = before.workload if before else None
        held = before.assignment if before else None
        plan.action = action_of(old, workload)
        if before is not None and before.waits:
            self._leave_queue(before.workload.id)
        placeable = self._placeable()
        decision = self._decide(workload, held, before.workload_status if before else None)
        _set_place(plan, self._take(workload, held, decision))
        if plan.would_wait:
            plan.reason += self._offloaded_later(workload, decision)
        plan.displaces.extend(displaced(old, held, workload, decision))
        plan.displaces.extend(self._keep_waiting(placeable))
        if held is not None:
            plan.displaces.extend(self._assign_waiting())

    def _of(self, wanted: WorkloadId) -> PlannedWorkload | None:
        if wanted in self._planned:
            return self._planned[wanted]
        entry = self._cluster.workloads.get(wanted)
        if entry is None:
            return None
        return PlannedWorkload(
            entry.workload, entry.assignment, entry.workload_status, wanted in self._cluster.waiting
        )

    def _decide(
        self, workload: Workload, held: Assignment | None, workload_status: WorkloadStatus | None
    ) -> Decision:
        situation = self._complete_situation(Situation(workload, held, workload_status))
        return decide(situation, self._placer, self._policy, now=self._now, roll=0.0)

    def _take(
        self, workload: Workload, held: Assignment | None, decision: Decision
    ) -> PlannedWorkload:
        got = decision.assignment
        if held is not None and got is None and decision.tombstone is None:
            self._index.give_back(workload.id, held.node_id)
        if got is not None:
            self._index.reserve(got)
        after = PlannedWorkload(
            workload, got, decision.workload_status, decision.waits_for_capacity
        )
        self._planned[workload.id] = after
        self._leave_queue(workload.id)
        if after.waits:
            self._enter_queue(workload.id, placement_needs(self._situation(after), self._now))
        return after

    def _offloaded_later(self, workload: Workload, decision: Decision) -> str:
        """Where it is offloaded after the waiting time, if it is. The capacity there is reserved."""
        bound, status = decision.assignment, decision.workload_status
        situation = self._complete_situation(Situation(workload, bound, status))
        opens_at = offload_at(situation, self._now)
        if opens_at is None or opens_at <= self._now:
            return ""
        got = decide(situation, self._placer, self._policy, now=opens_at, roll=0.0).assignment
        if got is None or not self._index.slots[got.node_id].tier:
            return ""
        self._index.reserve(got)
        seconds = ceil((opens_at - self._now).total_seconds())
        return f"; in {seconds} s it is offloaded to {got.node_id} ({got.why})"

    def _situation(self, planned: PlannedWorkload) -> Situation:
        return self._complete_situation(
            Situation(planned.workload, planned.assignment, planned.workload_status)
        )

    def _enter_queue(self, workload_id: WorkloadId, needs: Requirements) -> None:
        self._queues.setdefault(needs, {})[workload_id] = None
        self._queued[workload_id] = needs

    def _leave_queue(self, workload_id: WorkloadId) -> None:
        needs = self._queued.pop(workload_id, None)
        if needs is None:
            return
        del self._queues[needs][workload_id]
        if not self._queues[needs]:
            del self._queues[needs]

    def _placeable(self) -> list[Requirements]:
        """The needs of waiting workloads that would fit now, highest priority first."""
        found = [needs for needs in self._queues if choose(needs, self._index) is not None]
        return sorted(found, key=lambda needs: -needs.rules.priority)

    def _keep_waiting(self, placeable: list[Requirements]) -> Iterator[str]:
        for needs in placeable:
            if choose(needs, self._index) is None:
                for waiting in self._queues.get(needs, ()):
                    yield f"{self._name(waiting)} keeps waiting: it would have fitted into this capacity"

    def _assign_waiting(self) -> Iterator[str]:
        """Assign freed capacity to waiting workloads."""
        for needs in self._placeable():
            for waiting in list(self._queues.get(needs, ())):
                planned = self._of(waiting)
                if planned is None or choose(needs, self._index) is None:
                    break
                workload, held = planned.workload, planned.assignment
                after = self._take(
                    workload, held, self._decide(workload, held, planned.workload_status)
                )
                if after.assignment is not None and not after.waits:
                    node_id = after.assignment.node_id
                    yield f"{self._name(waiting)} no longer waits: it is assigned to {node_id}"

    def _name(self, other: WorkloadId) -> str:
        return other if other.startswith(self._prefix) else "a workload of others"


def _set_current(plan: control_pb2.WorkloadPlan, before: PlannedWorkload | None) -> None:
    if before is not None and before.assignment is not None:
        plan.current_node_id = before.assignment.node_id


def _set_place(plan: control_pb2.WorkloadPlan, planned: PlannedWorkload) -> None:
    """Set where it would run and why, or why it would wait."""
    message = planned.workload_status.message if planned.workload_status is not None else ""
    plan.would_wait = planned.waits and planned.workload.desired is Desired.RUNNING
    if plan.would_wait or planned.assignment is None:
        plan.reason = message
        return
    plan.node_id = planned.assignment.node_id
    if plan.node_id != plan.current_node_id:
        plan.reason = planned.assignment.why
