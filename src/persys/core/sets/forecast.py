"""What a set would change until its rollout is complete, if every changed member becomes healthy.

Used by plans. All members are updated together, so the numbers of new members may differ from those of a real
rollout, which updates a few at a time and uses the numbers of deleted members again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from msgspec.structs import replace as replace_record

from persys.core.sets.members import member_id
from persys.core.sets.rollout import decide
from persys.core.sets.situation import (
    MemberHealth,
    MemberIntent,
    MemberState,
    SetDecision,
    SetSituation,
)
from persys.model.ids import WorkloadId
from persys.model.sets import REPLICAS_MAX, WorkloadSet
from persys.model.workload import Desired

_DECISIONS_MAX = 200


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """Create or change the member of an intent, or delete a member.

    `index`: that of the member, which a replacement shares with the member that it replaces.
    """

    workload_id: WorkloadId
    index: int
    intent: MemberIntent | None  # None: it is deleted


def forecast(situation: SetSituation, now: datetime) -> Iterator[SetDecision]:
    """The decisions until nothing changes. Each one costs as much as the set has members."""
    record = situation.record
    at_once = replace_record(
        record.update, max_parallel=REPLICAS_MAX, canary=0, bake_seconds=0, min_healthy_seconds=0
    )
    situation = replace(situation, record=replace_record(record, update=at_once))
    for _ in range(_DECISIONS_MAX):
        decision = decide(situation, now)
        is_changed = bool(decision.put or decision.delete) or decision.record != situation.record
        if decision.record is None or not is_changed:
            return
        yield decision
        situation = _after(situation, decision, decision.record, now)


def in_order(situation: SetSituation, decisions: Iterable[SetDecision]) -> list[PlannedChange]:
    """The changes in the sequence of a rollout: it frees capacity before it needs it.

    First come the members whose index should not have one. Then follows index by index: the new or changed
    member, and the deletion of the one that it replaces.
    """
    intents: dict[int, MemberIntent] = {}
    doomed: set[WorkloadId] = set()
    for decision in decisions:
        intents |= {intent.number: intent for intent in decision.put}
        doomed |= set(decision.delete)
    set_id = situation.record.set_id
    changes = [
        PlannedChange(member_id(set_id, intent.number), intent.index, intent)
        for intent in intents.values()
    ]
    kept = {change.index for change in changes}
    changes += [
        PlannedChange(member.workload_id, member.index, None)
        for member in situation.members
        if member.workload_id in doomed
    ]
    return sorted(
        changes,
        key=lambda change: (change.index in kept, change.index, change.intent is None),
    )


def _after(
    situation: SetSituation, decision: SetDecision, record: WorkloadSet, now: datetime
) -> SetSituation:
    doomed = set(decision.delete)
    members = {
        member.number: member
        for member in situation.members
        if member.workload_id not in doomed and member.health is not MemberHealth.DELETING
    }
    for intent in decision.put:
        old = members.get(intent.number)
        members[intent.number] = _changed(old, intent, record, now)
    return replace(
        situation,
        record=record,
        members=tuple(members.values()),
        replaced_exists=situation.replaced_exists and not decision.delete_replaced,
    )


def _changed(
    old: MemberState | None, intent: MemberIntent, record: WorkloadSet, now: datetime
) -> MemberState:
    runs = intent.desired is Desired.RUNNING
    return MemberState(
        member_id(record.set_id, intent.number),
        intent.number,
        intent.index,
        intent.revision,
        intent.desired,
        MemberHealth.HEALTHY if runs else MemberHealth.STOPPED,
        waiting_since=now,
        changed_at=now,
        healthy_since=now if runs else None,
        node_id=old.node_id if old else None,
        pinned_node=intent.pinned_node,
    )
