"""Authorizes every request: limits size and time, and checks the certificate that the route requires.

The certificate is looked up in the database at each request, so a revocation is effective at once. A route
without a handler, or a handler without a route, is an error at startup.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

import msgspec
import structlog
from aiohttp import web
from cryptography import x509
from msgspec import Struct

from persys.ca.api import cfssl
from persys.ca.authority import Authority, CertificateHolder
from persys.ca.metrics import Metrics
from persys.core.auth.permissions import CA, permissions_of
from persys.core.numbers import whole_number
from persys.errors import DeniedError, InvalidError, PersysError
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.infra.clock import Clock
from persys.infra.net.http_server import shown_certificate
from persys.infra.tls.identity import claims_of, hosts_of
from persys.model.identity import Identity, Permission, Role
from persys.wire.ca.messages import BODY_BYTES_MAX, Refusal
from persys.wire.rest.status import status_of

LIMIT_MAX = 10_000
_LIMIT_DEFAULT = 1_000
JSON = "application/json"


log = structlog.get_logger()
T = TypeVar("T")


class CaRequest(Struct, frozen=True):
    body: bytes
    query: Mapping[str, str]
    where: str  # address of the client
    holder: CertificateHolder | None  # the client, if it presented a valid certificate

    @property
    def client(self) -> CertificateHolder:
        assert self.holder is not None, "the route requires a certificate"
        return self.holder

    @property
    def who(self) -> str:
        named = "unknown" if self.holder is None else str(self.holder.identity)
        return f"{named}, from {self.where}"

    def limit(self) -> int:
        text = self.query.get("limit", str(_LIMIT_DEFAULT))
        limit = whole_number(text)
        if limit is None or not 1 <= limit <= LIMIT_MAX:
            raise InvalidError("limit", f"invalid limit {text[:40]!r}: expected 1 to {LIMIT_MAX}")
        return limit


class CaResponse(Struct, frozen=True):
    body: bytes
    kind: str = JSON


Handler = Callable[[CaRequest], CaResponse]


class AuthorizedRoutes:
    def __init__(
        self,
        authority: Authority,
        clock: Clock,
        *,
        thread: Executor,
        handlers: Mapping[str, Handler],
        request_seconds: float,
        supervisor: Supervisor,
        metrics: Metrics,
    ) -> None:
        assert handlers.keys() == CA.keys(), "every route has a handler, and every handler a route"
        self._authority = authority
        self._clock = clock
        self._thread = thread
        self._handlers = handlers
        self._request_seconds = request_seconds
        self._supervisor = supervisor
        self._metrics = metrics
        for route in handlers:
            metrics.register_route(route)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        for route, permission in CA.items():
            method, _, path = route.partition(" ")
            app.router.add_route(method, path, self._handler(route, permission))
        return app

    def _handler(
        self, route: str, permission: Permission | None
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            began = self._clock.monotonic()
            response = await self._supervised(route, permission, request)
            self._metrics.observe(route, response.status, self._clock.monotonic() - began)
            return response

        return handle

    async def _supervised(
        self, route: str, permission: Permission | None, request: web.Request
    ) -> web.Response:
        error: InternalError | None = None

        def failed(found: InternalError) -> None:
            nonlocal error
            error = found

        response: web.Response | None = None
        left: ConnectionError | None = None
        with self._supervisor.contain("request", route, failed=failed):
            try:
                response = await self._response(route, permission, request)
            except ConnectionError as err:
                left = err  # the client disconnected; aiohttp closes the connection
        if left is not None:
            raise left
        if response is not None:
            return response
        assert error is not None, "contained"
        return _error_response(
            route, 500, f"internal error in {error.where}; see the log of persys-ca"
        )

    async def _response(
        self, route: str, permission: Permission | None, request: web.Request
    ) -> web.Response:
        presented = shown_certificate(request) if permission is not None else None
        where = request.remote or "?"
        try:
            async with asyncio.timeout(self._request_seconds):
                # The body of a client without the required certificate is not read.
                needs_body = permission is None or presented is not None
                body = await request.read() if needs_body else b""
                serve = partial(self._serve, route, permission, presented, where)
                response = await self._run(partial(serve, body, dict(request.query)))
        except TimeoutError:
            return _error_response(
                route, 408, f"the request took longer than {self._request_seconds:g} s"
            )
        except web.HTTPRequestEntityTooLarge:
            return _error_response(
                route, 413, f"request body is larger than {BODY_BYTES_MAX} bytes"
            )
        except web.RequestPayloadError as err:
            return _error_response(route, 400, f"body: {err}")
        except PersysError as err:
            refused = _error_response(
                route, status_of(err), str(err), reason=getattr(err, "reason", "")
            )
            if not request.content.is_eof():
                refused.force_close()
            return refused
        return web.Response(body=response.body, content_type=response.kind)

    def _serve(
        self,
        route: str,
        permission: Permission | None,
        presented: bytes | None,
        where: str,
        body: bytes,
        query: Mapping[str, str],
    ) -> CaResponse:
        """Runs on the CA's thread."""
        who: Identity | None = None
        try:
            holder = None if permission is None else self._holder(presented)
            if holder is not None:
                who = holder.identity
            if holder is not None and permission not in permissions_of(holder.identity.role):
                raise DeniedError(f"{holder.identity} has no permission for {route}", reason="role")
            return self._handlers[route](CaRequest(body, query, where, holder))
        except (DeniedError, InvalidError) as err:
            log.warning(
                "request.refused", route=route, who=str(who or ""), where=where, why=str(err)
            )
            self._authority.record_rejection(who, where, route, str(err))
            raise

    def _holder(self, presented: bytes | None) -> CertificateHolder:
        if presented is None:
            raise DeniedError("a client certificate of this CA is required", reason="certificate")
        certificate = x509.load_der_x509_certificate(presented)
        claims = claims_of(certificate)
        identity = claims.identity
        if identity is None or identity.role is Role.CA:
            raise DeniedError("certificate identity is not recognised", reason="identity")
        if claims.trust_domain != self._authority.trust_domain:
            raise DeniedError(
                "the certificate belongs to another trust domain", reason="trust-domain"
            )
        if self._clock.now() >= claims.not_after:  # since the handshake
            raise DeniedError("the certificate has expired", reason="expired")
        if self._authority.is_revoked(claims.serial):
            raise DeniedError("the certificate has been revoked", reason="revoked")
        return CertificateHolder(identity, claims, hosts_of(certificate))

    async def _run(self, job: Callable[[], T]) -> T:
        # A client that disconnects must not cancel a write.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, job))


def _error_response(route: str, status: int, text: str, *, reason: str = "") -> web.Response:
    is_cfssl = cfssl.PREFIX in route
    body = cfssl.error_body(text) if is_cfssl else msgspec.json.encode(Refusal(text, reason))
    return web.Response(status=status, body=body, content_type=JSON)
