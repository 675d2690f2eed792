"""The TLS certificate of the agent, and the node id that it certifies."""

from persys.agent.settings import AgentSettings
from persys.client.ca.renewed_tls import open_renewed, vault_source
from persys.errors import SettingsError
from persys.infra.clock import Clock
from persys.infra.net.address import default_route_address
from persys.infra.net.node_name import own_node_id
from persys.infra.tls.identity import Claims
from persys.infra.tls.tls import Tls
from persys.infra.vault.pki import VaultSource
from persys.infra.vault.session import open_vault
from persys.model.identity import Identity, Role
from persys.model.ids import NodeId

_LOOPBACK = "127.0.0.1"
_ANY = ("", "0.0.0.0", "::")


def vault_certificate_source(
    settings: AgentSettings, clock: Clock, stored_node_id: str = ""
) -> VaultSource | None:
    """The Vault source of certificates, if Vault is configured. `stored_node_id`: the id in the journal."""
    vault = open_vault(settings, clock) if _uses_tls(settings) else None
    if vault is None:
        return None
    node_id = own_node_id(settings.node_id, stored_node_id)
    service = settings.vault_service_name or f"persys-agent-{node_id}"
    identity = Identity(Role.AGENT, node_id)
    return vault_source(settings, vault, identity, service=service, hosts=_hosts(settings))


def open_tls(settings: AgentSettings, clock: Clock, vault: VaultSource | None = None) -> Tls | None:
    """None if TLS is disabled. Raises SettingsError for certificates that cannot be used."""
    if not _uses_tls(settings):
        return None
    return open_renewed(settings, clock, vault)


def node_id_of(settings: AgentSettings, tls: Tls | None, stored_node_id: str = "") -> NodeId:
    """The node id: from the settings or the certificate, otherwise from the journal or the host name.

    A certificate of another CA product has no node id. `stored_node_id` is the id in the journal.
    """
    named = _named(tls.certificates.current.claims) if tls is not None else ""
    if named and settings.node_id and named != settings.node_id:
        raise SettingsError(
            f"{settings.tls_cert} is the certificate of node {named}: expected {settings.node_id} "
            "(PERSYS_NODE_ID)"
        )
    return own_node_id(settings.node_id or named, stored_node_id)


def _named(claims: Claims) -> str:
    if not claims.trust_domain or claims.identity is None or claims.identity.role is not Role.AGENT:
        return ""
    return claims.identity.name


def _uses_tls(settings: AgentSettings) -> bool:
    return settings.serves_tls or settings.calls_with_tls


def _hosts(settings: AgentSettings) -> tuple[str, ...]:
    """Host names for the certificate. Without a network only the loopback address."""
    configured = settings.agent_grpc_endpoint.rpartition(":")[0] or settings.grpc_addr
    if configured not in _ANY:
        return _LOOPBACK, configured.strip("[]")
    try:
        return _LOOPBACK, default_route_address().strip("[]")
    except OSError:
        return (_LOOPBACK,)
