"""The TLS context of the gateway's port. New connections use the renewed certificate without a restart.

A client certificate is optional here: a client without one needs a token, which is checked later.
"""

import ssl

from persys.infra.net.http_server import server_context, show_certificate
from persys.infra.tls.certificates import KeyPair
from persys.infra.tls.tls import Tls


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
