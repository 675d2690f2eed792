"""With what certificate an agent serves and calls, and as which node that certificate lets it speak."""

from persys.agent.settings import AgentSettings
from persys.client.trust import open_renewed
from persys.errors import SettingsError
from persys.infra.certificates import CertificateFiles
from persys.infra.clock import Clock
from persys.infra.identity import Claims
from persys.infra.node_name import own_node_id
from persys.infra.tls import Tls
from persys.model.identity import Role
from persys.model.ids import NodeId


def open_tls(settings: AgentSettings, clock: Clock) -> Tls | None:
    """None when nothing here speaks TLS. Raises SettingsError for certificates that cannot be used."""
    if not (settings.serves_tls or settings.calls_with_tls):
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


def node_of(settings: AgentSettings, tls: Tls | None) -> NodeId:
    """A node is called what its certificate says, unless that is one of another make."""
    named = _named(tls.certificates.current.claims) if tls is not None else ""
    if named and settings.node_id and named != settings.node_id:
        raise SettingsError(
            f"{settings.tls_cert} is of node {named}, but PERSYS_NODE_ID is {settings.node_id}; "
            "a node can only speak for itself"
        )
    return own_node_id(settings.node_id or named)


def _named(claims: Claims) -> str:
    if not claims.trust_domain or claims.identity is None or claims.identity.role is not Role.AGENT:
        return ""
    return claims.identity.name
