"""How the agent speaks of its workloads: an entry of the journal as an observation."""

from persys.agent.journal import Entry
from persys.agent.state import State
from persys.model.ids import NodeId
from persys.model.observation import Observation
from persys.wire.agent import REASON_CODE, TASK_ID

TASK_STATUS = "task_status"


def observation_of(entry: Entry, state: State, node_id: NodeId) -> Observation:
    """`seen_at` is when the workload came to stand so."""
    standing = entry.standing
    metadata = {**standing.metadata, TASK_ID: entry.action_id}
    action = state.actions.get(entry.action_id)
    if action is not None:
        metadata[TASK_STATUS] = action.state.value
    if standing.code:
        metadata[REASON_CODE] = standing.code
    return Observation(
        workload_id=entry.order.workload_id,
        node_id=node_id,
        actual=standing.actual,
        seen_at=standing.changed_at,
        revision=entry.order.revision,
        epoch=entry.order.epoch,
        failure=standing.failure,
        message=standing.message,
        metadata=metadata,
    )
