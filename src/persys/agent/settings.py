"""Settings of the agent."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from persys import __version__
from persys.agent.runtimes.vm.kvm import Accel
from persys.core.federation.cluster_ids import problem_of
from persys.errors import SettingsError
from persys.infra.net.address import split_server
from persys.infra.settings import setting
from persys.infra.telemetry.settings import TraceSettings
from persys.infra.tls.settings import TlsSettings

PERCENT_MAX = 100
STOP = "stop"
DISK_LIMIT_POLICIES = (STOP, "report")
DEFAULT_CONFIG_FILE = Path("/etc/persys/agent.yaml")  # `persys-agent join` writes it


@dataclass(frozen=True, slots=True)
class NodeSettings(TlsSettings, TraceSettings):
    """Settings of every process that is a node: the agent, and persys-federation, which runs one."""

    grpc_addr: str = setting("0.0.0.0", "PERSYS_GRPC_ADDR", help="address to serve on")
    insecure: bool = setting(False, help="disable TLS; for tests only")
    reconcile_interval: timedelta = setting(
        timedelta(seconds=30),
        "PERSYS_RECONCILE_INTERVAL",
        help="how often all workloads are inspected, in addition to events",
    )
    log_level: str = setting("info", "PERSYS_LOG_LEVEL", help="debug, info, warn or error")
    log_format: str = setting(
        "", "LOG_FORMAT", help="json or console; default: console on a terminal, else json"
    )
    cluster_id: str = setting("default", "PERSYS_CLUSTER_ID", help="cluster to join")
    scheduler_addr: tuple[str, ...] = setting(
        ("127.0.0.1:8085",),
        "PERSYS_SCHEDULER_ADDR",
        help="host:port of the schedulers, or the name of an SRV record (starts with _)",
    )
    dns_server: str = setting(
        "",
        "PERSYS_DNS_SERVER",
        help="address[:port] of the DNS server for SRV records; default: of the host",
    )
    agent_grpc_endpoint: str = setting(
        "",
        "PERSYS_AGENT_GRPC_ENDPOINT",
        help="host:port that schedulers connect to; default: detected",
    )
    vault_pki_role: str = setting(
        "persys-agent", "PERSYS_VAULT_PKI_ROLE", help="role of the Vault PKI engine"
    )
    vault_service_name: str = setting(
        "",
        "PERSYS_VAULT_SERVICE_NAME",
        help="common name of the certificate; default: persys-agent-<node>",
    )


@dataclass(frozen=True, slots=True)
class AgentSettings(NodeSettings):
    grpc_port: int = setting(50051, "PERSYS_GRPC_PORT", help="port to serve on")
    metrics_port: int = setting(8089, "PERSYS_METRICS_PORT", help="port of /health and /metrics")
    tls_enabled: bool = setting(True, "PERSYS_TLS_ENABLED", help="serve with mutual TLS")
    tls_ca: Path = setting(
        Path("/etc/persys/certs/ca.crt"),
        "PERSYS_TLS_CA",
        "PERSYS_TLS_CA_PATH",
        help="trusted CA certificates",
    )
    tls_cert: Path = setting(
        Path("/etc/persys/certs/agent.crt"),
        "PERSYS_TLS_CERT",
        "PERSYS_TLS_CERT_PATH",
        help="certificate of this node",
    )
    tls_key: Path = setting(
        Path("/etc/persys/certs/agent.key"),
        "PERSYS_TLS_KEY",
        "PERSYS_TLS_KEY_PATH",
        help="private key of the certificate",
    )
    standalone: bool = setting(False, help="run without a scheduler")
    state_path: Path = setting(
        Path("/var/lib/persys/state.db"), "PERSYS_STATE_PATH", help="file of the journal"
    )
    journal_key_file: str = setting(
        "",
        "PERSYS_JOURNAL_KEY_FILE",
        help="encryption key of secrets in the journal; default: next to it, with suffix .key",
    )
    secret_files_dir: str = setting(
        "",
        "PERSYS_SECRET_FILES_DIR",
        help="directory in memory for files with secrets; default: in /run or /dev/shm",
    )
    docker_enabled: bool = setting(True, "PERSYS_DOCKER_ENABLED", help="run containers")
    docker_host: str = setting(
        "unix:///var/run/docker.sock", "DOCKER_HOST", help="address of the Docker API"
    )
    compose_enabled: bool = setting(
        True, "PERSYS_COMPOSE_ENABLED", help="run Compose stacks, if Compose is installed"
    )
    compose_binary: str = setting(
        "",
        "PERSYS_COMPOSE_BINARY",
        help="Compose command: a path, a name or 'docker compose'; default: detected, v2 first",
    )
    vm_enabled: bool = setting(True, "PERSYS_VM_ENABLED", help="run VMs, if libvirt is available")
    libvirt_uri: str = setting(
        "qemu:///system", "PERSYS_LIBVIRT_URI", help="connection URI of libvirt"
    )
    vm_accel: str = setting(
        "auto", "PERSYS_VM_ACCEL", help="kvm, tcg (emulation) or auto: kvm if a test guest runs"
    )
    vm_images_dir: Path = setting(
        Path("/var/lib/persys/images"),
        "PERSYS_VM_IMAGES_DIR",
        help="directory of the VM image store",
    )
    vm_pool: str = setting(
        "persys", "PERSYS_VM_POOL", help="default libvirt storage pool of VM disks"
    )
    vm_disks_dir: Path = setting(
        Path("/var/lib/persys/disks"),
        "PERSYS_VM_DISKS_DIR",
        help="directory of that pool, if the agent creates it",
    )
    vm_dir: Path = setting(
        Path("/var/lib/persys/vms"),
        "PERSYS_VM_DIR",
        help="directory of cloud-init images and console logs of VMs",
    )
    vm_stop_grace: timedelta = setting(
        timedelta(seconds=60),
        "PERSYS_VM_STOP_GRACE",
        help="default time for a VM to shut down before it is powered off",
    )
    reconcile_enabled: bool = setting(
        True,
        "PERSYS_RECONCILE_ENABLED",
        help="repair workloads that deviate from their order; false: only report them",
    )
    node_id: str = setting(
        "", "PERSYS_NODE_ID", help="id of this node; default: the host name at the first start"
    )
    version: str = setting(__version__, "PERSYS_VERSION", help="version to report")
    scheduler_insecure: bool = setting(
        False, "PERSYS_SCHEDULER_INSECURE", help="connect to the scheduler without TLS"
    )
    node_region: str = setting("", "PERSYS_NODE_REGION", help="value of the node label region")
    node_env: str = setting("", "PERSYS_NODE_ENV", help="value of the node label env")
    node_labels: dict[str, str] = setting(
        {}, "PERSYS_NODE_LABELS", help="additional node labels, k=v,k2=v2"
    )
    node_tier: int = setting(
        0,
        "PERSYS_NODE_TIER",
        help="tier of this node: 0, or above for nodes that only offloaded workloads use",
    )
    node_price: float = setting(
        0.0, "PERSYS_NODE_PRICE", help="price of this node per core and hour, for tiers above 0"
    )
    storage_local_root: Path = setting(
        Path("/var/lib/persys/volumes/local"),
        "PERSYS_STORAGE_LOCAL_ROOT",
        help="directory of managed volumes of the driver local",
    )
    storage_nfs_server: str = setting(
        "",
        "PERSYS_STORAGE_NFS_SERVER",
        help="NFS server of the driver nfs; empty: the driver is disabled",
    )
    storage_nfs_export: str = setting(
        "", "PERSYS_STORAGE_NFS_EXPORT", help="exported path, for example /srv/persys"
    )
    storage_nfs_options: str = setting(
        "", "PERSYS_STORAGE_NFS_OPTIONS", help="mount options, for example vers=4.2,nconnect=4"
    )
    storage_nfs_stage_dir: Path = setting(
        Path("/var/lib/persys/volumes/nfs"),
        "PERSYS_STORAGE_NFS_STAGE_DIR",
        help="mount point of the export",
    )
    storage_ceph_cluster: str = setting(
        "",
        "PERSYS_STORAGE_CEPH_CLUSTER",
        help="name of the Ceph cluster; default: of the Ceph configuration",
    )
    storage_ceph_pool: str = setting(
        "",
        "PERSYS_STORAGE_CEPH_POOL",
        help="pool of the driver ceph-rbd; empty: the driver is disabled",
    )
    storage_ceph_user: str = setting(
        "",
        "PERSYS_STORAGE_CEPH_USER",
        help="Ceph user without client.; default: of the Ceph configuration",
    )
    storage_ceph_keyring: str = setting(
        "",
        "PERSYS_STORAGE_CEPH_KEYRING",
        help="keyring file of that user; default: of the Ceph configuration",
    )
    storage_ceph_stage_dir: Path = setting(
        Path("/var/lib/persys/volumes/ceph"),
        "PERSYS_STORAGE_CEPH_STAGE_DIR",
        help="directory of the mount points of its volumes",
    )
    allow_privileged: bool = setting(
        False, "PERSYS_ALLOW_PRIVILEGED", help="allow privileged containers and stacks"
    )
    allow_admin: bool = setting(
        True, "PERSYS_ALLOW_ADMIN", help="accept orders of admins, not only of schedulers"
    )
    exec_enabled: bool = setting(
        True, "PERSYS_EXEC_ENABLED", help="allow exec, port forwarding and cp"
    )
    bind_roots: tuple[str, ...] = setting(
        (),
        "PERSYS_BIND_ROOTS",
        help="host paths that workloads may mount; empty: all except protected paths",
    )
    credentials_dir: Path = setting(
        Path("/etc/persys/credentials"),
        "PERSYS_CREDENTIALS_DIR",
        help="directory of credentials that specs reference by name",
    )
    git_max_gb: int = setting(
        4, "PERSYS_GIT_MAX_GB", help="maximum size of a repository or checkout of a stack, in GiB"
    )
    pids_max: int = setting(
        4096, "PERSYS_PIDS_MAX", help="default limit of processes per container"
    )
    disk_limit_policy: str = setting(
        STOP,
        "PERSYS_DISK_LIMIT_POLICY",
        help="for containers that exceed disk_gb: stop them (stop) or only report it (report)",
    )
    disk_limit_interval: timedelta = setting(
        timedelta(seconds=60),
        "PERSYS_DISK_LIMIT_INTERVAL",
        help="how often the disk usage of containers is measured; 0s: never",
    )
    stop_grace: timedelta = setting(
        timedelta(seconds=10),
        "PERSYS_STOP_GRACE",
        help="default time between SIGTERM and SIGKILL",
    )
    system_reserve_cpu_millicores: int = setting(
        0, "PERSYS_SYSTEM_RESERVE_CPU_MILLICORES", help="CPU reserved for the system, in millicores"
    )
    system_reserve_memory_mb: int = setting(
        256, "PERSYS_SYSTEM_RESERVE_MEMORY_MB", help="memory reserved for the system, in MB"
    )

    admission_cpu_percent: int = setting(
        80,
        "PERSYS_ADMISSION_CPU_PERCENT",
        help="refuse new workloads above this CPU usage; 100: never",
    )
    admission_memory_percent: int = setting(
        80,
        "PERSYS_ADMISSION_MEMORY_PERCENT",
        help="refuse new workloads above this memory usage; 100: never",
    )
    admission_disk_percent: int = setting(
        80,
        "PERSYS_ADMISSION_DISK_PERCENT",
        help="refuse new workloads above this disk usage; 100: never",
    )
    admission_half_life: timedelta = setting(
        timedelta(seconds=30),
        "PERSYS_ADMISSION_HALF_LIFE",
        help="half-life of the smoothed usage for admission; 0s: no smoothing",
    )

    gc_enabled: bool = setting(True, "PERSYS_GC_ENABLED", help="collect garbage periodically")
    gc_dry_run: bool = setting(False, "PERSYS_GC_DRY_RUN", help="only log what would be removed")
    gc_interval: timedelta = setting(
        timedelta(minutes=10), "PERSYS_GC_INTERVAL", help="interval of the garbage collection"
    )
    gc_zombie_after: timedelta = setting(
        timedelta(minutes=10),
        "PERSYS_GC_ZOMBIE_AFTER",
        help="age at which remains of deleted workloads are removed; 0s: never",
    )
    gc_stray_after: timedelta = setting(
        timedelta(hours=24),
        "PERSYS_GC_STRAY_AFTER",
        help="age at which stopped artefacts without a workload are removed; 0s: never",
    )
    gc_image_after: timedelta = setting(
        timedelta(),
        "PERSYS_GC_IMAGE_AFTER",
        help="age at which unused images that this agent pulled are removed; 0s: never",
    )
    gc_action_after: timedelta = setting(
        timedelta(hours=168),
        "PERSYS_GC_ACTION_AFTER",
        help="age at which ended actions are deleted; 0s: never",
    )

    @property
    def serves_tls(self) -> bool:
        return self.tls_enabled and not self.insecure

    @property
    def calls_with_tls(self) -> bool:
        """Whether connections to schedulers use TLS."""
        return not (self.standalone or self.scheduler_insecure or self.insecure)

    def check(self) -> None:
        """Check values and their combinations. Raises SettingsError."""
        self.check_tls()
        if self.cluster_id and (problem := problem_of(self.cluster_id)):
            raise SettingsError(
                f"PERSYS_CLUSTER_ID={self.cluster_id!r}: {problem}. An agent with workloads "
                "cannot change it: drain the node with the earlier version first"
            )
        if self.reconcile_interval <= timedelta(0):
            raise SettingsError(
                "PERSYS_RECONCILE_INTERVAL=0s: expected more than 0s, for example 30s"
            )
        if self.gc_interval <= timedelta(0):
            raise SettingsError("PERSYS_GC_INTERVAL=0s: expected more than 0s, for example 10m")
        if self.vm_accel not in ("auto", *Accel):
            raise SettingsError(f"PERSYS_VM_ACCEL={self.vm_accel!r}: expected auto, kvm or tcg")
        if self.disk_limit_policy not in DISK_LIMIT_POLICIES:
            raise SettingsError(
                f"PERSYS_DISK_LIMIT_POLICY={self.disk_limit_policy!r}: expected stop or report"
            )
        if self.git_max_gb < 1:
            raise SettingsError(f"PERSYS_GIT_MAX_GB={self.git_max_gb}: expected 1 or more")
        if self.node_tier < 0:
            raise SettingsError(f"PERSYS_NODE_TIER={self.node_tier}: expected 0 or more")
        if self.node_price < 0:
            raise SettingsError(f"PERSYS_NODE_PRICE={self.node_price}: expected 0 or more")
        if self.pids_max < 1:
            raise SettingsError(f"PERSYS_PIDS_MAX={self.pids_max}: expected 1 or more")
        for name in ("cpu", "memory", "disk"):
            percent = getattr(self, f"admission_{name}_percent")
            if not 1 <= percent <= PERCENT_MAX:
                variable = f"PERSYS_ADMISSION_{name.upper()}_PERCENT"
                raise SettingsError(f"{variable}={percent}: expected 1 to {PERCENT_MAX}")
        if not self.standalone and not self.scheduler_addr:
            raise SettingsError(
                "PERSYS_SCHEDULER_ADDR='': expected host:port, for example scheduler:8085"
            )
        if self.dns_server:
            split_server(self.dns_server)
