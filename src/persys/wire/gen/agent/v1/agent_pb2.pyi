from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkloadType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKLOAD_TYPE_UNSPECIFIED: _ClassVar[WorkloadType]
    WORKLOAD_TYPE_CONTAINER: _ClassVar[WorkloadType]
    WORKLOAD_TYPE_COMPOSE: _ClassVar[WorkloadType]
    WORKLOAD_TYPE_VM: _ClassVar[WorkloadType]

class DesiredState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DESIRED_STATE_UNSPECIFIED: _ClassVar[DesiredState]
    DESIRED_STATE_RUNNING: _ClassVar[DesiredState]
    DESIRED_STATE_STOPPED: _ClassVar[DesiredState]

class ActualState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTUAL_STATE_UNSPECIFIED: _ClassVar[ActualState]
    ACTUAL_STATE_PENDING: _ClassVar[ActualState]
    ACTUAL_STATE_RUNNING: _ClassVar[ActualState]
    ACTUAL_STATE_STOPPED: _ClassVar[ActualState]
    ACTUAL_STATE_FAILED: _ClassVar[ActualState]
    ACTUAL_STATE_UNKNOWN: _ClassVar[ActualState]
WORKLOAD_TYPE_UNSPECIFIED: WorkloadType
WORKLOAD_TYPE_CONTAINER: WorkloadType
WORKLOAD_TYPE_COMPOSE: WorkloadType
WORKLOAD_TYPE_VM: WorkloadType
DESIRED_STATE_UNSPECIFIED: DesiredState
DESIRED_STATE_RUNNING: DesiredState
DESIRED_STATE_STOPPED: DesiredState
ACTUAL_STATE_UNSPECIFIED: ActualState
ACTUAL_STATE_PENDING: ActualState
ACTUAL_STATE_RUNNING: ActualState
ACTUAL_STATE_STOPPED: ActualState
ACTUAL_STATE_FAILED: ActualState
ACTUAL_STATE_UNKNOWN: ActualState

class ApplyWorkloadRequest(_message.Message):
    __slots__ = ("id", "type", "revision_id", "desired_state", "spec", "epoch", "intent", "stop_after_seconds", "secret_env", "proof", "run_once", "run_deadline_seconds", "networks")
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REVISION_ID_FIELD_NUMBER: _ClassVar[int]
    DESIRED_STATE_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    STOP_AFTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SECRET_ENV_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    RUN_ONCE_FIELD_NUMBER: _ClassVar[int]
    RUN_DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NETWORKS_FIELD_NUMBER: _ClassVar[int]
    id: str
    type: WorkloadType
    revision_id: str
    desired_state: DesiredState
    spec: WorkloadSpec
    epoch: int
    intent: bytes
    stop_after_seconds: int
    secret_env: _containers.RepeatedScalarFieldContainer[str]
    proof: bytes
    run_once: bool
    run_deadline_seconds: int
    networks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., type: _Optional[_Union[WorkloadType, str]] = ..., revision_id: _Optional[str] = ..., desired_state: _Optional[_Union[DesiredState, str]] = ..., spec: _Optional[_Union[WorkloadSpec, _Mapping]] = ..., epoch: _Optional[int] = ..., intent: _Optional[bytes] = ..., stop_after_seconds: _Optional[int] = ..., secret_env: _Optional[_Iterable[str]] = ..., proof: _Optional[bytes] = ..., run_once: _Optional[bool] = ..., run_deadline_seconds: _Optional[int] = ..., networks: _Optional[_Iterable[str]] = ...) -> None: ...

class ApplyWorkloadResponse(_message.Message):
    __slots__ = ("applied", "skipped", "message", "status", "known_epoch", "deleted")
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    applied: bool
    skipped: bool
    message: str
    status: WorkloadStatus
    known_epoch: int
    deleted: bool
    def __init__(self, applied: _Optional[bool] = ..., skipped: _Optional[bool] = ..., message: _Optional[str] = ..., status: _Optional[_Union[WorkloadStatus, _Mapping]] = ..., known_epoch: _Optional[int] = ..., deleted: _Optional[bool] = ...) -> None: ...

class ApplyWorkloadsRequest(_message.Message):
    __slots__ = ("orders",)
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    orders: _containers.RepeatedCompositeFieldContainer[ApplyWorkloadRequest]
    def __init__(self, orders: _Optional[_Iterable[_Union[ApplyWorkloadRequest, _Mapping]]] = ...) -> None: ...

class ApplyWorkloadsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ApplyResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ApplyResult, _Mapping]]] = ...) -> None: ...

class ApplyResult(_message.Message):
    __slots__ = ("id", "response", "code", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    response: ApplyWorkloadResponse
    code: int
    error: str
    def __init__(self, id: _Optional[str] = ..., response: _Optional[_Union[ApplyWorkloadResponse, _Mapping]] = ..., code: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class DeleteWorkloadRequest(_message.Message):
    __slots__ = ("id", "epoch", "keep_data")
    ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KEEP_DATA_FIELD_NUMBER: _ClassVar[int]
    id: str
    epoch: int
    keep_data: bool
    def __init__(self, id: _Optional[str] = ..., epoch: _Optional[int] = ..., keep_data: _Optional[bool] = ...) -> None: ...

class DeleteWorkloadResponse(_message.Message):
    __slots__ = ("success", "message")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    def __init__(self, success: _Optional[bool] = ..., message: _Optional[str] = ...) -> None: ...

class GetWorkloadStatusRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetWorkloadStatusResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: WorkloadStatus
    def __init__(self, status: _Optional[_Union[WorkloadStatus, _Mapping]] = ...) -> None: ...

class ListWorkloadsRequest(_message.Message):
    __slots__ = ("type",)
    TYPE_FIELD_NUMBER: _ClassVar[int]
    type: WorkloadType
    def __init__(self, type: _Optional[_Union[WorkloadType, str]] = ...) -> None: ...

class ListWorkloadsResponse(_message.Message):
    __slots__ = ("workloads",)
    WORKLOADS_FIELD_NUMBER: _ClassVar[int]
    workloads: _containers.RepeatedCompositeFieldContainer[WorkloadStatus]
    def __init__(self, workloads: _Optional[_Iterable[_Union[WorkloadStatus, _Mapping]]] = ...) -> None: ...

class HealthCheckRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HealthCheckResponse(_message.Message):
    __slots__ = ("healthy", "version", "runtime_status", "memory_utilization", "cpu_utilization", "disk_utilization")
    class RuntimeStatusEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_STATUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    CPU_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    DISK_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    healthy: bool
    version: str
    runtime_status: _containers.ScalarMap[str, str]
    memory_utilization: float
    cpu_utilization: float
    disk_utilization: float
    def __init__(self, healthy: _Optional[bool] = ..., version: _Optional[str] = ..., runtime_status: _Optional[_Mapping[str, str]] = ..., memory_utilization: _Optional[float] = ..., cpu_utilization: _Optional[float] = ..., disk_utilization: _Optional[float] = ...) -> None: ...

class ListActionsRequest(_message.Message):
    __slots__ = ("workload_id", "action_type", "status", "limit", "newest_first")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_TYPE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIRST_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    action_type: str
    status: str
    limit: int
    newest_first: bool
    def __init__(self, workload_id: _Optional[str] = ..., action_type: _Optional[str] = ..., status: _Optional[str] = ..., limit: _Optional[int] = ..., newest_first: _Optional[bool] = ...) -> None: ...

class ListActionsResponse(_message.Message):
    __slots__ = ("actions",)
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    actions: _containers.RepeatedCompositeFieldContainer[AgentAction]
    def __init__(self, actions: _Optional[_Iterable[_Union[AgentAction, _Mapping]]] = ...) -> None: ...

class AgentAction(_message.Message):
    __slots__ = ("task_id", "workload_id", "action_type", "status", "error", "created_at", "started_at", "ended_at")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_TYPE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    workload_id: str
    action_type: str
    status: str
    error: str
    created_at: int
    started_at: int
    ended_at: int
    def __init__(self, task_id: _Optional[str] = ..., workload_id: _Optional[str] = ..., action_type: _Optional[str] = ..., status: _Optional[str] = ..., error: _Optional[str] = ..., created_at: _Optional[int] = ..., started_at: _Optional[int] = ..., ended_at: _Optional[int] = ...) -> None: ...

class WorkloadSpec(_message.Message):
    __slots__ = ("container", "compose", "vm")
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    COMPOSE_FIELD_NUMBER: _ClassVar[int]
    VM_FIELD_NUMBER: _ClassVar[int]
    container: ContainerSpec
    compose: ComposeSpec
    vm: VMSpec
    def __init__(self, container: _Optional[_Union[ContainerSpec, _Mapping]] = ..., compose: _Optional[_Union[ComposeSpec, _Mapping]] = ..., vm: _Optional[_Union[VMSpec, _Mapping]] = ...) -> None: ...

class ContainerSpec(_message.Message):
    __slots__ = ("image", "command", "args", "env", "volumes", "ports", "resources", "restart_policy", "labels", "managed_volumes", "privileged", "image_pull_policy", "stop_grace_seconds", "init", "image_credential", "health_check", "files")
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
    ARGS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    RESTART_POLICY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    MANAGED_VOLUMES_FIELD_NUMBER: _ClassVar[int]
    PRIVILEGED_FIELD_NUMBER: _ClassVar[int]
    IMAGE_PULL_POLICY_FIELD_NUMBER: _ClassVar[int]
    STOP_GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    INIT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    HEALTH_CHECK_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    image: str
    command: _containers.RepeatedScalarFieldContainer[str]
    args: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    volumes: _containers.RepeatedCompositeFieldContainer[VolumeMount]
    ports: _containers.RepeatedCompositeFieldContainer[PortMapping]
    resources: ResourceLimits
    restart_policy: RestartPolicy
    labels: _containers.ScalarMap[str, str]
    managed_volumes: _containers.RepeatedCompositeFieldContainer[ManagedVolumeSpec]
    privileged: bool
    image_pull_policy: str
    stop_grace_seconds: int
    init: bool
    image_credential: str
    health_check: HealthCheck
    files: _containers.RepeatedCompositeFieldContainer[FileMount]
    def __init__(self, image: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., args: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., volumes: _Optional[_Iterable[_Union[VolumeMount, _Mapping]]] = ..., ports: _Optional[_Iterable[_Union[PortMapping, _Mapping]]] = ..., resources: _Optional[_Union[ResourceLimits, _Mapping]] = ..., restart_policy: _Optional[_Union[RestartPolicy, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., managed_volumes: _Optional[_Iterable[_Union[ManagedVolumeSpec, _Mapping]]] = ..., privileged: _Optional[bool] = ..., image_pull_policy: _Optional[str] = ..., stop_grace_seconds: _Optional[int] = ..., init: _Optional[bool] = ..., image_credential: _Optional[str] = ..., health_check: _Optional[_Union[HealthCheck, _Mapping]] = ..., files: _Optional[_Iterable[_Union[FileMount, _Mapping]]] = ...) -> None: ...

class FileMount(_message.Message):
    __slots__ = ("path", "content", "mode", "secret")
    PATH_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    path: str
    content: bytes
    mode: int
    secret: bool
    def __init__(self, path: _Optional[str] = ..., content: _Optional[bytes] = ..., mode: _Optional[int] = ..., secret: _Optional[bool] = ...) -> None: ...

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

class ComposeSpec(_message.Message):
    __slots__ = ("project_name", "compose_yaml", "env", "git_repo", "git_ref", "git_path", "git_credential", "image_credential", "delete_volumes", "cpu_millicores", "memory_mb", "disk_gb", "project_name_derived")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROJECT_NAME_FIELD_NUMBER: _ClassVar[int]
    COMPOSE_YAML_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    GIT_REPO_FIELD_NUMBER: _ClassVar[int]
    GIT_REF_FIELD_NUMBER: _ClassVar[int]
    GIT_PATH_FIELD_NUMBER: _ClassVar[int]
    GIT_CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    IMAGE_CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    DELETE_VOLUMES_FIELD_NUMBER: _ClassVar[int]
    CPU_MILLICORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    DISK_GB_FIELD_NUMBER: _ClassVar[int]
    PROJECT_NAME_DERIVED_FIELD_NUMBER: _ClassVar[int]
    project_name: str
    compose_yaml: str
    env: _containers.ScalarMap[str, str]
    git_repo: str
    git_ref: str
    git_path: str
    git_credential: str
    image_credential: str
    delete_volumes: bool
    cpu_millicores: int
    memory_mb: int
    disk_gb: int
    project_name_derived: bool
    def __init__(self, project_name: _Optional[str] = ..., compose_yaml: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., git_repo: _Optional[str] = ..., git_ref: _Optional[str] = ..., git_path: _Optional[str] = ..., git_credential: _Optional[str] = ..., image_credential: _Optional[str] = ..., delete_volumes: _Optional[bool] = ..., cpu_millicores: _Optional[int] = ..., memory_mb: _Optional[int] = ..., disk_gb: _Optional[int] = ..., project_name_derived: _Optional[bool] = ...) -> None: ...

class VMSpec(_message.Message):
    __slots__ = ("name", "vcpus", "memory_mb", "disks", "networks", "cloud_init", "metadata", "cloud_init_config", "managed_volumes", "restart_policy", "stop_grace_seconds", "login", "health_check")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    VCPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    DISKS_FIELD_NUMBER: _ClassVar[int]
    NETWORKS_FIELD_NUMBER: _ClassVar[int]
    CLOUD_INIT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CLOUD_INIT_CONFIG_FIELD_NUMBER: _ClassVar[int]
    MANAGED_VOLUMES_FIELD_NUMBER: _ClassVar[int]
    RESTART_POLICY_FIELD_NUMBER: _ClassVar[int]
    STOP_GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LOGIN_FIELD_NUMBER: _ClassVar[int]
    HEALTH_CHECK_FIELD_NUMBER: _ClassVar[int]
    name: str
    vcpus: int
    memory_mb: int
    disks: _containers.RepeatedCompositeFieldContainer[DiskConfig]
    networks: _containers.RepeatedCompositeFieldContainer[NetworkConfig]
    cloud_init: str
    metadata: _containers.ScalarMap[str, str]
    cloud_init_config: CloudInitConfig
    managed_volumes: _containers.RepeatedCompositeFieldContainer[ManagedVolumeSpec]
    restart_policy: RestartPolicy
    stop_grace_seconds: int
    login: VMLogin
    health_check: HealthCheck
    def __init__(self, name: _Optional[str] = ..., vcpus: _Optional[int] = ..., memory_mb: _Optional[int] = ..., disks: _Optional[_Iterable[_Union[DiskConfig, _Mapping]]] = ..., networks: _Optional[_Iterable[_Union[NetworkConfig, _Mapping]]] = ..., cloud_init: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., cloud_init_config: _Optional[_Union[CloudInitConfig, _Mapping]] = ..., managed_volumes: _Optional[_Iterable[_Union[ManagedVolumeSpec, _Mapping]]] = ..., restart_policy: _Optional[_Union[RestartPolicy, _Mapping]] = ..., stop_grace_seconds: _Optional[int] = ..., login: _Optional[_Union[VMLogin, _Mapping]] = ..., health_check: _Optional[_Union[HealthCheck, _Mapping]] = ...) -> None: ...

class VMLogin(_message.Message):
    __slots__ = ("user", "ssh_keys", "password_hash")
    USER_FIELD_NUMBER: _ClassVar[int]
    SSH_KEYS_FIELD_NUMBER: _ClassVar[int]
    PASSWORD_HASH_FIELD_NUMBER: _ClassVar[int]
    user: str
    ssh_keys: _containers.RepeatedScalarFieldContainer[str]
    password_hash: str
    def __init__(self, user: _Optional[str] = ..., ssh_keys: _Optional[_Iterable[str]] = ..., password_hash: _Optional[str] = ...) -> None: ...

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

class VolumeMount(_message.Message):
    __slots__ = ("host_path", "container_path", "read_only")
    HOST_PATH_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_PATH_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    host_path: str
    container_path: str
    read_only: bool
    def __init__(self, host_path: _Optional[str] = ..., container_path: _Optional[str] = ..., read_only: _Optional[bool] = ...) -> None: ...

class PortMapping(_message.Message):
    __slots__ = ("host_port", "container_port", "protocol")
    HOST_PORT_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_PORT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    host_port: int
    container_port: int
    protocol: str
    def __init__(self, host_port: _Optional[int] = ..., container_port: _Optional[int] = ..., protocol: _Optional[str] = ...) -> None: ...

class ResourceLimits(_message.Message):
    __slots__ = ("cpu_shares", "memory_bytes", "memory_swap_bytes", "cpu_millicores", "pids_max", "disk_gb")
    CPU_SHARES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_SWAP_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_MILLICORES_FIELD_NUMBER: _ClassVar[int]
    PIDS_MAX_FIELD_NUMBER: _ClassVar[int]
    DISK_GB_FIELD_NUMBER: _ClassVar[int]
    cpu_shares: int
    memory_bytes: int
    memory_swap_bytes: int
    cpu_millicores: int
    pids_max: int
    disk_gb: int
    def __init__(self, cpu_shares: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., memory_swap_bytes: _Optional[int] = ..., cpu_millicores: _Optional[int] = ..., pids_max: _Optional[int] = ..., disk_gb: _Optional[int] = ...) -> None: ...

class RestartPolicy(_message.Message):
    __slots__ = ("policy", "max_retry_count")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    policy: str
    max_retry_count: int
    def __init__(self, policy: _Optional[str] = ..., max_retry_count: _Optional[int] = ...) -> None: ...

class DiskConfig(_message.Message):
    __slots__ = ("path", "device", "format", "size_gb", "type", "boot")
    PATH_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SIZE_GB_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    path: str
    device: str
    format: str
    size_gb: int
    type: str
    boot: bool
    def __init__(self, path: _Optional[str] = ..., device: _Optional[str] = ..., format: _Optional[str] = ..., size_gb: _Optional[int] = ..., type: _Optional[str] = ..., boot: _Optional[bool] = ...) -> None: ...

class NetworkConfig(_message.Message):
    __slots__ = ("network", "mac_address", "ip_address", "gateway", "nameservers")
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    MAC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    NAMESERVERS_FIELD_NUMBER: _ClassVar[int]
    network: str
    mac_address: str
    ip_address: str
    gateway: str
    nameservers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, network: _Optional[str] = ..., mac_address: _Optional[str] = ..., ip_address: _Optional[str] = ..., gateway: _Optional[str] = ..., nameservers: _Optional[_Iterable[str]] = ...) -> None: ...

class WorkloadStatus(_message.Message):
    __slots__ = ("id", "type", "revision_id", "desired_state", "actual_state", "message", "created_at", "updated_at", "metadata", "usage", "epoch", "proof")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REVISION_ID_FIELD_NUMBER: _ClassVar[int]
    DESIRED_STATE_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    id: str
    type: WorkloadType
    revision_id: str
    desired_state: DesiredState
    actual_state: ActualState
    message: str
    created_at: int
    updated_at: int
    metadata: _containers.ScalarMap[str, str]
    usage: WorkloadUsageSnapshot
    epoch: int
    proof: bytes
    def __init__(self, id: _Optional[str] = ..., type: _Optional[_Union[WorkloadType, str]] = ..., revision_id: _Optional[str] = ..., desired_state: _Optional[_Union[DesiredState, str]] = ..., actual_state: _Optional[_Union[ActualState, str]] = ..., message: _Optional[str] = ..., created_at: _Optional[int] = ..., updated_at: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ..., usage: _Optional[_Union[WorkloadUsageSnapshot, _Mapping]] = ..., epoch: _Optional[int] = ..., proof: _Optional[bytes] = ...) -> None: ...

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
    type: WorkloadType
    cpu_percent: float
    memory_bytes: int
    disk_read_bytes: int
    disk_write_bytes: int
    net_rx_bytes: int
    net_tx_bytes: int
    collected_at: int
    source: str
    def __init__(self, workload_id: _Optional[str] = ..., type: _Optional[_Union[WorkloadType, str]] = ..., cpu_percent: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., disk_read_bytes: _Optional[int] = ..., disk_write_bytes: _Optional[int] = ..., net_rx_bytes: _Optional[int] = ..., net_tx_bytes: _Optional[int] = ..., collected_at: _Optional[int] = ..., source: _Optional[str] = ...) -> None: ...

class ListIntentsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IntentView(_message.Message):
    __slots__ = ("id", "epoch", "intent")
    ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    id: str
    epoch: int
    intent: bytes
    def __init__(self, id: _Optional[str] = ..., epoch: _Optional[int] = ..., intent: _Optional[bytes] = ...) -> None: ...

class LogsRequest(_message.Message):
    __slots__ = ("workload_id", "service", "follow", "since_unix_nanos", "tail", "previous", "timestamps")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_NANOS_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPS_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    service: str
    follow: bool
    since_unix_nanos: int
    tail: int
    previous: bool
    timestamps: bool
    def __init__(self, workload_id: _Optional[str] = ..., service: _Optional[str] = ..., follow: _Optional[bool] = ..., since_unix_nanos: _Optional[int] = ..., tail: _Optional[int] = ..., previous: _Optional[bool] = ..., timestamps: _Optional[bool] = ...) -> None: ...

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

class GarbageCollectRequest(_message.Message):
    __slots__ = ("dry_run",)
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    def __init__(self, dry_run: _Optional[bool] = ...) -> None: ...

class GarbageCollectResponse(_message.Message):
    __slots__ = ("dry_run", "items")
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    items: _containers.RepeatedCompositeFieldContainer[GarbageItem]
    def __init__(self, dry_run: _Optional[bool] = ..., items: _Optional[_Iterable[_Union[GarbageItem, _Mapping]]] = ...) -> None: ...

class GarbageItem(_message.Message):
    __slots__ = ("kind", "name", "workload_id", "reason", "removed", "problem")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    workload_id: str
    reason: str
    removed: bool
    problem: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., workload_id: _Optional[str] = ..., reason: _Optional[str] = ..., removed: _Optional[bool] = ..., problem: _Optional[str] = ...) -> None: ...

class ListImagesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListImagesResponse(_message.Message):
    __slots__ = ("images",)
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    images: _containers.RepeatedCompositeFieldContainer[ImageView]
    def __init__(self, images: _Optional[_Iterable[_Union[ImageView, _Mapping]]] = ...) -> None: ...

class ImageView(_message.Message):
    __slots__ = ("name", "sha256", "format", "size_bytes", "virtual_size_bytes", "added_at", "used_by")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    VIRTUAL_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ADDED_AT_FIELD_NUMBER: _ClassVar[int]
    USED_BY_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: str
    format: str
    size_bytes: int
    virtual_size_bytes: int
    added_at: int
    used_by: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., sha256: _Optional[str] = ..., format: _Optional[str] = ..., size_bytes: _Optional[int] = ..., virtual_size_bytes: _Optional[int] = ..., added_at: _Optional[int] = ..., used_by: _Optional[_Iterable[str]] = ...) -> None: ...

class AddImageRequest(_message.Message):
    __slots__ = ("start", "data")
    START_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    start: AddImageStart
    data: bytes
    def __init__(self, start: _Optional[_Union[AddImageStart, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class AddImageStart(_message.Message):
    __slots__ = ("name", "url", "sha256", "size_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    url: str
    sha256: str
    size_bytes: int
    def __init__(self, name: _Optional[str] = ..., url: _Optional[str] = ..., sha256: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class ImageProgress(_message.Message):
    __slots__ = ("received_bytes", "size_bytes", "image", "problem")
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    received_bytes: int
    size_bytes: int
    image: ImageView
    problem: str
    def __init__(self, received_bytes: _Optional[int] = ..., size_bytes: _Optional[int] = ..., image: _Optional[_Union[ImageView, _Mapping]] = ..., problem: _Optional[str] = ...) -> None: ...

class RemoveImageRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RemoveImageResponse(_message.Message):
    __slots__ = ("success", "message")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    def __init__(self, success: _Optional[bool] = ..., message: _Optional[str] = ...) -> None: ...

class ListVolumesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListVolumesResponse(_message.Message):
    __slots__ = ("volumes",)
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    volumes: _containers.RepeatedCompositeFieldContainer[VolumeView]
    def __init__(self, volumes: _Optional[_Iterable[_Union[VolumeView, _Mapping]]] = ...) -> None: ...

class VolumeView(_message.Message):
    __slots__ = ("workload_id", "name", "driver", "pool", "size_bytes", "used_bytes", "state", "retain_policy", "path", "fs_type", "created_at")
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
    created_at: int
    def __init__(self, workload_id: _Optional[str] = ..., name: _Optional[str] = ..., driver: _Optional[str] = ..., pool: _Optional[str] = ..., size_bytes: _Optional[int] = ..., used_bytes: _Optional[int] = ..., state: _Optional[str] = ..., retain_policy: _Optional[str] = ..., path: _Optional[str] = ..., fs_type: _Optional[str] = ..., created_at: _Optional[int] = ...) -> None: ...

class DeleteVolumeRequest(_message.Message):
    __slots__ = ("workload_id", "name")
    WORKLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    workload_id: str
    name: str
    def __init__(self, workload_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeleteVolumeResponse(_message.Message):
    __slots__ = ("success", "message")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    def __init__(self, success: _Optional[bool] = ..., message: _Optional[str] = ...) -> None: ...

class ConfigureNetworksRequest(_message.Message):
    __slots__ = ("version", "networks", "domain")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NETWORKS_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    version: str
    networks: _containers.RepeatedCompositeFieldContainer[NodeNetwork]
    domain: str
    def __init__(self, version: _Optional[str] = ..., networks: _Optional[_Iterable[_Union[NodeNetwork, _Mapping]]] = ..., domain: _Optional[str] = ...) -> None: ...

class ConfigureNetworksResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: str
    def __init__(self, version: _Optional[str] = ...) -> None: ...

class NodeNetwork(_message.Message):
    __slots__ = ("network_id", "number", "subnet", "subnet6", "encrypted", "slices", "peers", "names", "rules")
    NETWORK_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SUBNET_FIELD_NUMBER: _ClassVar[int]
    SUBNET6_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTED_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    network_id: str
    number: int
    subnet: str
    subnet6: str
    encrypted: bool
    slices: _containers.RepeatedScalarFieldContainer[str]
    peers: _containers.RepeatedCompositeFieldContainer[NetworkPeer]
    names: _containers.RepeatedCompositeFieldContainer[NetworkName]
    rules: _containers.RepeatedCompositeFieldContainer[NetworkRule]
    def __init__(self, network_id: _Optional[str] = ..., number: _Optional[int] = ..., subnet: _Optional[str] = ..., subnet6: _Optional[str] = ..., encrypted: _Optional[bool] = ..., slices: _Optional[_Iterable[str]] = ..., peers: _Optional[_Iterable[_Union[NetworkPeer, _Mapping]]] = ..., names: _Optional[_Iterable[_Union[NetworkName, _Mapping]]] = ..., rules: _Optional[_Iterable[_Union[NetworkRule, _Mapping]]] = ...) -> None: ...

class NetworkPeer(_message.Message):
    __slots__ = ("node_id", "address", "slices", "wireguard_key")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    WIREGUARD_KEY_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    address: str
    slices: _containers.RepeatedScalarFieldContainer[str]
    wireguard_key: str
    def __init__(self, node_id: _Optional[str] = ..., address: _Optional[str] = ..., slices: _Optional[_Iterable[str]] = ..., wireguard_key: _Optional[str] = ...) -> None: ...

class NetworkName(_message.Message):
    __slots__ = ("name", "addresses")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    name: str
    addresses: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., addresses: _Optional[_Iterable[str]] = ...) -> None: ...

class NetworkRule(_message.Message):
    __slots__ = ("targets", "ports", "protocol", "sources")
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    targets: _containers.RepeatedScalarFieldContainer[str]
    ports: _containers.RepeatedScalarFieldContainer[int]
    protocol: str
    sources: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, targets: _Optional[_Iterable[str]] = ..., ports: _Optional[_Iterable[int]] = ..., protocol: _Optional[str] = ..., sources: _Optional[_Iterable[str]] = ...) -> None: ...
