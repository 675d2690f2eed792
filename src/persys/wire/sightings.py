"""Actions of agents in the control contract: in reports of nodes and in views for users."""

from persys.model.action import Action, ActionKind, ActionState, Sighting
from persys.model.ids import ActionId, WorkloadId
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import EPOCH, instant, timestamp

_KINDS = {kind.value: kind for kind in ActionKind}
_ENDED = {state.value: state for state in (ActionState.COMPLETED, ActionState.FAILED)}


def sighting_message(sighting: Sighting) -> control_pb2.ActionView:
    message = action_message(sighting.action)
    message.node_id = sighting.node_id
    message.fetched_at.CopyFrom(timestamp(sighting.fetched_at))
    return message


def ended_action(message: control_pb2.ActionView, workload_id: WorkloadId) -> Action | None:
    """The action, or None if it has not ended or its kind is unknown."""
    kind, state = _KINDS.get(message.action_type), _ENDED.get(message.status)
    if kind is None or state is None or not message.task_id:
        return None
    return Action(
        ActionId(message.task_id),
        workload_id,
        kind,
        state,
        instant(message.created_at) or EPOCH,
        instant(message.started_at),
        instant(message.ended_at),
        message.error,
    )


def action_message(action: Action) -> control_pb2.ActionView:
    message = control_pb2.ActionView(
        task_id=action.id, action_type=action.kind, status=action.state, error=action.error
    )
    if action.created_at != EPOCH:  # EPOCH is the decoded value of an unset time
        message.created_at.CopyFrom(timestamp(action.created_at))
    if action.started_at is not None:
        message.started_at.CopyFrom(timestamp(action.started_at))
    if action.ended_at is not None:
        message.ended_at.CopyFrom(timestamp(action.ended_at))
    return message
