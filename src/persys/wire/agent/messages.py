"""Messages between schedulers and agents (`persys.agent.v1`), converted to and from the model.

Third-party agents report most failure details in the metadata of a status. Ours set the metadata as well as
the fields. A task in the contract is an action in the model.
"""

from datetime import datetime

from persys.core.secrets import Resolved
from persys.errors import InvalidError, RefusedError
from persys.model.action import Action, ActionKind, ActionState
from persys.model.ids import ActionId, NodeId, Revision, WorkloadId, workload_id
from persys.model.node import WorkloadUsage
from persys.model.spec import WorkloadType, type_of
from persys.model.status import Actual, Failure, Observation
from persys.model.workload import Desired, Order, StoredIntent, Workload
from persys.wire.agent import legacy_agents
from persys.wire.agent import spec as agent_spec
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.limits import check as limits_check
from persys.wire.spec import checks
from persys.wire.stored import records
from persys.wire.times import EPOCH, from_unix_seconds, unix_seconds
from persys.wire.usage import usage_fields, usage_of

TASK_ID = "task_id"
FAILURE_REASON = "failure_reason"
LAST_ERROR = "last_error"
RETRY_TERMINAL = "retry_terminal"
REASON_CODE = "reason_code"
# Marks the status of an order that the agent refused. The agent has no copy of that workload.
REFUSED = "refused"

_FAILURE_KEYS = (FAILURE_REASON, LAST_ERROR, RETRY_TERMINAL, REASON_CODE)
_ENUM_OF_TYPE = {
    WorkloadType.CONTAINER: agent_pb2.WORKLOAD_TYPE_CONTAINER,
    WorkloadType.COMPOSE: agent_pb2.WORKLOAD_TYPE_COMPOSE,
    WorkloadType.VM: agent_pb2.WORKLOAD_TYPE_VM,
}
_TYPE_OF_ENUM: dict[int, WorkloadType] = {number: kind for kind, number in _ENUM_OF_TYPE.items()}
_ENUM_OF_DESIRED = {
    Desired.RUNNING: agent_pb2.DESIRED_STATE_RUNNING,
    Desired.STOPPED: agent_pb2.DESIRED_STATE_STOPPED,
}
_DESIRED_OF_ENUM: dict[int, Desired] = {
    agent_pb2.DESIRED_STATE_UNSPECIFIED: Desired.RUNNING,
    agent_pb2.DESIRED_STATE_RUNNING: Desired.RUNNING,
    agent_pb2.DESIRED_STATE_STOPPED: Desired.STOPPED,
}
_ENUM_OF_ACTUAL = {
    Actual.PENDING: agent_pb2.ACTUAL_STATE_PENDING,
    Actual.RUNNING: agent_pb2.ACTUAL_STATE_RUNNING,
    Actual.STOPPED: agent_pb2.ACTUAL_STATE_STOPPED,
    Actual.FAILED: agent_pb2.ACTUAL_STATE_FAILED,
    Actual.UNKNOWN: agent_pb2.ACTUAL_STATE_UNKNOWN,
}
_ACTUAL_OF_ENUM: dict[int, Actual] = {number: actual for actual, number in _ENUM_OF_ACTUAL.items()}
_KINDS = {kind.value: kind for kind in ActionKind}
_STATES = {state.value: state for state in ActionState}


def apply_message(
    workload: Workload, epoch: int, resolved: Resolved | None = None, *, proof: bytes = b""
) -> agent_pb2.ApplyWorkloadRequest:
    """The apply request. `resolved` has secret values; the workload sent as the intent has references."""
    assert workload.desired is not Desired.DELETED, "a deleted workload is not applied"
    return agent_pb2.ApplyWorkloadRequest(
        id=workload.id,
        type=_ENUM_OF_TYPE[type_of(workload.spec)],
        revision_id=workload.revision,
        desired_state=_ENUM_OF_DESIRED[workload.desired],
        spec=agent_spec.spec_message(agent_spec.with_derived_fields(workload, resolved)),
        epoch=epoch,
        intent=records.encode(workload),
        stop_after_seconds=workload.stop_after_seconds,
        secret_env=resolved.secret_env if resolved is not None else (),
        proof=proof,
        run_once=workload.runs_once,
        run_deadline_seconds=workload.run_deadline_seconds,
        networks=workload.networks,
    )


def apply(message: agent_pb2.ApplyWorkloadRequest) -> Order:
    """Parse the order of a scheduler. Raises InvalidError with the first invalid field."""
    order_id = workload_id(message.id, field="id")
    limits_check.check(message)
    spec = agent_spec.spec(message.spec)
    kind = type_of(spec)
    if message.type:
        named = workload_type(message.type)
        if named is None:
            raise InvalidError("type", f"{message.type} is unknown; expected 1, 2 or 3")
        if named is not kind:
            raise InvalidError("type", f"is {named}, but spec.{kind} is set")
    desired = _DESIRED_OF_ENUM.get(message.desired_state)
    if desired is None:
        raise InvalidError("desired_state", f"{message.desired_state} is unknown; expected 1 or 2")
    return Order(
        workload_id=order_id,
        type=kind,
        revision=Revision(message.revision_id),
        epoch=message.epoch,
        desired=desired,
        spec=spec,
        stop_after_seconds=checks.number(
            message.stop_after_seconds, "stop_after_seconds", most=checks.STOP_AFTER_SECONDS_MAX
        ),
        secret_env=tuple(message.secret_env),
        proof=message.proof,
        run_once=message.run_once,
        run_deadline_seconds=message.run_deadline_seconds,
        networks=checks.networks(message.networks, "networks"),
    )


def secret_values(message: agent_pb2.ApplyWorkloadRequest) -> frozenset[str]:
    """The secret values in an order, to be masked in logs and errors. The order may be invalid."""
    spec = message.spec
    env = spec.compose.env if spec.HasField("compose") else spec.container.env
    files = (file.content for file in spec.container.files if file.secret)
    return frozenset(env[name] for name in message.secret_env if name in env) | {
        content.decode("utf-8", "replace").strip() for content in files
    }


def intent(message: agent_pb2.IntentView, node_id: NodeId) -> StoredIntent:
    """Decode a stored intent. Raises RefusedError if it is invalid or of a newer version."""
    workload = records.decode(message.intent, Workload)
    if workload.id != message.id:
        raise RefusedError(f"the intent stored for {message.id} is an intent of {workload.id}")
    return StoredIntent(node_id, workload, message.epoch)


def workload_type(number: int) -> WorkloadType | None:
    """The type, or None if it is not set or unknown."""
    return _TYPE_OF_ENUM.get(number)


def type_enum(kind: WorkloadType) -> agent_pb2.WorkloadType:
    return _ENUM_OF_TYPE[kind]


def observation(
    message: agent_pb2.WorkloadStatus, node_id: NodeId, seen_at: datetime
) -> Observation:
    actual = _ACTUAL_OF_ENUM.get(message.actual_state, Actual.UNKNOWN)
    metadata = dict(message.metadata)
    text = metadata.get(LAST_ERROR) or message.message
    failure = None
    if actual is Actual.FAILED and legacy_agents.says_deleted(
        metadata.get(TASK_ID, ""), f"{message.message} {text}"
    ):
        actual = Actual.ABSENT
    elif actual is Actual.FAILED or (_may_be_failing(actual) and FAILURE_REASON in metadata):
        failure = _failure(metadata, text)
    return Observation(
        workload_id=WorkloadId(message.id),
        node_id=node_id,
        actual=actual,
        seen_at=seen_at,
        revision=Revision(message.revision_id),
        epoch=message.epoch,
        failure=failure,
        message=message.message,
        metadata=metadata,
        proof=message.proof,
    )


def _may_be_failing(actual: Actual) -> bool:
    """Running and stopped workloads may still have the metadata of an earlier failure."""
    return actual is Actual.PENDING or actual is Actual.UNKNOWN


def _failure(metadata: dict[str, str], text: str) -> Failure:
    """Remove the failure keys from the metadata and build the failure from them."""
    details = {key: metadata.pop(key, "") for key in _FAILURE_KEYS}
    return legacy_agents.failure(
        details[FAILURE_REASON],
        text,
        code=details[REASON_CODE],
        terminal=details[RETRY_TERMINAL].lower() == "true",
    )


def status_message(
    seen: Observation,
    *,
    type: WorkloadType,  # noqa: A002 - the name in the contract
    desired: Desired,
    created_at: datetime | None = None,
    updated_at: datetime | None = None,
    usage: WorkloadUsage | None = None,
) -> agent_pb2.WorkloadStatus:
    """The status message of an observation. An absent workload has none: agents answer NOT_FOUND."""
    assert seen.actual is not Actual.ABSENT, "an absent workload has no status"
    message = agent_pb2.WorkloadStatus(
        id=seen.workload_id,
        type=_ENUM_OF_TYPE[type],
        revision_id=seen.revision,
        # The enum has no value for deleted; the task id in the metadata shows it.
        desired_state=_ENUM_OF_DESIRED.get(desired, agent_pb2.DESIRED_STATE_UNSPECIFIED),
        actual_state=_ENUM_OF_ACTUAL[seen.actual],
        message=seen.message,
        created_at=unix_seconds(created_at),
        updated_at=unix_seconds(updated_at or seen.seen_at),
        metadata=seen.metadata,
        epoch=seen.epoch,
        proof=seen.proof,
    )
    if seen.failure is not None:
        message.message = seen.message or seen.failure.message
        message.metadata[FAILURE_REASON] = seen.failure.reason
        message.metadata[LAST_ERROR] = seen.failure.message
        message.metadata[RETRY_TERMINAL] = "false" if seen.failure.retryable else "true"
        if seen.failure.code:
            message.metadata[REASON_CODE] = seen.failure.code
    if usage is not None:
        message.usage.CopyFrom(workload_usage_message(usage))
    return message


def action_message(action: Action) -> agent_pb2.AgentAction:
    return agent_pb2.AgentAction(
        task_id=action.id,
        workload_id=action.workload_id,
        action_type=action.kind,
        status=action.state,
        error=action.error,
        created_at=unix_seconds(action.created_at),
        started_at=unix_seconds(action.started_at),
        ended_at=unix_seconds(action.ended_at),
    )


def action(message: agent_pb2.AgentAction) -> Action:
    return Action(
        id=ActionId(message.task_id),
        workload_id=WorkloadId(message.workload_id),
        kind=checks.word(message.action_type, _KINDS, "action_type", ", ".join(_KINDS)),
        state=checks.word(message.status, _STATES, "status", ", ".join(_STATES)),
        created_at=from_unix_seconds(message.created_at) or EPOCH,
        started_at=from_unix_seconds(message.started_at),
        ended_at=from_unix_seconds(message.ended_at),
        error=message.error,
    )


def workload_usage(message: agent_pb2.WorkloadUsageSnapshot) -> WorkloadUsage:
    return usage_of(message, workload_type(message.type), from_unix_seconds(message.collected_at))


def workload_usage_message(used: WorkloadUsage) -> agent_pb2.WorkloadUsageSnapshot:
    return agent_pb2.WorkloadUsageSnapshot(
        type=_ENUM_OF_TYPE[used.type],
        collected_at=unix_seconds(used.collected_at),
        **usage_fields(used),
    )


def logs_request(request: control_pb2.LogsRequest) -> agent_pb2.LogsRequest:
    return agent_pb2.LogsRequest(
        workload_id=request.workload_id,
        service=request.service,
        follow=request.follow,
        since_unix_nanos=request.since.ToNanoseconds() if request.HasField("since") else 0,
        tail=request.tail,
        previous=request.previous,
        timestamps=request.timestamps,
    )


def log_chunk(chunk: agent_pb2.LogChunk) -> control_pb2.LogChunk:
    return control_pb2.LogChunk(data=chunk.data, stream=chunk.stream, service=chunk.service)


def exec_input(message: control_pb2.ExecInput) -> agent_pb2.ExecInput:
    return agent_pb2.ExecInput.FromString(message.SerializeToString())


def exec_output(message: agent_pb2.ExecOutput) -> control_pb2.ExecOutput:
    return control_pb2.ExecOutput.FromString(message.SerializeToString())
