"""Limits what an agent does when its reconciliation is off (PERSYS_RECONCILE_ENABLED=false).

Orders are executed completely, `stop_after` still stops workloads when the scheduler is lost, and restart
policies and health checks still apply, because they are part of an order. Everything else is only reported.
"""

from persys.core.convergence import Artefact, Condition, Do, Settled
from persys.core.deviations import DRIFTED, summary
from persys.model.status import Actual, Failure, FailureReason
from persys.model.workload import Desired, Order

NOT_RECONCILED = "NotReconciled"


def without_reconciliation(
    outcome: Do | Settled, order: Order, artefact: Artefact | None, *, under_way: bool
) -> Do | Settled:
    """Allow only orders and the policies of their specs on a node whose reconciliation is off.

    `under_way`: an order is being executed. Otherwise the state is only reported. A difference is a failure
    that a new order repairs, so that no scheduler sends the same order repeatedly.
    """
    if isinstance(outcome, Settled) or under_way or outcome.halts or outcome.by_policy:
        return outcome
    if order.desired is Desired.DELETED:
        return outcome
    if artefact is not None and artefact.condition is Condition.RUNNING:
        if order.desired is Desired.RUNNING and artefact.revision == order.revision:
            message = summary(artefact.deviations)
            return Settled(Actual.RUNNING, code=DRIFTED if message else "", message=message)
        found = "is running"
    else:
        found = "is missing" if artefact is None else f"is {artefact.condition}"
    text = (
        f"desired state is {order.desired}, but it {found}, and reconciliation is off on this node "
        "(PERSYS_RECONCILE_ENABLED); retry or apply the workload to repair it"
    )
    failure = Failure(FailureReason.RUNTIME_ERROR, text, retryable=False, code=NOT_RECONCILED)
    return Settled(Actual.FAILED, code=NOT_RECONCILED, message=text, failure=failure)
