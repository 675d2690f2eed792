"""Settings of persys-federation."""

from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path

from persys import __version__
from persys.agent.settings import PERCENT_MAX, AgentSettings, NodeSettings
from persys.core.federation.cluster_ids import problem_of
from persys.errors import SettingsError
from persys.federation.capacity import Limits
from persys.infra.settings import setting

DEFAULT_CONFIG_FILE = Path("/etc/persys/federation.yaml")


@dataclass(frozen=True, slots=True)
class FederationSettings(NodeSettings):
    remote: str = setting(
        "",
        "PERSYS_FEDERATION_REMOTE",
        help="remote cluster: the URL of a gateway or host:port of a scheduler; several: a,b",
    )
    token_file: str = setting(
        "",
        "PERSYS_FEDERATION_TOKEN_FILE",
        help="file with the token of the remote cluster; it is read again when it changes",
    )
    remote_ca: str = setting(
        "",
        "PERSYS_FEDERATION_REMOTE_CA",
        help="trusted CA certificates of the remote cluster; default for a gateway: of the system",
    )
    remote_cert: str = setting(
        "",
        "PERSYS_FEDERATION_REMOTE_CERT",
        help="client certificate for the remote cluster; a scheduler requires it",
    )
    remote_key: str = setting(
        "", "PERSYS_FEDERATION_REMOTE_KEY", help="private key of that certificate"
    )
    remote_cluster: str = setting(
        "",
        "PERSYS_FEDERATION_REMOTE_CLUSTER",
        help="cluster behind the gateway; default: its default cluster",
    )
    share_percent: int = setting(
        90,
        "PERSYS_FEDERATION_SHARE_PERCENT",
        help="share of the free capacity of the remote cluster that this node offers",
    )
    cores_max: int = setting(
        0, "PERSYS_FEDERATION_CORES_MAX", help="maximum number of cores to use; 0: no limit"
    )
    spend_per_hour_max: float = setting(
        0.0,
        "PERSYS_FEDERATION_SPEND_PER_HOUR_MAX",
        help="maximum spend per hour, with the price per core; 0: no limit",
    )
    node_tier: int = setting(1, "PERSYS_NODE_TIER", help="tier of this node: 1 or more")
    node_price: float = setting(0.0, "PERSYS_NODE_PRICE", help="price per core and hour")
    grpc_port: int = setting(50052, "PERSYS_GRPC_PORT", help="port to serve on")
    metrics_port: int = setting(8090, "PERSYS_METRICS_PORT", help="port of /health and /metrics")
    tls_ca: Path = setting(
        Path("/etc/persys/certs/persys-federation/ca.crt"),
        "PERSYS_TLS_CA",
        help="trusted CA certificates of the home cluster",
    )
    tls_cert: Path = setting(
        Path("/etc/persys/certs/persys-federation/agent.crt"),
        "PERSYS_TLS_CERT",
        help="certificate of this node",
    )
    tls_key: Path = setting(
        Path("/etc/persys/certs/persys-federation/agent.key"),
        "PERSYS_TLS_KEY",
        help="private key of the certificate",
    )
    state_path: Path = setting(
        Path("/var/lib/persys/federation/state.db"), "PERSYS_STATE_PATH", help="file of the journal"
    )
    node_id: str = setting("", "PERSYS_NODE_ID", help="id of this node; default: the host name")
    node_labels: dict[str, str] = setting({}, "PERSYS_NODE_LABELS", help="node labels, k=v,k2=v2")
    gc_interval: timedelta = setting(
        timedelta(minutes=1), "PERSYS_GC_INTERVAL", help="interval of the garbage collection"
    )
    gc_zombie_after: timedelta = setting(
        timedelta(minutes=1),
        "PERSYS_GC_ZOMBIE_AFTER",
        help="age at which remains of deleted workloads are removed; 0s: never",
    )

    @property
    def addresses(self) -> tuple[str, ...]:
        """Of the remote cluster."""
        return tuple(word for part in self.remote.split(",") if (word := part.strip()))

    @property
    def limits(self) -> Limits:
        return Limits(
            share=self.share_percent / 100,
            cpu_millicores_max=self.cores_max * 1000,
            spend_per_hour_max=self.spend_per_hour_max,
            core_hour_price=self.node_price,
        )

    def check(self) -> None:
        """Check values and their combinations. Raises SettingsError."""
        self.agent().check()
        if not self.addresses:
            raise SettingsError(
                "PERSYS_FEDERATION_REMOTE='': expected the URL of a gateway or host:port of a "
                "scheduler, for example https://gateway.example.com:8551"
            )
        if bool(self.remote_cert) != bool(self.remote_key):
            raise SettingsError(
                "PERSYS_FEDERATION_REMOTE_CERT and PERSYS_FEDERATION_REMOTE_KEY: expected both or none"
            )
        if not 1 <= self.share_percent <= PERCENT_MAX:
            raise SettingsError(
                f"PERSYS_FEDERATION_SHARE_PERCENT={self.share_percent}: expected 1 to {PERCENT_MAX}"
            )
        for variable, value in (
            ("PERSYS_FEDERATION_CORES_MAX", self.cores_max),
            ("PERSYS_FEDERATION_SPEND_PER_HOUR_MAX", self.spend_per_hour_max),
        ):
            if value < 0:
                raise SettingsError(f"{variable}={value}: expected 0 or more")
        if self.spend_per_hour_max and not self.node_price:
            raise SettingsError(
                "PERSYS_FEDERATION_SPEND_PER_HOUR_MAX is set: expected the price in PERSYS_NODE_PRICE"
            )
        if self.node_tier < 1:
            raise SettingsError(f"PERSYS_NODE_TIER={self.node_tier}: expected 1 or more")
        if problem := problem_of(self.cluster_id):
            raise SettingsError(f"PERSYS_CLUSTER_ID={self.cluster_id!r}: {problem}")

    def agent(self) -> AgentSettings:
        """The settings of the agent that this process runs. Equal names have equal meanings."""
        known = {field.name for field in fields(AgentSettings)}
        shared = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name in known
        }
        return AgentSettings(
            **shared,
            version=__version__,
            docker_enabled=False,
            compose_enabled=False,
            vm_enabled=False,
            allow_privileged=True,  # the remote nodes decide
            system_reserve_memory_mb=0,
            storage_local_root=self.state_path.parent / "volumes",
            admission_cpu_percent=PERCENT_MAX,
            admission_memory_percent=PERCENT_MAX,
            admission_disk_percent=PERCENT_MAX,
        )
