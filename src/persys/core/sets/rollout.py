"""Decides which members of a set to create, update and delete now, and the next state of its rollout.

`decide` goes through a table of named rules; the first one that applies makes a step. It repeats that with
the members as they will be after the step, until no rule changes anything: a second decision without a change
of the situation changes nothing. `SetDecision.rule` is the rule of the first step, or the one that says what
the set waits for.

A decision may be interrupted after any of its changes. So each rule reads the members as they are, and none
relies on an earlier decision.
"""

from dataclasses import replace
from datetime import datetime
from itertools import chain

from msgspec.structs import replace as replace_record

from persys.core.sets.members import member_id
from persys.core.sets.phases import IN_PROGRESS
from persys.core.sets.replicas import (
    create_missing,
    delete_all,
    delete_extra,
    delete_surplus,
    forget_replaced,
    start,
    stop_all,
)
from persys.core.sets.situation import (
    MemberHealth,
    MemberIntent,
    MemberState,
    SetDecision,
    SetEvent,
    SetSituation,
)
from persys.core.sets.slots import Case, Rule, Step, case_of
from persys.core.sets.updates import (
    await_gates,
    await_promotion,
    begin,
    complete,
    correct_clock,
    fail,
    finish_canary,
    is_blocked,
    is_paused,
    is_steady,
    pause_stalled,
    promote_baked,
    update_next,
)
from persys.model.ids import WorkloadId
from persys.model.sets import Phase, WorkloadSet
from persys.model.workload import Desired

# Of members, in one decision. A decision costs as much as the set has members, so few parts are cheaper, and
# orders to the same node are sent together.
CHANGES_MAX = 10_000
_STEPS_MAX = 64

DELETE_RULES = (Rule("delete", delete_all),)
STOP_RULES = (
    Rule("replaced", forget_replaced),
    Rule("stop", stop_all),
    Rule("stopped", lambda case: Step(case.record)),
)
RULES = (
    Rule("clock", correct_clock),
    Rule("replaced", forget_replaced),
    Rule("rollout-start", begin),
    Rule("gate-failed", fail),
    Rule("surplus", delete_surplus),
    Rule("extra", delete_extra),
    Rule("start", start),
    Rule("missing", create_missing),
    Rule("complete", complete),
    Rule("canary-passed", finish_canary),
    Rule("canary-baked", promote_baked),
    Rule("update", update_next),
    Rule("stalled", pause_stalled),
    # The rules below change nothing: they say what the set waits for.
    Rule("paused", is_paused),
    Rule("steady", is_steady),
    Rule("gate", await_gates),
    Rule("canary", await_promotion),
    Rule("blocked", is_blocked),
)


def decide(situation: SetSituation, now: datetime) -> SetDecision:
    rules = _rules_for(situation.record)
    plan = _Plan(situation, now)
    for _ in range(_STEPS_MAX):
        case = case_of(plan.situation, now, CHANGES_MAX - plan.count)
        name, step = _first_match(rules, case)
        plan.rule = plan.rule or name
        if step.record is None:
            return SetDecision(None, events=step.events, rule=plan.rule)
        if not (step.put or step.delete or step.record != case.record):
            return plan.decision(case, step)
        plan.add(step)
        if plan.count >= CHANGES_MAX:
            break
    # Members that this decision changes cannot have passed their gates: the last case has those that did.
    return plan.decision(case, Step(plan.record, wake_at=now))


def _rules_for(record: WorkloadSet) -> tuple[Rule, ...]:
    if record.desired is Desired.DELETED:
        return DELETE_RULES
    return STOP_RULES if record.desired is Desired.STOPPED else RULES


def _first_match(rules: tuple[Rule, ...], case: Case) -> tuple[str, Step]:
    for rule in rules:
        step = rule.apply(case)
        if step is not None:
            return rule.name, step
    raise AssertionError("the last rule applies to every case")


class _Plan:
    """The steps of one decision so far, and the situation after them."""

    def __init__(self, situation: SetSituation, now: datetime) -> None:
        self.situation = situation
        self.now = now
        self.rule = ""
        self._put: dict[int, MemberIntent] = {}
        self._delete: list[WorkloadId] = []
        self._events: list[SetEvent] = []

    @property
    def record(self) -> WorkloadSet:
        return self.situation.record

    @property
    def count(self) -> int:
        return len(self._put) + len(self._delete)

    def add(self, step: Step) -> None:
        assert step.record is not None
        self._put |= {intent.number: intent for intent in step.put}
        self._delete += step.delete
        self._events += step.events
        self.situation = _after(self.situation, step, step.record, self.now)

    def decision(self, case: Case, last: Step) -> SetDecision:
        record = self._with_progress(case)
        is_ready = record.stable > 0 or record.rollout.phase is Phase.STEADY
        is_replaced = bool(record.replaces) and self.situation.replaced_exists
        return SetDecision(
            record,
            tuple(self._put.values()),
            tuple(self._delete),
            is_replaced and is_ready and record.desired is not Desired.DELETED,
            last.wake_at,
            tuple(self._events),
            self.rule,
            last.waits_for,
        )

    def _with_progress(self, case: Case) -> WorkloadSet:
        """The record with the time at which the rollout last changed a member or one passed its gate.

        It is not stored again within a hundredth of the deadline that it is for.
        """
        record = self.record
        if record.rollout.phase not in IN_PROGRESS:
            return record
        passed = (
            slot.current.healthy_since + record.update.min_healthy
            for slot in case.slots
            if slot.has_passed and slot.current and slot.current.healthy_since
        )
        changed = (self.now,) if self.count else ()
        known = record.rollout.progressed_at or record.rollout.started_at
        latest = max(chain(passed, changed), default=known)
        unchanged_for = record.update.healthy_deadline / 100
        if latest is None or (known is not None and latest <= known + unchanged_for):
            return record
        return replace_record(record, rollout=replace_record(record.rollout, progressed_at=latest))


def _after(situation: SetSituation, step: Step, record: WorkloadSet, now: datetime) -> SetSituation:
    """The situation when the step is done. A changed member is starting, unless its node is lost."""
    members = {member.number: member for member in situation.members}
    for intent in step.put:
        old = members.get(intent.number)
        members[intent.number] = _put(old, intent, record, now)
    doomed = set(step.delete)
    for number, member in members.items() if doomed else ():
        if member.workload_id in doomed:
            members[number] = replace(
                member,
                desired=Desired.DELETED,
                health=MemberHealth.DELETING,
                waiting_since=now,
                changed_at=now,
            )
    return replace(situation, record=record, members=tuple(members.values()))


def _put(
    old: MemberState | None, intent: MemberIntent, record: WorkloadSet, now: datetime
) -> MemberState:
    is_lost = old is not None and old.health is MemberHealth.LOST
    health = MemberHealth.LOST if is_lost else MemberHealth.STARTING
    return MemberState(
        member_id(record.set_id, intent.number),
        intent.number,
        intent.index,
        intent.revision,
        intent.desired,
        health if intent.desired is Desired.RUNNING else MemberHealth.STOPPED,
        waiting_since=now,
        changed_at=now,
        node_id=old.node_id if old else None,
        pinned_node=intent.pinned_node,
    )
