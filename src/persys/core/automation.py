"""What an automation policy suggests, judged: the same as the word of a user, or a refusal.

A refusal is a RefusedError that names the field at fault, so that whoever wrote the policy can mend it.
"""

from datetime import datetime
from typing import assert_never

from persys.core.intake import Accepted, Unchanged, change_desired, retry
from persys.errors import InvalidError, RefusedError
from persys.model.ids import WorkloadId
from persys.model.suggestion import SuggestedAction, Suggestion
from persys.model.workload import Desired, Workload

NOTHING = "none"
_ONE_INSTANCE = (
    "a workload is one instance and has no replicas; "
    "apply one more workload for each further instance, and delete those that are too many"
)


def judge(
    suggestion: Suggestion, desired: Desired | None, target: Workload | None, *, now: datetime
) -> Accepted | Unchanged:
    """`desired` is what the suggestion's word for a state means; None when it has none."""
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


def applied(suggestion: Suggestion, outcome: Accepted | Unchanged) -> str:
    """What was done, for the answer."""
    if isinstance(outcome, Unchanged) or suggestion.action is None:
        return NOTHING
    if suggestion.action is SuggestedAction.SET_DESIRED_STATE:
        return f"{suggestion.action}={outcome.workload.desired}"
    return suggestion.action.value
