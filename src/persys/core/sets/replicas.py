"""Rules for the number of members: delete those that should not exist, create those that are missing.

A healthy member is deleted only if enough others are healthy, or if its index has another one that passed its
gate. So a set that is scaled in while other members are lost keeps its healthy members until those return.
"""

from collections import defaultdict

from msgspec.structs import replace

from persys.core.sets.members import member_id, new_numbers
from persys.core.sets.phases import stopped
from persys.core.sets.situation import MemberIntent, MemberState, SetEvent
from persys.core.sets.slots import Case, Slot, Step, intent_of, is_healthy, is_unknown
from persys.model.event import EventKind
from persys.model.ids import WorkloadId
from persys.model.sets import Phase, WorkloadSet
from persys.model.workload import Desired


def delete_all(case: Case) -> Step | None:
    """The set is being deleted: delete its members, then the set."""
    members = case.situation.members
    if not members:
        return Step(None, events=(SetEvent(EventKind.SET_DELETED, "all members are deleted"),))
    rest = sorted(
        (member for member in members if member.desired is not Desired.DELETED),
        key=lambda one: -one.index,
    )
    waits = f"{len(members)} members are being deleted"
    return Step(case.record, delete=_ids(rest[: case.room]), waits_for=waits)


def stop_all(case: Case) -> Step | None:
    """The set is stopped: its members are stopped at the target revision, without gates."""
    doomed = list(case.surplus)
    puts: list[MemberIntent] = []
    for slot in case.slots:
        kept = slot.current or slot.previous
        doomed += [*slot.extra, *(one for one in slot.members if one is not kept)]
        if kept and (kept.revision, kept.desired) != (case.record.target, Desired.STOPPED):
            puts.append(intent_of(slot, kept.number, case.record.target, Desired.STOPPED))
    put = tuple(puts[: case.room])
    delete = _ids(doomed[: case.room - len(put)])
    is_idle = case.record.rollout.phase is Phase.STEADY
    record = case.record if is_idle else stopped(case.record, case.now)
    return Step(record, put, delete) if put or delete or not is_idle else None


def forget_replaced(case: Case) -> Step | None:
    """The workload that the set has replaced is deleted."""
    if not case.record.replaces or case.situation.replaced_exists:
        return None
    return Step(replace(case.record, replaces=WorkloadId("")))


def delete_surplus(case: Case) -> Step | None:
    """Members whose index or node should not have one: the highest index first."""
    if not case.surplus:
        return None
    by_index = defaultdict[int, list[MemberState]](list)
    for member in case.surplus:
        by_index[member.index].append(member)
    healthy = {index for index, members in by_index.items() if any(map(is_healthy, members))}
    spare = case.healthy_count + len(healthy) - case.healthy_required
    doomed: list[MemberState] = []
    for index in sorted(by_index, reverse=True):
        members = sorted(by_index[index], key=lambda one: (not is_healthy(one), one.number))
        # With one member per node, a member does not stand in for one on another node.
        if index in healthy and not case.record.every_node:
            if spare <= 0:
                doomed += members[1:]
                continue
            spare -= 1
        doomed += members
    deleted = doomed[: case.room]
    return Step(_with_homes(case, deleted), delete=_ids(deleted)) if deleted else None


def _with_homes(case: Case, deleted: list[MemberState]) -> WorkloadSet:
    """The record with the nodes where data of these members stays. It is stored before they are deleted."""
    record = case.record
    if record.every_node or not case.leaves_data:
        return record
    homes = {one.workload_id: one.node_id for one in deleted if one.node_id is not None}
    return replace(record, homes=record.homes | homes)


def delete_extra(case: Case) -> Step | None:
    """More than one member of an index: of each revision the best stays, and one that is proven replaces
    the others."""
    doomed: list[MemberState] = []
    for slot in case.slots:
        doomed += slot.extra
        if slot.previous is not None and _is_replaced(slot, case):
            doomed.append(slot.previous)
    return Step(case.record, delete=_ids(doomed[: case.room])) if doomed else None


def _is_replaced(slot: Slot, case: Case) -> bool:
    """Whether the previous member of the slot may be deleted because of its current one."""
    previous = slot.previous
    if slot.current is None or previous is None or case.record.rollout.phase is Phase.PAUSED:
        return False
    if slot.has_passed:
        return True
    # The set has returned to a proven revision: an unproven one is removed even if it is not replaced yet.
    may_be_healthy = is_healthy(previous) or is_unknown(previous)
    return case.record.target == case.record.stable and not may_be_healthy


def start(case: Case) -> Step | None:
    """Members that are stopped although the set runs: start all of them, with their revisions."""
    puts = tuple(
        intent_of(slot, member.number, _known(member, case))
        for slot in case.slots
        for member in slot.members
        if member.desired is not Desired.RUNNING
    )
    return Step(case.record, put=puts[: case.room]) if puts else None


def _known(member: MemberState, case: Case) -> int:
    stored = member.revision in case.situation.templates
    return member.revision if stored else case.record.target


def create_missing(case: Case) -> Step | None:
    """Indexes without a member: create all of them at once, with a proven revision if there is one."""
    record = case.record
    is_steady = record.rollout.phase is Phase.STEADY
    revision = record.target if is_steady else record.stable or record.target
    missing = [slot for slot in case.slots if slot.is_missing and not _waits_for_former(slot, case)]
    return Step(case.record, put=new_members(case, missing, revision)) if missing else None


def new_members(case: Case, slots: list[Slot], revision: int) -> tuple[MemberIntent, ...]:
    """One more member for each of these slots, as many as the decision may create."""
    chosen = slots[: case.room]
    numbers = new_numbers([slot.index for slot in chosen], case.used_numbers)
    homes, set_id = case.situation.homes, case.record.set_id
    return tuple(
        intent_of(slot, number, revision, home=homes.get(member_id(set_id, number)))
        for slot in chosen
        for number in (numbers[slot.index],)
    )


def _waits_for_former(slot: Slot, case: Case) -> bool:
    """An index with data keeps its number, so its last member must be gone before it has a new one."""
    return slot.former is not None and case.holds_data


def why_incomplete(case: Case) -> str:
    """Why the set does not have exactly the members that it should have; "" if it has."""
    for slot in case.slots:
        if slot.is_missing:
            return f"{slot.former or member_id(case.record.set_id, slot.index)}: is being deleted"
        if slot.previous is not None and slot.current is not None:
            return f"{slot.previous.workload_id}: is deleted when {slot.current.workload_id} is healthy"
    if case.surplus:
        return f"{case.surplus[0].workload_id}: is kept, {why_too_few(case)}"
    return ""


def why_too_few(case: Case) -> str:
    required = case.healthy_required
    must = "are required" if case.healthy_count < required else "must remain"
    return f"only {case.healthy_count} of {len(case.slots)} members are healthy, {required} {must}"


def _ids(members: list[MemberState]) -> tuple[WorkloadId, ...]:
    return tuple(member.workload_id for member in members)
