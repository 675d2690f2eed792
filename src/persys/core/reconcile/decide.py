"""Decides the next action for one workload from its intent, assignment and observation.

`decide` is called when anything about a workload changes and when its `wake_at` is due. It goes through a
table of named rules. The first rule that applies makes the decision, and `Decision.rule` is its name. The
decision has the records to store, the effects to perform and the time of the next call. The same situation
always gives the same decision.

The tables: RULES for a workload that should exist, DELETE_RULES for one that is being deleted, CONVERGE_RULES
in `converge.py` for one that stays on its node.
"""

from dataclasses import replace
from datetime import datetime

from msgspec import structs

from persys.core.nodes import Phase
from persys.core.placement.tiers import offload_at, waits_since
from persys.core.reconcile.assign import (
    after_refusal,
    assign,
    refused_as_full,
    refused_by_runtime,
)
from persys.core.reconcile.converge import converge, stay
from persys.core.reconcile.delete import (
    confirmed_absent,
    never_assigned,
    node_lost,
    removal_order_lost,
    removal_overdue,
    send_removal,
)
from persys.core.reconcile.evacuate import leave, must_leave, stranded, was_never_accepted
from persys.core.reconcile.retry import within_policy
from persys.core.reconcile.return_home import return_failed, return_started, with_kept_copy
from persys.core.reconcile.situation import (
    Case,
    Decision,
    Placer,
    Policy,
    Rule,
    Situation,
    first_match,
    has_ended,
    is_finished,
    was_accepted,
)
from persys.core.recovery.rollback import explained, renewed
from persys.model.placement import NO_RULES, Offload, Resources
from persys.model.workload import Desired


def decide(
    situation: Situation, placer: Placer, policy: Policy, *, now: datetime, roll: float
) -> Decision:
    if situation.workload.desired is Desired.DELETED:
        rules, seen = DELETE_RULES, situation
    else:
        rules, seen = RULES, _with_current_retry(situation, policy, now)
    decision = first_match(rules, Case(seen, placer, policy, now, roll, as_stored=situation))
    if situation.workload.runs_once:
        decision = _without_reservation(decision, situation)
    if situation.copies:
        decision = with_kept_copy(decision, situation, now)
    if decision.waits_for_capacity and situation.workload.rules.offload is Offload.WHEN_FULL:
        return _woken_to_offload(decision, situation, now)
    return decision


def _without_reservation(decision: Decision, situation: Situation) -> Decision:
    """A run that has ended needs nothing on its node but its records, which have its result and its log.

    Its rules would keep others of its group away from the node.
    """
    ended = replace(situation, workload_status=decision.workload_status, retry=decision.retry)
    if decision.assignment is None or not has_ended(ended):
        return decision
    freed = structs.replace(
        decision.assignment,
        reserved=Resources(),
        host_ports=frozenset(),
        rules=NO_RULES,
        pools=(),
    )
    return replace(decision, assignment=freed)


def _woken_to_offload(decision: Decision, situation: Situation, now: datetime) -> Decision:
    """It waits for capacity: decide again when higher tiers are open to it."""
    waiting = replace(situation, workload_status=decision.workload_status)
    opens_at = offload_at(waiting, now)
    if opens_at is None or opens_at <= now or waits_since(waiting) is None:
        return decision
    return replace(decision, wake_at=min(decision.wake_at or opens_at, opens_at))


def _with_current_retry(situation: Situation, policy: Policy, now: datetime) -> Situation:
    """The situation with the retry of the current revision only, limited by the policy."""
    situation = explained(situation)
    retry = situation.retry
    if retry is None:
        return situation
    if retry.revision != situation.workload.revision:
        return replace(situation, retry=None)
    return replace(situation, retry=within_policy(retry, policy.retry, now=now))


def _record_outdated(case: Case) -> Decision | None:
    """Its node has a newer assignment than the record: the store was restored from a backup."""
    return renewed(case.as_stored, case.placer, case.now)


def _unassigned(case: Case) -> Decision | None:
    """It has no node: choose one, or wait for capacity."""
    if case.situation.assignment is not None:
        return None
    return assign(case.situation, case.placer, case.now)


def _node_rejected(case: Case) -> Decision | None:
    """Its node does not have the runtime or the capacity."""
    situation = case.situation
    if situation.workload.runs_once and situation.assignment and was_accepted(situation):
        return None  # it may have started there
    if not refused_by_runtime(situation) and not refused_as_full(situation):
        return None
    return after_refusal(situation, case.placer, case.now)


def _node_lost(case: Case) -> Decision | None:
    """Its node is lost and it may move: assign it to another node, or wait for capacity."""
    situation = case.situation
    if situation.phase is not Phase.LOST or not must_leave(situation, case.now):
        return None
    return _leave(case) or stranded(situation, case.placer, case.now)


def _node_draining(case: Case) -> Decision | None:
    """Its node is draining and it may move: assign it to another node, or stay until one has capacity."""
    if case.situation.phase is Phase.LOST or not must_leave(case.situation, case.now):
        return None
    return _leave(case) or replace(stay(case), waits_for_capacity=True)


def _leave(case: Case) -> Decision | None:
    situation = case.situation
    done = replace(situation, workload_status=converge(case).workload_status)
    # A workload that has just run to completion is not run again on another node.
    return leave(done if is_finished(done) else situation, case.placer, case.now)


def _order_not_accepted(case: Case) -> Decision | None:
    """Its node did not respond to several orders and never reported it: try another node."""
    if not was_never_accepted(case.situation):
        return None
    return leave(case.situation, case.placer, case.now)


RULES: tuple[Rule, ...] = (
    Rule("record-outdated", _record_outdated),
    Rule("return-failed", return_failed),
    Rule("unassigned", _unassigned),
    Rule("node-rejected", _node_rejected),
    Rule("node-lost", _node_lost),
    Rule("node-draining", _node_draining),
    Rule("order-not-accepted", _order_not_accepted),
    Rule("return-started", return_started),
    Rule("stay", stay),  # adjusts the reservation, then goes through CONVERGE_RULES
)

DELETE_RULES: tuple[Rule, ...] = (
    Rule("record-outdated", _record_outdated),
    Rule("delete-unassigned", never_assigned),
    Rule("delete-confirmed", confirmed_absent),
    Rule("delete-node-lost", node_lost),
    Rule("delete-overdue", removal_overdue),
    Rule("delete-order-lost", removal_order_lost),
    Rule("delete-pending", send_removal),
)
