"""The views of sets. A view is decided as it is read, so it is never behind the members."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from persys.core.sets.rollout import decide
from persys.core.sets.situation import MemberHealth, MemberState, SetDecision, SetSituation
from persys.infra.aio.offload import TimeSlice
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.sets import WorkloadSet
from persys.model.status import Status
from persys.scheduler.sets.member_states import MemberStates
from persys.scheduler.sets.sets import Sets
from persys.scheduler.state.cluster import ClusterState
from persys.wire.control.sets import phase_of, revision_views, set_view
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import timestamp


@dataclass(frozen=True, slots=True)
class SetExplained:
    """What a set does now. `pending` is its first member that is not healthy; None: there is none."""

    summary: str
    rule: str
    pending: WorkloadId | None


class SetViews:
    def __init__(
        self,
        cluster: ClusterState,
        states: MemberStates,
        sets: Sets,
        clock: Clock,
        *,
        problem: Callable[[str], str],
        scale_reason: Callable[[str], str],
    ) -> None:
        """`problem`: why the last pass of a set ended early. `scale_reason`: what its metrics request."""
        self._cluster = cluster
        self._states = states
        self._sets = sets
        self._clock = clock
        self._problem = problem
        self._scale_reason = scale_reason

    def decided(self, record: WorkloadSet) -> tuple[SetSituation, SetDecision, datetime]:
        """What the set would do now. Changes nothing."""
        now = self._clock.now()
        situation = self._states.situation(record)
        return situation, decide(situation, now), now

    def summary(self, record: WorkloadSet) -> control_pb2.SetView:
        """Without members and revisions."""
        situation, decision, _ = self.decided(record)
        return self._summary(situation, decision)

    async def summaries(self) -> list[control_pb2.SetView]:
        """Of all sets. Other tasks run in between: there may be thousands."""
        slices, views = TimeSlice(self._clock), []
        for record in self._sets.all():
            views.append(self.summary(record))
            await slices.between()
        return views

    async def complete(self, record: WorkloadSet) -> control_pb2.SetView:
        situation, decision, _ = self.decided(record)
        view = self._summary(situation, decision)
        view.revisions.extend(revision_views(self._sets.revisions(record)))
        slices = TimeSlice(self._clock)
        for member in sorted(situation.members, key=lambda one: (one.index, one.number)):
            if (found := self._member(member)) is not None:
                view.members.append(found)
            await slices.between()
        return view

    def explain(self, set_id: str) -> SetExplained | None:
        """None: there is no set with this id."""
        record = self._sets.find(set_id)
        return self._explained(record) if record is not None else None

    def _explained(self, record: WorkloadSet) -> SetExplained:
        situation, decision, _ = self.decided(record)
        waits_for = self._problem(record.set_id) or decision.waits_for
        healthy = sum(one.health is MemberHealth.HEALTHY for one in situation.members)
        state = (
            f"is {phase_of(record)}: {healthy} of {self._wanted(situation)} members are healthy, "
            f"target revision {record.target}, stable revision {record.stable or 'none'}"
        )
        parts = [part for part in (state, record.rollout.reason, waits_for) if part]
        pending = min(
            (one for one in situation.members if one.health is not MemberHealth.HEALTHY),
            key=lambda one: (one.node_id is not None, one.index, one.number),
            default=None,
        )
        name = pending.workload_id if pending is not None else None
        return SetExplained("; ".join(parts), decision.rule, name)

    def _wanted(self, situation: SetSituation) -> int:
        """The number of members that the set should have."""
        record = situation.record
        return len(situation.nodes) if record.every_node else record.replicas

    def _summary(self, situation: SetSituation, decision: SetDecision) -> control_pb2.SetView:
        record, members = situation.record, situation.members
        view = set_view(
            record,
            situation.templates.get(record.target),
            wanted=self._wanted(situation),
            waits_for=self._problem(record.set_id) or decision.waits_for,
        )
        view.scale_reason = self._scale_reason(record.set_id) or record.scale_reason
        view.member_count = len(members)
        view.healthy_count = sum(one.health is MemberHealth.HEALTHY for one in members)
        view.updated_count = sum(
            one.revision == record.target and one.health is not MemberHealth.DELETING
            for one in members
        )
        return view

    def _member(self, member: MemberState) -> control_pb2.MemberView | None:
        """None: it was deleted since the members were read."""
        entry = self._cluster.workloads.get(member.workload_id)
        if entry is None:
            return None
        status = entry.workload_status
        view = control_pb2.MemberView(
            workload_id=member.workload_id,
            index=member.index,
            revision=member.revision,
            status=status.status if status is not None else Status.PENDING,
            node_id=member.node_id or "",
            health=member.health,
            reason=member.reason,
        )
        if member.healthy_since is not None:
            view.healthy_since.CopyFrom(timestamp(member.healthy_since))
        return view
