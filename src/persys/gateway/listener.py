"""The TLS context of the gateway's port, which follows the gateway's certificate.

A client without a certificate needs a token, which is checked later. A new certificate is shown to all
connections from then on; open ones keep theirs.
"""

import ssl

from persys.infra.certificates import KeyPair
from persys.infra.http_server import server_context, show_certificate
from persys.infra.tls import Tls


def live_context(tls: Tls) -> ssl.SSLContext:
    """Every handshake uses the certificate that is in use then."""
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
