"""Checks of sets: promises 14, 15 and 17.

Health is that of the containers on the nodes, not of the records. A member whose container has just ended by
itself, or whose node cannot report it, still counts as healthy: no scheduler could know better.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from persys.core.placement.requirements import holds_data
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Node, NodeStatus
from persys.model.sets import Phase, Template, UpdatePolicy, WorkloadSet
from persys.model.spec import ContainerSpec
from persys.model.status import Status
from persys.model.workload import Desired, Membership, Workload
from persys.sim.checks.context import Facts
from persys.sim.fakes.docker import Container, behaves_like
from persys.store import keys
from persys.wire.gen.control.v1 import control_pb2

NEVER = float("-inf")
# Until the scheduler knows that a container has ended, and until what it decided before is stored.
NOTICE_SECONDS = 20.0
# A decision may be based on a record that a user has changed since.
DECIDED_SECONDS = 15.0
REQUEST_SECONDS = 60.0  # a request may be processed this much later
_NEVER_HEALTHY = frozenset({"missing", "refused", "sick"})
_LOST_CODES = frozenset({"NodeNotReady", "NodeLost"})


@dataclass(slots=True)
class _Rollout:
    """The indexes that have run the target revision since the rollout or its last change by a user."""

    target: int
    started_at: datetime | None
    settings: tuple[int, UpdatePolicy, datetime | None]
    affected: set[int] = field(default_factory=set)
    # Their node was lost, or its reports had arbitrary content.
    excused: set[int] = field(default_factory=set)
    was_stopped: bool = False  # then all members have the target revision, without gates


@dataclass(frozen=True, slots=True)
class Limits:
    """What a set allowed until a point in time."""

    until: float
    replicas: int
    healthy_required: int


class SetChecks:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._rollouts: dict[str, _Rollout] = {}
        self._limits: dict[str, deque[Limits]] = {}
        self._rolled_back: set[str] = set()  # since the last request for a revision
        self._requested: dict[tuple[str, str], float] = {}  # by set and method
        self._applied: dict[str, str] = {}  # the variant of the last template, by set
        # When a container of a member was last healthy, by its revision.
        self._healthy_at: dict[tuple[WorkloadId, str], float] = {}
        self._healthy_since: dict[str, float] = {}  # by container

    def requested(self, set_id: str, method: str, request: Any) -> None:
        self._requested[set_id, method] = self._facts.probe.time()
        if isinstance(request, control_pb2.ApplySetRequest) and request.set.HasField("template"):
            self._applied[set_id] = request.set.template.container.env["VARIANT"]

    def forget(self) -> None:
        """The store was lost: records may be of any age."""
        self._rollouts.clear()
        self._limits.clear()
        self._rolled_back.clear()

    def look(self) -> None:
        """Note the healthy containers."""
        now, before = self._facts.probe.time(), self._healthy_since
        self._healthy_since = {}
        for containers in self._facts.probe.live().values():
            for container in containers:
                if container.is_healthy and container.workload_id in self._facts.mirror.memberships:
                    self._healthy_at[container.workload_id, container.revision] = now
                    self._healthy_since[container.id] = before.get(container.id, now)

    def container_stops(self, container: Container) -> None:
        """By its agent, as ordered: from now on it does not count as healthy."""
        self._healthy_at.pop((container.workload_id, container.revision), None)

    def committed(
        self, sets: Mapping[str, WorkloadSet | None], workloads: Mapping[str, Workload | None]
    ) -> None:
        """The records before the commit, by key."""
        if self._facts.losses.open:
            return
        self.look()
        for key, old in sorted(sets.items()):
            self._record_changed(key, old, self._facts.mirror.sets.get(key))
        changed: dict[str, list[Workload]] = {}
        for _, workload in sorted(workloads.items()):
            membership = workload.membership if workload is not None else None
            if workload is not None and membership is not None and not membership.job_id:
                changed.setdefault(membership.owner, []).append(workload)
        for set_id, members in changed.items():
            self._check_data(set_id, members)
            self._check_availability(set_id, members)
        touched = {key.removeprefix(keys.SETS) for key in sets} | changed.keys()
        touched |= {
            one.owner
            for key in workloads
            if (one := self._membership(key)) is not None and not one.job_id
        }
        for set_id in sorted(touched):
            self._check_batch(set_id)

    def answered(self, method: str, request: Any, answer: control_pb2.SetAnswer) -> None:
        """What was accepted is stored. The requests for one set follow each other."""
        if not answer.accepted or self._facts.losses.open:
            return
        set_id = request.set.set_id if method == "ApplySet" else request.set_id
        record = self._facts.mirror.sets.get(keys.set_key(set_id))
        if method == "DeleteSet":
            if record is not None and record.desired is not Desired.DELETED:
                self._facts.fail("1 acknowledged", f"the deletion of set {set_id} is not stored")
        elif record is None:
            self._facts.fail("1 acknowledged", f"{method}: set {set_id} is not stored")
        elif method == "ScaleSet" and record.replicas != request.replicas:
            text = f"set {set_id} has {record.replicas} replicas, not {request.replicas}"
            self._facts.fail("1 acknowledged", text)
        elif method == "ApplySet" and request.set.HasField("template"):
            variant = request.set.template.container.env["VARIANT"]
            numbers = (record.target, record.rollout.rolled_back_from)
            if not any(self._variant(set_id, number) == variant for number in numbers):
                text = f"set {set_id} does not have the applied template {variant}"
                self._facts.fail("1 acknowledged", text)

    def _variant(self, set_id: str, number: int) -> str:
        template = self._facts.mirror.template(set_id, number)
        spec = template.spec if template is not None else None
        return spec.env["VARIANT"] if isinstance(spec, ContainerSpec) else ""

    def _membership(self, key: str) -> Membership | None:
        workload = self._facts.mirror.workloads.get(key)
        return workload.membership if workload is not None else None

    # The record

    def _record_changed(self, key: str, old: WorkloadSet | None, new: WorkloadSet | None) -> None:
        set_id, fail = key.removeprefix(keys.SETS), self._facts.fail
        if old is not None and (new is None or new.desired is Desired.DELETED):
            if old.desired is not Desired.DELETED and not self._was_requested(set_id, "DeleteSet"):
                fail("1 acknowledged", f"set {set_id} was deleted without a request")
            if new is None and (left := self._facts.mirror.members(set_id)):
                fail("17 rollout ends", f"set {set_id} is deleted and has {left[0].id}")
        if old is None or new is None:
            self._limits.pop(set_id, None)
            return
        self._note_limits(old)
        if new.target == old.target:
            return
        if new.rollout.rolled_back_from == old.target:
            if set_id in self._rolled_back:
                fail("15 one rollback", f"set {set_id} was rolled back twice after one change")
            self._rolled_back.add(set_id)
            return
        self._rolled_back.discard(set_id)
        is_applied = self._was_requested(set_id, "ApplySet") and (
            self._applied.get(set_id) == self._variant(set_id, new.target)
        )
        if not is_applied and not self._was_requested(set_id, "UndoRollout"):
            text = f"set {set_id} changed from revision {old.target} to {new.target}"
            fail("15 one rollback", f"{text} without a request")

    def _was_requested(self, set_id: str, method: str) -> bool:
        asked = self._requested.get((set_id, method), NEVER)
        return self._facts.probe.time() - asked < REQUEST_SECONDS

    # Promise 14

    def _check_availability(self, set_id: str, before: Iterable[Workload]) -> None:
        mirror = self._facts.mirror
        record = mirror.sets.get(keys.set_key(set_id))
        if record is None or record.desired is not Desired.RUNNING:
            return
        removed = [
            member
            for member in before
            if self._is_removed(member)
            and self._is_known_healthy(member)
            and not _exits(member)
            and not self._is_lost(member.id)
        ]
        after = [one for one in mirror.members(set_id) if one.desired is Desired.RUNNING]
        healthy = {_index(member) for member in after if self._is_healthy(member)}
        lost = {_index(member) for member in removed} - healthy
        if record.every_node:
            lost -= {_index(one) for one in removed} - {_index(one) for one in after}
            nodes = {
                one.membership.node_id
                for one in after
                if one.membership is not None and self._is_kept(one.membership.node_id)
            }
            required = len(nodes) - record.update.max_parallel
        else:
            required = min(one.healthy_required for one in self._recent_limits(record))
        if lost and len(healthy) < required:
            text = f"healthy members of set {set_id} were removed at index {min(lost)}"
            count = f"{len(healthy)} are left of {record.replicas}, {required} are required"
            self._facts.fail("14 availability", f"{text}: {count}")

    def _is_kept(self, node_id: NodeId) -> bool:
        node = self._facts.mirror.nodes.get(keys.node_key(node_id))
        return node is not None and may_have_member(node)

    def _is_removed(self, old: Workload) -> bool:
        new = self._facts.mirror.workload(old.id)
        if old.desired is not Desired.RUNNING:
            return False
        return new is None or new.desired is not Desired.RUNNING or new.revision != old.revision

    def _running(self, member: Workload) -> Container | None:
        """The healthy container of it on its node, at its revision."""
        assignment = self._facts.mirror.assignment(member.id)
        if assignment is None:
            return None
        for one in self._facts.probe.live().get(assignment.node_id, ()):
            if one.workload_id == member.id and one.revision == member.revision and one.is_healthy:
                return one
        return None

    def _is_known_healthy(self, member: Workload) -> bool:
        """Whether it has been healthy for so long that the scheduler must know it."""
        container, assignment = self._running(member), self._facts.mirror.assignment(member.id)
        if container is None or assignment is None:
            return False
        since = self._healthy_since.get(container.id, self._facts.probe.time())
        if self._facts.probe.time() - since < NOTICE_SECONDS:
            return False
        return not self._is_cut(assignment.node_id, since)

    def _is_healthy(self, member: Workload) -> bool:
        if self._running(member) is not None:
            return True
        seen_at = self._healthy_at.get((member.id, member.revision))
        if seen_at is None:
            return False
        if self._facts.probe.time() - seen_at < NOTICE_SECONDS:
            return True
        assignment = self._facts.mirror.assignment(member.id)
        status = self._facts.mirror.workload_status(member.id)
        is_recorded = (
            assignment is not None
            and status is not None
            and status.status is Status.RUNNING
            and status.healthy_since is not None
            and (status.revision, status.epoch) == (member.revision, assignment.epoch)
        )
        return is_recorded and assignment is not None and self._is_cut(assignment.node_id, seen_at)

    def _is_cut(self, node_id: NodeId, since: float) -> bool:
        """Whether the node could not report what happened at this time."""
        contacts = self._facts.contacts
        heard = contacts.last_contact.get(node_id, NEVER) > since + NOTICE_SECONDS
        return not heard or contacts.hindered.get(node_id, NEVER) >= since - 1

    def _note_limits(self, old: WorkloadSet) -> None:
        """The limits of the record until now."""
        replaced = self._limits.setdefault(old.set_id, deque(maxlen=20))
        replaced.append(_limits(old, self._facts.probe.time()))

    def _recent_limits(self, record: WorkloadSet) -> list[Limits]:
        now = self._facts.probe.time()
        past = self._limits.get(record.set_id, ())
        return [
            _limits(record, now),
            *(one for one in past if now - one.until < DECIDED_SECONDS),
        ]

    # Promise 10

    def _check_data(self, set_id: str, before: Iterable[Workload]) -> None:
        """A member with data is deleted only with its index or its set."""
        mirror = self._facts.mirror
        record = mirror.sets.get(keys.set_key(set_id))
        if record is None or record.desired is Desired.DELETED or record.every_node:
            return
        least = min(one.replicas for one in self._recent_limits(record))
        for old in before:
            new = mirror.workload(old.id)
            if not holds_data(old) or old.desired is Desired.DELETED:
                continue
            if (new is None or new.desired is Desired.DELETED) and _index(old) < least:
                text = f"{old.id} has data and was deleted, although set {set_id} has its index"
                self._facts.fail("10 data", text)

    # Promise 15

    def _check_batch(self, set_id: str) -> None:
        record = self._facts.mirror.sets.get(keys.set_key(set_id))
        if record is None:
            self._rollouts.pop(set_id, None)
            return
        template = self._facts.mirror.template(set_id, record.target)
        if not is_never_healthy(template):
            self._rollouts.pop(set_id, None)
            return
        if record.stable == record.target and not self._facts.contacts.untrusted:
            text = f"revision {record.target} of set {set_id} is stable, and cannot become healthy"
            self._facts.fail("15 one batch", text)
        if record.stable:
            self._check_affected(record)

    def _check_affected(self, record: WorkloadSet) -> None:
        rollout = self._rollout(record)
        for member in self._facts.mirror.members(record.set_id):
            assert member.membership is not None
            if member.membership.revision != record.target or member.desired is Desired.DELETED:
                continue
            index = member.membership.index
            is_excused = self._is_lost(member.id) or self._is_untrusted(member.id)
            (rollout.excused if is_excused else rollout.affected).add(index)
        found = rollout.affected - rollout.excused
        if len(found) > record.update.max_parallel and not rollout.was_stopped:
            text = f"{len(found)} indexes of set {record.set_id} have run revision {record.target}"
            self._facts.fail("15 one batch", f"{text}, which cannot become healthy")

    def _rollout(self, record: WorkloadSet) -> _Rollout:
        known = self._rollouts.get(record.set_id)
        started_at, resumed_at = record.rollout.started_at, record.rollout.resumed_at
        settings = (record.replicas, record.update, resumed_at)
        was_stopped = record.desired is not Desired.RUNNING
        if known is not None and known.target == record.target:
            was_stopped = was_stopped or known.was_stopped
            if (known.started_at, known.settings) == (started_at, settings):
                known.was_stopped = was_stopped
                return known
        rollout = _Rollout(record.target, started_at, settings, was_stopped=was_stopped)
        self._rollouts[record.set_id] = rollout
        return rollout

    def _is_lost(self, workload_id: WorkloadId) -> bool:
        mirror = self._facts.mirror
        assignment = mirror.assignment(workload_id)
        if assignment is None:
            return False
        node = mirror.nodes.get(keys.node_key(assignment.node_id))
        status = mirror.workload_status(workload_id)
        is_unknown = status is not None and status.code in _LOST_CODES
        return node is None or node.status is NodeStatus.NOT_READY or is_unknown

    def _is_untrusted(self, workload_id: WorkloadId) -> bool:
        """Whether its node may have reported a wrong health."""
        assignment = self._facts.mirror.assignment(workload_id)
        return assignment is not None and assignment.node_id in self._facts.contacts.untrusted


def _limits(record: WorkloadSet, until: float) -> Limits:
    required = max(0, record.replicas - record.update.max_parallel)
    return Limits(until, record.replicas, required)


def _index(member: Workload) -> int:
    assert member.membership is not None
    return member.membership.index


def _exits(member: Workload) -> bool:
    """Whether its container exits without a stop: it is not healthy, also while it runs."""
    spec = member.spec
    return isinstance(spec, ContainerSpec) and behaves_like(spec.image)[0] == "faulty"


def is_never_healthy(template: Template | None) -> bool:
    """Whether no member with this template can become healthy."""
    if template is None or not isinstance(template.spec, ContainerSpec):
        return False
    return behaves_like(template.spec.image)[0] in _NEVER_HEALTHY


def unsettled_sets(facts: Facts) -> Iterator[str]:
    """Promise 17: sets that are neither steady nor paused with a reason, one line each."""
    mirror = facts.mirror
    for _, record in sorted(mirror.sets.items()):
        if record.desired is Desired.DELETED:
            yield f"set {record.set_id} is still being deleted"
        elif problem := _rollout_problem(record) or _members_problem(facts, record):
            yield f"set {record.set_id} ({record.rollout.phase}): {problem}"
    for _, workload in sorted(mirror.workloads.items()):
        member = workload.membership
        if member is None or member.job_id or facts.losses.ever:
            continue
        if keys.set_key(member.owner) not in mirror.sets:
            yield f"{workload.id} is left of set {member.owner}"


def _rollout_problem(record: WorkloadSet) -> str:
    rollout = record.rollout
    match rollout.phase:
        case Phase.PAUSED:
            return "" if rollout.reason else "paused without a reason"
        case Phase.CANARY if not record.update.bake_seconds:
            return ""  # it waits for a user
        case Phase.STEADY:
            return ""
        case _:
            return "its rollout has not ended"


def _members_problem(facts: Facts, record: WorkloadSet) -> str:
    indexes: dict[int, list[Workload]] = {}
    for member in facts.mirror.members(record.set_id):
        indexes.setdefault(_index(member), []).append(member)
    if record.desired is Desired.RUNNING:  # a stopped set creates no members
        if not record.every_node and (missing := set(range(record.replicas)) - indexes.keys()):
            return f"index {min(missing)} has no member"
        if record.every_node and (node := _node_without_member(facts, indexes)):
            return f"{node} has no member"
    if record.rollout.phase is not Phase.STEADY:
        return ""
    if not record.every_node and len(indexes) > record.replicas:
        return f"it has a member with index {max(indexes)}"
    for index, members in sorted(indexes.items()):
        if len(members) > 1:
            return f"index {index} has {', '.join(one.id for one in members)}"
        (member,) = members
        assert member.membership is not None
        if member.membership.revision != record.target:
            return f"{member.id} has revision {member.membership.revision}, not {record.target}"
        if member.desired is not record.desired:
            return f"{member.id} should be {record.desired}"
    return ""


def _node_without_member(facts: Facts, indexes: Mapping[int, list[Workload]]) -> str:
    """A node that is open and has no member."""
    has_member = {
        member.membership.node_id
        for members in indexes.values()
        for member in members
        if member.membership is not None
    }
    for node in facts.mirror.nodes.values():
        is_open = node.status is NodeStatus.READY and not node.cordoned
        if is_open and may_have_member(node) and node.id not in has_member:
            return node.id
    return ""


def may_have_member(node: Node) -> bool:
    """Of a set with one member per node."""
    is_leaving = node.drain is not None or node.removing_since is not None or node.confirmed_dead
    return not is_leaving and not node.taints
