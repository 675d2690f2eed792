"""A dry run of ApplySet: the set, then each member that it would create, change or delete.

The members are planned as if the rollout ended well, on the placement index of the whole plan.
"""

from collections import Counter

from msgspec.structs import replace

from persys.core.intent.field_changes import changed_fields
from persys.core.sets.changes import SetChange
from persys.core.sets.forecast import PlannedChange, forecast, in_order
from persys.core.sets.members import member_workload, order_of
from persys.core.sets.situation import SetSituation
from persys.errors import InvalidError, RefusedError
from persys.infra.aio.offload import TimeSlice
from persys.infra.clock import Clock
from persys.model.sets import Template, WorkloadSet
from persys.model.workload import Desired, Workload
from persys.scheduler.queries.plan import PlanBuilder
from persys.scheduler.sets.member_states import MemberStates
from persys.scheduler.sets.set_api import SetRequests, in_set
from persys.scheduler.sets.sets import Sets
from persys.wire.control.planning import change_messages
from persys.wire.control.sets import set_fields
from persys.wire.gen.control.v1 import control_pb2

_WORDS = ("create", "update", "start", "stop", "delete")


class SetPlanner:
    def __init__(
        self, sets: Sets, states: MemberStates, requests: SetRequests, clock: Clock
    ) -> None:
        self._sets = sets
        self._states = states
        self._requests = requests
        self._clock = clock

    async def plan(
        self,
        message: control_pb2.SetSpec,
        planning: PlanBuilder,
        slices: TimeSlice,
        *,
        prefix: str,
    ) -> list[control_pb2.WorkloadPlan]:
        """The plan of the set and of its changed members, or one that is refused."""
        plan = control_pb2.WorkloadPlan(workload_id=message.set_id)
        try:
            patch = await self._requests.parse(message, "", prefix=prefix)
            old = self._sets.find(patch.set_id)
            outcome = self._sets.applied(old, patch, now=self._clock.now(), caller="")
        except RefusedError as err:
            plan.action = "refused"
            plan.reason = str(in_set(err)) if isinstance(err, InvalidError) else str(err)
            return [plan]
        record = outcome.record
        templates = self._states.templates(record)
        if isinstance(outcome, SetChange) and outcome.revision is not None:
            templates[outcome.revision.number] = outcome.revision.template
        self._note_fields(plan, old, record, templates)
        situation = self._states.situation(record, templates)
        decisions = []
        for decision in forecast(situation, self._clock.now()):
            decisions.append(decision)
            await slices.between()
        members = []
        for change in in_order(situation, decisions):
            if (planned := self._member(change, situation, planning)) is not None:
                members.append(planned)
            await slices.between()
        plan.reason = _summary(record, templates, members)
        return [plan, *members]

    def _note_fields(
        self,
        plan: control_pb2.WorkloadPlan,
        old: WorkloadSet | None,
        record: WorkloadSet,
        templates: dict[int, Template],
    ) -> None:
        before = set_fields(old, templates.get(old.target)) if old is not None else {}
        after = set_fields(record, templates.get(record.target))
        plan.changes.extend(change_messages(changed_fields(before, after)))
        changed = "update" if plan.changes else "none"
        plan.action = "create" if old is None else changed

    def _member(
        self, change: PlannedChange, situation: SetSituation, planning: PlanBuilder
    ) -> control_pb2.WorkloadPlan | None:
        old = planning.present(change.workload_id)
        new: Workload | None = None
        if change.intent is not None:
            template = situation.templates[change.intent.revision]
            now = self._clock.now()
            new = member_workload(situation.record, template, change.intent, old, now)
        elif old is not None:
            new = replace(old, desired=Desired.DELETED)
        return planning.change(new) if new is not None and new is not old else None


def _summary(
    record: WorkloadSet,
    templates: dict[int, Template],
    members: list[control_pb2.WorkloadPlan],
) -> str:
    counts = Counter(plan.action for plan in members)
    parts = [f"{counts[word]} to {word}" for word in _WORDS if counts[word]]
    waiting = sum(plan.would_wait for plan in members)
    if waiting:
        parts.append(f"{waiting} would be pending")
    text = f"members: {', '.join(parts)}" if parts else "its members are unchanged"
    template = templates.get(record.target)
    if record.stable and record.target != record.stable and template is not None:
        order = order_of(record.update, template)
        text += f"; rollout to revision {record.target}, {order}, {record.update.max_parallel} at a time"
        if record.update.canary:
            text += f", {record.update.canary} canary members first"
    return text
