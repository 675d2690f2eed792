"""The situation of a set: its record, its members as this scheduler knows them, and its nodes.

The health of a member follows from its stored status, so that a new leader judges like the last one. Only
restarts and the last healthy moment before now are in memory: a new leader counts from its start, so that a
member always has the full time to become healthy.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from persys.core.agent.report import RESTART_COUNT
from persys.core.numbers import whole_number
from persys.core.placement.constraints import holds
from persys.core.placement.filters import repels
from persys.core.placement.requirements import facts_of
from persys.core.sets.members import member_id
from persys.core.sets.rollout import CHANGES_MAX
from persys.core.sets.situation import (
    MemberHealth,
    MemberState,
    SetSituation,
    current_status,
    health_of,
)
from persys.infra.clock import Clock
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import NodeStatus
from persys.model.sets import Phase, SetId, Template, WorkloadSet
from persys.model.spec import type_of
from persys.model.status import Failure, Status, WorkloadStatus
from persys.model.workload import Desired, Membership, Workload
from persys.scheduler.state.cluster import ClusterState, NodeState, WorkloadState
from persys.scheduler.state.members import is_member
from persys.store import keys

# The end of these gives a member the full time to become healthy.
_RESTARTS_WAIT = (MemberHealth.HEALTHY, MemberHealth.LOST, MemberHealth.UNKNOWN)


@dataclass(slots=True)
class _Tracked:
    """What only this process knows about a member, at one revision and epoch."""

    run: tuple[str, int]
    restart_count: int = 0  # as last reported
    restarts: int = 0
    health: MemberHealth = MemberHealth.STARTING
    # The last time at which it stopped to be healthy, or its node returned.
    waits_since: datetime | None = None


class MemberStates:
    def __init__(self, cluster: ClusterState, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._since = clock.now()
        self._tracked: dict[WorkloadId, _Tracked] = {}
        self._known: dict[WorkloadId, MemberState] = {}  # until the member or its node changes

    def begin_to_lead(self) -> None:
        """What the previous leader knew is not known."""
        self._since = self._clock.now()
        self._tracked.clear()
        self._known.clear()

    def member_changed(self, workload_id: WorkloadId) -> None:
        self._known.pop(workload_id, None)
        if workload_id not in self._cluster.workloads:
            self._tracked.pop(workload_id, None)

    def node_changed(self, node_id: NodeId) -> None:
        if self._known:
            for workload_id in self._cluster.on_node.get(node_id, ()):
                self._known.pop(workload_id, None)

    def templates(self, record: WorkloadSet) -> dict[int, Template]:
        """The stored revisions."""
        stored = self._cluster.set_revisions
        return {
            number: found.template
            for number in record.revisions
            if (found := stored.get(f"{record.set_id}/{number}")) is not None
        }

    def situation(
        self, record: WorkloadSet, templates: dict[int, Template] | None = None
    ) -> SetSituation:
        """`templates` None: the stored ones."""
        members = tuple(self.members(record.set_id))
        if templates is None:
            templates = self.templates(record)
        nodes: tuple[NodeId, ...] = ()
        if record.every_node and record.target in templates:
            nodes = tuple(self.nodes(record.set_id, templates[record.target]))
        wanted = len(nodes) if record.every_node else record.replicas
        return SetSituation(
            record,
            templates,
            members,
            taken_numbers=self._taken_numbers(record, members, wanted),
            nodes=nodes,
            homes=self._homes(record),
            replaced_exists=self._replaced_exists(record),
        )

    def _homes(self, record: WorkloadSet) -> dict[WorkloadId, NodeId]:
        """Without nodes that do not return: a new member starts elsewhere, without the data."""
        nodes = self._cluster.nodes
        return {
            workload_id: node_id
            for workload_id, node_id in record.homes.items()
            if (found := nodes.get(node_id)) is not None
            and not found.node.confirmed_dead
            and found.node.removing_since is None
        }

    def members(self, set_id: SetId) -> Iterator[MemberState]:
        """All of them, also those that are being deleted."""
        now, known = self._clock.now(), self._known
        for workload_id in self._cluster.members.of(set_id):
            state = known.get(workload_id)
            if state is None:
                entry = self._cluster.workloads[workload_id]
                membership = entry.workload.membership
                if membership is None or not is_member(entry.workload, set_id):
                    continue
                state = known[workload_id] = self._member(entry, membership, now)
            yield state

    def nodes(self, set_id: SetId, template: Template) -> Iterator[NodeId]:
        """The nodes that should have a member, of a set with one member per node.

        A node that cannot take a member now keeps the one that it has, unless it is drained or removed.
        """
        has_member = {
            entry.workload.membership.node_id
            for workload_id in self._cluster.members.of(set_id)
            if (entry := self._cluster.workloads[workload_id]).workload.membership is not None
        }
        for node_id, member in self._cluster.nodes.items():
            if _matches(member, template) and (node_id in has_member or _is_open(member)):
                yield node_id

    def _member(self, entry: WorkloadState, membership: Membership, now: datetime) -> MemberState:
        workload, assignment = entry.workload, entry.assignment
        status = current_status(workload, assignment, entry.workload_status)
        health = self._health(entry)
        tracked = self._track(entry, status, health, now)
        changed = [self._not_ahead(workload.updated_at, now), self._since]
        if assignment is not None:
            changed.append(self._not_ahead(assignment.assigned_at, now))
        if tracked.waits_since is not None:
            changed.append(tracked.waits_since)
        return MemberState(
            workload.id,
            membership.number,
            membership.index,
            membership.revision,
            workload.desired,
            health,
            waiting_since=max(changed),
            changed_at=self._not_ahead(workload.updated_at, now),
            healthy_since=self._healthy_since(status, now),
            final=health is MemberHealth.FAILED and _is_final(entry),
            restarts=tracked.restarts,
            reason=_reason(entry, status, health),
            node_id=assignment.node_id if assignment is not None else None,
            pinned_node=membership.node_id or None,
        )

    def _healthy_since(self, status: WorkloadStatus | None, now: datetime) -> datetime | None:
        if status is None or status.healthy_since is None:
            return None
        return self._not_ahead(status.healthy_since, now)

    def _not_ahead(self, at: datetime, now: datetime) -> datetime:
        """A stored time that is later than now is from a wrong clock: this leader counts from its start."""
        return at if at <= now else self._since

    def _health(self, entry: WorkloadState) -> MemberHealth:
        assignment = entry.assignment
        member = self._cluster.nodes.get(assignment.node_id) if assignment is not None else None
        node = member.node if member is not None else None
        return health_of(entry.workload, assignment, entry.workload_status, node)

    def _track(
        self,
        entry: WorkloadState,
        status: WorkloadStatus | None,
        health: MemberHealth,
        now: datetime,
    ) -> _Tracked:
        """Count restarts, and note when it stops to be healthy and when its node returns."""
        workload = entry.workload
        epoch = entry.assignment.epoch if entry.assignment is not None else 0
        run = (workload.revision, epoch)
        tracked = self._tracked.get(workload.id)
        count = _restart_count(status)
        if tracked is None or tracked.run != run:
            tracked = self._tracked[workload.id] = _Tracked(run, count, count)
        elif count != tracked.restart_count:
            # The runtime begins to count again after a while without a restart.
            more = count - tracked.restart_count if count > tracked.restart_count else max(1, count)
            tracked.restart_count, tracked.restarts = count, tracked.restarts + more
        if health is not tracked.health and tracked.health in _RESTARTS_WAIT:
            tracked.waits_since = now
        tracked.health = health
        return tracked

    def _taken_numbers(
        self, record: WorkloadSet, members: Iterable[MemberState], wanted: int
    ) -> frozenset[int]:
        """Of the numbers that the next decision could use. A complete set gets no new member.

        A new member prefers the number of its index, and otherwise gets the lowest free number.
        """
        used = {member.number for member in members}
        if record.rollout.phase is Phase.STEADY and len(used) == wanted:
            return frozenset()
        taken: set[int] = set()
        number, free, missing = 0, 0, 0
        needed = min(CHANGES_MAX, 2 * wanted)  # each member may have a replacement
        while free <= needed or (missing <= needed and number < wanted):
            if number not in used:
                missing += 1
                if self._is_taken(member_id(record.set_id, number)):
                    taken.add(number)
                else:
                    free += 1
            number += 1
        return frozenset(taken)

    def _is_taken(self, workload_id: WorkloadId) -> bool:
        """An unreadable record may be that of a workload."""
        cluster = self._cluster
        return (
            workload_id in cluster.workloads
            or workload_id in cluster.sets
            or workload_id in cluster.jobs
            or bool(cluster.quarantine.reason(keys.workload_key(workload_id)))
        )

    def _replaced_exists(self, record: WorkloadSet) -> bool:
        if not record.replaces:
            return False
        entry = self._cluster.workloads.get(record.replaces)
        return entry is not None and is_replaceable(entry.workload)


def is_replaceable(workload: Workload) -> bool:
    """Whether a set with its id replaces it: it is plain, and not being deleted."""
    return workload.membership is None and workload.desired is not Desired.DELETED


def _restart_count(status: WorkloadStatus | None) -> int:
    if status is None:
        return 0
    return whole_number(status.metadata.get(RESTART_COUNT, "")) or 0


def _is_final(entry: WorkloadState) -> bool:
    """Whether the scheduler does not retry it automatically."""
    status, retry = entry.workload_status, entry.retry
    failure: Failure | None = status.failure if status is not None else None
    if failure is None:
        return True  # it has completed, which a member of a set must not
    gave_up = (
        retry is not None and retry.next_at is None and retry.revision == entry.workload.revision
    )
    return gave_up or not failure.retryable


def _reason(entry: WorkloadState, status: WorkloadStatus | None, health: MemberHealth) -> str:
    if entry.back_off is not None:
        return entry.back_off.text
    if health in (MemberHealth.HEALTHY, MemberHealth.STOPPED):
        return ""
    if status is not None:
        return status.message
    # Before the first report: why it waits, not an earlier failure.
    pending = entry.workload_status
    if pending is not None and pending.status in (Status.PENDING, Status.UNKNOWN):
        return pending.message
    return ""


def _matches(member: NodeState, template: Template) -> bool:
    node = member.node
    facts = facts_of(node)
    return (
        type_of(template.spec) in node.capabilities.types - member.refused_types
        and node.drain is None
        and node.removing_since is None
        and not node.confirmed_dead
        and not repels(node.taints, template.rules)
        and all(holds(constraint, facts) for constraint in template.rules.constraints)
    )


def _is_open(member: NodeState) -> bool:
    return not member.node.cordoned and member.node.status is not NodeStatus.NOT_READY
