"""With what certificate a scheduler serves, and by what it knows the agents and the leader that it calls."""

from collections.abc import Callable

from persys.client.trust import open_renewed
from persys.infra.certificates import CertificateFiles
from persys.infra.clock import Clock
from persys.infra.tls import Tls
from persys.model.identity import Role
from persys.model.ids import NodeId
from persys.scheduler.agents import Close, Connect, Stub, over_grpc
from persys.scheduler.settings import SchedulerSettings
from persys.scheduler.upstream import Upstream


def open_tls(settings: SchedulerSettings, clock: Clock) -> Tls | None:
    """None on -insecure. Raises SettingsError for certificates that cannot be used."""
    if settings.insecure:
        return None
    files = CertificateFiles(settings.tls_cert, settings.tls_key, settings.tls_ca)
    return open_renewed(
        files,
        clock,
        verify=settings.tls_verify,
        ca_addr=settings.ca_addr,
        crl=settings.tls_crl,
        crl_every=settings.tls_crl_interval,
    )


def to_agents(tls: Tls | None) -> Connect:
    """Only the node that is meant is spoken to, whoever answers at its endpoint."""
    if tls is None:
        return over_grpc

    def connect(node_id: NodeId, endpoint: str) -> tuple[Stub, Close]:
        channel = tls.channel(endpoint, Role.AGENT, node_id)
        return Stub(channel), channel.close

    return connect


def to_leader(tls: Tls | None) -> Callable[[str], Upstream]:
    if tls is None:
        return Upstream
    return lambda endpoint: Upstream(endpoint, tls.dial(Role.SCHEDULER))
