"""The wire format is fixed: every row is in the descriptors, and additions have numbers from 100.

Notation of a row: `Message: number name type, …`; `[]` is repeated, `{}` is map<string, string>, `ts` is
google.protobuf.Timestamp, and `name@group` is a member of a oneof.
"""

from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2

FIRST_ADDITION = 100

CONTROL = """
RegisterNodeRequest: 1 node_id string, 2 capabilities NodeCapabilities, 3 labels {}, \
4 agent_version string, \
5 grpc_endpoint string, 6 cluster_id string, 7 timestamp ts
NodeCapabilities: 1 cpu_total_millicores int64, 2 memory_total_mb int64, \
3 storage_pools StoragePool[], \
4 supported_workload_types string[], 5 supported_storage_drivers string[]
StoragePool: 1 name string, 2 type string, 3 total_gb int64
RegisterNodeResponse: 1 accepted bool, 2 reason string, 3 heartbeat_interval_seconds int32, \
4 lease_expires_at ts
HeartbeatRequest: 1 node_id string, 2 usage NodeUsage, 3 workload_statuses WorkloadStatus[], \
4 timestamp ts, \
5 workload_usage WorkloadUsageSnapshot[]
NodeUsage: 1 cpu_allocated_millicores int64, 2 cpu_used_millicores int64, \
3 memory_allocated_mb int64, \
4 memory_used_mb int64, 5 disk_allocated_gb int64, 6 disk_used_gb int64
HeartbeatResponse: 1 acknowledged bool, 2 drain_node bool, 3 lease_expires_at ts
ApplyWorkloadRequest: 1 workload_id string, 2 spec WorkloadSpec, 10 revision_id string, \
11 desired_state string
ApplyWorkloadResponse: 1 success bool, 2 failure_reason FailureReason, 3 error_message string
DeleteWorkloadRequest: 1 workload_id string
DeleteWorkloadResponse: 1 success bool, 2 error_message string
RetryWorkloadRequest: 1 workload_id string
RetryWorkloadResponse: 1 accepted bool
WorkloadSpec: 1 type string, 2 resources ResourceRequirements, \
10 container@workload ContainerSpec, \
11 compose@workload ComposeSpec, 12 vm@workload VMSpec, 20 metadata {}
ResourceRequirements: 1 cpu_millicores int64, 2 memory_mb int64, 3 disk_gb int64
ContainerSpec: 1 image string, 2 command string[], 3 env {}, 4 volumes VolumeMount[], \
5 ports Port[], \
6 restart_policy string, 7 privileged bool, 8 managed_volumes ManagedVolumeSpec[]
VolumeMount: 1 host_path string, 2 container_path string, 3 read_only bool
Port: 1 host_port int32, 2 container_port int32, 3 protocol string
ComposeSpec: 1 source_type string, 2 git_repo string, 3 git_ref string, 4 inline_yaml string, \
5 env {}
VMSpec: 1 vcpus int32, 2 memory_mb int64, 3 disks DiskConfig[], 4 networks NetworkConfig[], \
5 cloud_init CloudInitConfig, 6 os_image string, 7 managed_volumes ManagedVolumeSpec[]
DiskConfig: 1 pool_name string, 2 size_gb int64, 3 mount_point string
NetworkConfig: 1 bridge string, 2 dhcp bool, 3 static_ip string
CloudInitConfig: 1 user_data string, 2 meta_data string, 3 network_config string, \
4 vendor_data string
ManagedVolumeSpec: 1 name string, 2 driver string, 3 size_gb int64, 4 access_mode string, \
5 fs_type string, \
6 mount_path string, 7 read_only bool, 8 retain_policy string
WorkloadUsageSnapshot: 1 workload_id string, 2 type string, 3 cpu_percent double, \
4 memory_bytes int64, \
5 disk_read_bytes int64, 6 disk_write_bytes int64, 7 net_rx_bytes int64, 8 net_tx_bytes int64, \
9 collected_at ts, 10 source string
ReasonDetail: 1 code string, 2 message string, 3 last_transition ts, 4 next_retry_at ts, \
5 retryable bool
WorkloadStatus: 1 workload_id string, 2 state string, 3 failure_reason FailureReason, \
4 message string, \
5 last_transition ts, 6 reason ReasonDetail, 7 usage WorkloadUsageSnapshot
ListNodesRequest: 1 status string
ListNodesResponse: 1 nodes NodeView[]
GetNodeRequest: 1 node_id string
GetNodeResponse: 1 node NodeView
NodeView: 1 node_id string, 2 status string, 3 status_reason string, 4 status_updated_by string, \
5 status_updated_at ts, 6 last_heartbeat ts, 7 grpc_endpoint string, 8 total_cpu_cores double, \
9 available_cpu_cores double, 10 total_memory_mb int64, 11 available_memory_mb int64, \
12 supported_workload_types string[], 13 labels {}
ListWorkloadsRequest: 1 node_id string, 2 status string
ListWorkloadsResponse: 1 workloads WorkloadView[]
GetWorkloadRequest: 1 workload_id string
GetWorkloadResponse: 1 workload WorkloadView
WorkloadView: 1 workload_id string, 2 type string, 3 desired_state string, 4 status string, \
5 assigned_node_id string, 6 revision_id string, 7 retry_attempts int32, 8 retry_max_attempts int32, \
9 retry_next_at ts, 10 failure_reason string, 11 last_updated ts, 12 reason ReasonDetail, \
13 usage WorkloadUsageSnapshot
GetClusterSummaryRequest:
GetClusterSummaryResponse: 1 total_nodes int32, 2 ready_nodes int32, 3 not_ready_nodes int32, \
4 total_workloads int32, 5 running_workloads int32, 6 pending_workloads int32, 7 failed_workloads int32, \
8 deleted_workloads int32, 9 generated_at ts
AutomationSuggestion: 1 suggestion_id string, 2 policy_id string, 3 policy_name string, \
4 target_workload string, \
5 action_type AutomationActionType, 6 desired_state string, 7 desired_replicas int32, 8 replica_delta int32, \
9 reason string, 10 suggested_at ts
SubmitAutomationSuggestionRequest: 1 suggestion AutomationSuggestion
SubmitAutomationSuggestionResponse: 1 accepted bool, 2 decision string, 3 reason string, \
4 applied_action string, \
5 decided_at ts
ControlMessage: 1 register@message RegisterNodeRequest, 2 heartbeat@message HeartbeatRequest, \
3 apply@message ApplyWorkloadRequest, 4 delete@message DeleteWorkloadRequest
"""

AGENT = """
ApplyWorkloadRequest: 1 id string, 2 type WorkloadType, 3 revision_id string, \
4 desired_state DesiredState, \
5 spec WorkloadSpec
ApplyWorkloadResponse: 1 applied bool, 2 skipped bool, 3 message string, 4 status WorkloadStatus
DeleteWorkloadRequest: 1 id string
DeleteWorkloadResponse: 1 success bool, 2 message string
GetWorkloadStatusRequest: 1 id string
GetWorkloadStatusResponse: 1 status WorkloadStatus
ListWorkloadsRequest: 1 type WorkloadType
ListWorkloadsResponse: 1 workloads WorkloadStatus[]
HealthCheckRequest:
HealthCheckResponse: 1 healthy bool, 2 version string, 3 runtime_status {}, \
4 memory_utilization double, \
5 cpu_utilization double, 6 disk_utilization double
ListActionsRequest: 1 workload_id string, 2 action_type string, 3 status string, 4 limit int32, \
5 newest_first bool
AgentAction: 1 task_id string, 2 workload_id string, 3 action_type string, 4 status string, \
5 error string, \
6 created_at int64, 7 started_at int64, 8 ended_at int64
ListActionsResponse: 1 actions AgentAction[]
WorkloadSpec: 1 container@spec ContainerSpec, 2 compose@spec ComposeSpec, 3 vm@spec VMSpec
ContainerSpec: 1 image string, 2 command string[], 3 args string[], 4 env {}, \
5 volumes VolumeMount[], \
6 ports PortMapping[], 7 resources ResourceLimits, 8 restart_policy RestartPolicy, 9 labels {}, \
10 managed_volumes ManagedVolumeSpec[]
ComposeSpec: 1 project_name string, 2 compose_yaml string, 3 env {}
VMSpec: 1 name string, 2 vcpus int32, 3 memory_mb int64, 4 disks DiskConfig[], \
5 networks NetworkConfig[], \
6 cloud_init string, 7 metadata {}, 8 cloud_init_config CloudInitConfig, 9 managed_volumes ManagedVolumeSpec[]
CloudInitConfig: 1 user_data string, 2 meta_data string, 3 network_config string, \
4 vendor_data string
ManagedVolumeSpec: 1 name string, 2 driver string, 3 size_gb int64, 4 access_mode string, \
5 fs_type string, \
6 mount_path string, 7 read_only bool, 8 retain_policy string
VolumeMount: 1 host_path string, 2 container_path string, 3 read_only bool
PortMapping: 1 host_port int32, 2 container_port int32, 3 protocol string
ResourceLimits: 1 cpu_shares int64, 2 memory_bytes int64, 3 memory_swap_bytes int64
RestartPolicy: 1 policy string, 2 max_retry_count int32
DiskConfig: 1 path string, 2 device string, 3 format string, 4 size_gb int64, 5 type string, \
6 boot bool
NetworkConfig: 1 network string, 2 mac_address string, 3 ip_address string
WorkloadStatus: 1 id string, 2 type WorkloadType, 3 revision_id string, \
4 desired_state DesiredState, \
5 actual_state ActualState, 6 message string, 7 created_at int64, 8 updated_at int64, 9 metadata {}, \
10 usage WorkloadUsageSnapshot
WorkloadUsageSnapshot: 1 workload_id string, 2 type WorkloadType, 3 cpu_percent double, \
4 memory_bytes int64, \
5 disk_read_bytes int64, 6 disk_write_bytes int64, 7 net_rx_bytes int64, 8 net_tx_bytes int64, \
9 collected_at int64, 10 source string
"""

ENUMS = {
    "persys.control.v1.FailureReason": (
        "FAILURE_REASON_UNSPECIFIED IMAGE_PULL_FAILED IMAGE_NOT_FOUND INSUFFICIENT_RESOURCES INVALID_SPEC "
        "RUNTIME_ERROR NETWORK_ERROR STORAGE_ERROR VM_BOOT_FAILED"
    ),
    "persys.control.v1.AutomationActionType": (
        "AUTOMATION_ACTION_TYPE_UNSPECIFIED AUTOMATION_ACTION_SET_DESIRED_STATE "
        "AUTOMATION_ACTION_RETRY_WORKLOAD AUTOMATION_ACTION_DELETE_WORKLOAD AUTOMATION_ACTION_SCALE_REPLICAS"
    ),
    "persys.agent.v1.WorkloadType": (
        "WORKLOAD_TYPE_UNSPECIFIED WORKLOAD_TYPE_CONTAINER WORKLOAD_TYPE_COMPOSE WORKLOAD_TYPE_VM"
    ),
    "persys.agent.v1.DesiredState": (
        "DESIRED_STATE_UNSPECIFIED DESIRED_STATE_RUNNING DESIRED_STATE_STOPPED"
    ),
    "persys.agent.v1.ActualState": (
        "ACTUAL_STATE_UNSPECIFIED ACTUAL_STATE_PENDING ACTUAL_STATE_RUNNING ACTUAL_STATE_STOPPED "
        "ACTUAL_STATE_FAILED ACTUAL_STATE_UNKNOWN"
    ),
}

CONTROL_METHODS = (
    "RegisterNode Heartbeat ApplyWorkload DeleteWorkload RetryWorkload SubmitAutomationSuggestion "
    "ListNodes GetNode ListWorkloads GetWorkload GetClusterSummary"
)
AGENT_METHODS = (
    "ApplyWorkload DeleteWorkload GetWorkloadStatus ListWorkloads HealthCheck ListActions"
)
METHODS = {
    f"{service}.{name}": (f"{name}Request", f"{name}Response", False)
    for service, names in (
        ("persys.control.v1.AgentControl", CONTROL_METHODS),
        ("persys.agent.v1.AgentService", AGENT_METHODS),
    )
    for name in names.split()
} | {"persys.control.v1.AgentControl.ControlStream": ("ControlMessage", "ControlMessage", True)}

FILES: tuple[FileDescriptor, ...] = (control_pb2.DESCRIPTOR, agent_pb2.DESCRIPTOR)
ROWS = [
    (file, line)
    for file, table in zip(FILES, (CONTROL, AGENT), strict=True)
    for line in table.strip().splitlines()
]

SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_DOUBLE: "double",
}


def type_word(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        sides = [SCALARS[side.type] for side in field.message_type.fields]
        return "{}" if sides == ["string", "string"] else f"map of {sides}"
    if field.message_type is not None:
        is_time = field.message_type.full_name == "google.protobuf.Timestamp"
        word = "ts" if is_time else field.message_type.name
    elif field.enum_type is not None:
        word = field.enum_type.name
    else:
        word = SCALARS[field.type]
    return f"{word}[]" if field.is_repeated else word


def field_row(field: FieldDescriptor) -> str:
    group = field.containing_oneof
    name = f"{field.name}@{group.name}" if group is not None else field.name
    return f"{field.number} {name} {type_word(field)}"


def fixed_rows(message: Descriptor) -> Iterator[str]:
    return (field_row(field) for field in message.fields if field.number < FIRST_ADDITION)


@pytest.mark.parametrize(
    ("file", "row"), ROWS, ids=[f"{file.package}.{row.partition(':')[0]}" for file, row in ROWS]
)
def test_a_message_has_exactly_its_fixed_fields(file: FileDescriptor, row: str) -> None:
    name, _, fields = row.partition(":")

    message = file.message_types_by_name[name]

    assert sorted(fixed_rows(message)) == sorted(part.strip() for part in fields.split(",") if part)


def fixed_messages(file: FileDescriptor) -> set[str]:
    """The messages that third-party peers know: those of the fixed methods, through fixed fields."""
    waiting: list[Descriptor] = []
    for service in file.services_by_name.values():
        for method in service.methods:
            if method.full_name in METHODS:
                waiting += [method.input_type, method.output_type]
    found: set[str] = set()
    while waiting:
        message = waiting.pop()
        if message.file is not file or message.GetOptions().map_entry or message.name in found:
            continue
        found.add(message.name)
        waiting += [
            field.message_type
            for field in message.fields
            if field.message_type is not None and field.number < FIRST_ADDITION
        ]
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.package)
def test_the_tables_contain_exactly_the_fixed_messages(file: FileDescriptor) -> None:
    named = {line.partition(":")[0] for owner, line in ROWS if owner is file}

    assert fixed_messages(file) == named


@pytest.mark.parametrize("name", ENUMS)
def test_an_enum_has_exactly_its_fixed_values(name: str) -> None:
    enum = next(
        enum
        for file in FILES
        for enum in file.enum_types_by_name.values()
        if enum.full_name == name
    )

    fixed = {value.number: value.name for value in enum.values if value.number < FIRST_ADDITION}

    assert fixed == dict(enumerate(ENUMS[name].split()))


def test_the_tables_contain_every_enum() -> None:
    assert {e.full_name for f in FILES for e in f.enum_types_by_name.values()} == set(ENUMS)


def test_every_method_has_its_request_and_response_types() -> None:
    found = {
        method.full_name: (
            method.input_type.name,
            method.output_type.name,
            method.client_streaming and method.server_streaming,
        )
        for file in FILES
        for service in file.services_by_name.values()
        for method in service.methods
    }

    assert {name: found.get(name) for name in METHODS} == METHODS


def test_a_method_of_the_contract_streams_in_both_directions_or_none() -> None:
    for file in FILES:
        for service in file.services_by_name.values():
            for method in (m for m in service.methods if m.full_name in METHODS):
                assert method.client_streaming == method.server_streaming, method.full_name
