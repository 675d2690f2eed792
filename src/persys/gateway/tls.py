"""TLS of the gateway: its certificate, from files or from Vault, and the server context of its port.

New connections use a renewed certificate without a restart. A client certificate is optional: a client
without one needs a token, which is checked later.
"""

import asyncio
import ssl

from persys.client.ca.renewed_tls import open_renewed, vault_source
from persys.gateway.settings import GatewaySettings
from persys.infra.clock import Clock
from persys.infra.net.http_server import server_context, show_certificate
from persys.infra.tls.certificates import KeyPair
from persys.infra.tls.first_certificate import ensure_certificate
from persys.infra.tls.tls import Tls
from persys.infra.vault.pki import VaultSource
from persys.infra.vault.session import open_vault
from persys.model.identity import Identity, Role


async def obtain_tls(settings: GatewaySettings, clock: Clock, stop: asyncio.Event) -> Tls | None:
    """None with -insecure, or if the process is stopped before Vault issues the first certificate.

    Raises SettingsError for unusable certificates.
    """
    if settings.insecure:
        return None
    source = _by_vault(settings, clock)
    if source is not None and not await ensure_certificate(
        settings.files, source.identity, source, clock, stop
    ):
        return None
    return open_renewed(settings, clock, source)


def _by_vault(settings: GatewaySettings, clock: Clock) -> VaultSource | None:
    vault = open_vault(settings, clock)
    if vault is None:
        return None
    service = settings.vault_service_name
    identity = Identity(Role.GATEWAY, service)
    hosts = () if settings.addr in ("0.0.0.0", "::") else (settings.addr,)
    return vault_source(settings, vault, identity, service=service, hosts=hosts)


def reloading_context(tls: Tls) -> ssl.SSLContext:
    """A context whose handshakes always use the current certificate."""
    current = _context(tls.in_use())

    def swapped() -> None:
        nonlocal current
        current = _context(tls.in_use())

    def choose(connection: ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
        connection.context = current

    tls.certificates.on_swap(swapped)
    first = _context(tls.in_use())
    first.sni_callback = choose
    return first


def _context(pair: KeyPair) -> ssl.SSLContext:
    context = server_context(pair.roots)
    show_certificate(context, pair.chain, pair.key)
    return context
