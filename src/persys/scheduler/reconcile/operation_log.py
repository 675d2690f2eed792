"""Logs the end of each operation as one line: what was requested from which node, when, and the result.

At level debug each decision about a workload is a line too, with its inputs.

The line at the start is logged by the dispatcher. Each attempt is an operation of its own, so each failed
attempt has its own end. The actions of an ended operation are stored.
"""

import structlog

from persys.core.reconcile.effects import FetchActions, KeepActions
from persys.core.reconcile.situation import Decision, Situation
from persys.model.status import Status
from persys.model.workload import Desired

log = structlog.get_logger()


def ended_actions(situation: Situation, decision: Decision) -> KeepActions | None:
    """The actions to store after an operation on a node that does not report them."""
    assignment, dispatch = situation.assignment, situation.dispatch
    if situation.reports or assignment is None or dispatch is None or dispatch.answered_at is None:
        return None
    if situation.workload.desired is Desired.DELETED:
        return None  # its history is deleted with it
    if not decision.fulfilled and not _counts_failure(situation, decision):
        return None
    if any(isinstance(effect, FetchActions) for effect in decision.effects):
        return None  # it timed out: they are fetched anyway
    return KeepActions(assignment.node_id, situation.workload.id, dispatch.sent_at)


def log_operation_end(situation: Situation, decision: Decision) -> None:
    """Called when the decision is stored; logs nothing unless it ends an operation."""
    if situation.assignment is None:
        return
    counted = _counts_failure(situation, decision)
    if decision.forget:
        lost = decision.tombstone is not None
        text = "its node is lost" if lost else "its node reports it absent"
        log.info("workload.removed", rule=decision.rule, **_facts(situation, "deleted", text))
    elif decision.fulfilled and situation.dispatch is not None:
        log.info("workload.settled", rule=decision.rule, **_facts(situation, *_status(decision)))
    elif (
        counted
        and decision.workload_status is not None
        and decision.workload_status.status is Status.FAILED
    ):
        log.warning("workload.failed", rule=decision.rule, **_facts(situation, *_status(decision)))
    elif counted and situation.workload.desired is Desired.DELETED:
        facts = _facts(situation, *_status(decision))
        log.warning("workload.removal_overdue", rule=decision.rule, **facts)


def _counts_failure(situation: Situation, decision: Decision) -> bool:
    return decision.retry is not None and decision.retry != situation.retry


def log_decision(situation: Situation, decision: Decision, *, written: bool) -> None:
    """Called when the decision is stored, for a log at level debug."""
    seen, assignment, workload_status = (
        situation.observation,
        decision.assignment,
        decision.workload_status,
    )
    log.debug(
        "workload.decided",
        workload_id=situation.workload.id,
        rule=decision.rule,
        revision=situation.workload.revision,
        desired=situation.workload.desired,
        node_id=assignment.node_id if assignment is not None else "",
        epoch=assignment.epoch if assignment is not None else 0,
        phase=situation.phase,
        seen=seen.actual if seen is not None else "",
        seen_revision=seen.revision if seen is not None else "",
        sent=situation.dispatch is not None,
        status=workload_status.status if workload_status is not None else "",
        code=workload_status.code if workload_status is not None else "",
        effects=[type(effect).__name__ for effect in decision.effects],
        wake_at=decision.wake_at.isoformat() if decision.wake_at is not None else "",
        waits_for_room=decision.waits_for_capacity,
        written=written,
    )


def _status(decision: Decision) -> tuple[str, str]:
    workload_status = decision.workload_status
    assert workload_status is not None
    return workload_status.status, ": ".join(
        part for part in (workload_status.code, workload_status.message) if part
    )


def _facts(situation: Situation, state: str, text: str) -> dict[str, object]:
    workload, assignment, dispatch = situation.workload, situation.assignment, situation.dispatch
    assert assignment is not None
    seen = situation.observation
    user_event = seen.metadata.get("task_id", "") if seen is not None else ""
    return {
        "workload_id": workload.id,
        "node_id": assignment.node_id,
        "revision": workload.revision,
        "epoch": assignment.epoch,
        "desired": workload.desired,
        "requested_at": dispatch.sent_at.isoformat() if dispatch is not None else "",
        "task_id": (dispatch.task_id if dispatch is not None else "") or user_event,
        "state": state,
        "text": text,
    }
