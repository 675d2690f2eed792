"""Settings of persys-gateway, from flags, environment variables or a file."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from persys.errors import SettingsError
from persys.infra.net.address import split_server
from persys.infra.settings import setting
from persys.infra.tls.settings import TlsSettings


@dataclass(frozen=True, slots=True)
class GatewaySettings(TlsSettings):
    addr: str = setting("0.0.0.0", "PERSYS_GATEWAY_ADDR", help="address to listen on")
    port: int = setting(8551, "PERSYS_GATEWAY_PORT", help="port of the API and the dashboard")
    public_addr: str = setting(
        "0.0.0.0", "PERSYS_GATEWAY_PUBLIC_ADDR", help="address of the public port"
    )
    public_port: int = setting(
        8585, "PERSYS_GATEWAY_PUBLIC_PORT", help="plain HTTP port for webhooks only"
    )
    insecure: bool = setting(False, help="disable TLS and authentication; for experiments only")
    tls_ca: Path = setting(
        Path("/etc/persys/certs/persys-gateway/ca.pem"),
        "PERSYS_TLS_CA",
        help="trusted CA certificates",
    )
    tls_cert: Path = setting(
        Path("/etc/persys/certs/persys-gateway/persys_gateway.crt"),
        "PERSYS_TLS_CERT",
        help="certificate of this gateway",
    )
    tls_key: Path = setting(
        Path("/etc/persys/certs/persys-gateway/persys_gateway-key.key"),
        "PERSYS_TLS_KEY",
        help="private key of this gateway",
    )
    cluster_config: str = setting(
        "",
        "PERSYS_GATEWAY_CLUSTER_CONFIG",
        help="path of cluster.yaml, the clusters behind this gateway; "
        "empty: one cluster at the scheduler address",
    )
    scheduler_addr: tuple[str, ...] = setting(
        ("127.0.0.1:8085",),
        "PERSYS_SCHEDULER_ADDR",
        help="host:port of the schedulers, or the name of an SRV record (starts with _)",
    )
    dns_server: str = setting(
        "",
        "PERSYS_DNS_SERVER",
        help="address[:port] of the DNS server for SRV records; empty: the system resolver",
    )
    requests_per_second: float = setting(
        200.0,
        "PERSYS_GATEWAY_REQUESTS_PER_SECOND",
        help="requests per second of each identity; 0: no limit",
    )
    requests_burst: int = setting(
        400, "PERSYS_GATEWAY_REQUESTS_BURST", help="burst size of the request rate limit"
    )
    connections_max: int = setting(
        4096, "PERSYS_GATEWAY_CONNECTIONS_MAX", help="maximum number of open connections"
    )
    connections_per_address_max: int = setting(
        1024,
        "PERSYS_GATEWAY_CONNECTIONS_PER_ADDRESS_MAX",
        help="maximum number of open connections per address; raise it behind a proxy",
    )
    webhooks: tuple[dict[str, str], ...] = setting(
        (),
        help="only in the file: repositories that send push webhooks, each with secret or secret_file",
        secret=True,
    )
    audit_db: str = setting(
        "/var/lib/persys/gateway/audit.db",
        "PERSYS_GATEWAY_AUDIT_DB",
        help="database file of the audit log and the webhook queue; memory: not persistent",
    )
    audit_keep: int = setting(
        100_000, "PERSYS_GATEWAY_AUDIT_KEEP", help="maximum number of audit log entries"
    )
    usage_interval: timedelta = setting(
        timedelta(minutes=5),
        "PERSYS_GATEWAY_USAGE_INTERVAL",
        help="interval between samples of the usage of nodes and workloads, kept in memory for 24 hours "
        "and at most 1440 samples",
    )
    log_level: str = setting("info", "LOG_LEVEL", help="debug, info, warning or error")
    log_format: str = setting("", "LOG_FORMAT", help="json or console")

    vault_pki_role: str = setting(
        "persys-gateway", "PERSYS_VAULT_PKI_ROLE", help="role of the PKI engine"
    )
    vault_service_name: str = setting(
        "persys-gateway", "PERSYS_VAULT_SERVICE_NAME", help="common name of the certificate"
    )

    def __post_init__(self) -> None:
        self.check_tls()
        if self.requests_per_second < 0:
            raise SettingsError("PERSYS_GATEWAY_REQUESTS_PER_SECOND: expected 0 or more")
        if self.requests_burst < 1:
            raise SettingsError("PERSYS_GATEWAY_REQUESTS_BURST: expected 1 or more")
        if self.connections_max < 1:
            raise SettingsError("PERSYS_GATEWAY_CONNECTIONS_MAX: expected 1 or more")
        if self.connections_per_address_max < 1:
            raise SettingsError("PERSYS_GATEWAY_CONNECTIONS_PER_ADDRESS_MAX: expected 1 or more")
        if self.audit_keep < 1:
            raise SettingsError("PERSYS_GATEWAY_AUDIT_KEEP: expected 1 or more")
        if self.usage_interval < timedelta(seconds=1):
            raise SettingsError("PERSYS_GATEWAY_USAGE_INTERVAL: expected 1s or more")
        if self.dns_server:
            split_server(self.dns_server)
