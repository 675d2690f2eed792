"""Actions of agents as users see them: what a node was doing when an operation did not end in time."""

from persys.model.history import Sighting
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import EPOCH, timestamp


def sighting_message(sighting: Sighting) -> control_pb2.ActionView:
    action = sighting.action
    message = control_pb2.ActionView(
        task_id=action.id,
        node_id=sighting.node_id,
        action_type=action.kind,
        status=action.state,
        error=action.error,
        fetched_at=timestamp(sighting.fetched_at),
    )
    if action.created_at != EPOCH:  # how a time that was not said is read
        message.created_at.CopyFrom(timestamp(action.created_at))
    if action.started_at is not None:
        message.started_at.CopyFrom(timestamp(action.started_at))
    if action.ended_at is not None:
        message.ended_at.CopyFrom(timestamp(action.ended_at))
    return message
