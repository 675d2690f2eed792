"""Messages between users, agents and the scheduler (`persys.control.v1`), converted to and from the model.

Decoding a report of an agent never fails on an unknown word: an unknown state becomes 'unknown', because a
dropped status would look like an absent workload.
"""

from collections.abc import Iterable
from datetime import datetime

from persys.errors import InvalidError
from persys.model.action import Action, ActionKind, ActionState, HistoryEntry
from persys.model.ids import ActionId, NodeId, Revision, WorkloadId
from persys.model.node import Capabilities, NodeUsage, StoragePool, WorkloadUsage
from persys.model.placement import Resources
from persys.model.spec import WorkloadType
from persys.model.status import Actual, Failure, FailureReason, Observation
from persys.model.workload import Desired
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.spec import checks
from persys.wire.times import EPOCH, instant, timestamp
from persys.wire.usage import usage_fields, usage_of

_KINDS = {kind.value: kind for kind in ActionKind}
_ENDED = {state.value: state for state in (ActionState.COMPLETED, ActionState.FAILED)}

_DESIRED_WORDS = {
    "": Desired.RUNNING,
    **dict.fromkeys(("running", "run", "start", "started"), Desired.RUNNING),
    **dict.fromkeys(("stopped", "stop"), Desired.STOPPED),
    **dict.fromkeys(("deleted", "delete"), Desired.DELETED),
}
_ACTUAL_WORDS = {actual.value: actual for actual in Actual}
_TYPES = {kind.value: kind for kind in WorkloadType}
_ENUM_OF_REASON = {
    FailureReason.IMAGE_PULL_FAILED: control_pb2.IMAGE_PULL_FAILED,
    FailureReason.IMAGE_NOT_FOUND: control_pb2.IMAGE_NOT_FOUND,
    FailureReason.INSUFFICIENT_RESOURCES: control_pb2.INSUFFICIENT_RESOURCES,
    FailureReason.INVALID_SPEC: control_pb2.INVALID_SPEC,
    FailureReason.RUNTIME_ERROR: control_pb2.RUNTIME_ERROR,
    FailureReason.NETWORK_ERROR: control_pb2.NETWORK_ERROR,
    FailureReason.STORAGE_ERROR: control_pb2.STORAGE_ERROR,
    FailureReason.VM_BOOT_FAILED: control_pb2.VM_BOOT_FAILED,
}
_REASON_OF_ENUM: dict[int, FailureReason] = {
    number: reason for reason, number in _ENUM_OF_REASON.items()
}


def desired(text: str) -> Desired:
    expected = "running (run, start, started), stopped (stop) or deleted (delete)"
    return checks.word(text, _DESIRED_WORDS, "desired_state", expected)


def desired_word(wanted: Desired) -> str:
    return wanted.value.title()


def failure_enum(reason: FailureReason | None) -> control_pb2.FailureReason:
    if reason is None:
        return control_pb2.FAILURE_REASON_UNSPECIFIED
    return _ENUM_OF_REASON[reason]


def failure_reason(number: int) -> FailureReason | None:
    """The reason, or None if it is not set. A number of a newer version is read as a runtime error."""
    if number == control_pb2.FAILURE_REASON_UNSPECIFIED:
        return None
    return _REASON_OF_ENUM.get(number, FailureReason.RUNTIME_ERROR)


def capabilities(message: control_pb2.NodeCapabilities, features: Iterable[str]) -> Capabilities:
    """The capabilities of a node. Workload types that this scheduler does not know are ignored."""
    where = "capabilities"
    cpu_most, memory_most = checks.CPU_MILLICORES_MAX, checks.MEMORY_MB_MAX
    return Capabilities(
        cpu_millicores=checks.number(
            message.cpu_total_millicores, f"{where}.cpu_total_millicores", most=cpu_most
        ),
        memory_mb=checks.number(
            message.memory_total_mb, f"{where}.memory_total_mb", most=memory_most
        ),
        pools=tuple(
            _pool(pool, f"{where}.storage_pools[{index}]")
            for index, pool in enumerate(message.storage_pools)
        ),
        types=frozenset(
            _TYPES[word.lower()]
            for word in message.supported_workload_types
            if word.lower() in _TYPES
        ),
        storage_drivers=frozenset(word.lower() for word in message.supported_storage_drivers),
        reserved=Resources(
            checks.number(
                message.reserved_cpu_millicores, f"{where}.reserved_cpu_millicores", most=cpu_most
            ),
            checks.number(
                message.reserved_memory_mb, f"{where}.reserved_memory_mb", most=memory_most
            ),
        ),
        features=frozenset(features),
        tier=checks.number(message.tier, f"{where}.tier", most=checks.TIER_MAX),
        core_hour_price=_price(message.core_hour_price, f"{where}.core_hour_price"),
        largest=_largest(message, where),
        remote=message.remote,
        wireguard_key=message.wireguard_key,
        routes=tuple(message.routes),
    )


def _largest(message: control_pb2.NodeCapabilities, where: str) -> Resources:
    return Resources(
        checks.number(
            message.largest_cpu_millicores,
            f"{where}.largest_cpu_millicores",
            most=checks.CPU_MILLICORES_MAX,
        ),
        checks.number(
            message.largest_memory_mb, f"{where}.largest_memory_mb", most=checks.MEMORY_MB_MAX
        ),
        checks.number(message.largest_disk_gb, f"{where}.largest_disk_gb", most=checks.DISK_GB_MAX),
    )


def _price(value: float, where: str) -> float:
    if not 0 <= value <= checks.PRICE_MAX:
        expected = f"expected 0 to {checks.PRICE_MAX:g}"
        raise InvalidError(where, f"invalid price {value!r}: {expected}, for example 0.05")
    return value


def _pool(message: control_pb2.StoragePool, where: str) -> StoragePool:
    if not message.name:
        raise InvalidError(f"{where}.name", "is empty")
    total_gb = checks.number(message.total_gb, f"{where}.total_gb", most=checks.DISK_GB_MAX)
    return StoragePool(
        message.name, message.type or "local", total_gb, message.shares_with, message.for_disks
    )


def capabilities_message(has: Capabilities) -> control_pb2.NodeCapabilities:
    """The capabilities without the features, which have their own field in the registration."""
    return control_pb2.NodeCapabilities(
        cpu_total_millicores=has.cpu_millicores,
        memory_total_mb=has.memory_mb,
        storage_pools=[
            control_pb2.StoragePool(
                name=pool.name,
                type=pool.type,
                total_gb=pool.total_gb,
                shares_with=pool.shares_with,
                for_disks=pool.for_disks,
            )
            for pool in has.pools
        ],
        supported_workload_types=sorted(has.types),
        supported_storage_drivers=sorted(has.storage_drivers),
        reserved_cpu_millicores=has.reserved.cpu_millicores,
        reserved_memory_mb=has.reserved.memory_mb,
        tier=has.tier,
        core_hour_price=has.core_hour_price,
        largest_cpu_millicores=has.largest.cpu_millicores,
        largest_memory_mb=has.largest.memory_mb,
        largest_disk_gb=has.largest.disk_gb,
        remote=has.remote,
        wireguard_key=has.wireguard_key,
        routes=has.routes,
    )


def observation(
    message: control_pb2.WorkloadStatus, node_id: NodeId, seen_at: datetime
) -> Observation:
    actual = _ACTUAL_WORDS.get(message.state.lower(), Actual.UNKNOWN)
    return Observation(
        workload_id=WorkloadId(message.workload_id),
        node_id=node_id,
        actual=actual,
        seen_at=seen_at,
        revision=Revision(message.revision_id),
        epoch=message.epoch,
        failure=_failure(message, actual),
        message=message.message,
        metadata=dict(message.metadata),
        proof=message.proof,
        action=ended_action(message.last_action, WorkloadId(message.workload_id))
        if message.HasField("last_action")
        else None,
    )


def _failure(message: control_pb2.WorkloadStatus, actual: Actual) -> Failure | None:
    reason = failure_reason(message.failure_reason)
    if reason is None:
        if actual is not Actual.FAILED:
            return None
        reason = FailureReason.RUNTIME_ERROR
    detail = message.reason
    has_detail = message.HasField("reason")
    return Failure(
        reason,
        detail.message or message.message,
        retryable=detail.retryable if has_detail else reason.retryable,
        code=detail.code,
    )


def status_message(
    seen: Observation, *, workload_usage: WorkloadUsage | None = None
) -> control_pb2.WorkloadStatus:
    message = control_pb2.WorkloadStatus(
        workload_id=seen.workload_id,
        state=seen.actual.value.title(),
        message=seen.message,
        last_transition=timestamp(seen.seen_at),
        revision_id=seen.revision,
        epoch=seen.epoch,
        metadata=seen.metadata,
        proof=seen.proof,
    )
    if seen.failure is not None:
        message.failure_reason = failure_enum(seen.failure.reason)
        # Third-party schedulers show only this text.
        message.message = seen.message or seen.failure.message
        message.reason.code = seen.failure.code
        message.reason.message = seen.failure.message
        message.reason.retryable = seen.failure.retryable
    if seen.action is not None:
        message.last_action.CopyFrom(action_message(seen.action))
    if workload_usage is not None:
        message.usage.CopyFrom(workload_usage_message(workload_usage))
    return message


def usage(message: control_pb2.NodeUsage) -> NodeUsage:
    return NodeUsage(
        message.cpu_allocated_millicores,
        message.cpu_used_millicores,
        message.memory_allocated_mb,
        message.memory_used_mb,
        message.disk_allocated_gb,
        message.disk_used_gb,
    )


def usage_message(used: NodeUsage) -> control_pb2.NodeUsage:
    return control_pb2.NodeUsage(
        cpu_allocated_millicores=used.cpu_allocated_millicores,
        cpu_used_millicores=used.cpu_used_millicores,
        memory_allocated_mb=used.memory_allocated_mb,
        memory_used_mb=used.memory_used_mb,
        disk_allocated_gb=used.disk_allocated_gb,
        disk_used_gb=used.disk_used_gb,
    )


def workload_usage(message: control_pb2.WorkloadUsageSnapshot) -> WorkloadUsage:
    return usage_of(message, _TYPES.get(message.type.lower()), instant(message.collected_at))


def workload_usage_message(used: WorkloadUsage) -> control_pb2.WorkloadUsageSnapshot:
    return control_pb2.WorkloadUsageSnapshot(
        type=used.type, collected_at=timestamp(used.collected_at), **usage_fields(used)
    )


def sighting_message(sighting: HistoryEntry) -> control_pb2.ActionView:
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
