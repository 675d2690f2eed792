"""The settings of a scheduler, from flags, variables or a file."""

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from persys.core.federation.cluster_ids import problem_of
from persys.errors import SettingsError
from persys.infra.settings import DEFAULT, Loaded, setting
from persys.infra.telemetry.settings import TraceSettings
from persys.infra.tls.settings import TlsSettings
from persys.model.identity import Role
from persys.model.placement import Strategy

ETCD = "etcd"
GATEWAY_ROLES = (Role.VIEWER, Role.OPERATOR, Role.ADMIN, Role.GATEWAY)
SQLITE = "sqlite:/var/lib/persys/scheduler.db"


@dataclass(frozen=True, slots=True)
class SchedulerSettings(TlsSettings, TraceSettings):
    grpc_addr: str = setting("0.0.0.0", "PERSYS_GRPC_ADDR", help="address to listen on")
    grpc_port: int = setting(8085, "GRPC_PORT", help="port of the gRPC API")
    metrics_port: int = setting(8084, "METRICS_PORT", help="port of /health and /metrics")
    insecure: bool = setting(False, help="disable TLS and authentication, for testing")
    tls_ca: Path = setting(
        Path("/etc/persys/certs/persys-scheduler/ca.pem"),
        "PERSYS_TLS_CA",
        help="trusted CA certificates",
    )
    tls_cert: Path = setting(
        Path("/etc/persys/certs/persys-scheduler/persys_scheduler.crt"),
        "PERSYS_TLS_CERT",
        help="certificate of this scheduler",
    )
    tls_key: Path = setting(
        Path("/etc/persys/certs/persys-scheduler/persys_scheduler-key.key"),
        "PERSYS_TLS_KEY",
        help="private key of this scheduler",
    )
    cluster_id: str = setting(
        "default",
        "PERSYS_CLUSTER_ID",
        help="cluster of this scheduler; nodes of another cluster are refused",
    )
    store: str = setting(
        SQLITE,
        "PERSYS_STORE",
        help="sqlite:PATH for the embedded store, or etcd; any etcd option also selects etcd",
    )
    etcd_endpoints: tuple[str, ...] = setting(
        ("localhost:2379",), "ETCD_ENDPOINTS", help="etcd endpoints, separated by commas"
    )
    etcd_ca: str = setting("", "ETCD_CA", help="CA certificate of etcd; enables TLS")
    etcd_cert: str = setting("", "ETCD_CERT", help="client certificate for etcd")
    etcd_key: str = setting("", "ETCD_KEY", help="key of the client certificate for etcd")
    etcd_user: str = setting("", "ETCD_USER", help="user name for etcd")
    etcd_password: str = setting("", "ETCD_PASSWORD", help="password for etcd", secret=True)
    gateway_role: Role = setting(
        Role.OPERATOR,
        "PERSYS_GATEWAY_ROLE",
        help="role of a gateway that forwards no identity: viewer, operator, admin, or gateway (read-only)",
    )
    secrets_key_file: str = setting(
        "",
        "PERSYS_SECRETS_KEY_FILE",
        help="encryption key of secrets; default: secrets.key next to the store, or in /var/lib/persys",
    )
    domain: str = setting("persys.local", "DOMAIN", help="DNS domain of schedulers")
    agents_discovery_domain: str = setting(
        "agents.persys.cloud", "AGENTS_DISCOVERY_DOMAIN", help="DNS domain of agents"
    )
    shard_key: str = setting(
        "default", "SCHEDULER_SHARD_KEY", help="DNS label between an agent's name and its domain"
    )
    advertise_ip: str = setting(
        "", "SCHEDULER_ADVERTISE_IP", help="address to publish in DNS; default: detected"
    )
    advertise_port: int = setting(
        0, "SCHEDULER_ADVERTISE_PORT", help="port to publish in DNS; 0: the gRPC port"
    )
    dns_server: str = setting(
        "",
        "PERSYS_DNS_SERVER",
        help="DNS server for the check of this scheduler's names, HOST or HOST:PORT; default: of the system",
    )
    dns_listen: str = setting(
        "127.0.0.1:8553",
        "PERSYS_DNS_LISTEN",
        help="where this scheduler answers DNS queries itself if there is no etcd of CoreDNS, HOST:PORT; "
        "off: it does not",
    )
    discovery_etcd_endpoints: tuple[str, ...] = setting(
        (),
        "DISCOVERY_ETCD_ENDPOINTS",
        help="etcd endpoints that CoreDNS reads; default: those of the store, if it is etcd",
    )
    heartbeat_interval: timedelta = setting(
        timedelta(seconds=10), "SCHEDULER_HEARTBEAT_INTERVAL", help="interval of node heartbeats"
    )
    leader_lease: timedelta = setting(
        timedelta(seconds=10),
        "SCHEDULER_LEADER_LEASE",
        help="on etcd: time without renewal after which another scheduler leads",
    )
    node_lease: timedelta = setting(
        timedelta(seconds=30),
        "SCHEDULER_NODE_LEASE",
        help="time without heartbeat after which a node is not ready",
    )
    node_unavailable_grace: timedelta = setting(
        timedelta(seconds=60),
        "SCHEDULER_NODE_UNAVAILABLE_GRACE",
        help="time after the lease until a node is lost",
    )
    missing_grace_period: timedelta = setting(
        timedelta(seconds=10),
        "SCHEDULER_MISSING_GRACE_PERIOD",
        help="time for an agent to restart a missing workload before the scheduler acts",
    )
    agent_rpc_timeout: timedelta = setting(
        timedelta(seconds=10),
        "SCHEDULER_AGENT_RPC_TIMEOUT",
        help="deadline of each call to an agent",
    )
    agent_status_poll_interval: timedelta = setting(
        timedelta(seconds=1),
        "SCHEDULER_AGENT_STATUS_POLL_INTERVAL",
        help="poll interval during an operation, for agents that do not push status",
    )
    agent_apply_timeout: timedelta = setting(
        timedelta(seconds=45),
        "SCHEDULER_AGENT_APPLY_TIMEOUT",
        help="timeout of an apply of a container or compose workload",
    )
    agent_vm_apply_timeout: timedelta = setting(
        timedelta(seconds=240),
        "SCHEDULER_AGENT_VM_APPLY_TIMEOUT",
        help="timeout of an apply of a virtual machine",
    )
    agent_delete_timeout: timedelta = setting(
        timedelta(seconds=60), "SCHEDULER_AGENT_DELETE_TIMEOUT", help="timeout of a removal"
    )
    retry_slow_interval: timedelta = setting(
        timedelta(minutes=5),
        "SCHEDULER_RETRY_SLOW_INTERVAL",
        help="retry interval after five attempts with a transient failure; 0s: no more retries",
    )
    reconcile_interval: timedelta = setting(
        timedelta(seconds=5),
        "SCHEDULER_RECONCILE_INTERVAL",
        help="interval of the resync of workloads that have not converged",
    )
    placement_strategy: Strategy = setting(
        Strategy.SPREAD,
        "SCHEDULER_PLACEMENT_STRATEGY",
        help="spread (emptiest node first) or binpack (fullest node that fits)",
    )
    offload_after: timedelta = setting(
        timedelta(seconds=30),
        "PERSYS_OFFLOAD_AFTER",
        help="time that a workload waits for capacity in tier 0 before it is offloaded or a node pool grows",
    )
    nodepool_schedulers: tuple[str, ...] = setting(
        (),
        "PERSYS_NODEPOOL_SCHEDULERS",
        help="addresses that new machines of node pools connect to; default: this scheduler, or its DNS name",
    )
    provider_programs: Path = setting(
        Path("/etc/persys/providers"),
        "PERSYS_PROVIDER_PROGRAMS",
        help="directory of the programs of the provider exec of node pools",
    )
    drift_detect_interval: timedelta = setting(
        timedelta(seconds=30),
        "SCHEDULER_DRIFT_DETECT_INTERVAL",
        help="interval of full polls of nodes; nodes that push status are polled every tenth time",
    )
    events_max: int = setting(5_000, "SCHEDULER_EVENTS_MAX", help="number of events to retain")
    events_max_age: timedelta = setting(
        timedelta(days=7), "SCHEDULER_EVENTS_MAX_AGE", help="retention time of events"
    )
    log_level: str = setting("info", "LOG_LEVEL", help="debug, info, warning or error")
    log_format: str = setting("", "LOG_FORMAT", help="json or console")
    vault_pki_role: str = setting(
        "persys-scheduler", "PERSYS_VAULT_PKI_ROLE", help="role of the PKI engine"
    )
    vault_service_name: str = setting(
        "persys-scheduler", "PERSYS_VAULT_SERVICE_NAME", help="common name of the certificate"
    )

    def __post_init__(self) -> None:
        self.check_tls()
        if self.gateway_role not in GATEWAY_ROLES:
            raise SettingsError(
                f"PERSYS_GATEWAY_ROLE={self.gateway_role}: expected {' or '.join(GATEWAY_ROLES)}"
            )
        if problem := problem_of(self.cluster_id):
            raise SettingsError(f"PERSYS_CLUSTER_ID={self.cluster_id!r}: {problem}")
        if self.events_max < 1:
            raise SettingsError(f"SCHEDULER_EVENTS_MAX={self.events_max}: expected 1 or more")
        if self.events_max_age <= timedelta():
            raise SettingsError(
                "SCHEDULER_EVENTS_MAX_AGE=0s: expected more than 0s, for example 7d"
            )


def with_store(loaded: Loaded[SchedulerSettings]) -> Loaded[SchedulerSettings]:
    """The settings with the selected store; its source is the reason. Raises SettingsError.

    Any etcd option selects etcd. Together with a PERSYS_STORE that names a file it is an error, unless it can
    refer to the etcd that CoreDNS reads.
    """
    settings, sources = loaded.settings, loaded.sources
    etcd = {
        name: source
        for name, source in sources.items()
        if name.startswith("etcd_") and source != DEFAULT
    }
    store, reason = settings.store, f"{sources['store']} is set"
    if sources["store"] != DEFAULT:
        if settings.discovery_etcd_endpoints:
            etcd = {name: source for name, source in etcd.items() if name == "etcd_endpoints"}
        if store != ETCD and etcd:
            raise SettingsError(
                f"{sources['store']}={store!r}: {next(iter(etcd.values()))} is set too, which selects etcd;"
                " remove one of them"
            )
    elif etcd:
        store, reason = ETCD, f"{next(iter(etcd.values()))} is set"
    else:
        reason = "neither PERSYS_STORE nor an etcd option is set"
    return replace(
        loaded, settings=replace(settings, store=store), sources={**sources, "store": reason}
    )
