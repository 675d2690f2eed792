"""The limits that `check.py` enforces, by field name, or by `Message.field` where one message differs.

Lengths are in characters. Each limit follows from where the value is used: a store record (1 MiB), a path
(PATH_MAX) or file name (NAME_MAX) of the kernel, one argument or variable of a process (128 KiB), a DNS name,
or an integer that JSON programs read exactly (2^53).
"""

from typing import Final, TypeVar

from persys.wire.spec import checks

Value = TypeVar("Value")

NAME: Final = 253
WORD: Final = 64
LABEL_KEY: Final = 317  # prefix/name, as in Kubernetes
LABEL_VALUE: Final = 4_096
PATH: Final = 4_096
URL: Final = 8_192
SENTENCE: Final = 4_096
ARGUMENT: Final = 128 * 1024
DOCUMENT: Final = 8 * 1024 * 1024  # the size of a message; the spec as a whole has its own limit
CHUNK: Final = 8 * 1024 * 1024

INT32 = (-(2**31), 2**31 - 1)
NATURAL32 = (0, 2**31 - 1)
NATURAL64 = (0, 2**63 - 1)
EXACT = (0, 2**53)
UNIX_SECONDS = (-62_135_596_800, 253_402_300_799)
SECONDS_OF_A_YEAR = (0, 366 * 24 * 60 * 60)

# The maximum size of the lists of one node, and of one response.
WORKLOADS_OF_A_NODE: Final = 10_000
ORDERS_MAX: Final = 64  # of one batch
APPLIES_MAX: Final = 1_000  # of one request
VIEWS: Final = 1_000_000


def _all(value: Value, names: str) -> dict[str, Value]:
    return dict.fromkeys(names.split(), value)


TEXTS: dict[str, int] = {
    # Names and identifiers.
    **_all(
        NAME,
        """
        assigned_node_id boot_id cluster_id cluster_uid current_node_id displaces git_credential group
        image_credential instance_id key leader node_id node_ids policy_id policy_name pool
        pool_name project_name removed_workload_ids secret_env service session_id shares_with suggestion_id
        target_workload task_id token_id used_by user workload_id workload_ids bound stranded name
        network bridge created_by updated_by status_updated_by allow_secrets rule prefix
        pool_id provider region machine size credentials provider_id set_id owner job_id
        run_id timezone service_id dns_name port_name host hosts
        network_id network_ids networks domain
        """,
    ),
    # "operator/name by token id via gateway/name".
    **_all(4 * NAME, "identity submitted_by decided_by RevisionView.created_by"),
    **_all(PATH, "OrphanView.secrets RecoveredWorkload.secrets"),  # also vault/<path>
    "ServiceSelector.set": NAME,
    "NetworkPeer.address": NAME,
    "ApplyWorkloadRequest.id": NAME,
    "ApplyResult.id": NAME,
    "DeleteWorkloadRequest.id": NAME,
    "GetWorkloadStatusRequest.id": NAME,
    "WorkloadStatus.id": NAME,
    "IntentView.id": NAME,
    "revision_id": NAME,
    "GarbageItem.name": PATH,
    "InternalError.key": 2 * NAME,
    # Keys of stored records: a prefix, and up to two names and a word.
    **_all(4 * NAME, "QuarantinedRecord.key GetRecordRequest.key DeleteRecordRequest.key"),
    # Enumerated words; the decoder of each field checks the value.
    **_all(
        WORD,
        """
        access_mode action action_type agent_version anti_affinity applied_action component decision
        deeds desired_state device driver failure_reason features filter format fs_type
        image_pull_policy kind kinds mac_address method offload policy protocol restart_policy retain_policy
        return role serial sha256 source source_type state status strategy stream
        supported_storage_drivers supported_workload_types type unavailable_types unit volume_policy
        where ip_address static_ip gateway nameservers limited_by mode version
        every order on_failure outcome phase health overlap
        subnet subnet6 slices routes wireguard_key addresses targets sources networks_version
        """,
    ),
    "agent_version": NAME,
    "code": 128,
    "IdentityView.serial": 128,
    "AgentAction.status": WORD,
    # Messages for users.
    **_all(
        SENTENCE,
        """
        after before change changes copies detail error error_message left_out message next_steps placement
        problem problems journal_problem runtime_problem reason status_reason summary text field
        scale_reason prometheus_query
        """,
    ),
    # Paths, addresses and references.
    **_all(PATH, "container_path git_path host_path mount_path mount_point path store"),
    **_all(URL, "git_repo url os_image software_url prometheus_url"),
    "software_sha256": WORD,
    "git_ref": 1_024,
    "cron": 1_024,
    "image": 1_024,
    "grpc_endpoint": 1_024,
    "leader_endpoint": 1_024,
    "remote": 1_024 + NAME,  # id and address of a cluster
    # Commands and documents of containers and VMs.
    **_all(ARGUMENT, "args command"),
    **_all(
        DOCUMENT,
        """
        cloud_init compose_yaml content inline_yaml meta_data network_config user_data vendor_data
        """,
    ),
    "ssh_keys": 16 * 1024,
    "password_hash": 1_024,
    # Placement.
    **_all(1_024, "constraints tolerations taints spread_over"),
    "secret": 1_024,
}

# (key length, value length, number of entries).
MAPS: dict[str, tuple[int, int, int]] = {
    "env": (1_024, ARGUMENT, 1_000),
    "labels": (LABEL_KEY, LABEL_VALUE, 1_000),
    "RegisterNodeRequest.labels": (LABEL_KEY, 1_024, 256),
    "NodeView.labels": (LABEL_KEY, 1_024, 256),
    "metadata": (LABEL_KEY, SENTENCE, 64),
    "options": (NAME, SENTENCE, 64),
    "NodePoolSpec.labels": (LABEL_KEY, 1_024, 64),
    "ServiceSelector.labels": (LABEL_KEY, SENTENCE, 64),
    # persys.vm_spec_b64 contains a whole spec.
    "WorkloadSpec.metadata": (LABEL_KEY, DOCUMENT, 256),
    "VMSpec.metadata": (LABEL_KEY, DOCUMENT, 256),
    "WorkloadView.metadata": (LABEL_KEY, DOCUMENT, 256),
    "WorkloadStatus.metadata": (256, SENTENCE, 32),
    "runtime_status": (WORD, SENTENCE, 16),
}

BYTES: dict[str, int] = {
    "content": 1024 * 1024,
    "data": CHUNK,
    "intent": 1024 * 1024,
    "proof": 64,
    "request": CHUNK,
    "response": CHUNK,
    "stderr": CHUNK,
    "stdin": CHUNK,
    "stdout": CHUNK,
    "value": 1024 * 1024,
}

NUMBERS: dict[str, tuple[int, int]] = {
    **_all(EXACT, "epoch known_epoch"),
    **_all((0, checks.CPU_MILLICORES_MAX), "cpu_millicores cpu_total_millicores"),
    **_all((0, checks.CPU_MILLICORES_MAX), "reserved_cpu_millicores largest_cpu_millicores"),
    **_all(
        (0, checks.MEMORY_MB_MAX),
        "memory_mb memory_total_mb reserved_memory_mb largest_memory_mb",
    ),
    **_all((0, checks.DISK_GB_MAX), "disk_gb size_gb total_gb largest_disk_gb"),
    "cpu_shares": (0, checks.CPU_SHARES_MAX),
    "pids_max": (0, checks.PIDS_MAX),
    "ResourceLimits.memory_bytes": (0, checks.MEMORY_BYTES_MAX),
    "memory_swap_bytes": (-1, checks.MEMORY_BYTES_MAX),
    **_all((0, checks.PORT_MAX), "host_port container_port port NetworkRule.ports"),
    "NodeNetwork.number": (0, 2**24 - 1),  # VXLAN network identifiers have 24 bits
    "stop_after_seconds": (0, checks.STOP_AFTER_SECONDS_MAX),
    "run_deadline_seconds": SECONDS_OF_A_YEAR,
    "stop_grace_seconds": (0, checks.STOP_GRACE_SECONDS_MAX),
    "max_retry_count": INT32,
    **_all(NATURAL32, "interval_seconds timeout_seconds start_period_seconds retries vcpus"),
    "mode": (0, 0o7777),
    "priority": INT32,
    "tier": (0, checks.TIER_MAX),
    **_all((0, 1_000), "min max"),
    # Sets. Their decoder checks the values, with a message for users.
    **_all(INT32, "replicas max_parallel canary ScalePolicy.min ScalePolicy.max"),
    **_all(INT32, "ScalePolicy.cpu_percent memory_percent UndoRolloutRequest.revision"),
    **_all(INT32, "min_healthy_seconds healthy_deadline_seconds bake_seconds cooldown_seconds"),
    **_all(NATURAL32, "index revision target_revision stable_revision"),
    **_all(NATURAL32, "member_count_wanted member_count healthy_count updated_count"),
    # Jobs, in the same way.
    **_all(INT32, "completions parallelism JobSpec.retries keep fail_on"),
    "start_within_seconds": (-(2**63), 2**63 - 1),
    **_all(NATURAL32, "attempt succeeded_count failed_count active_count"),
    "weight": INT32,  # checked with a message for users
    **_all(SECONDS_OF_A_YEAR, "idle_after_seconds provision_deadline_seconds"),
    "failure_count": NATURAL32,
    **_all(INT32, "desired_replicas replica_delta"),
    **_all(INT32, "limit tail rows columns"),
    **_all(SECONDS_OF_A_YEAR, "heartbeat_interval_seconds"),
    **_all((-(2**63), 2**63 - 1), "deadline_seconds ttl_seconds since_unix_nanos"),
    # Measurements of nodes.
    **_all(
        NATURAL64,
        """
        cpu_allocated_millicores cpu_used_millicores disk_allocated_gb disk_read_bytes disk_used_gb
        disk_write_bytes memory_allocated_mb memory_bytes memory_used_mb net_rx_bytes net_tx_bytes
        received_bytes size_bytes used_bytes virtual_size_bytes count
        """,
    ),
    **_all(UNIX_SECONDS, "added_at collected_at created_at ended_at started_at updated_at"),
    # Flow control of the control stream: messages of one call in flight.
    **_all((0, 4_096), "window taken"),
    **_all(NATURAL32, "StreamReply.code ApplyResult.code"),
    "ExecExit.code": INT32,
    **_all((0, 2**64 - 1), "id number"),
    # Counts of the scheduler.
    **_all(
        NATURAL64,
        """
        after_sequence available_disk_gb available_memory_mb data_age_ms first_sequence fits
        last_sequence missing offload_fits orphans_unrecorded sequence stored_version total_disk_gb
        total_memory_mb
        """,
    ),
    "clock_skew_ms": (-(2**63), 2**63 - 1),
    **_all(
        NATURAL32,
        """
        deleted_workloads failed_workloads fit_count moved node_count nodes not_ready_nodes
        pending_workloads ready_nodes remaining retry_attempts retry_max_attempts running_workloads
        total_nodes total_workloads version versions workload_count workloads workloads_on_agents
        """,
    ),
}

REALS: dict[str, tuple[float, float]] = {
    "cpu_percent": (0.0, 1e9),
    **_all((0.0, 100.0), "cpu_utilization disk_utilization memory_utilization"),
    **_all((-1e12, 1e12), "available_cpu_cores total_cpu_cores"),
    "value": (-1e300, 1e300),
    "prometheus_target": (-1e300, 1e300),
    "core_hour_price": (0.0, checks.PRICE_MAX),
    **_all((0.0, checks.PRICE_MAX), "hour_price spend_per_hour spend_per_hour_max"),
}

COUNTS: dict[str, int] = {
    **_all(1_000, "args command ports secret_env"),
    **_all(200, "volumes files kinds"),
    **_all(100, "constraints managed_volumes ssh_keys taints tolerations"),
    "fail_on": 256,
    **_all(64, "disks features deeds"),
    **_all(64, "ServiceSpec.ports ServiceSpec.members hosts"),
    **_all(32, "networks nameservers spread_over sizes"),
    **_all(16, "supported_storage_drivers supported_workload_types unavailable_types"),
    "internal_errors": 16,
    # Networks: of a workload, of a node, and the parts of one network.
    "WorkloadSpec.networks": 8,
    "ApplyWorkloadRequest.networks": 8,
    "routes": 64,
    **_all(4_096, "ConfigureNetworksRequest.networks network_ids slices"),
    **_all(10_000, "peers names rules addresses targets sources"),
    "storage_pools": 256,
    **_all(WORKLOADS_OF_A_NODE, "removed_workload_ids workload_statuses workload_usage"),
    "ListWorkloadsResponse.workloads": VIEWS,
    "actions": WORKLOADS_OF_A_NODE,
    **_all(ORDERS_MAX, "orders results"),
    "ListVolumesResponse.volumes": VIEWS,
    **_all(10_000, "node_ids workload_ids"),
    "allow_secrets": 1_000,
    **_all(10_000, "PlanWorkloadsRequest.workloads PlanWorkloadsRequest.sets"),
    **_all(APPLIES_MAX, "ApplyWorkloadsRequest.workloads ApplyWorkloadsResponse.results"),
    # Lists in responses of the scheduler and agents.
    **_all(
        VIEWS,
        """
        blocked bound changes copies counts displaces drifts events found history images items left_out losses
        next_steps nodes plans problems records score secrets stranded tokens used_by versions recovered
        suggestions pools machines steps quarantined policy_violations DiagnosticsView.internal_errors
        sets members revisions jobs runs services endpoints excluded
        """,
    ),
}

# Identifying fields. An entry whose identifying field exceeds its limit is dropped: a truncated field could
# identify another workload or assignment.
ESSENTIAL = frozenset(
    {
        "RegisterNodeRequest.node_id",
        "RegisterNodeRequest.grpc_endpoint",
        "RegisterNodeRequest.instance_id",
        "RegisterNodeRequest.session_id",
        "NodeCapabilities.cpu_total_millicores",
        "NodeCapabilities.memory_total_mb",
        "NodeCapabilities.reserved_cpu_millicores",
        "NodeCapabilities.reserved_memory_mb",
        "StoragePool.name",
        "StoragePool.shares_with",
        "HeartbeatRequest.node_id",
        "HeartbeatRequest.instance_id",
        "WorkloadStatus.workload_id",
        "WorkloadStatus.id",
        "WorkloadStatus.epoch",
        "WorkloadUsageSnapshot.workload_id",
        "IntentView.id",
        "IntentView.epoch",
        "IntentView.intent",
        "ApplyResult.id",
        "AgentAction.task_id",
        "AgentAction.workload_id",
        "VolumeView.name",
        "VolumeView.workload_id",
        "ImageView.name",
    }
)
