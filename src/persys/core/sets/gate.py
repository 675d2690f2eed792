"""Whether a member at the target revision has proven itself in the rollout.

A failure counts only if it happened in this rollout. A failure that is older than the start or the resume of
the rollout gets the full deadline. A member that ran the stable revision before the set returned to it is not
judged at all: its failure says nothing about the rollback. Neither is a member on a lost node, which failover
handles.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from persys.core.duration import format_duration
from persys.core.sets.situation import MemberHealth, MemberState
from persys.model.sets import WorkloadSet

RESTARTS_FAILED = 3


class GateState(StrEnum):
    WAITING = "waiting"
    PASSED = "passed"
    FAILED = "failed"
    EXEMPT = "exempt"  # not judged, and it has not passed


class Gate(NamedTuple):
    state: GateState
    due_at: datetime | None = None  # of WAITING: it passes or fails by then if nothing changes


_PASSED, _FAILED = Gate(GateState.PASSED), Gate(GateState.FAILED)
_EXEMPT = Gate(GateState.EXEMPT)


def gate_of(member: MemberState, record: WorkloadSet, now: datetime) -> Gate:
    """`member` is at the target revision of the set."""
    if member.health is MemberHealth.LOST:
        return _EXEMPT
    judged_from = _judged_from(record)
    judged = _is_judged(member, record)
    if judged and _fails_since(member, judged_from):
        return _FAILED
    if member.health is MemberHealth.HEALTHY:
        passes_at = (member.healthy_since or now) + record.update.min_healthy
        return _PASSED if passes_at <= now else Gate(GateState.WAITING, passes_at)
    if not judged:
        return _EXEMPT
    deadline = _deadline(member, record)
    return _FAILED if deadline <= now else Gate(GateState.WAITING, deadline)


def why_failed(member: MemberState, record: WorkloadSet) -> str:
    because = _because(member)
    if member.health is MemberHealth.UNHEALTHY:
        return f"{member.workload_id}: unhealthy{because}"
    if member.health is MemberHealth.FAILED and member.final:
        return f"{member.workload_id}: failed{because}"
    if member.restarts >= RESTARTS_FAILED:
        return f"{member.workload_id}: restarted {member.restarts} times{because}"
    deadline = format_duration(record.update.healthy_deadline)
    return f"{member.workload_id}: not healthy within {deadline}{because}"


def why_waiting(member: MemberState, record: WorkloadSet, now: datetime) -> str:
    """For example `web-7: healthy for 4s of 10s`."""
    if member.health is MemberHealth.LOST:
        on = f" {member.node_id}" if member.node_id else ""
        return f"{member.workload_id}: its node{on} does not send heartbeats"
    update = record.update
    if member.health is MemberHealth.HEALTHY:
        since, whole = member.healthy_since or now, update.min_healthy
    else:
        since, whole = _deadline(member, record) - update.healthy_deadline, update.healthy_deadline
    span = format_duration(timedelta(seconds=max(0, int((now - since).total_seconds()))))
    of = format_duration(whole)
    return f"{member.workload_id}: {member.health} for {span} of {of}{_because(member)}"


def _because(member: MemberState) -> str:
    """The reason without the word for its health, with which reports of agents begin."""
    word, _, rest = member.reason.partition(": ")
    reason = rest if word == member.health else member.reason
    return f": {reason}" if reason else ""


def _is_judged(member: MemberState, record: WorkloadSet) -> bool:
    """A member that the rollout has not changed is not judged by the revision that it had before."""
    started_at = record.rollout.started_at
    return record.target != record.stable or started_at is None or member.changed_at >= started_at


def _judged_from(record: WorkloadSet) -> datetime:
    rollout = record.rollout
    return rollout.resumed_at or rollout.started_at or record.created_at


def _fails_since(member: MemberState, judged_from: datetime) -> bool:
    """Whether it fails, and did not fail at that time already."""
    is_healthy = member.health is MemberHealth.HEALTHY
    good_at = member.healthy_since if is_healthy else member.waiting_since
    fails = (
        member.health is MemberHealth.UNHEALTHY
        or (member.health is MemberHealth.FAILED and member.final)
        or member.restarts >= RESTARTS_FAILED
    )
    return fails and good_at is not None and good_at >= judged_from


def _deadline(member: MemberState, record: WorkloadSet) -> datetime:
    return max(member.waiting_since, _judged_from(record)) + record.update.healthy_deadline
