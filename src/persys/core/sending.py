"""Decides whether to send an order, poll the node or wait: the only place that paces orders and polls."""

from datetime import datetime, timedelta

from persys.core.dispatch import Goal
from persys.core.effects import Ask, Effect
from persys.core.liveness import Phase
from persys.core.situation import Policy, Situation, due_at


def send_or_wait(
    situation: Situation,
    goal: Goal,
    effect: Effect,
    policy: Policy,
    *,
    deadline: timedelta,
    now: datetime,
) -> tuple[tuple[Effect, ...], datetime | None]:
    dispatch = situation.dispatch
    if situation.phase is not Phase.ALIVE:
        return (), None
    if dispatch is None or dispatch.goal != goal:
        return (effect,), None
    if dispatch.in_flight:
        return (), None
    if dispatch.again_at is not None:
        return ((effect,), None) if now >= dispatch.again_at else ((), dispatch.again_at)
    overdue_at = due_at(situation, dispatch, deadline)
    if now >= overdue_at:
        return (effect,), None
    if situation.reports:
        return (), overdue_at
    assert situation.assignment is not None
    ask = Ask(situation.assignment.node_id, situation.workload.id)
    # Heartbeats do not postpone the poll: some carry neither a revision nor an error.
    ask_at = (dispatch.asked_at or dispatch.sent_at) + policy.ask_interval
    return ((ask,), now + policy.ask_interval) if now >= ask_at else ((), ask_at)
