"""The ports: HTTPS that asks for a certificate and takes who has none, and nobody who says nothing for long.

Whoever has no certificate needs a token, which is asked for further in. A certificate that was swapped is
shown to all connections from then on; those that stand keep theirs. No session is taken up again: who asks is
settled anew with every connection.
"""

import asyncio
import logging
import os
import ssl

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import Struct

from persys.errors import SettingsError
from persys.infra.certificates import KeyPair
from persys.infra.rpc import PORT_MAX
from persys.infra.tls import Tls

_BACKLOG = 1024
# aiohttp tells it what failed unexpectedly, and would also tell it whatever strangers send.
_log = logging.getLogger(__name__)


class Patience(Struct, frozen=True):
    """How long each may take. Tests have less patience."""

    handshake_seconds: float = 10.0
    idle_seconds: float = 30.0  # until a request is whole, from the connection or the last answer
    closing_seconds: float = 10.0


class Listener:
    def __init__(
        self, app: web.Application, *, tls: Tls | None, patience: Patience | None = None
    ) -> None:
        self._patience = patience or Patience()
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_log,
            keepalive_timeout=self._patience.idle_seconds,
            shutdown_timeout=self._patience.closing_seconds,
        )
        self._context = None if tls is None else _live_context(tls)
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Returns the port (useful when asked for port 0)."""
        if not 0 <= port <= PORT_MAX:
            raise SettingsError(f"port {port} cannot be used: expected 0 to {PORT_MAX}")
        await self._runner.setup()
        factory = self._runner.server
        assert factory is not None, "there is one after the setup"
        loop = asyncio.get_running_loop()
        timeout = None if self._context is None else self._patience.handshake_seconds
        try:
            self._server = await loop.create_server(
                factory,
                host,
                port,
                ssl=self._context,
                backlog=_BACKLOG,
                ssl_handshake_timeout=timeout,
            )
        except OSError as err:
            raise SettingsError(f"port {port} cannot be used: {err}") from err
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Takes no more, and lets what is under way end, for a while."""
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()


def _is_ours(record: logging.LogRecord) -> bool:
    """What cannot be read as HTTP is its sender's failure."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, HttpProcessingError)


_log.addFilter(_is_ours)


def _live_context(tls: Tls) -> ssl.SSLContext:
    """Every handshake is led to the context of the certificate that is in use then."""
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
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_OPTIONAL
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.load_verify_locations(cadata=pair.roots.decode("ascii"))
    # The library reads only files; this one is in memory, and nobody else can open it.
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pair.key + pair.chain)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context
