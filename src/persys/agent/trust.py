"""With what certificate an agent serves and calls, and as which node that certificate lets it speak."""

from persys.agent.settings import AgentSettings
from persys.client.trust import open_renewed, vault_source
from persys.errors import SettingsError
from persys.infra.address import address_outward
from persys.infra.clock import Clock
from persys.infra.identity import Claims
from persys.infra.node_name import own_node_id
from persys.infra.tls import Tls
from persys.infra.vault import open_vault
from persys.infra.vault_pki import VaultSource
from persys.model.identity import Identity, Role
from persys.model.ids import NodeId

_LOOPBACK = "127.0.0.1"
_ANY = ("", "0.0.0.0", "::")


def by_vault(settings: AgentSettings, clock: Clock, kept_node_id: str = "") -> VaultSource | None:
    """Where its certificates come from, if that is Vault. `kept_node_id`: of the journal."""
    vault = open_vault(settings, clock) if _speaks_tls(settings) else None
    if vault is None:
        return None
    node_id = own_node_id(settings.node_id, kept_node_id)
    service = settings.vault_service_name or f"persys-agent-{node_id}"
    identity = Identity(Role.AGENT, node_id)
    return vault_source(settings, vault, identity, service=service, hosts=_hosts(settings))


def open_tls(settings: AgentSettings, clock: Clock, vault: VaultSource | None = None) -> Tls | None:
    """None when nothing here speaks TLS. Raises SettingsError for certificates that cannot be used."""
    if not _speaks_tls(settings):
        return None
    return open_renewed(settings, clock, vault)


def node_of(settings: AgentSettings, tls: Tls | None, kept_node_id: str = "") -> NodeId:
    """A node is called what its certificate says, unless that is one of another make.

    `kept_node_id` is the id in the journal; it counts when neither setting nor certificate has one.
    """
    named = _named(tls.certificates.current.claims) if tls is not None else ""
    if named and settings.node_id and named != settings.node_id:
        raise SettingsError(
            f"{settings.tls_cert} is of node {named}, but PERSYS_NODE_ID is {settings.node_id}; "
            "a node can only speak for itself"
        )
    return own_node_id(settings.node_id or named, kept_node_id)


def _named(claims: Claims) -> str:
    if not claims.trust_domain or claims.identity is None or claims.identity.role is not Role.AGENT:
        return ""
    return claims.identity.name


def _speaks_tls(settings: AgentSettings) -> bool:
    return settings.serves_tls or settings.calls_with_tls


def _hosts(settings: AgentSettings) -> tuple[str, ...]:
    """Only for those who verify hosts; a machine without a network has but itself."""
    said = settings.agent_grpc_endpoint.rpartition(":")[0] or settings.grpc_addr
    if said not in _ANY:
        return _LOOPBACK, said.strip("[]")
    try:
        return _LOOPBACK, address_outward().strip("[]")
    except OSError:
        return (_LOOPBACK,)
