"""How the agent is started. Only what works is declared."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from persys import __version__
from persys.agent.kvm import Accel
from persys.errors import SettingsError
from persys.infra.address import split_server
from persys.infra.settings import setting
from persys.infra.tls_settings import TlsSettings
from persys.infra.trace_settings import TraceSettings

PERCENT_MAX = 100
STOP = "stop"
DISK_LIMIT_POLICIES = (STOP, "report")
USUAL_FILE = Path("/etc/persys/agent.yaml")  # `persys-agent join` writes it


@dataclass(frozen=True, slots=True)
class AgentSettings(TlsSettings, TraceSettings):
    grpc_addr: str = setting("0.0.0.0", "PERSYS_GRPC_ADDR", help="address to serve on")
    grpc_port: int = setting(50051, "PERSYS_GRPC_PORT", help="port to serve on")
    metrics_port: int = setting(8089, "PERSYS_METRICS_PORT", help="port of /health and /metrics")
    tls_enabled: bool = setting(True, "PERSYS_TLS_ENABLED", help="serve with mutual TLS")
    insecure: bool = setting(False, help="no TLS at all, for tests and trials")
    tls_ca: Path = setting(
        Path("/etc/persys/certs/ca.crt"),
        "PERSYS_TLS_CA",
        "PERSYS_TLS_CA_PATH",
        help="roots of those who are believed",
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
        help="its key",
    )
    standalone: bool = setting(False, help="take orders without joining a scheduler")
    state_path: Path = setting(
        Path("/var/lib/persys/state.db"), "PERSYS_STATE_PATH", help="the journal"
    )
    journal_key_file: str = setting(
        "",
        "PERSYS_JOURNAL_KEY_FILE",
        help="key that secrets in the journal are sealed with; else beside it, ending in .key",
    )
    secret_files_dir: str = setting(
        "",
        "PERSYS_SECRET_FILES_DIR",
        help="directory in memory for files from secrets; else in /run or /dev/shm",
    )
    docker_enabled: bool = setting(True, "PERSYS_DOCKER_ENABLED", help="run containers")
    docker_host: str = setting(
        "unix:///var/run/docker.sock", "DOCKER_HOST", help="where Docker listens"
    )
    compose_enabled: bool = setting(
        True, "PERSYS_COMPOSE_ENABLED", help="run Compose stacks, if Compose is here"
    )
    compose_binary: str = setting(
        "",
        "PERSYS_COMPOSE_BINARY",
        help="Compose to use: a path, a name or 'docker compose'; else whichever is there, v2 first",
    )
    vm_enabled: bool = setting(
        True, "PERSYS_VM_ENABLED", help="run virtual machines, if libvirt is here"
    )
    libvirt_uri: str = setting("qemu:///system", "PERSYS_LIBVIRT_URI", help="where libvirt listens")
    vm_accel: str = setting(
        "auto", "PERSYS_VM_ACCEL", help="kvm, tcg (emulation) or auto: kvm where it really works"
    )
    vm_images_dir: Path = setting(
        Path("/var/lib/persys/images"),
        "PERSYS_VM_IMAGES_DIR",
        help="the store of images that machines stand on",
    )
    vm_pool: str = setting(
        "persys", "PERSYS_VM_POOL", help="libvirt's storage pool for disks that name none"
    )
    vm_disks_dir: Path = setting(
        Path("/var/lib/persys/disks"),
        "PERSYS_VM_DISKS_DIR",
        help="where that pool is, if this agent has to make it",
    )
    vm_dir: Path = setting(
        Path("/var/lib/persys/vms"), "PERSYS_VM_DIR", help="seeds and console logs of machines"
    )
    vm_stop_grace: timedelta = setting(
        timedelta(seconds=60),
        "PERSYS_VM_STOP_GRACE",
        help="between the power button and the end of a machine, unless it says",
    )
    reconcile_enabled: bool = setting(
        True,
        "PERSYS_RECONCILE_ENABLED",
        help="repair what changed without an order; false: only report it",
    )
    reconcile_interval: timedelta = setting(
        timedelta(seconds=30),
        "PERSYS_RECONCILE_INTERVAL",
        help="how often everything is looked at, beside events",
    )
    log_level: str = setting("info", "PERSYS_LOG_LEVEL", help="debug, info, warn or error")
    log_format: str = setting("", "LOG_FORMAT", help="json or console; console on a terminal")
    node_id: str = setting(
        "", "PERSYS_NODE_ID", help="id of this node; else the host name at the first start"
    )
    version: str = setting(__version__, "PERSYS_VERSION", help="version to report")
    cluster_id: str = setting("default", "PERSYS_CLUSTER_ID", help="cluster to join")
    scheduler_addr: tuple[str, ...] = setting(
        ("127.0.0.1:8085",),
        "PERSYS_SCHEDULER_ADDR",
        help="host:port of the schedulers, or the name of an SRV record, which begins with _",
    )
    dns_server: str = setting(
        "", "PERSYS_DNS_SERVER", help="address[:port] to ask for SRV records; else the machine's"
    )
    scheduler_insecure: bool = setting(
        False, "PERSYS_SCHEDULER_INSECURE", help="reach the scheduler without TLS"
    )
    agent_grpc_endpoint: str = setting(
        "", "PERSYS_AGENT_GRPC_ENDPOINT", help="host:port for the scheduler; else found by itself"
    )
    node_region: str = setting("", "PERSYS_NODE_REGION", help="label region of this node")
    node_env: str = setting("", "PERSYS_NODE_ENV", help="label env of this node")
    node_labels: dict[str, str] = setting({}, "PERSYS_NODE_LABELS", help="more labels, k=v,k2=v2")
    storage_local_root: Path = setting(
        Path("/var/lib/persys/volumes/local"),
        "PERSYS_STORAGE_LOCAL_ROOT",
        help="where managed volumes of the driver local are",
    )
    storage_nfs_server: str = setting(
        "", "PERSYS_STORAGE_NFS_SERVER", help="NFS server of the driver nfs; none: no such volumes"
    )
    storage_nfs_export: str = setting(
        "", "PERSYS_STORAGE_NFS_EXPORT", help="what it exports, e.g. /srv/persys"
    )
    storage_nfs_options: str = setting(
        "", "PERSYS_STORAGE_NFS_OPTIONS", help="options of the mount, e.g. vers=4.2,nconnect=4"
    )
    storage_nfs_stage_dir: Path = setting(
        Path("/var/lib/persys/volumes/nfs"),
        "PERSYS_STORAGE_NFS_STAGE_DIR",
        help="where the export is mounted",
    )
    storage_ceph_cluster: str = setting(
        "", "PERSYS_STORAGE_CEPH_CLUSTER", help="name of the Ceph cluster; else as Ceph has it"
    )
    storage_ceph_pool: str = setting(
        "", "PERSYS_STORAGE_CEPH_POOL", help="pool of the driver ceph-rbd; none: no such volumes"
    )
    storage_ceph_user: str = setting(
        "", "PERSYS_STORAGE_CEPH_USER", help="user of Ceph, without client.; else as Ceph has it"
    )
    storage_ceph_keyring: str = setting(
        "", "PERSYS_STORAGE_CEPH_KEYRING", help="file with that user's key; else as Ceph has it"
    )
    storage_ceph_stage_dir: Path = setting(
        Path("/var/lib/persys/volumes/ceph"),
        "PERSYS_STORAGE_CEPH_STAGE_DIR",
        help="where its volumes are mounted",
    )
    allow_privileged: bool = setting(
        False, "PERSYS_ALLOW_PRIVILEGED", help="run privileged containers and stacks"
    )
    allow_admin: bool = setting(
        True, "PERSYS_ALLOW_ADMIN", help="let admins give orders here, not only schedulers"
    )
    exec_enabled: bool = setting(
        True, "PERSYS_EXEC_ENABLED", help="let users run commands inside workloads"
    )
    bind_roots: tuple[str, ...] = setting(
        (),
        "PERSYS_BIND_ROOTS",
        help="host paths that workloads may use; none: all that are not protected",
    )
    credentials_dir: Path = setting(
        Path("/etc/persys/credentials"),
        "PERSYS_CREDENTIALS_DIR",
        help="where credentials that specs refer to by name are",
    )
    git_max_gb: int = setting(
        4, "PERSYS_GIT_MAX_GB", help="the largest repository or checkout of a stack, in GiB"
    )
    pids_max: int = setting(4096, "PERSYS_PIDS_MAX", help="processes per container, unless it says")
    disk_limit_policy: str = setting(
        STOP,
        "PERSYS_DISK_LIMIT_POLICY",
        help="what wrote more than its disk_gb is stopped (stop), or only noted (report)",
    )
    disk_limit_interval: timedelta = setting(
        timedelta(seconds=60),
        "PERSYS_DISK_LIMIT_INTERVAL",
        help="how often what containers wrote is measured; 0s: never",
    )
    stop_grace: timedelta = setting(
        timedelta(seconds=10),
        "PERSYS_STOP_GRACE",
        help="between SIGTERM and SIGKILL, unless it says",
    )
    system_reserve_cpu_millicores: int = setting(
        0, "PERSYS_SYSTEM_RESERVE_CPU_MILLICORES", help="cpu never given to workloads"
    )
    system_reserve_memory_mb: int = setting(
        256, "PERSYS_SYSTEM_RESERVE_MEMORY_MB", help="memory never given to workloads"
    )

    admission_cpu_percent: int = setting(
        80, "PERSYS_ADMISSION_CPU_PERCENT", help="no new workloads above; 100: never refused"
    )
    admission_memory_percent: int = setting(
        80, "PERSYS_ADMISSION_MEMORY_PERCENT", help="no new workloads above; 100: never refused"
    )
    admission_disk_percent: int = setting(
        80, "PERSYS_ADMISSION_DISK_PERCENT", help="no new workloads above; 100: never refused"
    )
    admission_half_life: timedelta = setting(
        timedelta(seconds=30),
        "PERSYS_ADMISSION_HALF_LIFE",
        help="after which an older figure counts half in these; 0s: only the newest counts",
    )

    gc_enabled: bool = setting(
        True, "PERSYS_GC_ENABLED", help="remove what nothing refers to any more, now and then"
    )
    gc_dry_run: bool = setting(False, "PERSYS_GC_DRY_RUN", help="only log what would be removed")
    gc_interval: timedelta = setting(
        timedelta(minutes=10), "PERSYS_GC_INTERVAL", help="how often it is looked for"
    )
    gc_zombie_after: timedelta = setting(
        timedelta(minutes=10),
        "PERSYS_GC_ZOMBIE_AFTER",
        help="remove what is left of a deleted workload; 0s: never",
    )
    gc_stray_after: timedelta = setting(
        timedelta(hours=24),
        "PERSYS_GC_STRAY_AFTER",
        help="remove what does not run, the journal does not know and nobody wants; 0s: never",
    )
    gc_image_after: timedelta = setting(
        timedelta(),
        "PERSYS_GC_IMAGE_AFTER",
        help="remove images that this agent fetched and nothing uses; 0s: never",
    )
    gc_action_after: timedelta = setting(
        timedelta(hours=168), "PERSYS_GC_ACTION_AFTER", help="forget ended actions; 0s: never"
    )
    vault_pki_role: str = setting(
        "persys-agent", "PERSYS_VAULT_PKI_ROLE", help="role of the PKI engine"
    )
    vault_service_name: str = setting(
        "",
        "PERSYS_VAULT_SERVICE_NAME",
        help="common name of the certificate; else persys-agent-<node>",
    )

    @property
    def serves_tls(self) -> bool:
        return self.tls_enabled and not self.insecure

    @property
    def calls_with_tls(self) -> bool:
        """Whether schedulers are called with it."""
        return not (self.standalone or self.scheduler_insecure or self.insecure)

    def check(self) -> None:
        """Raises SettingsError for what each value alone does not show."""
        self.check_tls()
        if self.reconcile_interval <= timedelta(0):
            raise SettingsError("PERSYS_RECONCILE_INTERVAL: expected more than 0s")
        if self.gc_interval <= timedelta(0):
            raise SettingsError("PERSYS_GC_INTERVAL: expected more than 0s")
        if self.vm_accel not in ("auto", *Accel):
            raise SettingsError("PERSYS_VM_ACCEL: expected auto, kvm or tcg")
        if self.disk_limit_policy not in DISK_LIMIT_POLICIES:
            raise SettingsError("PERSYS_DISK_LIMIT_POLICY: expected stop or report")
        if self.git_max_gb < 1:
            raise SettingsError("PERSYS_GIT_MAX_GB: expected 1 or more")
        if self.pids_max < 1:
            raise SettingsError("PERSYS_PIDS_MAX: expected 1 or more")
        for name in ("cpu", "memory", "disk"):
            if not 1 <= getattr(self, f"admission_{name}_percent") <= PERCENT_MAX:
                raise SettingsError(f"PERSYS_ADMISSION_{name.upper()}_PERCENT: expected 1 to 100")
        if not self.standalone and not self.scheduler_addr:
            raise SettingsError("PERSYS_SCHEDULER_ADDR: expected host:port")
        if self.dns_server:
            split_server(self.dns_server)
