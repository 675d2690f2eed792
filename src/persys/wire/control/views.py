"""Events, suggestions and reported workloads (orphans, recovered workloads) in the control contract."""

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from persys.core.secrets import secret_names
from persys.errors import InvalidError, MissingFieldError
from persys.model.event import EventKind, NumberedEvent
from persys.model.ids import NodeId
from persys.model.nodepool import TAG_MACHINE
from persys.model.spec import CloudInit, Spec, VMSpec
from persys.model.workload import SuggestedAction, Suggestion, SuggestionDecision, Workload
from persys.wire.control.spec_encode import spec_message
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import timestamp

ID_LENGTH_MAX = 256
PENDING = "pending"
DECISIONS = ("accepted", "rejected", PENDING)
TEXT_LENGTH_MAX = 512
HIDDEN_USER_DATA = "#cloud-config\n# not shown: it contains the join token of the machine\n"

_ACTIONS: dict[int, SuggestedAction] = {
    control_pb2.AUTOMATION_ACTION_SET_DESIRED_STATE: SuggestedAction.SET_DESIRED_STATE,
    control_pb2.AUTOMATION_ACTION_RETRY_WORKLOAD: SuggestedAction.RETRY_WORKLOAD,
    control_pb2.AUTOMATION_ACTION_DELETE_WORKLOAD: SuggestedAction.DELETE_WORKLOAD,
    control_pb2.AUTOMATION_ACTION_SCALE_REPLICAS: SuggestedAction.SCALE_REPLICAS,
}

_KINDS = {kind.value.lower(): kind for kind in EventKind}


def suggestion(message: control_pb2.AutomationSuggestion) -> Suggestion:
    if not message.suggestion_id:
        raise MissingFieldError("suggestion_id")
    if len(message.suggestion_id) > ID_LENGTH_MAX:
        raise InvalidError(
            "suggestion_id",
            f"has {len(message.suggestion_id)} characters; at most {ID_LENGTH_MAX} are allowed",
        )
    return Suggestion(
        id=message.suggestion_id,
        target_workload=message.target_workload[:TEXT_LENGTH_MAX],
        action=_ACTIONS.get(message.action_type),
        desired_state=message.desired_state[:TEXT_LENGTH_MAX],
        desired_replicas=message.desired_replicas,
        replica_delta=message.replica_delta,
        policy_id=message.policy_id[:TEXT_LENGTH_MAX],
        policy_name=message.policy_name[:TEXT_LENGTH_MAX],
        reason=message.reason[:TEXT_LENGTH_MAX],
    )


def decision_message(
    decision: SuggestionDecision,
) -> control_pb2.SubmitAutomationSuggestionResponse:
    return control_pb2.SubmitAutomationSuggestionResponse(
        accepted=decision.accepted,
        decision="accepted" if decision.accepted else "rejected",
        reason=decision.reason,
        applied_action=decision.applied_action,
        decided_at=timestamp(decision.decided_at),
    )


def suggestion_view(decision: SuggestionDecision, now: datetime) -> control_pb2.SuggestionView:
    view = control_pb2.SuggestionView(
        suggestion=_suggestion_message(decision.suggestion),
        decision=decision_of(decision, now),
        reason=decision.reason,
        applied_action=decision.applied_action,
        decided_at=timestamp(decision.decided_at),
        submitted_by=decision.submitted_by,
        decided_by=decision.decided_by,
    )
    if decision.pending_until is not None:
        view.expires_at.CopyFrom(timestamp(decision.pending_until))
    return view


def decision_of(decision: SuggestionDecision, now: datetime) -> str:
    if decision.is_pending(now):
        return PENDING
    return "accepted" if decision.accepted else "rejected"


def _suggestion_message(suggestion: Suggestion) -> control_pb2.AutomationSuggestion:
    number = next((key for key, action in _ACTIONS.items() if action is suggestion.action), 0)
    return control_pb2.AutomationSuggestion(
        suggestion_id=suggestion.id,
        policy_id=suggestion.policy_id,
        policy_name=suggestion.policy_name,
        target_workload=suggestion.target_workload,
        action_type=control_pb2.AutomationActionType.Name(number),
        desired_state=suggestion.desired_state,
        desired_replicas=suggestion.desired_replicas,
        replica_delta=suggestion.replica_delta,
        reason=suggestion.reason,
    )


def orphan_view(
    reported: Workload | None, drift: control_pb2.DriftView | None
) -> control_pb2.OrphanView:
    """`reported` is None when the node does not store the spec."""
    view = control_pb2.OrphanView(drift=drift)
    if reported is not None:
        view.spec.CopyFrom(_spec(reported))
        view.secrets.extend(sorted(secret_names(reported.spec)))
    return view


def recovered_view(node_id: NodeId, workload: Workload) -> control_pb2.RecoveredWorkload:
    return control_pb2.RecoveredWorkload(
        workload_id=workload.id,
        node_id=node_id,
        spec=_spec(workload),
        secrets=sorted(secret_names(workload.spec)),
    )


def shown_spec(workload: Workload) -> Spec:
    """The user data of a machine of a node pool contains its join token, which only the machine needs."""
    spec = workload.spec
    if not isinstance(spec, VMSpec) or TAG_MACHINE not in workload.metadata:
        return spec
    return replace(spec, cloud_init=CloudInit(user_data=HIDDEN_USER_DATA))


def _spec(workload: Workload) -> control_pb2.WorkloadSpec:
    return spec_message(
        shown_spec(workload), workload.resources, workload.metadata, rules=workload.rules
    )


def event_message(numbered: NumberedEvent) -> control_pb2.EventView:
    sequence, event = numbered
    return control_pb2.EventView(
        sequence=sequence,
        at=timestamp(event.at),
        kind=event.kind,
        message=event.message,
        workload_id=event.workload_id,
        node_id=event.node_id,
        revision_id=event.revision,
        epoch=event.epoch,
        identity=event.identity,
        source=event.source,
        task_id=event.task_id,
        rule=event.rule,
    )


def event_kinds(words: Iterable[str]) -> frozenset[EventKind]:
    """The kinds with these names, in any case."""
    return frozenset(_kind(word) for word in words)


def _kind(word: str) -> EventKind:
    kind = _KINDS.get(word.lower())
    if kind is None:
        raise InvalidError("kinds", f"{word!r} is unknown; expected {', '.join(EventKind)}")
    return kind
