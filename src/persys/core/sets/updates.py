"""Rules of a rollout: start it, judge its members, update the next ones, and end it.

Every rollout ends or pauses: a member that does not pass its gate fails at its deadline, and a rollout that
cannot change anything pauses after the same time. Only a canary waits for a user without limit.
"""

from datetime import datetime

from msgspec.structs import replace

from persys.core.duration import format_duration
from persys.core.sets.gate import GateState, why_failed, why_waiting
from persys.core.sets.phases import (
    IN_PROGRESS,
    begun,
    canary_ready,
    completed,
    paused,
    promoted,
    rolled_back,
    without_future_times,
)
from persys.core.sets.replicas import new_members, why_incomplete, why_too_few
from persys.core.sets.situation import MemberState, SetEvent
from persys.core.sets.slots import Case, Slot, Step, intent_of, is_healthy, is_lost, is_unknown
from persys.model.event import EventKind
from persys.model.sets import OnFailure, Phase, UpdateOrder, WorkloadSet


def correct_clock(case: Case) -> Step | None:
    """The clock of an earlier leader was ahead: deadlines count from now."""
    corrected = without_future_times(case.record, case.now)
    return Step(corrected) if corrected is not case.record else None


def begin(case: Case) -> Step | None:
    """Members do not run the target revision, or it is not proven yet: the set was stopped or empty."""
    record = case.record
    if record.rollout.phase is not Phase.STEADY or not case.slots:
        return None
    if record.target == record.stable and not any(slot.is_outdated for slot in case.slots):
        return None
    event = SetEvent(EventKind.ROLLOUT_STARTED, f"to revision {record.target}")
    rolling = replace(record, rollout=begun(case.now), updated_at=case.now)
    return Step(rolling, events=(event,))


def fail(case: Case) -> Step | None:
    """A member at the target revision failed: roll back once, or pause."""
    record = case.record
    if record.rollout.phase not in IN_PROGRESS:
        return None
    failed = next((slot for slot in case.slots if _state(slot) is GateState.FAILED), None)
    if failed is None:
        return None
    assert failed.current is not None
    why = why_failed(failed.current, record)
    if record.rollout.phase is Phase.ROLLING_BACK:
        return _paused(case, f"the rollback failed: {why}")
    if record.stable in (0, record.target) or record.update.on_failure is OnFailure.PAUSE:
        return _paused(case, why)
    text = f"from revision {record.target} to revision {record.stable}: {why}"
    event = SetEvent(EventKind.ROLLOUT_ROLLED_BACK, text)
    return Step(rolled_back(record, why, case.now), events=(event,))


def complete(case: Case) -> Step | None:
    """Every index has one member, at the target revision, and it passed its gate or is not judged."""
    record = case.record
    if record.rollout.phase not in IN_PROGRESS:
        return None
    if not case.slots:
        return Step(completed(record, case.now, stable=record.stable))
    if not all(_is_done(slot) for slot in case.slots) or not _is_proven(case):
        return None
    text = f"revision {record.target} on {_members(len(case.slots))}"
    event = SetEvent(EventKind.ROLLOUT_COMPLETED, text)
    return Step(completed(record, case.now, stable=record.target), events=(event,))


def finish_canary(case: Case) -> Step | None:
    """All canary members have passed their gates: wait for a promotion."""
    record = case.record
    if record.rollout.phase is not Phase.ROLLING or not _has_canary(record):
        return None
    canary = _scope(case)
    if not all(slot.has_passed for slot in canary):
        return None
    text = f"revision {record.target} on {_members(len(canary))}"
    event = SetEvent(EventKind.ROLLOUT_CANARY_READY, text)
    return Step(canary_ready(record, case.now), events=(event,))


def promote_baked(case: Case) -> Step | None:
    """The canary members were healthy for long enough, or the set no longer has canary members."""
    record = case.record
    if record.rollout.phase is not Phase.CANARY:
        return None
    if _has_canary(record):
        baked_at = _baked_at(record)
        if baked_at is None or case.now < baked_at:
            return None
        if not all(slot.has_passed for slot in _scope(case)):
            return None
    event = SetEvent(EventKind.ROLLOUT_PROMOTED, f"revision {record.target}")
    return Step(promoted(record, case.now), events=(event,))


def update_next(case: Case) -> Step | None:
    """Update members while fewer than `max_parallel` wait for their gates."""
    record = case.record
    if record.rollout.phase not in IN_PROGRESS:
        return None
    outdated = [slot for slot in _scope(case) if slot.is_outdated]
    waiting_count = sum(slot.is_waiting for slot in case.slots) + len(_leaving(case))
    room = min(case.room, max(0, record.update.max_parallel - waiting_count))
    if case.order is UpdateOrder.START_FIRST:
        put = new_members(case, outdated[:room], record.target)
    else:
        put = tuple(
            intent_of(slot, slot.previous.number, record.target)
            for slot in _in_place(case, outdated, room)
            if slot.previous is not None
        )
    return Step(record, put=put) if put else None


def pause_stalled(case: Case) -> Step | None:
    """Nothing can be changed, and no member has changed for a long time."""
    is_rolling = case.record.rollout.phase in (Phase.ROLLING, Phase.ROLLING_BACK)
    if not is_rolling or case.now < _stalled_at(case):
        return None
    after = format_duration(case.record.update.healthy_deadline)
    return _paused(case, f"nothing changed for {after}: {_why_blocked(case)}")


def is_paused(case: Case) -> Step | None:
    """A user or a failure has paused the rollout."""
    rollout = case.record.rollout
    if rollout.phase is not Phase.PAUSED:
        return None
    return Step(case.record, waits_for=f"paused: {rollout.reason}")


def is_steady(case: Case) -> Step | None:
    """No rollout is in progress."""
    if case.record.rollout.phase is not Phase.STEADY:
        return None
    text = why_incomplete(case)
    return Step(case.record, wake_at=_next_gate_at(case) if text else None, waits_for=text)


def await_gates(case: Case) -> Step | None:
    """Updated members have not passed their gates yet."""
    waiting = next((slot.current for slot in case.slots if slot.is_waiting), None)
    if waiting is None:
        return None
    text = why_waiting(waiting, case.record, case.now)
    return Step(case.record, wake_at=_next_gate_at(case), waits_for=text)


def await_promotion(case: Case) -> Step | None:
    """The canary members have passed their gates; the others wait for a promotion."""
    if case.record.rollout.phase is not Phase.CANARY:
        return None
    baked_at = _baked_at(case.record)
    wake_at = baked_at if baked_at and baked_at > case.now else None
    return Step(case.record, wake_at=wake_at, waits_for=_why_canary(case))


def is_blocked(case: Case) -> Step:
    """No member can be updated now. It pauses if that does not change."""
    return Step(case.record, wake_at=_stalled_at(case), waits_for=_why_blocked(case))


def _paused(case: Case, reason: str) -> Step:
    event = SetEvent(EventKind.ROLLOUT_PAUSED, reason)
    return Step(paused(case.record, reason, case.now), events=(event,))


def _in_place(case: Case, outdated: list[Slot], room: int) -> list[Slot]:
    """Those that are not healthy first, and those that may be healthy only if enough others are. Those on
    lost nodes last, so that none returns to an unproven revision."""
    reachable = [slot for slot in outdated if slot.previous and not is_lost(slot.previous)]
    spare = case.healthy_count - case.healthy_required
    chosen: list[Slot] = []
    for slot in sorted(reachable, key=_update_rank):
        if len(chosen) >= room:
            break
        if slot.is_healthy:
            if spare <= 0:
                break
            spare -= 1
        elif _may_be_healthy(slot) and spare < 0:
            break
        chosen.append(slot)
    if reachable or any(slot.is_waiting for slot in case.slots):
        return chosen
    return outdated[: case.room] if _is_proven(case) and not _has_canary(case.record) else []


def _update_rank(slot: Slot) -> tuple[bool, bool, int]:
    return slot.is_healthy, _may_be_healthy(slot), slot.index


def _may_be_healthy(slot: Slot) -> bool:
    return slot.previous is not None and is_unknown(slot.previous)


def _leaving(case: Case) -> list[MemberState]:
    """Members with an unproven revision that are being deleted and may still run it."""
    record = case.record
    if record.target == record.stable:
        return []
    since = case.now - record.update.healthy_deadline
    return [
        member
        for member in case.leaving
        if member.revision == record.target and member.changed_at > since
    ]


def _has_canary(record: WorkloadSet) -> bool:
    """Whether only canary members are updated until a promotion. A return to the stable revision has none."""
    is_new = record.stable not in (0, record.target)
    return is_new and record.update.canary > 0 and not record.rollout.promoted


def _scope(case: Case) -> tuple[Slot, ...]:
    """The slots that may be updated now."""
    return case.slots[: case.record.update.canary] if _has_canary(case.record) else case.slots


def _baked_at(record: WorkloadSet) -> datetime | None:
    since = record.rollout.canary_since
    return since + record.update.bake if since and record.update.bake_seconds else None


def _state(slot: Slot) -> GateState | None:
    return slot.gate.state if slot.gate else None


def _is_done(slot: Slot) -> bool:
    is_only = slot.current is not None and slot.previous is None and not slot.extra
    return is_only and _state(slot) in (GateState.PASSED, GateState.EXEMPT)


def _is_proven(case: Case) -> bool:
    """Whether a member has passed with the target revision, now or before."""
    record = case.record
    return record.target == record.stable or any(slot.has_passed for slot in case.slots)


def _next_gate_at(case: Case) -> datetime | None:
    return min(
        (slot.gate.due_at for slot in case.slots if slot.gate and slot.gate.due_at), default=None
    )


def _stalled_at(case: Case) -> datetime:
    """The deadline since the last progress: of the rollout, or of a member with its target revision."""
    record = case.record
    rollout = record.rollout
    since = [at for at in (rollout.started_at, rollout.resumed_at, rollout.progressed_at) if at]
    for slot in case.slots:
        if slot.current is not None:
            member = slot.current
            since.append(
                (member.healthy_since or case.now) if is_healthy(member) else member.waiting_since
            )
    return max(since, default=case.now) + record.update.healthy_deadline


def _why_blocked(case: Case) -> str:
    record = case.record
    reachable = [
        slot
        for slot in _scope(case)
        if slot.is_outdated and slot.previous and not is_lost(slot.previous)
    ]
    if reachable and (leaving := _leaving(case)):
        return f"{leaving[0].workload_id}: is being deleted"
    if reachable:
        return why_too_few(case)
    for slot in case.slots:
        for member in slot.members:
            if is_lost(member):
                return why_waiting(member, record, case.now)
    return why_incomplete(case) or f"revision {record.target} is not proven by a member"


def _why_canary(case: Case) -> str:
    baked_at = _baked_at(case.record)
    text = f"promotion of revision {case.record.target}"
    if baked_at is None:
        return text
    seconds = max(0, round((baked_at - case.now).total_seconds()))
    return f"{text}, in {seconds}s" if seconds else f"{text}, until its canary members are healthy"


def _members(count: int) -> str:
    return "1 member" if count == 1 else f"{count} members"
