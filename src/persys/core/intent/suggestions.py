"""Decides what a suggestion of an automation policy does: the same as a user's request, or a refusal.

A refusal is a RefusedError that names the wrong field. A suggestion is applied only with the permission that
its action needs; without it, it waits for approval by a caller that has it.
"""

from collections.abc import Container
from datetime import datetime
from typing import assert_never

from persys.core.auth.permissions import has_permission
from persys.core.intent.apply import Accepted, Unchanged, change_desired, retry
from persys.core.sets import changes
from persys.errors import InvalidError, RefusedError
from persys.model.identity import Caller, Permission
from persys.model.ids import WorkloadId
from persys.model.sets import WorkloadSet
from persys.model.workload import Desired, SuggestedAction, Suggestion, Workload

NOTHING = "none"
_ONE_INSTANCE = (
    "a workload is one instance and has no replicas; apply a set with its id to have several"
)


def permission_for(action: SuggestedAction | None) -> Permission:
    """What a caller needs to perform the action itself."""
    match action:
        case None:
            return Permission.SUGGEST  # it cannot be applied
        case (
            SuggestedAction.SET_DESIRED_STATE
            | SuggestedAction.RETRY_WORKLOAD
            | SuggestedAction.DELETE_WORKLOAD
            | SuggestedAction.SCALE_REPLICAS
        ):
            return Permission.WORKLOADS
        case unreachable:
            assert_never(unreachable)


def may_apply(suggestion: Suggestion, caller: Caller | None) -> bool:
    """Without authentication (`caller` None) every caller may."""
    return caller is None or has_permission(caller, permission_for(suggestion.action))


def is_about_set(suggestion: Suggestion, sets: Container[str]) -> bool:
    """Whether it is for a set: `evaluate_set` decides on it, not `evaluate`."""
    return suggestion.target_workload in sets


def evaluate_set(
    suggestion: Suggestion, target: WorkloadSet | None, *, now: datetime
) -> changes.SetChange | changes.Unchanged:
    """A set is only scaled: to a number of replicas, or by a difference.

    With automatic scaling, a number outside of its limits is replaced by the nearest limit.
    """
    if target is None:
        raise InvalidError("target_workload", f"set not found: {suggestion.target_workload}")
    if suggestion.action is not SuggestedAction.SCALE_REPLICAS:
        raise InvalidError(
            "action_type",
            f"{target.set_id} is a set: expected {SuggestedAction.SCALE_REPLICAS}",
        )
    replicas, delta = suggestion.desired_replicas, suggestion.replica_delta
    if bool(replicas) is bool(delta):
        raise InvalidError("desired_replicas", "expected either desired_replicas or replica_delta")
    wanted = _wanted_replicas(suggestion, target)
    if target.scale is not None:
        wanted = min(max(wanted, target.scale.min_replicas), target.scale.max_replicas)
    return changes.scale(target, target.set_id, wanted, now=now)


def reason_for_set(
    suggestion: Suggestion, target: WorkloadSet, outcome: changes.SetChange | changes.Unchanged
) -> str:
    """Why the set does not get the suggested replicas, or is unchanged. `target`: before the change."""
    wanted, scale = _wanted_replicas(suggestion, target), target.scale
    if scale is not None and wanted != outcome.record.replicas:
        limit = "above max" if wanted > scale.max_replicas else "below min"
        return f"replicas {wanted} is {limit}: limited to {outcome.record.replicas}"
    if isinstance(outcome, changes.Unchanged):
        return f"replicas is already {outcome.record.replicas}"
    return ""


def _wanted_replicas(suggestion: Suggestion, target: WorkloadSet) -> int:
    return suggestion.desired_replicas or target.replicas + suggestion.replica_delta


def evaluate(
    suggestion: Suggestion, desired: Desired | None, target: Workload | None, *, now: datetime
) -> Accepted | Unchanged:
    """`desired` is the parsed desired state of the suggestion; None when it has none."""
    if not suggestion.target_workload:
        raise InvalidError("target_workload", "is missing")
    if suggestion.action is None:
        raise InvalidError(
            "action_type", f"is missing or unknown; use one of {', '.join(SuggestedAction)}"
        )
    if suggestion.action is SuggestedAction.SCALE_REPLICAS:
        raise InvalidError("action_type", f"{suggestion.action} is not possible: {_ONE_INSTANCE}")
    if suggestion.action is SuggestedAction.SET_DESIRED_STATE and desired is None:
        raise InvalidError("desired_state", f"is missing; {suggestion.action} needs one")
    if target is None:
        raise InvalidError("target_workload", f"workload not found: {suggestion.target_workload}")
    return _carry_out(suggestion.action, desired, target, now)


def _carry_out(
    action: SuggestedAction, desired: Desired | None, target: Workload, now: datetime
) -> Accepted | Unchanged:
    workload_id = WorkloadId(target.id)
    match action:
        case SuggestedAction.SET_DESIRED_STATE:
            assert desired is not None
            return change_desired(target, workload_id, desired, now=now)
        case SuggestedAction.DELETE_WORKLOAD:
            return change_desired(target, workload_id, Desired.DELETED, now=now)
        case SuggestedAction.RETRY_WORKLOAD:
            if target.desired is Desired.DELETED:
                raise RefusedError(
                    f"workload {target.id} is being deleted; there is nothing to retry"
                )
            return retry(target, workload_id)
        case SuggestedAction.SCALE_REPLICAS:
            raise AssertionError("refused before")
        case unreachable:
            assert_never(unreachable)


def applied_to_set(outcome: changes.SetChange | changes.Unchanged) -> str:
    """The action that was performed, for the response."""
    if isinstance(outcome, changes.Unchanged):
        return NOTHING
    return f"{SuggestedAction.SCALE_REPLICAS}={outcome.record.replicas}"


def applied(suggestion: Suggestion, outcome: Accepted | Unchanged) -> str:
    """The action that was performed, for the response."""
    if isinstance(outcome, Unchanged) or suggestion.action is None:
        return NOTHING
    if suggestion.action is SuggestedAction.SET_DESIRED_STATE:
        return f"{suggestion.action}={outcome.workload.desired}"
    return suggestion.action.value
