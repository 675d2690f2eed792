"""The members of a set by index: what each rule of a decision reads, and what it returns.

A slot is an index that should have a member, or the node that should have one. During a start-first update
it has two: `previous` and `current`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import count
from typing import NamedTuple

from msgspec import Struct

from persys.core.sets.gate import Gate, GateState, gate_of
from persys.core.sets.members import holds_data, leaves_data, order_of
from persys.core.sets.phases import IN_PROGRESS
from persys.core.sets.situation import (
    MemberHealth,
    MemberIntent,
    MemberState,
    SetEvent,
    SetSituation,
)
from persys.model.ids import NodeId, WorkloadId
from persys.model.sets import Template, UpdateOrder, WorkloadSet
from persys.model.workload import Desired

_HEALTH_ORDER = {
    MemberHealth.HEALTHY: 0,
    MemberHealth.STARTING: 1,
    MemberHealth.UNKNOWN: 2,
    MemberHealth.LOST: 3,
    MemberHealth.STOPPED: 4,
    MemberHealth.UNHEALTHY: 5,
    MemberHealth.FAILED: 6,
    MemberHealth.DELETING: 7,
}


class Slot(Struct, frozen=True, gc=False):  # there are very many
    """`current` and `previous` are the best members at the target and at other revisions."""

    index: int
    pinned_node: NodeId | None = None
    current: MemberState | None = None
    previous: MemberState | None = None
    extra: tuple[MemberState, ...] = ()
    former: WorkloadId | None = None  # a member of the index that is being deleted
    gate: Gate | None = None  # of `current`; None if nothing depends on it

    @property
    def is_healthy(self) -> bool:
        current, previous = self.current, self.previous
        return (current is not None and is_healthy(current)) or (
            previous is not None and is_healthy(previous)
        )

    @property
    def is_missing(self) -> bool:
        return self.current is None and self.previous is None

    @property
    def is_outdated(self) -> bool:
        return self.current is None and self.previous is not None

    @property
    def has_passed(self) -> bool:
        return self.gate is not None and self.gate.state is GateState.PASSED

    @property
    def is_waiting(self) -> bool:
        return self.gate is not None and self.gate.state is GateState.WAITING

    @property
    def members(self) -> tuple[MemberState, ...]:
        return tuple(member for member in (self.current, self.previous) if member is not None)


@dataclass(frozen=True)
class Case:
    """A situation as the rules see it. `room`: the changes of members that the decision may still make."""

    situation: SetSituation
    now: datetime
    room: int
    slots: tuple[Slot, ...]
    surplus: tuple[MemberState, ...]  # members whose index or node should not have one
    leaving: tuple[MemberState, ...] = ()  # members that are being deleted

    @property
    def record(self) -> WorkloadSet:
        return self.situation.record

    @cached_property
    def used_numbers(self) -> set[int]:
        """The numbers that a new member cannot have. Members that are being deleted still have theirs."""
        return {member.number for member in self.situation.members} | self.situation.taken_numbers

    @cached_property
    def healthy_count(self) -> int:
        return sum(slot.is_healthy for slot in self.slots)

    @property
    def healthy_required(self) -> int:
        return max(0, len(self.slots) - self.record.update.max_parallel)

    @cached_property
    def order(self) -> UpdateOrder:
        """In-place if any of both revisions requires it: data must not be left with a deleted member."""
        orders = {order_of(self.record.update, template) for template in self._templates}
        return UpdateOrder.IN_PLACE if UpdateOrder.IN_PLACE in orders else UpdateOrder.START_FIRST

    @cached_property
    def holds_data(self) -> bool:
        return any(holds_data(template) for template in self._templates)

    @cached_property
    def leaves_data(self) -> bool:
        return any(leaves_data(template) for template in self._templates)

    @property
    def _templates(self) -> list[Template]:
        numbers = {self.record.target, self.record.stable}
        return [
            self.situation.templates[number]
            for number in numbers
            if number in self.situation.templates
        ]


class Step(NamedTuple):
    """What a rule changes, or why nothing is changed now. `record` None: the set is deleted."""

    record: WorkloadSet | None
    put: tuple[MemberIntent, ...] = ()
    delete: tuple[WorkloadId, ...] = ()
    events: tuple[SetEvent, ...] = ()
    wake_at: datetime | None = None
    waits_for: str = ""


class Rule(NamedTuple):
    name: str
    apply: Callable[[Case], Step | None]


def case_of(situation: SetSituation, now: datetime, room: int) -> Case:
    record = situation.record
    live: dict[object, list[MemberState]] = defaultdict(list)
    former: dict[object, WorkloadId] = {}
    leaving: list[MemberState] = []
    for member in situation.members:
        key = member.pinned_node if record.every_node else member.index
        if member.desired is Desired.DELETED:
            former[key] = member.workload_id
            leaving.append(member)
        else:
            live[key].append(member)
    slots = tuple(
        _slot(index, node_id, live.pop(key, ()), former.get(key), record, now)
        for key, (index, node_id) in _wanted(situation).items()
    )
    surplus = tuple(member for members in live.values() for member in members)
    return Case(situation, now, room, slots, surplus, tuple(leaving))


def is_healthy(member: MemberState) -> bool:
    return member.health is MemberHealth.HEALTHY


def is_lost(member: MemberState) -> bool:
    return member.health is MemberHealth.LOST


def is_unknown(member: MemberState) -> bool:
    return member.health is MemberHealth.UNKNOWN


def intent_of(
    slot: Slot,
    number: int,
    revision: int,
    desired: Desired = Desired.RUNNING,
    home: NodeId | None = None,
) -> MemberIntent:
    """`home`: the node of a new member that has data there."""
    return MemberIntent(number, slot.index, revision, desired, slot.pinned_node or home)


def _wanted(situation: SetSituation) -> dict[object, tuple[int, NodeId | None]]:
    """The index and the node of each slot, by its key, ascending by index."""
    if not situation.record.every_node:
        return {index: (index, None) for index in range(situation.record.replicas)}
    nodes = sorted(set(situation.nodes))
    indexes = _indexes_of_nodes(situation.members)
    used = {member.index for member in situation.members}
    free = (index for index in count() if index not in used)
    wanted = [(indexes[node] if node in indexes else next(free), node) for node in nodes]
    return {node: (index, node) for index, node in sorted(wanted)}


def _indexes_of_nodes(members: Iterable[MemberState]) -> dict[NodeId, int]:
    """A node keeps its index while it has a member, also one that is being deleted."""
    indexes: dict[NodeId, int] = {}
    for member in sorted(members, key=lambda one: one.desired is not Desired.DELETED):
        if member.pinned_node is not None:
            indexes[member.pinned_node] = member.index
    return indexes


def _slot(
    index: int,
    pinned_node: NodeId | None,
    members: Sequence[MemberState],
    former: WorkloadId | None,
    record: WorkloadSet,
    now: datetime,
) -> Slot:
    if not members:
        return Slot(index, pinned_node, former=former)
    if len(members) == 1:  # nearly always
        (only,) = members
        if only.revision == record.target:
            in_progress = record.rollout.phase in IN_PROGRESS
            gate = gate_of(only, record, now) if in_progress else None
            return Slot(index, pinned_node, only, former=former, gate=gate)
        return Slot(index, pinned_node, previous=only, former=former)
    current = sorted((member for member in members if member.revision == record.target), key=_rank)
    previous = sorted(
        (member for member in members if member.revision != record.target),
        key=lambda one: (not is_healthy(one), one.revision != record.stable, *_rank(one)),
    )
    return Slot(
        index,
        pinned_node,
        current[0] if current else None,
        previous[0] if previous else None,
        (*current[1:], *previous[1:]),
        former,
        gate_of(current[0], record, now) if current else None,
    )


def _rank(member: MemberState) -> tuple[int, float, int]:
    """The healthy ones first, and of those the longest healthy one."""
    since = member.healthy_since.timestamp() if member.healthy_since else 0.0
    return _HEALTH_ORDER[member.health], since, member.number
