"""The HTTPS port: TLS 1.2 and up, a client's certificate if it has one, and no connection for long.

Every request here is short, so every connection ends after half a minute, whatever it does, and a handshake
after seconds: a thousand that say nothing cost a thousand sockets for a moment. The authority's own
certificate is made in memory, anew at half of its life; only new connections see the new one.
"""

import asyncio
import os
import ssl
from typing import cast

from aiohttp import web
from msgspec import Struct

from persys.errors import SettingsError
from persys.infra.rpc import PORT_MAX

_BACKLOG = 1024
_CLOSING_SECONDS = 2.0


class Limits(Struct, frozen=True):
    """How long each may take. Tests have less patience."""

    handshake_seconds: float = 10.0
    request_seconds: float = 15.0
    connection_seconds: float = 30.0


class Listener:
    def __init__(self, app: web.Application, *, roots_pem: bytes, limits: Limits) -> None:
        self._limits = limits
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_CLOSING_SECONDS)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._context.verify_mode = ssl.CERT_OPTIONAL
        self._context.load_verify_locations(cadata=roots_pem.decode())
        self._server: asyncio.Server | None = None

    def show(self, chain_pem: bytes, key_pem: bytes) -> None:
        """The certificate of all connections from now on."""
        # The library reads only files; this one is in memory, and nobody else can open it.
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, key_pem + chain_pem)
            self._context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)

    async def start(self, host: str, port: int) -> int:
        """Returns the port (useful when asked for port 0)."""
        if not 0 <= port <= PORT_MAX:
            raise SettingsError(f"port {port} cannot be used: expected 0 to {PORT_MAX}")
        await self._runner.setup()
        factory = self._runner.server
        assert factory is not None, "there is one after the setup"
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: _Bounded(factory, loop, self._limits.connection_seconds),
                host,
                port,
                ssl=self._context,
                backlog=_BACKLOG,
                ssl_handshake_timeout=self._limits.handshake_seconds,
                ssl_shutdown_timeout=_CLOSING_SECONDS,
            )
        except OSError as err:
            raise SettingsError(f"port {port} cannot be used: {err}") from err
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()


class _Bounded(web.RequestHandler):
    """A connection that is cut when its time is over."""

    def __init__(
        self, factory: web.Server, loop: asyncio.AbstractEventLoop, seconds: float
    ) -> None:
        super().__init__(factory, loop=loop, keepalive_timeout=seconds)
        self._seconds = seconds
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # uvloop's has all of a transport's methods, but not its class.
        abort = cast("asyncio.Transport", transport).abort
        self._end = asyncio.get_running_loop().call_later(self._seconds, abort)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)


def shown_certificate(request: web.Request) -> bytes | None:
    """What the other side has shown, in DER; the handshake has checked that it is of our root and in time."""
    transport = request.transport
    connection = None if transport is None else transport.get_extra_info("ssl_object")
    if connection is None:
        return None
    shown: bytes | None = connection.getpeercert(binary_form=True)
    return shown


def address_of(request: web.Request) -> str:
    return request.remote or "?"
