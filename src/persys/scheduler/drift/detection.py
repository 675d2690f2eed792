"""Adds drift records to the transaction of a decision: detected with the remedy, resolved with success."""

from datetime import datetime

from persys.core.drift import mismatch, reported_drift
from persys.core.reconcile.situation import STATE_MISMATCH, Decision, Policy, Situation
from persys.model.status import Drift, DriftType
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.drift.records import add_detected, add_resolved
from persys.scheduler.state.cluster import ClusterState


def add_drift_records(
    change: Transaction,
    cluster: ClusterState,
    situation: Situation,
    decision: Decision,
    policy: Policy,
    *,
    is_user_request: bool,
    now: datetime,
) -> None:
    """`is_user_request`: the user has changed the intent, so earlier drift is resolved."""
    by_node = reported_drift(situation, now=now)
    over = _over(
        cluster, situation, decision, is_user_request=is_user_request, lasts=by_node is not None
    )
    found = by_node or _mismatch(situation, decision, policy, now)
    if found is not None and _is_known(cluster, found):
        found = None
    if found is None and not over:
        return
    if found is not None:
        add_detected(change, found)
    for drift, because in over:
        add_resolved(change, drift, because, now=now)
    done = change.done

    def done_and_recorded() -> None:
        done()
        if found is not None:
            cluster.drifts.put(found)
        for drift, _ in over:
            cluster.drifts.drop(drift)

    change.done = done_and_recorded


def _mismatch(
    situation: Situation, decision: Decision, policy: Policy, now: datetime
) -> Drift | None:
    found = mismatch(situation, policy, now=now)
    shown = decision.workload_status is not None and decision.workload_status.code == STATE_MISMATCH
    if found is None or not (decision.effects or (shown and found.type is DriftType.STATE)):
        return None
    return found


def _is_known(cluster: ClusterState, found: Drift) -> bool:
    known = cluster.drifts.of(found.node_id, found.workload_id)
    return found.type in {drift.type for drift in known}


def _over(
    cluster: ClusterState,
    situation: Situation,
    decision: Decision,
    *,
    is_user_request: bool,
    lasts: bool,
) -> list[tuple[Drift, str]]:
    """`lasts`: the node still reports a difference."""
    old, new, workload_id = situation.assignment, decision.assignment, situation.workload.id
    over = []
    if old is not None and (drifts := cluster.drifts.of(old.node_id, workload_id)):
        because = (
            ""
            if lasts and not is_user_request
            else _because(situation, decision, is_user_request=is_user_request)
        )
        over = [(drift, because) for drift in drifts if because]
    if new is not None and (old is None or old.node_id != new.node_id):
        over += [
            (drift, "assigned to this node now")
            for drift in cluster.drifts.of(new.node_id, workload_id)
            if drift.type is DriftType.ORPHAN
        ]
    return over


def _because(situation: Situation, decision: Decision, *, is_user_request: bool) -> str:
    old, new = situation.assignment, decision.assignment
    if is_user_request:
        return "the intent was changed"
    if new is None or (old is not None and new.node_id != old.node_id):
        return "no longer assigned to this node"
    return "in the desired state" if decision.fulfilled else ""
