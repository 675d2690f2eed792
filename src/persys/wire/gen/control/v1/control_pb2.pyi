import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FailureReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAILURE_REASON_UNSPECIFIED: _ClassVar[FailureReason]
    IMAGE_PULL_FAILED: _ClassVar[FailureReason]
    IMAGE_NOT_FOUND: _ClassVar[FailureReason]
    INSUFFICIENT_RESOURCES: _ClassVar[FailureReason]
    INVALID_SPEC: _ClassVar[FailureReason]
    RUNTIME_ERROR: _ClassVar[FailureReason]
    NETWORK_ERROR: _ClassVar[FailureReason]
    STORAGE_ERROR: _ClassVar[FailureReason]
    VM_BOOT_FAILED: _ClassVar[FailureReason]

class AutomationActionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUTOMATION_ACTION_TYPE_UNSPECIFIED: _ClassVar[AutomationActionType]
    AUTOMATION_ACTION_SET_DESIRED_STATE: _ClassVar[AutomationActionType]
    AUTOMATION_ACTION_RETRY_WORKLOAD: _ClassVar[AutomationActionType]
    AUTOMATION_ACTION_DELETE_WORKLOAD: _ClassVar[AutomationActionType]
    AUTOMATION_ACTION_SCALE_REPLICAS: _ClassVar[AutomationActionType]
FAILURE_REASON_UNSPECIFIED: FailureReason
IMAGE_PULL_FAILED: FailureReason
IMAGE_NOT_FOUND: FailureReason
INSUFFICIENT_RESOURCES: FailureReason
INVALID_SPEC: FailureReason
RUNTIME_ERROR: FailureReason
NETWORK_ERROR: FailureReason
STORAGE_ERROR: FailureReason
VM_BOOT_FAILED: FailureReason
AUTOMATION_ACTION_TYPE_UNSPECIFIED: AutomationActionType
AUTOMATION_ACTION_SET_DESIRED_STATE: AutomationActionType
AUTOMATION_ACTION_RETRY_WORKLOAD: AutomationActionType
AUTOMATION_ACTION_DELETE_WORKLOAD: AutomationActionType
AUTOMATION_ACTION_SCALE_REPLICAS: AutomationActionType

class RegisterNodeRequest(_message.Message):
    __slots__ = ("node_id", "capabilities", "labels", "agent_version", "grpc_endpoint", "cluster_id", "timestamp", "features", "cluster_uid", "workload_count", "instance_id", "session_id", "boot_id")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    GRPC_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_UID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_COUNT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    capabilities: NodeCapabilities
    labels: _containers.ScalarMap[str, str]
    agent_version: str
    grpc_endpoint: str
    cluster_id: str
    timestamp: _timestamp_pb2.Timestamp
    features: _containers.RepeatedScalarFieldContainer[str]
    cluster_uid: str
    workload_count: int
    instance_id: str
    session_id: str
    boot_id: str
    def __init__(self, node_id: _Optional[str] = ..., capabilities: _Optional[_Union[NodeCapabilities, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., agent_version: _Optional[str] = ..., grpc_endpoint: _Optional[str] = ..., cluster_id: _Optional[str] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., features: _Optional[_Iterable[str]] = ..., cluster_uid: _Optional[str] = ..., workload_count: _Optional[int] = ..., instance_id: _Optional[str] = ..., session_id: _Optional[str] = ..., boot_id: _Optional[str] = ...) -> None: ...

class NodeCapabilities(_message.Message):
    __slots__ = ("cpu_total_millicores", "memory_total_mb", "storage_pools", "supported_workload_types", "supported_storage_drivers", "reserved_cpu_millicores", "reserved_memory_mb", "tier", "core_hour_price", "largest_cpu_millicores", "largest_memory_mb", "largest_disk_gb", "remote", "wireguard_key", "routes")
    CPU_TOTAL_MILLICORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_MB_FIELD_NUMBER: _ClassVar[int]
    STORAGE_POOLS_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_WORKLOAD_TYPES_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_STORAGE_DRIVERS_FIELD_NUMBER: _ClassVar[int]
    RESERVED_CPU_MILLICORES_FIELD_NUMBER: _ClassVar[int]
    RESERVED_MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    CORE_HOUR_PRICE_FIELD_NUMBER: _ClassVar[int]
    LARGEST_CPU_MILLICORES_FIELD_NUMBER: _ClassVar[int]
    LARGEST_MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    LARGEST_DISK_GB_FIELD_NUMBER: _ClassVar[int]
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    WIREGUARD_KEY_FIELD_NUMBER: _ClassVar[int]
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    cpu_total_millicores: int
    memory_total_mb: int
    storage_pools: _containers.RepeatedCompositeFieldContainer[StoragePool]
    supported_workload_types: _containers.RepeatedScalarFieldContainer[str]
    supported_storage_drivers: _containers.RepeatedScalarFieldContainer[str]
    reserved_cpu_millicores: int
    reserved_memory_mb: int
    tier: int
    core_hour_price: float
    largest_cpu_millicores: int
    largest_memory_mb: int
    largest_disk_gb: int
    remote: str
    wireguard_key: str
    routes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cpu_total_millicores: _Optional[int] = ..., memory_total_mb: _Optional[int] = ..., storage_pools: _Optional[_Iterable[_Union[StoragePool, _Mapping]]] = ..., supported_workload_types: _Optional[_Iterable[str]] = ..., supported_storage_drivers: _Optional[_Iterable[str]] = ..., reserved_cpu_millicores: _Optional[int] = ..., reserved_memory_mb: _Optional[int] = ..., tier: _Optional[int] = ..., core_hour_price: _Optional[float] = ..., largest_cpu_millicores: _Optional[int] = ..., largest_memory_mb: _Optional[int] = ..., largest_disk_gb: _Optional[int] = ..., remote: _Optional[str] = ..., wireguard_key: _Optional[str] = ..., routes: _Optional[_Iterable[str]] = ...) -> None: ...

class StoragePool(_message.Message):
    __slots__ = ("name", "type", "total_gb", "shares_with", "for_disks")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_GB_FIELD_NUMBER: _ClassVar[int]
    SHARES_WITH_FIELD_NUMBER: _ClassVar[int]
    FOR_DISKS_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    total_gb: int
    shares_with: str
    for_disks: bool
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., total_gb: _Optional[int] = ..., shares_with: _Optional[str] = ..., for_disks: _Optional[bool] = ...) -> None: ...

class RegisterNodeResponse(_message.Message):
    __slots__ = ("accepted", "reason", "heartbeat_interval_seconds", "lease_expires_at", "cluster_uid", "instance_id", "superseded")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_UID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDED_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    heartbeat_interval_seconds: int
    lease_expires_at: _timestamp_pb2.Timestamp
    cluster_uid: str
    instance_id: str
    superseded: bool
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., heartbeat_interval_seconds: _Optional[int] = ..., lease_expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., cluster_uid: _Optional[str] = ..., instance_id: _Optional[str] = ..., superseded: _Optional[bool] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("node_id", "usage", "workload_statuses", "timestamp", "workload_usage", "complete", "removed_workload_ids", "internal_errors", "unavailable_types", "instance_id", "journal_problem", "runtime_problem", "networks_version", "network_ids")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_STATUSES_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_USAGE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    REMOVED_WORKLOAD_IDS_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_ERRORS_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_TYPES_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    NETWORKS_VERSION_FIELD_NUMBER: _ClassVar[int]
    NETWORK_IDS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    usage: NodeUsage
    workload_statuses: _containers.RepeatedCompositeFieldContainer[WorkloadStatus]
    timestamp: _timestamp_pb2.Timestamp
    workload_usage: _containers.RepeatedCompositeFieldContainer[WorkloadUsageSnapshot]
    complete: bool
    removed_workload_ids: _containers.RepeatedScalarFieldContainer[str]
    internal_errors: _containers.RepeatedCompositeFieldContainer[InternalError]
    unavailable_types: _containers.RepeatedScalarFieldContainer[str]
    instance_id: str
    journal_problem: str
    runtime_problem: str
    networks_version: str
    network_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node_id: _Optional[str] = ..., usage: _Optional[_Union[NodeUsage, _Mapping]] = ..., workload_statuses: _Optional[_Iterable[_Union[WorkloadStatus, _Mapping]]] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., workload_usage: _Optional[_Iterable[_Union[WorkloadUsageSnapshot, _Mapping]]] = ..., complete: _Optional[bool] = ..., removed_workload_ids: _Optional[_Iterable[str]] = ..., internal_errors: _Optional[_Iterable[_Union[InternalError, _Mapping]]] = ..., unavailable_types: _Optional[_Iterable[str]] = ..., instance_id: _Optional[str] = ..., journal_problem: _Optional[str] = ..., runtime_problem: _Optional[str] = ..., networks_version: _Optional[str] = ..., network_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class InternalError(_message.Message):
    __slots__ = ("component", "where", "key", "text", "count", "last_at")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_FIELD_NUMBER: _ClassVar[int]
    component: str
    where: str
    key: str
    text: str
    count: int
    last_at: _timestamp_pb2.Timestamp
    def __init__(self, component: _Optional[str] = ..., where: _Optional[str] = ..., key: _Optional[str] = ..., text: _Optional[str] = ..., count: _Optional[int] = ..., last_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class NodeUsage(_message.Message):
    __slots__ = ("cpu_allocated_millicores", "cpu_used_millicores", "memory_allocated_mb", "memory_used_mb", "disk_allocated_gb", "disk_used_gb")
    CPU_ALLOCATED_MILLICORES_FIELD_NUMBER: _ClassVar[int]
    CPU_USED_MILLICORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_ALLOCATED_MB_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_MB_FIELD_NUMBER: _ClassVar[int]
    DISK_ALLOCATED_GB_FIELD_NUMBER: _ClassVar[int]
    DISK_USED_GB_FIELD_NUMBER: _ClassVar[int]
    cpu_allocated_millicores: int
    cpu_used_millicores: int
    memory_allocated_mb: int
    memory_used_mb: int
    disk_allocated_gb: int
    disk_used_gb: int
    def __init__(self, cpu_allocated_millicores: _Optional[int] = ..., cpu_used_millicores: _Optional[int] = ..., memory_allocated_mb: _Optional[int] = ..., memory_used_mb: _Optional[int] = ..., disk_allocated_gb: _Optional[int] = ..., disk_used_gb: _Optional[int] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("acknowledged", "drain_node", "lease_expires_at", "leads")
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    DRAIN_NODE_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    acknowledged: bool
    drain_node: bool
    lease_expires_at: _timestamp_pb2.Timestamp
    leads: bool
    def __init__(self, acknowledged: _Optional[bool] = ..., drain_node: _Optional[bool] = ..., lease_expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., leads: _Optional[bool] = ...) -> None: ...

class ApplyWorkloadRequest(_message.Message):
    __slots__ = ("workload_id", "spec", "revision_id", "desired_state")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    REVISION_ID_FIELD_NUMBER: _ClassVar[int]
    DESIRED_STATE_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    spec: WorkloadSpec
    revision_id: str
    desired_state: str
    def __init__(self, workload_id: _Optional[str] = ..., spec: _Optional[_Union[WorkloadSpec, _Mapping]] = ..., revision_id: _Optional[str] = ..., desired_state: _Optional[str] = ...) -> None: ...

class ApplyWorkloadResponse(_message.Message):
    __slots__ = ("success", "failure_reason", "error_message", "revision_id")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REVISION_ID_FIELD_NUMBER: _ClassVar[int]
    success: bool
    failure_reason: FailureReason
    error_message: str
    revision_id: str
    def __init__(self, success: _Optional[bool] = ..., failure_reason: _Optional[_Union[FailureReason, str]] = ..., error_message: _Optional[str] = ..., revision_id: _Optional[str] = ...) -> None: ...

class ApplyWorkloadsRequest(_message.Message):
    __slots__ = ("workloads",)
    WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    workloads: _containers.RepeatedCompositeFieldContainer[ApplyWorkloadRequest]
    def __init__(self, workloads: _Optional[_Iterable[_Union[ApplyWorkloadRequest, _Mapping]]] = ...) -> None: ...

class ApplyWorkloadsResponse(_message.Message):
    __slots__ = ("accepted", "reason", "results")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    results: _containers.RepeatedCompositeFieldContainer[WorkloadApplied]
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., results: _Optional[_Iterable[_Union[WorkloadApplied, _Mapping]]] = ...) -> None: ...

class WorkloadApplied(_message.Message):
    __slots__ = ("workload_id", "success", "failure_reason", "error_message", "revision_id")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REVISION_ID_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    success: bool
    failure_reason: FailureReason
    error_message: str
    revision_id: str
    def __init__(self, workload_id: _Optional[str] = ..., success: _Optional[bool] = ..., failure_reason: _Optional[_Union[FailureReason, str]] = ..., error_message: _Optional[str] = ..., revision_id: _Optional[str] = ...) -> None: ...

class DeleteWorkloadRequest(_message.Message):
    __slots__ = ("workload_id",)
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    def __init__(self, workload_id: _Optional[str] = ...) -> None: ...

class DeleteWorkloadResponse(_message.Message):
    __slots__ = ("success", "error_message")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    success: bool
    error_message: str
    def __init__(self, success: _Optional[bool] = ..., error_message: _Optional[str] = ...) -> None: ...

class RetryWorkloadRequest(_message.Message):
    __slots__ = ("workload_id",)
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    def __init__(self, workload_id: _Optional[str] = ...) -> None: ...

class RetryWorkloadResponse(_message.Message):
    __slots__ = ("accepted", "reason")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class RedeployWorkloadRequest(_message.Message):
    __slots__ = ("workload_id",)
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    def __init__(self, workload_id: _Optional[str] = ...) -> None: ...

class RedeployWorkloadResponse(_message.Message):
    __slots__ = ("accepted", "reason", "revision_id")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REVISION_ID_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    revision_id: str
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., revision_id: _Optional[str] = ...) -> None: ...

class WorkloadSpec(_message.Message):
    __slots__ = ("type", "resources", "container", "compose", "vm", "metadata", "placement", "stop_after_seconds", "networks")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    COMPOSE_FIELD_NUMBER: _ClassVar[int]
    VM_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    STOP_AFTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NETWORKS_FIELD_NUMBER: _ClassVar[int]
    type: str
    resources: ResourceRequirements
    container: ContainerSpec
    compose: ComposeSpec
    vm: VMSpec
    metadata: _containers.ScalarMap[str, str]
    placement: PlacementRules
    stop_after_seconds: int
    networks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, type: _Optional[str] = ..., resources: _Optional[_Union[ResourceRequirements, _Mapping]] = ..., container: _Optional[_Union[ContainerSpec, _Mapping]] = ..., compose: _Optional[_Union[ComposeSpec, _Mapping]] = ..., vm: _Optional[_Union[VMSpec, _Mapping]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., placement: _Optional[_Union[PlacementRules, _Mapping]] = ..., stop_after_seconds: _Optional[int] = ..., networks: _Optional[_Iterable[str]] = ...) -> None: ...

class PlacementRules(_message.Message):
    __slots__ = ("constraints", "tolerations", "group", "anti_affinity", "spread_over", "strategy", "priority", "offload", "offload_data")
    CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    TOLERATIONS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ANTI_AFFINITY_FIELD_NUMBER: _ClassVar[int]
    SPREAD_OVER_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    OFFLOAD_FIELD_NUMBER: _ClassVar[int]
    OFFLOAD_DATA_FIELD_NUMBER: _ClassVar[int]
    RETURN_FIELD_NUMBER: _ClassVar[int]
    constraints: _containers.RepeatedScalarFieldContainer[str]
    tolerations: _containers.RepeatedScalarFieldContainer[str]
    group: str
    anti_affinity: str
    spread_over: _containers.RepeatedScalarFieldContainer[str]
    strategy: str
    priority: int
    offload: str
    offload_data: bool
    def __init__(self, constraints: _Optional[_Iterable[str]] = ..., tolerations: _Optional[_Iterable[str]] = ..., group: _Optional[str] = ..., anti_affinity: _Optional[str] = ..., spread_over: _Optional[_Iterable[str]] = ..., strategy: _Optional[str] = ..., priority: _Optional[int] = ..., offload: _Optional[str] = ..., offload_data: _Optional[bool] = ..., **kwargs) -> None: ...

class ResourceRequirements(_message.Message):
    __slots__ = ("cpu_millicores", "memory_mb", "disk_gb")
    CPU_MILLICORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    DISK_GB_FIELD_NUMBER: _ClassVar[int]
    cpu_millicores: int
    memory_mb: int
    disk_gb: int
    def __init__(self, cpu_millicores: _Optional[int] = ..., memory_mb: _Optional[int] = ..., disk_gb: _Optional[int] = ...) -> None: ...

class ContainerSpec(_message.Message):
    __slots__ = ("image", "command", "env", "volumes", "ports", "restart_policy", "privileged", "managed_volumes", "args", "image_pull_policy", "pids_max", "stop_grace_seconds", "init", "labels", "image_credential", "health_check", "files")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    RESTART_POLICY_FIELD_NUMBER: _ClassVar[int]
    PRIVILEGED_FIELD_NUMBER: _ClassVar[int]
    MANAGED_VOLUMES_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_PULL_POLICY_FIELD_NUMBER: _ClassVar[int]
    PIDS_MAX_FIELD_NUMBER: _ClassVar[int]
    STOP_GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    INIT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    HEALTH_CHECK_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    image: str
    command: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    volumes: _containers.RepeatedCompositeFieldContainer[VolumeMount]
    ports: _containers.RepeatedCompositeFieldContainer[Port]
    restart_policy: str
    privileged: bool
    managed_volumes: _containers.RepeatedCompositeFieldContainer[ManagedVolumeSpec]
    args: _containers.RepeatedScalarFieldContainer[str]
    image_pull_policy: str
    pids_max: int
    stop_grace_seconds: int
    init: bool
    labels: _containers.ScalarMap[str, str]
    image_credential: str
    health_check: HealthCheck
    files: _containers.RepeatedCompositeFieldContainer[FileMount]
    def __init__(self, image: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., volumes: _Optional[_Iterable[_Union[VolumeMount, _Mapping]]] = ..., ports: _Optional[_Iterable[_Union[Port, _Mapping]]] = ..., restart_policy: _Optional[str] = ..., privileged: _Optional[bool] = ..., managed_volumes: _Optional[_Iterable[_Union[ManagedVolumeSpec, _Mapping]]] = ..., args: _Optional[_Iterable[str]] = ..., image_pull_policy: _Optional[str] = ..., pids_max: _Optional[int] = ..., stop_grace_seconds: _Optional[int] = ..., init: _Optional[bool] = ..., labels: _Optional[_Mapping[str, str]] = ..., image_credential: _Optional[str] = ..., health_check: _Optional[_Union[HealthCheck, _Mapping]] = ..., files: _Optional[_Iterable[_Union[FileMount, _Mapping]]] = ...) -> None: ...

class FileMount(_message.Message):
    __slots__ = ("path", "content", "mode")
    PATH_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    path: str
    content: str
    mode: int
    def __init__(self, path: _Optional[str] = ..., content: _Optional[str] = ..., mode: _Optional[int] = ...) -> None: ...

class HealthCheck(_message.Message):
    __slots__ = ("type", "port", "path", "command", "interval_seconds", "timeout_seconds", "retries", "start_period_seconds", "restart_unhealthy")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    START_PERIOD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RESTART_UNHEALTHY_FIELD_NUMBER: _ClassVar[int]
    type: str
    port: int
    path: str
    command: _containers.RepeatedScalarFieldContainer[str]
    interval_seconds: int
    timeout_seconds: int
    retries: int
    start_period_seconds: int
    restart_unhealthy: bool
    def __init__(self, type: _Optional[str] = ..., port: _Optional[int] = ..., path: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., interval_seconds: _Optional[int] = ..., timeout_seconds: _Optional[int] = ..., retries: _Optional[int] = ..., start_period_seconds: _Optional[int] = ..., restart_unhealthy: _Optional[bool] = ...) -> None: ...

class VolumeMount(_message.Message):
    __slots__ = ("host_path", "container_path", "read_only")
    HOST_PATH_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_PATH_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    host_path: str
    container_path: str
    read_only: bool
    def __init__(self, host_path: _Optional[str] = ..., container_path: _Optional[str] = ..., read_only: _Optional[bool] = ...) -> None: ...

class Port(_message.Message):
    __slots__ = ("host_port", "container_port", "protocol")
    HOST_PORT_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_PORT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    host_port: int
    container_port: int
    protocol: str
    def __init__(self, host_port: _Optional[int] = ..., container_port: _Optional[int] = ..., protocol: _Optional[str] = ...) -> None: ...

class ComposeSpec(_message.Message):
    __slots__ = ("source_type", "git_repo", "git_ref", "inline_yaml", "env", "git_path", "git_credential", "image_credential", "volume_policy", "project_name")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    GIT_REPO_FIELD_NUMBER: _ClassVar[int]
    GIT_REF_FIELD_NUMBER: _ClassVar[int]
    INLINE_YAML_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    GIT_PATH_FIELD_NUMBER: _ClassVar[int]
    GIT_CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    IMAGE_CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    VOLUME_POLICY_FIELD_NUMBER: _ClassVar[int]
    PROJECT_NAME_FIELD_NUMBER: _ClassVar[int]
    source_type: str
    git_repo: str
    git_ref: str
    inline_yaml: str
    env: _containers.ScalarMap[str, str]
    git_path: str
    git_credential: str
    image_credential: str
    volume_policy: str
    project_name: str
    def __init__(self, source_type: _Optional[str] = ..., git_repo: _Optional[str] = ..., git_ref: _Optional[str] = ..., inline_yaml: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., git_path: _Optional[str] = ..., git_credential: _Optional[str] = ..., image_credential: _Optional[str] = ..., volume_policy: _Optional[str] = ..., project_name: _Optional[str] = ...) -> None: ...

class VMSpec(_message.Message):
    __slots__ = ("vcpus", "memory_mb", "disks", "networks", "cloud_init", "os_image", "managed_volumes", "restart_policy", "stop_grace_seconds", "login", "health_check")
    VCPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    DISKS_FIELD_NUMBER: _ClassVar[int]
    NETWORKS_FIELD_NUMBER: _ClassVar[int]
    CLOUD_INIT_FIELD_NUMBER: _ClassVar[int]
    OS_IMAGE_FIELD_NUMBER: _ClassVar[int]
    MANAGED_VOLUMES_FIELD_NUMBER: _ClassVar[int]
    RESTART_POLICY_FIELD_NUMBER: _ClassVar[int]
    STOP_GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LOGIN_FIELD_NUMBER: _ClassVar[int]
    HEALTH_CHECK_FIELD_NUMBER: _ClassVar[int]
    vcpus: int
    memory_mb: int
    disks: _containers.RepeatedCompositeFieldContainer[DiskConfig]
    networks: _containers.RepeatedCompositeFieldContainer[NetworkConfig]
    cloud_init: CloudInitConfig
    os_image: str
    managed_volumes: _containers.RepeatedCompositeFieldContainer[ManagedVolumeSpec]
    restart_policy: str
    stop_grace_seconds: int
    login: VMLogin
    health_check: HealthCheck
    def __init__(self, vcpus: _Optional[int] = ..., memory_mb: _Optional[int] = ..., disks: _Optional[_Iterable[_Union[DiskConfig, _Mapping]]] = ..., networks: _Optional[_Iterable[_Union[NetworkConfig, _Mapping]]] = ..., cloud_init: _Optional[_Union[CloudInitConfig, _Mapping]] = ..., os_image: _Optional[str] = ..., managed_volumes: _Optional[_Iterable[_Union[ManagedVolumeSpec, _Mapping]]] = ..., restart_policy: _Optional[str] = ..., stop_grace_seconds: _Optional[int] = ..., login: _Optional[_Union[VMLogin, _Mapping]] = ..., health_check: _Optional[_Union[HealthCheck, _Mapping]] = ...) -> None: ...

class VMLogin(_message.Message):
    __slots__ = ("user", "ssh_keys", "password_hash")
    USER_FIELD_NUMBER: _ClassVar[int]
    SSH_KEYS_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_HASH_FIELD_NUMBER: _ClassVar[int]
    user: str
    ssh_keys: _containers.RepeatedScalarFieldContainer[str]
    password_hash: str
    def __init__(self, user: _Optional[str] = ..., ssh_keys: _Optional[_Iterable[str]] = ..., password_hash: _Optional[str] = ...) -> None: ...

class DiskConfig(_message.Message):
    __slots__ = ("pool_name", "size_gb", "mount_point")
    POOL_NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_GB_FIELD_NUMBER: _ClassVar[int]
    MOUNT_POINT_FIELD_NUMBER: _ClassVar[int]
    pool_name: str
    size_gb: int
    mount_point: str
    def __init__(self, pool_name: _Optional[str] = ..., size_gb: _Optional[int] = ..., mount_point: _Optional[str] = ...) -> None: ...

class NetworkConfig(_message.Message):
    __slots__ = ("bridge", "dhcp", "static_ip", "mac_address", "gateway", "nameservers")
    BRIDGE_FIELD_NUMBER: _ClassVar[int]
    DHCP_FIELD_NUMBER: _ClassVar[int]
    STATIC_IP_FIELD_NUMBER: _ClassVar[int]
    MAC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    NAMESERVERS_FIELD_NUMBER: _ClassVar[int]
    bridge: str
    dhcp: bool
    static_ip: str
    mac_address: str
    gateway: str
    nameservers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, bridge: _Optional[str] = ..., dhcp: _Optional[bool] = ..., static_ip: _Optional[str] = ..., mac_address: _Optional[str] = ..., gateway: _Optional[str] = ..., nameservers: _Optional[_Iterable[str]] = ...) -> None: ...

class CloudInitConfig(_message.Message):
    __slots__ = ("user_data", "meta_data", "network_config", "vendor_data")
    USER_DATA_FIELD_NUMBER: _ClassVar[int]
    META_DATA_FIELD_NUMBER: _ClassVar[int]
    NETWORK_CONFIG_FIELD_NUMBER: _ClassVar[int]
    VENDOR_DATA_FIELD_NUMBER: _ClassVar[int]
    user_data: str
    meta_data: str
    network_config: str
    vendor_data: str
    def __init__(self, user_data: _Optional[str] = ..., meta_data: _Optional[str] = ..., network_config: _Optional[str] = ..., vendor_data: _Optional[str] = ...) -> None: ...

class ManagedVolumeSpec(_message.Message):
    __slots__ = ("name", "driver", "size_gb", "access_mode", "fs_type", "mount_path", "read_only", "retain_policy")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    SIZE_GB_FIELD_NUMBER: _ClassVar[int]
    ACCESS_MODE_FIELD_NUMBER: _ClassVar[int]
    FS_TYPE_FIELD_NUMBER: _ClassVar[int]
    MOUNT_PATH_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    RETAIN_POLICY_FIELD_NUMBER: _ClassVar[int]
    name: str
    driver: str
    size_gb: int
    access_mode: str
    fs_type: str
    mount_path: str
    read_only: bool
    retain_policy: str
    def __init__(self, name: _Optional[str] = ..., driver: _Optional[str] = ..., size_gb: _Optional[int] = ..., access_mode: _Optional[str] = ..., fs_type: _Optional[str] = ..., mount_path: _Optional[str] = ..., read_only: _Optional[bool] = ..., retain_policy: _Optional[str] = ...) -> None: ...

class WorkloadUsageSnapshot(_message.Message):
    __slots__ = ("workload_id", "type", "cpu_percent", "memory_bytes", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes", "collected_at", "source")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CPU_PERCENT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_READ_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_WRITE_BYTES_FIELD_NUMBER: _ClassVar[int]
    NET_RX_BYTES_FIELD_NUMBER: _ClassVar[int]
    NET_TX_BYTES_FIELD_NUMBER: _ClassVar[int]
    COLLECTED_AT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    type: str
    cpu_percent: float
    memory_bytes: int
    disk_read_bytes: int
    disk_write_bytes: int
    net_rx_bytes: int
    net_tx_bytes: int
    collected_at: _timestamp_pb2.Timestamp
    source: str
    def __init__(self, workload_id: _Optional[str] = ..., type: _Optional[str] = ..., cpu_percent: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., disk_read_bytes: _Optional[int] = ..., disk_write_bytes: _Optional[int] = ..., net_rx_bytes: _Optional[int] = ..., net_tx_bytes: _Optional[int] = ..., collected_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., source: _Optional[str] = ...) -> None: ...

class ReasonDetail(_message.Message):
    __slots__ = ("code", "message", "last_transition", "next_retry_at", "retryable")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LAST_TRANSITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_RETRY_AT_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    last_transition: _timestamp_pb2.Timestamp
    next_retry_at: _timestamp_pb2.Timestamp
    retryable: bool
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., last_transition: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., next_retry_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., retryable: _Optional[bool] = ...) -> None: ...

class WorkloadStatus(_message.Message):
    __slots__ = ("workload_id", "state", "failure_reason", "message", "last_transition", "reason", "usage", "revision_id", "epoch", "metadata", "proof", "last_action")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LAST_TRANSITION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    REVISION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    LAST_ACTION_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    state: str
    failure_reason: FailureReason
    message: str
    last_transition: _timestamp_pb2.Timestamp
    reason: ReasonDetail
    usage: WorkloadUsageSnapshot
    revision_id: str
    epoch: int
    metadata: _containers.ScalarMap[str, str]
    proof: bytes
    last_action: ActionView
    def __init__(self, workload_id: _Optional[str] = ..., state: _Optional[str] = ..., failure_reason: _Optional[_Union[FailureReason, str]] = ..., message: _Optional[str] = ..., last_transition: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reason: _Optional[_Union[ReasonDetail, _Mapping]] = ..., usage: _Optional[_Union[WorkloadUsageSnapshot, _Mapping]] = ..., revision_id: _Optional[str] = ..., epoch: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ..., proof: _Optional[bytes] = ..., last_action: _Optional[_Union[ActionView, _Mapping]] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: str
    def __init__(self, status: _Optional[str] = ...) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeView]
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeView, _Mapping]]] = ...) -> None: ...

class GetNodeRequest(_message.Message):
    __slots__ = ("node_id",)
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    def __init__(self, node_id: _Optional[str] = ...) -> None: ...

class GetNodeResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: NodeView
    def __init__(self, node: _Optional[_Union[NodeView, _Mapping]] = ...) -> None: ...

class NodeView(_message.Message):
    __slots__ = ("node_id", "status", "status_reason", "status_updated_by", "status_updated_at", "last_heartbeat", "grpc_endpoint", "total_cpu_cores", "available_cpu_cores", "total_memory_mb", "available_memory_mb", "supported_workload_types", "labels", "total_disk_gb", "available_disk_gb", "workload_count", "agent_version", "cordoned", "drain", "clock_skew_ms", "confirmed_dead", "taints", "usage", "problems", "tier", "core_hour_price", "remote")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STATUS_REASON_FIELD_NUMBER: _ClassVar[int]
    STATUS_UPDATED_BY_FIELD_NUMBER: _ClassVar[int]
    STATUS_UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    GRPC_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_CPU_CORES_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_CPU_CORES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_WORKLOAD_TYPES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_DISK_GB_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_DISK_GB_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_COUNT_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    CORDONED_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    CLOCK_SKEW_MS_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_DEAD_FIELD_NUMBER: _ClassVar[int]
    TAINTS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    CORE_HOUR_PRICE_FIELD_NUMBER: _ClassVar[int]
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    status: str
    status_reason: str
    status_updated_by: str
    status_updated_at: _timestamp_pb2.Timestamp
    last_heartbeat: _timestamp_pb2.Timestamp
    grpc_endpoint: str
    total_cpu_cores: float
    available_cpu_cores: float
    total_memory_mb: int
    available_memory_mb: int
    supported_workload_types: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    total_disk_gb: int
    available_disk_gb: int
    workload_count: int
    agent_version: str
    cordoned: bool
    drain: DrainView
    clock_skew_ms: int
    confirmed_dead: bool
    taints: _containers.RepeatedScalarFieldContainer[str]
    usage: NodeUsage
    problems: _containers.RepeatedScalarFieldContainer[str]
    tier: int
    core_hour_price: float
    remote: str
    def __init__(self, node_id: _Optional[str] = ..., status: _Optional[str] = ..., status_reason: _Optional[str] = ..., status_updated_by: _Optional[str] = ..., status_updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_heartbeat: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., grpc_endpoint: _Optional[str] = ..., total_cpu_cores: _Optional[float] = ..., available_cpu_cores: _Optional[float] = ..., total_memory_mb: _Optional[int] = ..., available_memory_mb: _Optional[int] = ..., supported_workload_types: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., total_disk_gb: _Optional[int] = ..., available_disk_gb: _Optional[int] = ..., workload_count: _Optional[int] = ..., agent_version: _Optional[str] = ..., cordoned: _Optional[bool] = ..., drain: _Optional[_Union[DrainView, _Mapping]] = ..., clock_skew_ms: _Optional[int] = ..., confirmed_dead: _Optional[bool] = ..., taints: _Optional[_Iterable[str]] = ..., usage: _Optional[_Union[NodeUsage, _Mapping]] = ..., problems: _Optional[_Iterable[str]] = ..., tier: _Optional[int] = ..., core_hour_price: _Optional[float] = ..., remote: _Optional[str] = ...) -> None: ...

class DrainView(_message.Message):
    __slots__ = ("state", "started_at", "deadline_at", "remaining", "blocked")
    STATE_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    state: str
    started_at: _timestamp_pb2.Timestamp
    deadline_at: _timestamp_pb2.Timestamp
    remaining: int
    blocked: _containers.RepeatedCompositeFieldContainer[DrainBlock]
    def __init__(self, state: _Optional[str] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., deadline_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., remaining: _Optional[int] = ..., blocked: _Optional[_Iterable[_Union[DrainBlock, _Mapping]]] = ...) -> None: ...

class DrainBlock(_message.Message):
    __slots__ = ("workload_id", "reason", "stays")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STAYS_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    reason: str
    stays: bool
    def __init__(self, workload_id: _Optional[str] = ..., reason: _Optional[str] = ..., stays: _Optional[bool] = ...) -> None: ...

class NodeRequest(_message.Message):
    __slots__ = ("node_id",)
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    def __init__(self, node_id: _Optional[str] = ...) -> None: ...

class DrainNodeRequest(_message.Message):
    __slots__ = ("node_id", "deadline_seconds")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    deadline_seconds: int
    def __init__(self, node_id: _Optional[str] = ..., deadline_seconds: _Optional[int] = ...) -> None: ...

class NodeAnswer(_message.Message):
    __slots__ = ("accepted", "reason", "node")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    node: NodeView
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., node: _Optional[_Union[NodeView, _Mapping]] = ...) -> None: ...

class ListWorkloadsRequest(_message.Message):
    __slots__ = ("node_id", "status")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    status: str
    def __init__(self, node_id: _Optional[str] = ..., status: _Optional[str] = ...) -> None: ...

class ListWorkloadsResponse(_message.Message):
    __slots__ = ("workloads",)
    WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    workloads: _containers.RepeatedCompositeFieldContainer[WorkloadView]
    def __init__(self, workloads: _Optional[_Iterable[_Union[WorkloadView, _Mapping]]] = ...) -> None: ...

class GetWorkloadRequest(_message.Message):
    __slots__ = ("workload_id",)
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    def __init__(self, workload_id: _Optional[str] = ...) -> None: ...

class GetWorkloadResponse(_message.Message):
    __slots__ = ("workload",)
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    workload: WorkloadView
    def __init__(self, workload: _Optional[_Union[WorkloadView, _Mapping]] = ...) -> None: ...

class GetWorkloadsRequest(_message.Message):
    __slots__ = ("workload_ids",)
    WORKLOAD_IDS_FIELD_NUMBER: _ClassVar[int]
    workload_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, workload_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GetWorkloadsResponse(_message.Message):
    __slots__ = ("found",)
    FOUND_FIELD_NUMBER: _ClassVar[int]
    found: _containers.RepeatedCompositeFieldContainer[GetWorkloadResponse]
    def __init__(self, found: _Optional[_Iterable[_Union[GetWorkloadResponse, _Mapping]]] = ...) -> None: ...

class WorkloadView(_message.Message):
    __slots__ = ("workload_id", "type", "desired_state", "status", "assigned_node_id", "revision_id", "retry_attempts", "retry_max_attempts", "retry_next_at", "failure_reason", "last_updated", "reason", "usage", "epoch", "placement", "metadata", "spec", "history", "admitted_on_node", "dispatch_failed", "membership", "healthy_since")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DESIRED_STATE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_ID_FIELD_NUMBER: _ClassVar[int]
    RETRY_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    RETRY_MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    RETRY_NEXT_AT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_REASON_FIELD_NUMBER: _ClassVar[int]
    LAST_UPDATED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_ON_NODE_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_FAILED_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_SINCE_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    type: str
    desired_state: str
    status: str
    assigned_node_id: str
    revision_id: str
    retry_attempts: int
    retry_max_attempts: int
    retry_next_at: _timestamp_pb2.Timestamp
    failure_reason: str
    last_updated: _timestamp_pb2.Timestamp
    reason: ReasonDetail
    usage: WorkloadUsageSnapshot
    epoch: int
    placement: str
    metadata: _containers.ScalarMap[str, str]
    spec: WorkloadSpec
    history: _containers.RepeatedCompositeFieldContainer[ActionView]
    admitted_on_node: bool
    dispatch_failed: bool
    membership: Membership
    healthy_since: _timestamp_pb2.Timestamp
    def __init__(self, workload_id: _Optional[str] = ..., type: _Optional[str] = ..., desired_state: _Optional[str] = ..., status: _Optional[str] = ..., assigned_node_id: _Optional[str] = ..., revision_id: _Optional[str] = ..., retry_attempts: _Optional[int] = ..., retry_max_attempts: _Optional[int] = ..., retry_next_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., failure_reason: _Optional[str] = ..., last_updated: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reason: _Optional[_Union[ReasonDetail, _Mapping]] = ..., usage: _Optional[_Union[WorkloadUsageSnapshot, _Mapping]] = ..., epoch: _Optional[int] = ..., placement: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., spec: _Optional[_Union[WorkloadSpec, _Mapping]] = ..., history: _Optional[_Iterable[_Union[ActionView, _Mapping]]] = ..., admitted_on_node: _Optional[bool] = ..., dispatch_failed: _Optional[bool] = ..., membership: _Optional[_Union[Membership, _Mapping]] = ..., healthy_since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Membership(_message.Message):
    __slots__ = ("owner", "index", "revision", "job_id")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    owner: str
    index: int
    revision: int
    job_id: str
    def __init__(self, owner: _Optional[str] = ..., index: _Optional[int] = ..., revision: _Optional[int] = ..., job_id: _Optional[str] = ...) -> None: ...

class ActionView(_message.Message):
    __slots__ = ("task_id", "node_id", "action_type", "status", "error", "created_at", "started_at", "ended_at", "fetched_at")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_TYPE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    FETCHED_AT_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    node_id: str
    action_type: str
    status: str
    error: str
    created_at: _timestamp_pb2.Timestamp
    started_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    fetched_at: _timestamp_pb2.Timestamp
    def __init__(self, task_id: _Optional[str] = ..., node_id: _Optional[str] = ..., action_type: _Optional[str] = ..., status: _Optional[str] = ..., error: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., fetched_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetClusterSummaryRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetClusterSummaryResponse(_message.Message):
    __slots__ = ("total_nodes", "ready_nodes", "not_ready_nodes", "total_workloads", "running_workloads", "pending_workloads", "failed_workloads", "deleted_workloads", "generated_at")
    TOTAL_NODES_FIELD_NUMBER: _ClassVar[int]
    READY_NODES_FIELD_NUMBER: _ClassVar[int]
    NOT_READY_NODES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    PENDING_WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    FAILED_WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    DELETED_WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    GENERATED_AT_FIELD_NUMBER: _ClassVar[int]
    total_nodes: int
    ready_nodes: int
    not_ready_nodes: int
    total_workloads: int
    running_workloads: int
    pending_workloads: int
    failed_workloads: int
    deleted_workloads: int
    generated_at: _timestamp_pb2.Timestamp
    def __init__(self, total_nodes: _Optional[int] = ..., ready_nodes: _Optional[int] = ..., not_ready_nodes: _Optional[int] = ..., total_workloads: _Optional[int] = ..., running_workloads: _Optional[int] = ..., pending_workloads: _Optional[int] = ..., failed_workloads: _Optional[int] = ..., deleted_workloads: _Optional[int] = ..., generated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class AutomationSuggestion(_message.Message):
    __slots__ = ("suggestion_id", "policy_id", "policy_name", "target_workload", "action_type", "desired_state", "desired_replicas", "replica_delta", "reason", "suggested_at")
    SUGGESTION_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_NAME_FIELD_NUMBER: _ClassVar[int]
    TARGET_WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    ACTION_TYPE_FIELD_NUMBER: _ClassVar[int]
    DESIRED_STATE_FIELD_NUMBER: _ClassVar[int]
    DESIRED_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REPLICA_DELTA_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SUGGESTED_AT_FIELD_NUMBER: _ClassVar[int]
    suggestion_id: str
    policy_id: str
    policy_name: str
    target_workload: str
    action_type: AutomationActionType
    desired_state: str
    desired_replicas: int
    replica_delta: int
    reason: str
    suggested_at: _timestamp_pb2.Timestamp
    def __init__(self, suggestion_id: _Optional[str] = ..., policy_id: _Optional[str] = ..., policy_name: _Optional[str] = ..., target_workload: _Optional[str] = ..., action_type: _Optional[_Union[AutomationActionType, str]] = ..., desired_state: _Optional[str] = ..., desired_replicas: _Optional[int] = ..., replica_delta: _Optional[int] = ..., reason: _Optional[str] = ..., suggested_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SubmitAutomationSuggestionRequest(_message.Message):
    __slots__ = ("suggestion",)
    SUGGESTION_FIELD_NUMBER: _ClassVar[int]
    suggestion: AutomationSuggestion
    def __init__(self, suggestion: _Optional[_Union[AutomationSuggestion, _Mapping]] = ...) -> None: ...

class SubmitAutomationSuggestionResponse(_message.Message):
    __slots__ = ("accepted", "decision", "reason", "applied_action", "decided_at")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    APPLIED_ACTION_FIELD_NUMBER: _ClassVar[int]
    DECIDED_AT_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    decision: str
    reason: str
    applied_action: str
    decided_at: _timestamp_pb2.Timestamp
    def __init__(self, accepted: _Optional[bool] = ..., decision: _Optional[str] = ..., reason: _Optional[str] = ..., applied_action: _Optional[str] = ..., decided_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ControlMessage(_message.Message):
    __slots__ = ("register", "heartbeat", "apply", "delete", "registered", "heartbeat_answer", "call", "reply", "number", "moving")
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    APPLY_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_ANSWER_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    MOVING_FIELD_NUMBER: _ClassVar[int]
    register: RegisterNodeRequest
    heartbeat: HeartbeatRequest
    apply: ApplyWorkloadRequest
    delete: DeleteWorkloadRequest
    registered: RegisterNodeResponse
    heartbeat_answer: HeartbeatResponse
    call: StreamCall
    reply: StreamReply
    number: int
    moving: bool
    def __init__(self, register: _Optional[_Union[RegisterNodeRequest, _Mapping]] = ..., heartbeat: _Optional[_Union[HeartbeatRequest, _Mapping]] = ..., apply: _Optional[_Union[ApplyWorkloadRequest, _Mapping]] = ..., delete: _Optional[_Union[DeleteWorkloadRequest, _Mapping]] = ..., registered: _Optional[_Union[RegisterNodeResponse, _Mapping]] = ..., heartbeat_answer: _Optional[_Union[HeartbeatResponse, _Mapping]] = ..., call: _Optional[_Union[StreamCall, _Mapping]] = ..., reply: _Optional[_Union[StreamReply, _Mapping]] = ..., number: _Optional[int] = ..., moving: _Optional[bool] = ...) -> None: ...

class StreamCall(_message.Message):
    __slots__ = ("id", "method", "request", "cancel", "metadata", "more", "last", "window", "taken")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    id: int
    method: str
    request: bytes
    cancel: bool
    metadata: _containers.ScalarMap[str, str]
    more: bool
    last: bool
    window: int
    taken: int
    def __init__(self, id: _Optional[int] = ..., method: _Optional[str] = ..., request: _Optional[bytes] = ..., cancel: _Optional[bool] = ..., metadata: _Optional[_Mapping[str, str]] = ..., more: _Optional[bool] = ..., last: _Optional[bool] = ..., window: _Optional[int] = ..., taken: _Optional[int] = ...) -> None: ...

class StreamReply(_message.Message):
    __slots__ = ("id", "code", "message", "response", "last", "taken")
    ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    id: int
    code: int
    message: str
    response: bytes
    last: bool
    taken: int
    def __init__(self, id: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ..., response: _Optional[bytes] = ..., last: _Optional[bool] = ..., taken: _Optional[int] = ...) -> None: ...

class TaintNodeRequest(_message.Message):
    __slots__ = ("node_id", "taints")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TAINTS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    taints: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node_id: _Optional[str] = ..., taints: _Optional[_Iterable[str]] = ...) -> None: ...

class ExplainWorkloadRequest(_message.Message):
    __slots__ = ("workload_id", "limit")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    limit: int
    def __init__(self, workload_id: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ExplainWorkloadResponse(_message.Message):
    __slots__ = ("workload_id", "assigned_node_id", "summary", "nodes", "changes", "counts", "node_count", "fit_count", "copies", "rule")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    NODE_COUNT_FIELD_NUMBER: _ClassVar[int]
    FIT_COUNT_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    assigned_node_id: str
    summary: str
    nodes: _containers.RepeatedCompositeFieldContainer[NodeVerdict]
    changes: _containers.RepeatedScalarFieldContainer[str]
    counts: _containers.RepeatedCompositeFieldContainer[ReasonCount]
    node_count: int
    fit_count: int
    copies: _containers.RepeatedScalarFieldContainer[str]
    rule: str
    def __init__(self, workload_id: _Optional[str] = ..., assigned_node_id: _Optional[str] = ..., summary: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[NodeVerdict, _Mapping]]] = ..., changes: _Optional[_Iterable[str]] = ..., counts: _Optional[_Iterable[_Union[ReasonCount, _Mapping]]] = ..., node_count: _Optional[int] = ..., fit_count: _Optional[int] = ..., copies: _Optional[_Iterable[str]] = ..., rule: _Optional[str] = ...) -> None: ...

class ReasonCount(_message.Message):
    __slots__ = ("filter", "detail", "nodes")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    filter: str
    detail: str
    nodes: int
    def __init__(self, filter: _Optional[str] = ..., detail: _Optional[str] = ..., nodes: _Optional[int] = ...) -> None: ...

class NodeVerdict(_message.Message):
    __slots__ = ("node_id", "fits", "filter", "detail", "missing", "unit", "score", "change", "tier", "core_hour_price")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    FITS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    CORE_HOUR_PRICE_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    fits: bool
    filter: str
    detail: str
    missing: int
    unit: str
    score: _containers.RepeatedCompositeFieldContainer[ScorePart]
    change: str
    tier: int
    core_hour_price: float
    def __init__(self, node_id: _Optional[str] = ..., fits: _Optional[bool] = ..., filter: _Optional[str] = ..., detail: _Optional[str] = ..., missing: _Optional[int] = ..., unit: _Optional[str] = ..., score: _Optional[_Iterable[_Union[ScorePart, _Mapping]]] = ..., change: _Optional[str] = ..., tier: _Optional[int] = ..., core_hour_price: _Optional[float] = ...) -> None: ...

class ScorePart(_message.Message):
    __slots__ = ("name", "value", "detail")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    detail: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ..., detail: _Optional[str] = ...) -> None: ...

class PlanWorkloadsRequest(_message.Message):
    __slots__ = ("workloads", "sets")
    WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    SETS_FIELD_NUMBER: _ClassVar[int]
    workloads: _containers.RepeatedCompositeFieldContainer[ApplyWorkloadRequest]
    sets: _containers.RepeatedCompositeFieldContainer[SetSpec]
    def __init__(self, workloads: _Optional[_Iterable[_Union[ApplyWorkloadRequest, _Mapping]]] = ..., sets: _Optional[_Iterable[_Union[SetSpec, _Mapping]]] = ...) -> None: ...

class PlanWorkloadsResponse(_message.Message):
    __slots__ = ("plans",)
    PLANS_FIELD_NUMBER: _ClassVar[int]
    plans: _containers.RepeatedCompositeFieldContainer[WorkloadPlan]
    def __init__(self, plans: _Optional[_Iterable[_Union[WorkloadPlan, _Mapping]]] = ...) -> None: ...

class WorkloadPlan(_message.Message):
    __slots__ = ("workload_id", "action", "changes", "current_node_id", "node_id", "reason", "displaces", "would_wait")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    CURRENT_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DISPLACES_FIELD_NUMBER: _ClassVar[int]
    WOULD_WAIT_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    action: str
    changes: _containers.RepeatedCompositeFieldContainer[FieldChange]
    current_node_id: str
    node_id: str
    reason: str
    displaces: _containers.RepeatedScalarFieldContainer[str]
    would_wait: bool
    def __init__(self, workload_id: _Optional[str] = ..., action: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[FieldChange, _Mapping]]] = ..., current_node_id: _Optional[str] = ..., node_id: _Optional[str] = ..., reason: _Optional[str] = ..., displaces: _Optional[_Iterable[str]] = ..., would_wait: _Optional[bool] = ...) -> None: ...

class FieldChange(_message.Message):
    __slots__ = ("field", "before", "after")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    field: str
    before: str
    after: str
    def __init__(self, field: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class GetCapacityRequest(_message.Message):
    __slots__ = ("spec",)
    SPEC_FIELD_NUMBER: _ClassVar[int]
    spec: WorkloadSpec
    def __init__(self, spec: _Optional[_Union[WorkloadSpec, _Mapping]] = ...) -> None: ...

class GetCapacityResponse(_message.Message):
    __slots__ = ("fits", "nodes", "survives_any_loss", "losses", "unlimited", "offload_fits", "offload_unlimited")
    FITS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    SURVIVES_ANY_LOSS_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    UNLIMITED_FIELD_NUMBER: _ClassVar[int]
    OFFLOAD_FITS_FIELD_NUMBER: _ClassVar[int]
    OFFLOAD_UNLIMITED_FIELD_NUMBER: _ClassVar[int]
    fits: int
    nodes: _containers.RepeatedCompositeFieldContainer[NodeRoom]
    survives_any_loss: bool
    losses: _containers.RepeatedCompositeFieldContainer[LossView]
    unlimited: bool
    offload_fits: int
    offload_unlimited: bool
    def __init__(self, fits: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[NodeRoom, _Mapping]]] = ..., survives_any_loss: _Optional[bool] = ..., losses: _Optional[_Iterable[_Union[LossView, _Mapping]]] = ..., unlimited: _Optional[bool] = ..., offload_fits: _Optional[int] = ..., offload_unlimited: _Optional[bool] = ...) -> None: ...

class NodeRoom(_message.Message):
    __slots__ = ("node_id", "fits", "limited_by", "unlimited", "tier")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    FITS_FIELD_NUMBER: _ClassVar[int]
    LIMITED_BY_FIELD_NUMBER: _ClassVar[int]
    UNLIMITED_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    fits: int
    limited_by: str
    unlimited: bool
    tier: int
    def __init__(self, node_id: _Optional[str] = ..., fits: _Optional[int] = ..., limited_by: _Optional[str] = ..., unlimited: _Optional[bool] = ..., tier: _Optional[int] = ...) -> None: ...

class LossView(_message.Message):
    __slots__ = ("node_id", "stranded", "bound", "moved")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STRANDED_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    stranded: _containers.RepeatedScalarFieldContainer[str]
    bound: _containers.RepeatedScalarFieldContainer[str]
    moved: int
    def __init__(self, node_id: _Optional[str] = ..., stranded: _Optional[_Iterable[str]] = ..., bound: _Optional[_Iterable[str]] = ..., moved: _Optional[int] = ...) -> None: ...

class EventView(_message.Message):
    __slots__ = ("sequence", "at", "kind", "message", "workload_id", "node_id", "revision_id", "epoch", "identity", "source", "task_id", "rule")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    at: _timestamp_pb2.Timestamp
    kind: str
    message: str
    workload_id: str
    node_id: str
    revision_id: str
    epoch: int
    identity: str
    source: str
    task_id: str
    rule: str
    def __init__(self, sequence: _Optional[int] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., kind: _Optional[str] = ..., message: _Optional[str] = ..., workload_id: _Optional[str] = ..., node_id: _Optional[str] = ..., revision_id: _Optional[str] = ..., epoch: _Optional[int] = ..., identity: _Optional[str] = ..., source: _Optional[str] = ..., task_id: _Optional[str] = ..., rule: _Optional[str] = ...) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("workload_id", "node_id", "kinds", "since", "after_sequence", "limit")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    node_id: str
    kinds: _containers.RepeatedScalarFieldContainer[str]
    since: _timestamp_pb2.Timestamp
    after_sequence: int
    limit: int
    def __init__(self, workload_id: _Optional[str] = ..., node_id: _Optional[str] = ..., kinds: _Optional[_Iterable[str]] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., after_sequence: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events", "last_sequence", "first_sequence")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[EventView]
    last_sequence: int
    first_sequence: int
    def __init__(self, events: _Optional[_Iterable[_Union[EventView, _Mapping]]] = ..., last_sequence: _Optional[int] = ..., first_sequence: _Optional[int] = ...) -> None: ...

class WatchEventsRequest(_message.Message):
    __slots__ = ("workload_id", "node_id", "kinds", "after_sequence", "bookmarks")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BOOKMARKS_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    node_id: str
    kinds: _containers.RepeatedScalarFieldContainer[str]
    after_sequence: int
    bookmarks: bool
    def __init__(self, workload_id: _Optional[str] = ..., node_id: _Optional[str] = ..., kinds: _Optional[_Iterable[str]] = ..., after_sequence: _Optional[int] = ..., bookmarks: _Optional[bool] = ...) -> None: ...

class ListDriftsRequest(_message.Message):
    __slots__ = ("node_id", "workload_id", "type")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    workload_id: str
    type: str
    def __init__(self, node_id: _Optional[str] = ..., workload_id: _Optional[str] = ..., type: _Optional[str] = ...) -> None: ...

class ListDriftsResponse(_message.Message):
    __slots__ = ("drifts", "orphans_unrecorded")
    DRIFTS_FIELD_NUMBER: _ClassVar[int]
    ORPHANS_UNRECORDED_FIELD_NUMBER: _ClassVar[int]
    drifts: _containers.RepeatedCompositeFieldContainer[DriftView]
    orphans_unrecorded: int
    def __init__(self, drifts: _Optional[_Iterable[_Union[DriftView, _Mapping]]] = ..., orphans_unrecorded: _Optional[int] = ...) -> None: ...

class DriftView(_message.Message):
    __slots__ = ("node_id", "workload_id", "type", "detail", "detected_at", "revision_id", "epoch", "state", "adoptable")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    DETECTED_AT_FIELD_NUMBER: _ClassVar[int]
    REVISION_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ADOPTABLE_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    workload_id: str
    type: str
    detail: str
    detected_at: _timestamp_pb2.Timestamp
    revision_id: str
    epoch: int
    state: str
    adoptable: bool
    def __init__(self, node_id: _Optional[str] = ..., workload_id: _Optional[str] = ..., type: _Optional[str] = ..., detail: _Optional[str] = ..., detected_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., revision_id: _Optional[str] = ..., epoch: _Optional[int] = ..., state: _Optional[str] = ..., adoptable: _Optional[bool] = ...) -> None: ...

class OrphanRequest(_message.Message):
    __slots__ = ("node_id", "workload_id", "allow_secrets")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    ALLOW_SECRETS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    workload_id: str
    allow_secrets: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node_id: _Optional[str] = ..., workload_id: _Optional[str] = ..., allow_secrets: _Optional[_Iterable[str]] = ...) -> None: ...

class OrphanView(_message.Message):
    __slots__ = ("drift", "spec", "secrets")
    DRIFT_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    drift: DriftView
    spec: WorkloadSpec
    secrets: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, drift: _Optional[_Union[DriftView, _Mapping]] = ..., spec: _Optional[_Union[WorkloadSpec, _Mapping]] = ..., secrets: _Optional[_Iterable[str]] = ...) -> None: ...

class OrphanAnswer(_message.Message):
    __slots__ = ("accepted", "reason")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class GetModeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ModeView(_message.Message):
    __slots__ = ("mode", "reason", "since", "store", "leader", "data_age_ms", "cluster_uid", "nodes", "workloads", "workloads_on_agents", "next_steps", "role", "leader_endpoint", "version", "cluster_id")
    MODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_UID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    WORKLOADS_ON_AGENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEPS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    mode: str
    reason: str
    since: _timestamp_pb2.Timestamp
    store: str
    leader: str
    data_age_ms: int
    cluster_uid: str
    nodes: int
    workloads: int
    workloads_on_agents: int
    next_steps: _containers.RepeatedScalarFieldContainer[str]
    role: str
    leader_endpoint: str
    version: str
    cluster_id: str
    def __init__(self, mode: _Optional[str] = ..., reason: _Optional[str] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., store: _Optional[str] = ..., leader: _Optional[str] = ..., data_age_ms: _Optional[int] = ..., cluster_uid: _Optional[str] = ..., nodes: _Optional[int] = ..., workloads: _Optional[int] = ..., workloads_on_agents: _Optional[int] = ..., next_steps: _Optional[_Iterable[str]] = ..., role: _Optional[str] = ..., leader_endpoint: _Optional[str] = ..., version: _Optional[str] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class SaveSnapshotRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SnapshotChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class RebuildFromAgentsRequest(_message.Message):
    __slots__ = ("dry_run", "allow_secrets")
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    ALLOW_SECRETS_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    allow_secrets: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, dry_run: _Optional[bool] = ..., allow_secrets: _Optional[_Iterable[str]] = ...) -> None: ...

class AcceptEmptyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RecoveryAnswer(_message.Message):
    __slots__ = ("accepted", "reason", "nodes", "workloads", "left_out", "recovered")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    nodes: int
    workloads: int
    left_out: _containers.RepeatedScalarFieldContainer[str]
    recovered: _containers.RepeatedCompositeFieldContainer[RecoveredWorkload]
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., nodes: _Optional[int] = ..., workloads: _Optional[int] = ..., left_out: _Optional[_Iterable[str]] = ..., recovered: _Optional[_Iterable[_Union[RecoveredWorkload, _Mapping]]] = ...) -> None: ...

class RecoveredWorkload(_message.Message):
    __slots__ = ("workload_id", "node_id", "spec", "secrets")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    node_id: str
    spec: WorkloadSpec
    secrets: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, workload_id: _Optional[str] = ..., node_id: _Optional[str] = ..., spec: _Optional[_Union[WorkloadSpec, _Mapping]] = ..., secrets: _Optional[_Iterable[str]] = ...) -> None: ...

class LogsRequest(_message.Message):
    __slots__ = ("workload_id", "service", "follow", "since", "tail", "previous", "timestamps")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    service: str
    follow: bool
    since: _timestamp_pb2.Timestamp
    tail: int
    previous: bool
    timestamps: bool
    def __init__(self, workload_id: _Optional[str] = ..., service: _Optional[str] = ..., follow: _Optional[bool] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tail: _Optional[int] = ..., previous: _Optional[bool] = ..., timestamps: _Optional[bool] = ...) -> None: ...

class LogChunk(_message.Message):
    __slots__ = ("data", "stream", "service")
    DATA_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    stream: str
    service: str
    def __init__(self, data: _Optional[bytes] = ..., stream: _Optional[str] = ..., service: _Optional[str] = ...) -> None: ...

class ExecInput(_message.Message):
    __slots__ = ("start", "stdin", "stdin_closed", "resize")
    START_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    STDIN_CLOSED_FIELD_NUMBER: _ClassVar[int]
    RESIZE_FIELD_NUMBER: _ClassVar[int]
    start: ExecStart
    stdin: bytes
    stdin_closed: bool
    resize: TerminalSize
    def __init__(self, start: _Optional[_Union[ExecStart, _Mapping]] = ..., stdin: _Optional[bytes] = ..., stdin_closed: _Optional[bool] = ..., resize: _Optional[_Union[TerminalSize, _Mapping]] = ...) -> None: ...

class ExecStart(_message.Message):
    __slots__ = ("workload_id", "service", "command", "tty", "size", "console", "force")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    TTY_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CONSOLE_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    service: str
    command: _containers.RepeatedScalarFieldContainer[str]
    tty: bool
    size: TerminalSize
    console: bool
    force: bool
    def __init__(self, workload_id: _Optional[str] = ..., service: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., tty: _Optional[bool] = ..., size: _Optional[_Union[TerminalSize, _Mapping]] = ..., console: _Optional[bool] = ..., force: _Optional[bool] = ...) -> None: ...

class TerminalSize(_message.Message):
    __slots__ = ("rows", "columns")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    columns: int
    def __init__(self, rows: _Optional[int] = ..., columns: _Optional[int] = ...) -> None: ...

class ExecOutput(_message.Message):
    __slots__ = ("stdout", "stderr", "exit")
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    stdout: bytes
    stderr: bytes
    exit: ExecExit
    def __init__(self, stdout: _Optional[bytes] = ..., stderr: _Optional[bytes] = ..., exit: _Optional[_Union[ExecExit, _Mapping]] = ...) -> None: ...

class ExecExit(_message.Message):
    __slots__ = ("code",)
    CODE_FIELD_NUMBER: _ClassVar[int]
    code: int
    def __init__(self, code: _Optional[int] = ...) -> None: ...

class ListImagesRequest(_message.Message):
    __slots__ = ("name", "node_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    node_id: str
    def __init__(self, name: _Optional[str] = ..., node_id: _Optional[str] = ...) -> None: ...

class ListImagesResponse(_message.Message):
    __slots__ = ("images", "problems")
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    images: _containers.RepeatedCompositeFieldContainer[ImageView]
    problems: _containers.RepeatedCompositeFieldContainer[NodeProblem]
    def __init__(self, images: _Optional[_Iterable[_Union[ImageView, _Mapping]]] = ..., problems: _Optional[_Iterable[_Union[NodeProblem, _Mapping]]] = ...) -> None: ...

class ImageView(_message.Message):
    __slots__ = ("name", "sha256", "format", "size_bytes", "virtual_size_bytes", "added_at", "node_ids", "used_by")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ADDED_AT_FIELD_NUMBER: _ClassVar[int]
    NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    USED_BY_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: str
    format: str
    size_bytes: int
    virtual_size_bytes: int
    added_at: _timestamp_pb2.Timestamp
    node_ids: _containers.RepeatedScalarFieldContainer[str]
    used_by: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., sha256: _Optional[str] = ..., format: _Optional[str] = ..., size_bytes: _Optional[int] = ..., virtual_size_bytes: _Optional[int] = ..., added_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., node_ids: _Optional[_Iterable[str]] = ..., used_by: _Optional[_Iterable[str]] = ...) -> None: ...

class NodeProblem(_message.Message):
    __slots__ = ("node_id", "problem")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    problem: str
    def __init__(self, node_id: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class AddImageRequest(_message.Message):
    __slots__ = ("start", "data")
    START_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    start: AddImageStart
    data: bytes
    def __init__(self, start: _Optional[_Union[AddImageStart, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class AddImageStart(_message.Message):
    __slots__ = ("name", "url", "sha256", "node_ids", "size_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    url: str
    sha256: str
    node_ids: _containers.RepeatedScalarFieldContainer[str]
    size_bytes: int
    def __init__(self, name: _Optional[str] = ..., url: _Optional[str] = ..., sha256: _Optional[str] = ..., node_ids: _Optional[_Iterable[str]] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ImageProgress(_message.Message):
    __slots__ = ("node_id", "received_bytes", "size_bytes", "done", "problem", "sha256")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    received_bytes: int
    size_bytes: int
    done: bool
    problem: str
    sha256: str
    def __init__(self, node_id: _Optional[str] = ..., received_bytes: _Optional[int] = ..., size_bytes: _Optional[int] = ..., done: _Optional[bool] = ..., problem: _Optional[str] = ..., sha256: _Optional[str] = ...) -> None: ...

class RemoveImageRequest(_message.Message):
    __slots__ = ("name", "node_ids")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    node_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., node_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RemoveImageResponse(_message.Message):
    __slots__ = ("node_ids", "problems")
    NODE_IDS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    node_ids: _containers.RepeatedScalarFieldContainer[str]
    problems: _containers.RepeatedCompositeFieldContainer[NodeProblem]
    def __init__(self, node_ids: _Optional[_Iterable[str]] = ..., problems: _Optional[_Iterable[_Union[NodeProblem, _Mapping]]] = ...) -> None: ...

class ListVolumesRequest(_message.Message):
    __slots__ = ("node_id", "workload_id", "name")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    workload_id: str
    name: str
    def __init__(self, node_id: _Optional[str] = ..., workload_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ListVolumesResponse(_message.Message):
    __slots__ = ("volumes", "problems")
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    volumes: _containers.RepeatedCompositeFieldContainer[VolumeView]
    problems: _containers.RepeatedCompositeFieldContainer[NodeProblem]
    def __init__(self, volumes: _Optional[_Iterable[_Union[VolumeView, _Mapping]]] = ..., problems: _Optional[_Iterable[_Union[NodeProblem, _Mapping]]] = ...) -> None: ...

class VolumeView(_message.Message):
    __slots__ = ("node_id", "workload_id", "name", "driver", "pool", "size_bytes", "used_bytes", "state", "retain_policy", "path", "fs_type", "created_at")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RETAIN_POLICY_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    FS_TYPE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    workload_id: str
    name: str
    driver: str
    pool: str
    size_bytes: int
    used_bytes: int
    state: str
    retain_policy: str
    path: str
    fs_type: str
    created_at: _timestamp_pb2.Timestamp
    def __init__(self, node_id: _Optional[str] = ..., workload_id: _Optional[str] = ..., name: _Optional[str] = ..., driver: _Optional[str] = ..., pool: _Optional[str] = ..., size_bytes: _Optional[int] = ..., used_bytes: _Optional[int] = ..., state: _Optional[str] = ..., retain_policy: _Optional[str] = ..., path: _Optional[str] = ..., fs_type: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class DeleteVolumeRequest(_message.Message):
    __slots__ = ("node_id", "workload_id", "name")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    workload_id: str
    name: str
    def __init__(self, node_id: _Optional[str] = ..., workload_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeleteVolumeResponse(_message.Message):
    __slots__ = ("success", "error_message")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    success: bool
    error_message: str
    def __init__(self, success: _Optional[bool] = ..., error_message: _Optional[str] = ...) -> None: ...

class GetIdentityRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IdentityView(_message.Message):
    __slots__ = ("role", "name", "deeds", "expires_at", "serial", "token_id", "prefix")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEEDS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    role: str
    name: str
    deeds: _containers.RepeatedScalarFieldContainer[str]
    expires_at: _timestamp_pb2.Timestamp
    serial: str
    token_id: str
    prefix: str
    def __init__(self, role: _Optional[str] = ..., name: _Optional[str] = ..., deeds: _Optional[_Iterable[str]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., serial: _Optional[str] = ..., token_id: _Optional[str] = ..., prefix: _Optional[str] = ...) -> None: ...

class CreateTokenRequest(_message.Message):
    __slots__ = ("name", "role", "deeds", "ttl_seconds", "prefix")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    DEEDS_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: str
    deeds: _containers.RepeatedScalarFieldContainer[str]
    ttl_seconds: int
    prefix: str
    def __init__(self, name: _Optional[str] = ..., role: _Optional[str] = ..., deeds: _Optional[_Iterable[str]] = ..., ttl_seconds: _Optional[int] = ..., prefix: _Optional[str] = ...) -> None: ...

class CreateTokenResponse(_message.Message):
    __slots__ = ("accepted", "reason", "token", "secret")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    token: TokenView
    secret: str
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., token: _Optional[_Union[TokenView, _Mapping]] = ..., secret: _Optional[str] = ...) -> None: ...

class ListTokensRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTokensResponse(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[TokenView]
    def __init__(self, tokens: _Optional[_Iterable[_Union[TokenView, _Mapping]]] = ...) -> None: ...

class TokenView(_message.Message):
    __slots__ = ("token_id", "name", "role", "deeds", "created_at", "created_by", "expires_at", "prefix")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    DEEDS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    name: str
    role: str
    deeds: _containers.RepeatedScalarFieldContainer[str]
    created_at: _timestamp_pb2.Timestamp
    created_by: str
    expires_at: _timestamp_pb2.Timestamp
    prefix: str
    def __init__(self, token_id: _Optional[str] = ..., name: _Optional[str] = ..., role: _Optional[str] = ..., deeds: _Optional[_Iterable[str]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., created_by: _Optional[str] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., prefix: _Optional[str] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("token_id",)
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    def __init__(self, token_id: _Optional[str] = ...) -> None: ...

class TokenAnswer(_message.Message):
    __slots__ = ("accepted", "reason")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class PutSecretRequest(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class DeleteSecretRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class SecretAnswer(_message.Message):
    __slots__ = ("accepted", "reason", "secret")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    secret: SecretView
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., secret: _Optional[_Union[SecretView, _Mapping]] = ...) -> None: ...

class ListSecretsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSecretsResponse(_message.Message):
    __slots__ = ("secrets",)
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    secrets: _containers.RepeatedCompositeFieldContainer[SecretView]
    def __init__(self, secrets: _Optional[_Iterable[_Union[SecretView, _Mapping]]] = ...) -> None: ...

class SecretView(_message.Message):
    __slots__ = ("name", "version", "versions", "updated_at", "updated_by", "used_by")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_BY_FIELD_NUMBER: _ClassVar[int]
    USED_BY_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    versions: _containers.RepeatedScalarFieldContainer[int]
    updated_at: _timestamp_pb2.Timestamp
    updated_by: str
    used_by: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., versions: _Optional[_Iterable[int]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_by: _Optional[str] = ..., used_by: _Optional[_Iterable[str]] = ...) -> None: ...

class ListSuggestionsRequest(_message.Message):
    __slots__ = ("decision", "limit")
    DECISION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    decision: str
    limit: int
    def __init__(self, decision: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListSuggestionsResponse(_message.Message):
    __slots__ = ("suggestions",)
    SUGGESTIONS_FIELD_NUMBER: _ClassVar[int]
    suggestions: _containers.RepeatedCompositeFieldContainer[SuggestionView]
    def __init__(self, suggestions: _Optional[_Iterable[_Union[SuggestionView, _Mapping]]] = ...) -> None: ...

class SuggestionView(_message.Message):
    __slots__ = ("suggestion", "decision", "reason", "applied_action", "decided_at", "submitted_by", "decided_by", "expires_at")
    SUGGESTION_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    APPLIED_ACTION_FIELD_NUMBER: _ClassVar[int]
    DECIDED_AT_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_BY_FIELD_NUMBER: _ClassVar[int]
    DECIDED_BY_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    suggestion: AutomationSuggestion
    decision: str
    reason: str
    applied_action: str
    decided_at: _timestamp_pb2.Timestamp
    submitted_by: str
    decided_by: str
    expires_at: _timestamp_pb2.Timestamp
    def __init__(self, suggestion: _Optional[_Union[AutomationSuggestion, _Mapping]] = ..., decision: _Optional[str] = ..., reason: _Optional[str] = ..., applied_action: _Optional[str] = ..., decided_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., submitted_by: _Optional[str] = ..., decided_by: _Optional[str] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SuggestionRequest(_message.Message):
    __slots__ = ("suggestion_id",)
    SUGGESTION_ID_FIELD_NUMBER: _ClassVar[int]
    suggestion_id: str
    def __init__(self, suggestion_id: _Optional[str] = ...) -> None: ...

class SuggestionAnswer(_message.Message):
    __slots__ = ("accepted", "reason", "suggestion")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SUGGESTION_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    suggestion: SuggestionView
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., suggestion: _Optional[_Union[SuggestionView, _Mapping]] = ...) -> None: ...

class GetDiagnosticsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DiagnosticsView(_message.Message):
    __slots__ = ("internal_errors", "nodes", "quarantined", "policy_violations")
    INTERNAL_ERRORS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    POLICY_VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    internal_errors: _containers.RepeatedCompositeFieldContainer[InternalError]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeErrors]
    quarantined: _containers.RepeatedCompositeFieldContainer[QuarantinedRecord]
    policy_violations: _containers.RepeatedCompositeFieldContainer[PolicyViolation]
    def __init__(self, internal_errors: _Optional[_Iterable[_Union[InternalError, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[NodeErrors, _Mapping]]] = ..., quarantined: _Optional[_Iterable[_Union[QuarantinedRecord, _Mapping]]] = ..., policy_violations: _Optional[_Iterable[_Union[PolicyViolation, _Mapping]]] = ...) -> None: ...

class NodeErrors(_message.Message):
    __slots__ = ("node_id", "internal_errors")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_ERRORS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    internal_errors: _containers.RepeatedCompositeFieldContainer[InternalError]
    def __init__(self, node_id: _Optional[str] = ..., internal_errors: _Optional[_Iterable[_Union[InternalError, _Mapping]]] = ...) -> None: ...

class QuarantinedRecord(_message.Message):
    __slots__ = ("key", "reason", "type", "replaceable")
    KEY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REPLACEABLE_FIELD_NUMBER: _ClassVar[int]
    key: str
    reason: str
    type: str
    replaceable: bool
    def __init__(self, key: _Optional[str] = ..., reason: _Optional[str] = ..., type: _Optional[str] = ..., replaceable: _Optional[bool] = ...) -> None: ...

class ListRecordsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRecordsResponse(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[QuarantinedRecord]
    def __init__(self, records: _Optional[_Iterable[_Union[QuarantinedRecord, _Mapping]]] = ...) -> None: ...

class GetRecordRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class RecordView(_message.Message):
    __slots__ = ("record", "value", "stored_version")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    STORED_VERSION_FIELD_NUMBER: _ClassVar[int]
    record: QuarantinedRecord
    value: bytes
    stored_version: int
    def __init__(self, record: _Optional[_Union[QuarantinedRecord, _Mapping]] = ..., value: _Optional[bytes] = ..., stored_version: _Optional[int] = ...) -> None: ...

class DeleteRecordRequest(_message.Message):
    __slots__ = ("key", "stored_version")
    KEY_FIELD_NUMBER: _ClassVar[int]
    STORED_VERSION_FIELD_NUMBER: _ClassVar[int]
    key: str
    stored_version: int
    def __init__(self, key: _Optional[str] = ..., stored_version: _Optional[int] = ...) -> None: ...

class DeleteRecordResponse(_message.Message):
    __slots__ = ("accepted", "reason", "detail")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    detail: str
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class PolicyViolation(_message.Message):
    __slots__ = ("workload_id", "node_id", "reason")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    node_id: str
    reason: str
    def __init__(self, workload_id: _Optional[str] = ..., node_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class MachineSize(_message.Message):
    __slots__ = ("name", "cpu_millicores", "memory_mb", "disk_gb", "hour_price")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CPU_MILLICORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    DISK_GB_FIELD_NUMBER: _ClassVar[int]
    HOUR_PRICE_FIELD_NUMBER: _ClassVar[int]
    name: str
    cpu_millicores: int
    memory_mb: int
    disk_gb: int
    hour_price: float
    def __init__(self, name: _Optional[str] = ..., cpu_millicores: _Optional[int] = ..., memory_mb: _Optional[int] = ..., disk_gb: _Optional[int] = ..., hour_price: _Optional[float] = ...) -> None: ...

class NodePoolSpec(_message.Message):
    __slots__ = ("pool_id", "provider", "region", "image", "sizes", "min", "max", "spend_per_hour_max", "idle_after_seconds", "provision_deadline_seconds", "labels", "taints", "tier", "software_url", "software_sha256", "options", "credentials")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    POOL_ID_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    SPEND_PER_HOUR_MAX_FIELD_NUMBER: _ClassVar[int]
    IDLE_AFTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PROVISION_DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    TAINTS_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_URL_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_SHA256_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    pool_id: str
    provider: str
    region: str
    image: str
    sizes: _containers.RepeatedCompositeFieldContainer[MachineSize]
    min: int
    max: int
    spend_per_hour_max: float
    idle_after_seconds: int
    provision_deadline_seconds: int
    labels: _containers.ScalarMap[str, str]
    taints: _containers.RepeatedScalarFieldContainer[str]
    tier: int
    software_url: str
    software_sha256: str
    options: _containers.ScalarMap[str, str]
    credentials: str
    def __init__(self, pool_id: _Optional[str] = ..., provider: _Optional[str] = ..., region: _Optional[str] = ..., image: _Optional[str] = ..., sizes: _Optional[_Iterable[_Union[MachineSize, _Mapping]]] = ..., min: _Optional[int] = ..., max: _Optional[int] = ..., spend_per_hour_max: _Optional[float] = ..., idle_after_seconds: _Optional[int] = ..., provision_deadline_seconds: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., taints: _Optional[_Iterable[str]] = ..., tier: _Optional[int] = ..., software_url: _Optional[str] = ..., software_sha256: _Optional[str] = ..., options: _Optional[_Mapping[str, str]] = ..., credentials: _Optional[str] = ...) -> None: ...

class CreateNodePoolRequest(_message.Message):
    __slots__ = ("pool",)
    POOL_FIELD_NUMBER: _ClassVar[int]
    pool: NodePoolSpec
    def __init__(self, pool: _Optional[_Union[NodePoolSpec, _Mapping]] = ...) -> None: ...

class NodePoolAnswer(_message.Message):
    __slots__ = ("accepted", "reason", "pool")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    pool: NodePoolView
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., pool: _Optional[_Union[NodePoolView, _Mapping]] = ...) -> None: ...

class ListNodePoolsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNodePoolsResponse(_message.Message):
    __slots__ = ("pools",)
    POOLS_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[NodePoolView]
    def __init__(self, pools: _Optional[_Iterable[_Union[NodePoolView, _Mapping]]] = ...) -> None: ...

class GetNodePoolRequest(_message.Message):
    __slots__ = ("pool_id",)
    POOL_ID_FIELD_NUMBER: _ClassVar[int]
    pool_id: str
    def __init__(self, pool_id: _Optional[str] = ...) -> None: ...

class GetNodePoolResponse(_message.Message):
    __slots__ = ("pool",)
    POOL_FIELD_NUMBER: _ClassVar[int]
    pool: NodePoolView
    def __init__(self, pool: _Optional[_Union[NodePoolView, _Mapping]] = ...) -> None: ...

class PlanNodePoolRequest(_message.Message):
    __slots__ = ("pool_id",)
    POOL_ID_FIELD_NUMBER: _ClassVar[int]
    pool_id: str
    def __init__(self, pool_id: _Optional[str] = ...) -> None: ...

class PlanNodePoolResponse(_message.Message):
    __slots__ = ("steps", "hour_price", "spend_per_hour", "problem")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    HOUR_PRICE_FIELD_NUMBER: _ClassVar[int]
    SPEND_PER_HOUR_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[NodePoolStep]
    hour_price: float
    spend_per_hour: float
    problem: str
    def __init__(self, steps: _Optional[_Iterable[_Union[NodePoolStep, _Mapping]]] = ..., hour_price: _Optional[float] = ..., spend_per_hour: _Optional[float] = ..., problem: _Optional[str] = ...) -> None: ...

class PauseNodePoolRequest(_message.Message):
    __slots__ = ("pool_id", "paused")
    POOL_ID_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    pool_id: str
    paused: bool
    def __init__(self, pool_id: _Optional[str] = ..., paused: _Optional[bool] = ...) -> None: ...

class DeleteNodePoolRequest(_message.Message):
    __slots__ = ("pool_id",)
    POOL_ID_FIELD_NUMBER: _ClassVar[int]
    pool_id: str
    def __init__(self, pool_id: _Optional[str] = ...) -> None: ...

class NodePoolStep(_message.Message):
    __slots__ = ("action", "machine", "size", "hour_price", "rule", "reason", "workload_id")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    HOUR_PRICE_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    action: str
    machine: str
    size: str
    hour_price: float
    rule: str
    reason: str
    workload_id: str
    def __init__(self, action: _Optional[str] = ..., machine: _Optional[str] = ..., size: _Optional[str] = ..., hour_price: _Optional[float] = ..., rule: _Optional[str] = ..., reason: _Optional[str] = ..., workload_id: _Optional[str] = ...) -> None: ...

class MachineView(_message.Message):
    __slots__ = ("name", "size", "hour_price", "state", "created_at", "state_since", "provider_id", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    HOUR_PRICE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    STATE_SINCE_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    size: str
    hour_price: float
    state: str
    created_at: _timestamp_pb2.Timestamp
    state_since: _timestamp_pb2.Timestamp
    provider_id: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., size: _Optional[str] = ..., hour_price: _Optional[float] = ..., state: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., state_since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., provider_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class NodePoolView(_message.Message):
    __slots__ = ("spec", "paused", "deleting", "created_at", "machines", "spend_per_hour", "failure_count", "retry_at", "problem")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    DELETING_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    MACHINES_FIELD_NUMBER: _ClassVar[int]
    SPEND_PER_HOUR_FIELD_NUMBER: _ClassVar[int]
    FAILURE_COUNT_FIELD_NUMBER: _ClassVar[int]
    RETRY_AT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    spec: NodePoolSpec
    paused: bool
    deleting: bool
    created_at: _timestamp_pb2.Timestamp
    machines: _containers.RepeatedCompositeFieldContainer[MachineView]
    spend_per_hour: float
    failure_count: int
    retry_at: _timestamp_pb2.Timestamp
    problem: str
    def __init__(self, spec: _Optional[_Union[NodePoolSpec, _Mapping]] = ..., paused: _Optional[bool] = ..., deleting: _Optional[bool] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., machines: _Optional[_Iterable[_Union[MachineView, _Mapping]]] = ..., spend_per_hour: _Optional[float] = ..., failure_count: _Optional[int] = ..., retry_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., problem: _Optional[str] = ...) -> None: ...

class SetSpec(_message.Message):
    __slots__ = ("set_id", "replicas", "every", "template", "update", "scale")
    SET_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    set_id: str
    replicas: int
    every: str
    template: WorkloadSpec
    update: UpdatePolicy
    scale: ScalePolicy
    def __init__(self, set_id: _Optional[str] = ..., replicas: _Optional[int] = ..., every: _Optional[str] = ..., template: _Optional[_Union[WorkloadSpec, _Mapping]] = ..., update: _Optional[_Union[UpdatePolicy, _Mapping]] = ..., scale: _Optional[_Union[ScalePolicy, _Mapping]] = ...) -> None: ...

class UpdatePolicy(_message.Message):
    __slots__ = ("max_parallel", "order", "min_healthy_seconds", "healthy_deadline_seconds", "on_failure", "canary", "bake_seconds")
    MAX_PARALLEL_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    MIN_HEALTHY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    CANARY_FIELD_NUMBER: _ClassVar[int]
    BAKE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    max_parallel: int
    order: str
    min_healthy_seconds: int
    healthy_deadline_seconds: int
    on_failure: str
    canary: int
    bake_seconds: int
    def __init__(self, max_parallel: _Optional[int] = ..., order: _Optional[str] = ..., min_healthy_seconds: _Optional[int] = ..., healthy_deadline_seconds: _Optional[int] = ..., on_failure: _Optional[str] = ..., canary: _Optional[int] = ..., bake_seconds: _Optional[int] = ...) -> None: ...

class ScalePolicy(_message.Message):
    __slots__ = ("min", "max", "cpu_percent", "memory_percent", "prometheus_url", "prometheus_query", "prometheus_target", "cooldown_seconds")
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    CPU_PERCENT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PERCENT_FIELD_NUMBER: _ClassVar[int]
    PROMETHEUS_URL_FIELD_NUMBER: _ClassVar[int]
    PROMETHEUS_QUERY_FIELD_NUMBER: _ClassVar[int]
    PROMETHEUS_TARGET_FIELD_NUMBER: _ClassVar[int]
    COOLDOWN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    min: int
    max: int
    cpu_percent: int
    memory_percent: int
    prometheus_url: str
    prometheus_query: str
    prometheus_target: float
    cooldown_seconds: int
    def __init__(self, min: _Optional[int] = ..., max: _Optional[int] = ..., cpu_percent: _Optional[int] = ..., memory_percent: _Optional[int] = ..., prometheus_url: _Optional[str] = ..., prometheus_query: _Optional[str] = ..., prometheus_target: _Optional[float] = ..., cooldown_seconds: _Optional[int] = ...) -> None: ...

class ApplySetRequest(_message.Message):
    __slots__ = ("set", "desired_state")
    SET_FIELD_NUMBER: _ClassVar[int]
    DESIRED_STATE_FIELD_NUMBER: _ClassVar[int]
    set: SetSpec
    desired_state: str
    def __init__(self, set: _Optional[_Union[SetSpec, _Mapping]] = ..., desired_state: _Optional[str] = ...) -> None: ...

class SetRequest(_message.Message):
    __slots__ = ("set_id",)
    SET_ID_FIELD_NUMBER: _ClassVar[int]
    set_id: str
    def __init__(self, set_id: _Optional[str] = ...) -> None: ...

class ScaleSetRequest(_message.Message):
    __slots__ = ("set_id", "replicas")
    SET_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    set_id: str
    replicas: int
    def __init__(self, set_id: _Optional[str] = ..., replicas: _Optional[int] = ...) -> None: ...

class UndoRolloutRequest(_message.Message):
    __slots__ = ("set_id", "revision")
    SET_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    set_id: str
    revision: int
    def __init__(self, set_id: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class SetAnswer(_message.Message):
    __slots__ = ("accepted", "reason", "set", "outcome")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    set: SetView
    outcome: str
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., set: _Optional[_Union[SetView, _Mapping]] = ..., outcome: _Optional[str] = ...) -> None: ...

class ListSetsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSetsResponse(_message.Message):
    __slots__ = ("sets",)
    SETS_FIELD_NUMBER: _ClassVar[int]
    sets: _containers.RepeatedCompositeFieldContainer[SetView]
    def __init__(self, sets: _Optional[_Iterable[_Union[SetView, _Mapping]]] = ...) -> None: ...

class GetSetRequest(_message.Message):
    __slots__ = ("set_id",)
    SET_ID_FIELD_NUMBER: _ClassVar[int]
    set_id: str
    def __init__(self, set_id: _Optional[str] = ...) -> None: ...

class GetSetResponse(_message.Message):
    __slots__ = ("set",)
    SET_FIELD_NUMBER: _ClassVar[int]
    set: SetView
    def __init__(self, set: _Optional[_Union[SetView, _Mapping]] = ...) -> None: ...

class SetView(_message.Message):
    __slots__ = ("spec", "type", "desired_state", "phase", "reason", "target_revision", "stable_revision", "member_count_wanted", "member_count", "healthy_count", "updated_count", "members", "revisions", "created_at", "updated_at", "rollout_started_at", "scale_reason")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DESIRED_STATE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TARGET_REVISION_FIELD_NUMBER: _ClassVar[int]
    STABLE_REVISION_FIELD_NUMBER: _ClassVar[int]
    MEMBER_COUNT_WANTED_FIELD_NUMBER: _ClassVar[int]
    MEMBER_COUNT_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_COUNT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    SCALE_REASON_FIELD_NUMBER: _ClassVar[int]
    spec: SetSpec
    type: str
    desired_state: str
    phase: str
    reason: str
    target_revision: int
    stable_revision: int
    member_count_wanted: int
    member_count: int
    healthy_count: int
    updated_count: int
    members: _containers.RepeatedCompositeFieldContainer[MemberView]
    revisions: _containers.RepeatedCompositeFieldContainer[RevisionView]
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    rollout_started_at: _timestamp_pb2.Timestamp
    scale_reason: str
    def __init__(self, spec: _Optional[_Union[SetSpec, _Mapping]] = ..., type: _Optional[str] = ..., desired_state: _Optional[str] = ..., phase: _Optional[str] = ..., reason: _Optional[str] = ..., target_revision: _Optional[int] = ..., stable_revision: _Optional[int] = ..., member_count_wanted: _Optional[int] = ..., member_count: _Optional[int] = ..., healthy_count: _Optional[int] = ..., updated_count: _Optional[int] = ..., members: _Optional[_Iterable[_Union[MemberView, _Mapping]]] = ..., revisions: _Optional[_Iterable[_Union[RevisionView, _Mapping]]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., rollout_started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., scale_reason: _Optional[str] = ...) -> None: ...

class MemberView(_message.Message):
    __slots__ = ("workload_id", "index", "revision", "status", "node_id", "health", "healthy_since", "reason")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_SINCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    index: int
    revision: int
    status: str
    node_id: str
    health: str
    healthy_since: _timestamp_pb2.Timestamp
    reason: str
    def __init__(self, workload_id: _Optional[str] = ..., index: _Optional[int] = ..., revision: _Optional[int] = ..., status: _Optional[str] = ..., node_id: _Optional[str] = ..., health: _Optional[str] = ..., healthy_since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class RevisionView(_message.Message):
    __slots__ = ("number", "revision_id", "created_at", "created_by", "template")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REVISION_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    number: int
    revision_id: str
    created_at: _timestamp_pb2.Timestamp
    created_by: str
    template: WorkloadSpec
    def __init__(self, number: _Optional[int] = ..., revision_id: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., created_by: _Optional[str] = ..., template: _Optional[_Union[WorkloadSpec, _Mapping]] = ...) -> None: ...

class JobSpec(_message.Message):
    __slots__ = ("job_id", "template", "completions", "parallelism", "retries", "deadline_seconds", "keep", "fail_on", "schedule")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    FAIL_ON_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    template: WorkloadSpec
    completions: int
    parallelism: int
    retries: int
    deadline_seconds: int
    keep: int
    fail_on: _containers.RepeatedScalarFieldContainer[int]
    schedule: JobSchedule
    def __init__(self, job_id: _Optional[str] = ..., template: _Optional[_Union[WorkloadSpec, _Mapping]] = ..., completions: _Optional[int] = ..., parallelism: _Optional[int] = ..., retries: _Optional[int] = ..., deadline_seconds: _Optional[int] = ..., keep: _Optional[int] = ..., fail_on: _Optional[_Iterable[int]] = ..., schedule: _Optional[_Union[JobSchedule, _Mapping]] = ...) -> None: ...

class JobSchedule(_message.Message):
    __slots__ = ("cron", "timezone", "overlap", "start_within_seconds")
    CRON_FIELD_NUMBER: _ClassVar[int]
    TIMEZONE_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    START_WITHIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    cron: str
    timezone: str
    overlap: str
    start_within_seconds: int
    def __init__(self, cron: _Optional[str] = ..., timezone: _Optional[str] = ..., overlap: _Optional[str] = ..., start_within_seconds: _Optional[int] = ...) -> None: ...

class ApplyJobRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: JobSpec
    def __init__(self, job: _Optional[_Union[JobSpec, _Mapping]] = ...) -> None: ...

class JobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class SuspendJobRequest(_message.Message):
    __slots__ = ("job_id", "suspended")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    suspended: bool
    def __init__(self, job_id: _Optional[str] = ..., suspended: _Optional[bool] = ...) -> None: ...

class CancelRunRequest(_message.Message):
    __slots__ = ("job_id", "run_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    run_id: str
    def __init__(self, job_id: _Optional[str] = ..., run_id: _Optional[str] = ...) -> None: ...

class JobAnswer(_message.Message):
    __slots__ = ("accepted", "reason", "job", "outcome", "run_id")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    job: JobView
    outcome: str
    run_id: str
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., job: _Optional[_Union[JobView, _Mapping]] = ..., outcome: _Optional[str] = ..., run_id: _Optional[str] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobView]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobView, _Mapping]]] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class GetJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: JobView
    def __init__(self, job: _Optional[_Union[JobView, _Mapping]] = ...) -> None: ...

class JobView(_message.Message):
    __slots__ = ("spec", "type", "suspended", "deleting", "created_at", "updated_at", "last_scheduled_at", "next_run_at", "runs")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    DELETING_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_SCHEDULED_AT_FIELD_NUMBER: _ClassVar[int]
    NEXT_RUN_AT_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    spec: JobSpec
    type: str
    suspended: bool
    deleting: bool
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    last_scheduled_at: _timestamp_pb2.Timestamp
    next_run_at: _timestamp_pb2.Timestamp
    runs: _containers.RepeatedCompositeFieldContainer[RunView]
    def __init__(self, spec: _Optional[_Union[JobSpec, _Mapping]] = ..., type: _Optional[str] = ..., suspended: _Optional[bool] = ..., deleting: _Optional[bool] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_scheduled_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., next_run_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., runs: _Optional[_Iterable[_Union[RunView, _Mapping]]] = ...) -> None: ...

class RunView(_message.Message):
    __slots__ = ("run_id", "state", "reason", "scheduled_at", "started_at", "ended_at", "succeeded_count", "failed_count", "active_count", "members")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_COUNT_FIELD_NUMBER: _ClassVar[int]
    FAILED_COUNT_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    state: str
    reason: str
    scheduled_at: _timestamp_pb2.Timestamp
    started_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    succeeded_count: int
    failed_count: int
    active_count: int
    members: _containers.RepeatedCompositeFieldContainer[RunMemberView]
    def __init__(self, run_id: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., scheduled_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., succeeded_count: _Optional[int] = ..., failed_count: _Optional[int] = ..., active_count: _Optional[int] = ..., members: _Optional[_Iterable[_Union[RunMemberView, _Mapping]]] = ...) -> None: ...

class RunMemberView(_message.Message):
    __slots__ = ("workload_id", "index", "attempt", "status", "node_id", "reason")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    index: int
    attempt: int
    status: str
    node_id: str
    reason: str
    def __init__(self, workload_id: _Optional[str] = ..., index: _Optional[int] = ..., attempt: _Optional[int] = ..., status: _Optional[str] = ..., node_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ServiceSpec(_message.Message):
    __slots__ = ("service_id", "ports", "members", "hosts")
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    service_id: str
    ports: _containers.RepeatedCompositeFieldContainer[ServicePort]
    members: _containers.RepeatedCompositeFieldContainer[ServiceSelector]
    hosts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, service_id: _Optional[str] = ..., ports: _Optional[_Iterable[_Union[ServicePort, _Mapping]]] = ..., members: _Optional[_Iterable[_Union[ServiceSelector, _Mapping]]] = ..., hosts: _Optional[_Iterable[str]] = ...) -> None: ...

class ServicePort(_message.Message):
    __slots__ = ("name", "port", "protocol")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    name: str
    port: int
    protocol: str
    def __init__(self, name: _Optional[str] = ..., port: _Optional[int] = ..., protocol: _Optional[str] = ...) -> None: ...

class ServiceSelector(_message.Message):
    __slots__ = ("set", "labels", "weight")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SET_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    set: str
    labels: _containers.ScalarMap[str, str]
    weight: int
    def __init__(self, set: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., weight: _Optional[int] = ...) -> None: ...

class ApplyServiceRequest(_message.Message):
    __slots__ = ("service",)
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    service: ServiceSpec
    def __init__(self, service: _Optional[_Union[ServiceSpec, _Mapping]] = ...) -> None: ...

class ServiceRequest(_message.Message):
    __slots__ = ("service_id",)
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    service_id: str
    def __init__(self, service_id: _Optional[str] = ...) -> None: ...

class ServiceAnswer(_message.Message):
    __slots__ = ("accepted", "reason", "service", "outcome")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    service: ServiceView
    outcome: str
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., service: _Optional[_Union[ServiceView, _Mapping]] = ..., outcome: _Optional[str] = ...) -> None: ...

class ListServicesRequest(_message.Message):
    __slots__ = ("endpoints",)
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    endpoints: bool
    def __init__(self, endpoints: _Optional[bool] = ...) -> None: ...

class ListServicesResponse(_message.Message):
    __slots__ = ("services",)
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    services: _containers.RepeatedCompositeFieldContainer[ServiceView]
    def __init__(self, services: _Optional[_Iterable[_Union[ServiceView, _Mapping]]] = ...) -> None: ...

class GetServiceRequest(_message.Message):
    __slots__ = ("service_id",)
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    service_id: str
    def __init__(self, service_id: _Optional[str] = ...) -> None: ...

class GetServiceResponse(_message.Message):
    __slots__ = ("service",)
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    service: ServiceView
    def __init__(self, service: _Optional[_Union[ServiceView, _Mapping]] = ...) -> None: ...

class ServiceView(_message.Message):
    __slots__ = ("spec", "created_at", "updated_at", "dns_name", "member_count", "healthy_count", "endpoints", "excluded")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    DNS_NAME_FIELD_NUMBER: _ClassVar[int]
    MEMBER_COUNT_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_COUNT_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    spec: ServiceSpec
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    dns_name: str
    member_count: int
    healthy_count: int
    endpoints: _containers.RepeatedCompositeFieldContainer[ServiceEndpoint]
    excluded: _containers.RepeatedCompositeFieldContainer[ExcludedMember]
    def __init__(self, spec: _Optional[_Union[ServiceSpec, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., dns_name: _Optional[str] = ..., member_count: _Optional[int] = ..., healthy_count: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[ServiceEndpoint, _Mapping]]] = ..., excluded: _Optional[_Iterable[_Union[ExcludedMember, _Mapping]]] = ...) -> None: ...

class ServiceEndpoint(_message.Message):
    __slots__ = ("workload_id", "node_id", "port_name", "host", "port", "protocol", "weight", "revision_id", "healthy_since")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PORT_NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    REVISION_ID_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_SINCE_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    node_id: str
    port_name: str
    host: str
    port: int
    protocol: str
    weight: int
    revision_id: str
    healthy_since: _timestamp_pb2.Timestamp
    def __init__(self, workload_id: _Optional[str] = ..., node_id: _Optional[str] = ..., port_name: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., protocol: _Optional[str] = ..., weight: _Optional[int] = ..., revision_id: _Optional[str] = ..., healthy_since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ExcludedMember(_message.Message):
    __slots__ = ("workload_id", "node_id", "health", "reason")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    node_id: str
    health: str
    reason: str
    def __init__(self, workload_id: _Optional[str] = ..., node_id: _Optional[str] = ..., health: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
