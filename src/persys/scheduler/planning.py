"""One plan: each apply is judged as if those before it had been applied. Nothing is written or reserved.

The same intake and the same decision as for a real apply, over a copy of the room. So a plan and the apply
that follows it agree, unless the cluster has changed in between.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from persys.core.intake import Accepted, Unchanged
from persys.core.placement.needs import needs_of
from persys.core.placement.select import choose
from persys.core.plan import action_of, changed_fields, displaced
from persys.core.reconcile import decide
from persys.core.rooms import rooms_over
from persys.core.situation import Decision, Policy, Situation
from persys.errors import RefusedError
from persys.model.assignment import Assignment
from persys.model.belief import Belief
from persys.model.ids import WorkloadId, workload_id
from persys.model.workload import Desired, Workload
from persys.scheduler.cluster import Cluster
from persys.scheduler.intake import judge_of
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.outlook import change_messages, fields_of

Situated = Callable[[Situation], Situation]


@dataclass(frozen=True, slots=True)
class Standing:
    """A workload as the plan so far would leave it."""

    workload: Workload
    assignment: Assignment | None
    belief: Belief | None
    waits: bool


class Planning:
    def __init__(
        self, cluster: Cluster, situated: Situated, policy: Policy, *, now: datetime
    ) -> None:
        self._cluster = cluster
        self._situated = situated
        self._policy = policy
        self._now = now
        self._room = cluster.columns.copy()
        self._rooms = rooms_over(self._room)
        self._standing: dict[WorkloadId, Standing] = {}

    def judge(self, request: control_pb2.ApplyWorkloadRequest) -> control_pb2.WorkloadPlan:
        plan = control_pb2.WorkloadPlan(workload_id=request.workload_id)
        before: Standing | None = None
        try:
            before = self._of(workload_id(request.workload_id))
            outcome = judge_of(request, lambda: self._now)(before.workload if before else None)
        except RefusedError as err:
            plan.action, plan.reason = "refused", str(err)
            return plan
        if before is not None and before.assignment is not None:
            plan.current_node_id = before.assignment.node_id
        match outcome:
            case Unchanged(workload=workload):
                assert before is not None
                plan.action = "none"
                _tell_place(plan, before)
            case Accepted(workload=workload):
                plan.action = action_of(before.workload if before else None, workload)
                self._change(plan, before, workload)
        return plan

    def _change(
        self, plan: control_pb2.WorkloadPlan, before: Standing | None, workload: Workload
    ) -> None:
        old = before.workload if before else None
        held = before.assignment if before else None
        plan.changes.extend(
            change_messages(changed_fields(fields_of(old) if old else {}, fields_of(workload)))
        )
        could_be_placed = list(self._waiting_that_fit(workload.id))
        decision = self._decide(workload, held, before.belief if before else None)
        _tell_place(plan, self._take(workload, held, decision))
        plan.displaces.extend(displaced(old, held, workload, decision))
        plan.displaces.extend(self._keep_waiting(could_be_placed))
        plan.displaces.extend(self._let_in(workload.id))

    def _of(self, wanted: WorkloadId) -> Standing | None:
        if wanted in self._standing:
            return self._standing[wanted]
        entry = self._cluster.entries.get(wanted)
        if entry is None:
            return None
        return Standing(
            entry.workload, entry.assignment, entry.belief, wanted in self._cluster.waiting
        )

    def _decide(
        self, workload: Workload, held: Assignment | None, belief: Belief | None
    ) -> Decision:
        situation = self._situated(Situation(workload, held, belief))
        return decide(situation, self._rooms, self._policy, now=self._now, roll=0.0)

    def _take(self, workload: Workload, held: Assignment | None, decision: Decision) -> Standing:
        got = decision.assignment
        if held is not None and got is None and decision.tombstone is None:
            self._room.give_back(workload.id, held.node_id)
        if got is not None:
            self._room.hold(
                workload.id,
                got.node_id,
                got.reserved,
                got.host_ports,
                group=got.rules.group,
                apart=got.rules.apart,
            )
        after = Standing(workload, got, decision.belief, decision.waits_for_room)
        self._standing[workload.id] = after
        return after

    def _waiting(self, but: WorkloadId) -> Iterator[Standing]:
        """Those that wait for room, in the order in which they would get it."""
        found = [self._of(waiting) for waiting in self._cluster.waiting if waiting != but]
        still = [standing for standing in found if standing is not None and standing.waits]
        return iter(sorted(still, key=lambda standing: -standing.workload.rules.priority))

    def _waiting_that_fit(self, but: WorkloadId) -> Iterator[Standing]:
        for standing in self._waiting(but):
            if choose(needs_of(standing.workload), self._room) is not None:
                yield standing

    def _keep_waiting(self, could_be_placed: list[Standing]) -> Iterator[str]:
        for standing in could_be_placed:
            workload = standing.workload
            if choose(needs_of(workload), self._room) is None:
                yield f"{workload.id} goes on waiting: it could have had this room"

    def _let_in(self, but: WorkloadId) -> Iterator[str]:
        """Room that became free goes to those who wait for it."""
        for standing in list(self._waiting_that_fit(but)):
            workload, held = standing.workload, standing.assignment
            after = self._take(workload, held, self._decide(workload, held, standing.belief))
            if after.assignment is not None and not after.waits:
                yield f"{workload.id} no longer waits: it gets room on {after.assignment.node_id}"


def _tell_place(plan: control_pb2.WorkloadPlan, standing: Standing) -> None:
    """Where it would run and why there, or why it would have to wait."""
    message = standing.belief.message if standing.belief is not None else ""
    plan.would_wait = standing.waits and standing.workload.desired is Desired.RUNNING
    if plan.would_wait or standing.assignment is None:
        plan.reason = message
        return
    plan.node_id = standing.assignment.node_id
    if plan.node_id != plan.current_node_id:
        plan.reason = standing.assignment.why
