"""TLS of a scheduler: its own certificate, and how it verifies agents and the leader."""

from collections.abc import Callable
from datetime import datetime, timedelta

from persys.client.ca.client import AuthoritySource
from persys.client.ca.renewed_tls import open_renewed, vault_source
from persys.errors import RefusedError
from persys.infra.clock import Clock
from persys.infra.rpc.grpc_server import new_channel
from persys.infra.rpc.parsed_replies import parsed
from persys.infra.tls.tls import Tls
from persys.infra.vault.pki import VaultSource
from persys.infra.vault.session import Vault
from persys.model.identity import Identity, Role
from persys.model.ids import NodeId
from persys.scheduler.discovery.endpoints import address_of
from persys.scheduler.dispatch.agent_client import Close, Connect, Stub, connect_over_grpc
from persys.scheduler.ha.leader_client import LeaderConnection
from persys.scheduler.membership.removed_nodes import Revoke
from persys.scheduler.nodepools.provision import IssueToken
from persys.scheduler.settings import SchedulerSettings

_LOOPBACK = "127.0.0.1"


def vault_certificates(settings: SchedulerSettings, vault: Vault | None) -> VaultSource | None:
    """The source of its certificates, if that is Vault."""
    if vault is None or settings.insecure:
        return None
    service = settings.vault_service_name
    identity = Identity(Role.SCHEDULER, service)
    return vault_source(settings, vault, identity, service=service, hosts=_addresses(settings))


def open_tls(
    settings: SchedulerSettings, clock: Clock, vault: VaultSource | None = None
) -> Tls | None:
    """None with -insecure. Raises SettingsError for unusable certificates."""
    if settings.insecure:
        return None
    return open_renewed(settings, clock, vault)


def ca_revocation(settings: SchedulerSettings) -> Revoke | None:
    """None if no persys-ca is configured that could revoke certificates."""
    if settings.insecure or not settings.ca_addr:
        return None
    source = AuthoritySource(lambda: settings.ca_addr, settings.files)

    async def revoke(node_id: NodeId, until: datetime) -> None:
        identity = Identity(Role.AGENT, node_id)
        await source.revoke_enrolled(identity, until, "the node was removed")

    return revoke


def machine_tokens(settings: SchedulerSettings) -> IssueToken | None:
    """Join tokens for new machines of node pools. None with -insecure: machines need none."""
    if settings.insecure:
        return None
    source = AuthoritySource(lambda: settings.ca_addr, settings.files)

    async def issue(node_id: NodeId, lifetime: timedelta) -> str:
        if not settings.ca_addr:
            raise RefusedError(
                "no persys-ca is configured that issues join tokens: set PERSYS_CA_ADDR"
            )
        return await source.join_token(Identity(Role.AGENT, node_id), lifetime)

    return issue


def agent_connector(tls: Tls | None, *, by_host: bool = False) -> Connect:
    """Connects only to the expected node: the certificate at its endpoint must name it.

    `by_host`: if certificates do not name nodes, the host of the endpoint is verified instead.
    """
    if tls is None:
        return connect_over_grpc

    def connect(node_id: NodeId, endpoint: str) -> tuple[Stub, Close]:
        channel = tls.channel(endpoint, Role.AGENT, node_id, by_host=by_host)
        return Stub(parsed(channel)), channel.close

    return connect


def leader_connector(tls: Tls | None) -> Callable[[str], LeaderConnection]:
    if tls is None:
        return lambda endpoint: LeaderConnection(endpoint, new_channel)
    return lambda endpoint: LeaderConnection(endpoint, tls.dial(Role.SCHEDULER))


def _addresses(settings: SchedulerSettings) -> tuple[str, ...]:
    """For clients that verify host names; a machine without a network has only loopback."""
    try:
        return _LOOPBACK, address_of(settings)
    except OSError:
        return (_LOOPBACK,)
