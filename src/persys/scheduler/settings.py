"""What a scheduler can be told at its start, by flag, variable or file."""

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from persys.errors import SettingsError
from persys.infra.settings import DEFAULT, Loaded, setting
from persys.infra.tls_settings import TlsSettings
from persys.infra.trace_settings import TraceSettings
from persys.model.identity import Role
from persys.model.rules import Strategy

ETCD = "etcd"
GATEWAY_ROLES = (Role.VIEWER, Role.OPERATOR, Role.ADMIN, Role.GATEWAY)
SQLITE = "sqlite:/var/lib/persys/scheduler.db"


@dataclass(frozen=True, slots=True)
class SchedulerSettings(TlsSettings, TraceSettings):
    grpc_addr: str = setting("0.0.0.0", "PERSYS_GRPC_ADDR", help="address to listen on")
    grpc_port: int = setting(8085, "GRPC_PORT", help="port of the gRPC API")
    metrics_port: int = setting(8084, "METRICS_PORT", help="port of /health and /metrics")
    insecure: bool = setting(False, help="no TLS at all, for experiments")
    tls_ca: Path = setting(
        Path("/etc/persys/certs/persys-scheduler/ca.pem"),
        "PERSYS_TLS_CA",
        help="roots of those who are believed",
    )
    tls_cert: Path = setting(
        Path("/etc/persys/certs/persys-scheduler/persys_scheduler.crt"),
        "PERSYS_TLS_CERT",
        help="certificate of this scheduler",
    )
    tls_key: Path = setting(
        Path("/etc/persys/certs/persys-scheduler/persys_scheduler-key.key"),
        "PERSYS_TLS_KEY",
        help="its key",
    )
    cluster_id: str = setting(
        "default",
        "PERSYS_CLUSTER_ID",
        help="cluster that this scheduler serves; nodes that name another one are refused",
    )
    store: str = setting(
        SQLITE,
        "PERSYS_STORE",
        help="sqlite:PATH for the embedded store, or etcd, which any etcd option selects too",
    )
    etcd_endpoints: tuple[str, ...] = setting(
        ("localhost:2379",), "ETCD_ENDPOINTS", help="etcd members, separated by commas"
    )
    etcd_ca: str = setting("", "ETCD_CA", help="CA certificate of etcd; turns TLS on")
    etcd_cert: str = setting("", "ETCD_CERT", help="client certificate for etcd")
    etcd_key: str = setting("", "ETCD_KEY", help="key of the client certificate for etcd")
    etcd_user: str = setting("", "ETCD_USER", help="user name for etcd")
    etcd_password: str = setting("", "ETCD_PASSWORD", help="password for etcd", secret=True)
    gateway_role: Role = setting(
        Role.OPERATOR,
        "PERSYS_GATEWAY_ROLE",
        help="of a gateway that passes no identity: viewer, operator, admin, or gateway to read only",
    )
    secrets_key_file: str = setting(
        "",
        "PERSYS_SECRETS_KEY_FILE",
        help="key that secrets are sealed with; else secrets.key beside the store, or in /var/lib/persys",
    )
    domain: str = setting("persys.local", "DOMAIN", help="of the names of schedulers in DNS")
    agents_discovery_domain: str = setting(
        "agents.persys.cloud", "AGENTS_DISCOVERY_DOMAIN", help="of the names of agents in DNS"
    )
    shard_key: str = setting(
        "default", "SCHEDULER_SHARD_KEY", help="between an agent's name and that domain"
    )
    advertise_ip: str = setting(
        "", "SCHEDULER_ADVERTISE_IP", help="address to give in DNS; else found by itself"
    )
    advertise_port: int = setting(
        0, "SCHEDULER_ADVERTISE_PORT", help="port to give in DNS; 0: the one of the gRPC API"
    )
    dns_server: str = setting(
        "",
        "PERSYS_DNS_SERVER",
        help="server that is asked whether DNS has this scheduler, host or host:port; else the machine's own",
    )
    discovery_etcd_endpoints: tuple[str, ...] = setting(
        (),
        "DISCOVERY_ETCD_ENDPOINTS",
        help="the etcd that CoreDNS reads; else the one of the store, if it is etcd",
    )
    heartbeat_interval: timedelta = setting(
        timedelta(seconds=10), "SCHEDULER_HEARTBEAT_INTERVAL", help="how often nodes shall report"
    )
    leader_lease: timedelta = setting(
        timedelta(seconds=10),
        "SCHEDULER_LEADER_LEASE",
        help="on etcd: silence after which another scheduler leads",
    )
    node_lease: timedelta = setting(
        timedelta(seconds=30),
        "SCHEDULER_NODE_LEASE",
        help="silence after which a node is not ready",
    )
    node_unavailable_grace: timedelta = setting(
        timedelta(seconds=60),
        "SCHEDULER_NODE_UNAVAILABLE_GRACE",
        help="after the lease, until a node counts as lost",
    )
    missing_grace_period: timedelta = setting(
        timedelta(seconds=10),
        "SCHEDULER_MISSING_GRACE_PERIOD",
        help="what an agent gets to heal by itself",
    )
    agent_rpc_timeout: timedelta = setting(
        timedelta(seconds=10),
        "SCHEDULER_AGENT_RPC_TIMEOUT",
        help="deadline of each call to an agent",
    )
    agent_status_poll_interval: timedelta = setting(
        timedelta(seconds=1),
        "SCHEDULER_AGENT_STATUS_POLL_INTERVAL",
        help="how often agents that do not report are asked while something is under way",
    )
    agent_apply_timeout: timedelta = setting(
        timedelta(seconds=45),
        "SCHEDULER_AGENT_APPLY_TIMEOUT",
        help="time for containers and compose",
    )
    agent_vm_apply_timeout: timedelta = setting(
        timedelta(seconds=240), "SCHEDULER_AGENT_VM_APPLY_TIMEOUT", help="time for virtual machines"
    )
    agent_delete_timeout: timedelta = setting(
        timedelta(seconds=60), "SCHEDULER_AGENT_DELETE_TIMEOUT", help="time for a removal"
    )
    retry_slow_interval: timedelta = setting(
        timedelta(minutes=5),
        "SCHEDULER_RETRY_SLOW_INTERVAL",
        help="between attempts after five that failed for a transient reason; 0s: it stays failed",
    )
    reconcile_interval: timedelta = setting(
        timedelta(seconds=5),
        "SCHEDULER_RECONCILE_INTERVAL",
        help="safety pass over what is unsettled",
    )
    placement_strategy: Strategy = setting(
        Strategy.SPREAD,
        "SCHEDULER_PLACEMENT_STRATEGY",
        help="spread (the emptiest node first) or binpack (the fullest that fits)",
    )
    drift_detect_interval: timedelta = setting(
        timedelta(seconds=30),
        "SCHEDULER_DRIFT_DETECT_INTERVAL",
        help="survey of nodes; those that report by themselves every tenth time",
    )
    events_max: int = setting(
        5_000, "SCHEDULER_EVENTS_MAX", help="how many events are kept, the newest"
    )
    events_max_age: timedelta = setting(
        timedelta(days=7), "SCHEDULER_EVENTS_MAX_AGE", help="how long events are kept"
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
        if not self.cluster_id:
            raise SettingsError("PERSYS_CLUSTER_ID='': expected the name of the cluster")
        if self.events_max < 1:
            raise SettingsError(f"SCHEDULER_EVENTS_MAX={self.events_max}: expected 1 or more")
        if self.events_max_age <= timedelta():
            raise SettingsError("SCHEDULER_EVENTS_MAX_AGE=0s: expected more than nothing")


def with_store(loaded: Loaded[SchedulerSettings]) -> Loaded[SchedulerSettings]:
    """The settings with the store that they select; its source says why. Raises SettingsError.

    Any etcd option selects etcd. Beside a PERSYS_STORE that names a file it is an error, unless it can be
    meant for the etcd that CoreDNS reads.
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
