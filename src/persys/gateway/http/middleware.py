"""The request pipeline of every route: authentication, rate limit, request id, audit, metrics, log.

Every refusal is returned as an RFC 9457 problem with the request id that the log contains.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from secrets import token_hex
from typing import NoReturn

import grpc
import structlog
from aiohttp import web
from msgspec import Struct

from persys.errors import DeniedError, InvalidError, PersysError
from persys.gateway.audit import AuditEntry, AuditLog
from persys.gateway.http.authentication import UNAUTHENTICATED, Authenticator, Caller, TokenVerifier
from persys.gateway.http.problems import ProblemError, problem_from, problem_from_rpc
from persys.gateway.http.rate_limit import (
    FAILED_LOGINS_BURST,
    FAILED_LOGINS_PER_SECOND,
    STREAMS_MAX,
    RateLimiter,
    StreamLimit,
)
from persys.gateway.metrics import Metrics
from persys.gateway.upstream.balancing import Strategy
from persys.gateway.upstream.cluster import Cluster, Metadata
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import Clock
from persys.infra.rpc.authorized_service import RECHECK_SECONDS
from persys.infra.rpc.authorizer import FORWARDED_SOURCE
from persys.model.identity import Permission
from persys.wire.metadata_keys import HOME
from persys.wire.rest.routes import API

log = structlog.get_logger()

REQUEST_ID = "X-Request-ID"
CLUSTER = "X-Persys-Cluster-ID"
BODY_SECONDS = 30.0
_REQUEST_ID_METADATA = "x-request-id"
_ID_LENGTH_MAX = 128
_TRACE = "traceparent"
_TRACE_FORM = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_ORIGIN = frozenset({"", "same-origin", "none"})
_CLIENT_ERROR = 400
_SERVER_ERROR = 500
_UNKNOWN = 401
_LEFT = 499  # audit status of a request whose client disconnected before the response
_NOT_LET_IN = frozenset({_UNKNOWN, 429})
# Generated request ids: a random prefix of this process and a counter.
_OWN_IDS = token_hex(8)
_counted = count(1)


class RequestContext(Struct, frozen=True, eq=False):
    """One authenticated request."""

    request: web.Request
    caller: Caller
    id: str
    clusters: Mapping[str, Cluster]
    default_cluster: str
    # Raises DeniedError once the certificate of the caller is invalid.
    check: Callable[[web.Request], object]

    async def watch_credentials(self) -> NoReturn:
        """Watch an open stream: raises DeniedError when the caller's certificate expires or is revoked.

        The scheduler that serves the stream also checks certificates, and tokens.
        """
        while True:
            await asyncio.sleep(RECHECK_SECONDS)
            self.check(self.request)

    @property
    def cluster_id(self) -> str:
        """From path, header or query, in this order, else the default. The cluster may not exist."""
        request = self.request
        named = request.match_info.get("cluster") or request.headers.get(CLUSTER)
        if not named and request.query_string:
            named = request.query.get("cluster_id")
        return named.encode(errors="replace").decode() if named else self.default_cluster

    @property
    def cluster(self) -> Cluster:
        """Raises ProblemError (404) for an unknown cluster."""
        cluster = self.clusters.get(self.cluster_id)
        if cluster is None:
            raise ProblemError(404, f"cluster {self.cluster_id!r} not found")
        return cluster

    @property
    def metadata(self) -> Metadata:
        """gRPC metadata for the scheduler: identity, source address, request id, trace context."""
        source = (FORWARDED_SOURCE, self.request.remote or "")
        metadata: Metadata = (*self.caller.passed, source, (_REQUEST_ID_METADATA, self.id))
        home = self.request.headers.get(HOME, "") if self.caller is UNAUTHENTICATED else ""
        if home.isascii() and home.isprintable() and home:
            metadata = (*metadata, (HOME, home))
        trace = self.request.headers.get(_TRACE)
        if trace is not None and _TRACE_FORM.fullmatch(trace):
            return (*metadata, (_TRACE, trace))
        return metadata

    def routing_key(self, cluster: Cluster, workload_id: str = "") -> str:
        """The key by which the routing strategy of the cluster selects a scheduler."""
        headers = self.request.headers
        match cluster.entry.routing_strategy:
            case Strategy.STICKY:
                session = headers.get("X-Persys-Session") or self.request.cookies.get(
                    "persys_session"
                )
                return session or self.caller.key
            case Strategy.SHARD:
                return headers.get("X-Persys-Workload-Key") or workload_id
            case Strategy.LEADER_ONLY:
                return ""


Handler = Callable[[RequestContext], Awaitable[web.StreamResponse]]
AiohttpHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Endpoint(Struct, frozen=True, eq=False):
    """A handler and how it is served; see `RequestPipeline.serve`."""

    handler: Handler
    open_to_all: bool
    contract: bool
    changes: str
    unary: bool
    permission: Permission | None


class _Exchange(Struct, eq=False):
    """What is known about a request so far."""

    request: web.Request
    id: str
    caller: Caller = UNAUTHENTICATED
    is_known: bool = False  # the identity is verified: from here on the request is audited


class RequestPipeline:
    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        default_cluster: str,
        *,
        identities: Authenticator,
        token_verifier: TokenVerifier,
        rates: RateLimiter,
        audit: AuditLog,
        clock: Clock,
        metrics: Metrics,
        supervisor: Supervisor,
        owned: OwnedWork,
    ) -> None:
        self._clusters = clusters
        self._default_cluster = default_cluster
        self._identities = identities
        self._token_verifier = token_verifier
        self._rates = rates
        self._failed_logins = RateLimiter(
            clock, per_second=FAILED_LOGINS_PER_SECOND, burst=FAILED_LOGINS_BURST
        )
        self.streams = StreamLimit(STREAMS_MAX)
        self._audit = audit
        self._clock = clock
        self._metrics = metrics
        self._supervisor = supervisor
        self._owned = owned

    def serve(
        self,
        handler: Handler,
        *,
        open_to_all: bool = False,
        contract: bool = False,
        changes: str = "",
        unary: bool = False,
        permission: Permission | None = None,
    ) -> AiohttpHandler:
        """Wrap a handler. `open_to_all`: no authentication. `contract`: a route of older clients.

        `changes` is the RPC name of a request that is audited. A `unary` one is finished, with its audit
        entry, even if the client disconnects or the gateway stops. `permission` is checked here for routes
        that the gateway serves without a scheduler.
        """
        endpoint = _Endpoint(handler, open_to_all, contract, changes, unary, permission)
        return partial(self._observe, endpoint)

    async def _observe(self, endpoint: _Endpoint, request: web.Request) -> web.StreamResponse:
        """Give the request an id; count and log the response."""
        began = self._clock.monotonic()
        exchange = _Exchange(request, _request_id(request))
        response = await self._respond(endpoint, exchange)
        if not response.prepared:
            response.headers[REQUEST_ID] = exchange.id
            if response.status >= _CLIENT_ERROR and not request.content.is_eof():
                response.force_close()  # the rest of the body is not read
        if response.status == _UNKNOWN and exchange.caller.passed:
            self._count_failed_login(request)
        seconds = self._clock.monotonic() - began
        self._metrics.served(request.method, response.status, seconds)
        if request.method not in _SAFE or response.status >= _SERVER_ERROR:
            _log(exchange, response, seconds)
        return response

    async def _respond(self, endpoint: _Endpoint, exchange: _Exchange) -> web.StreamResponse:
        """Convert every refusal to a problem. It is audited if the caller is known."""
        try:
            context = await self._admit(endpoint, exchange)
            return await self._serve(endpoint, context)
        except (PersysError, grpc.aio.AioRpcError) as err:
            response = _problem(err).response(exchange.id, contract=endpoint.contract)
            if exchange.is_known:
                await self._audit_if_changed(
                    self._context(exchange), endpoint.changes, response.status
                )
            return response

    async def _admit(self, endpoint: _Endpoint, exchange: _Exchange) -> RequestContext:
        """Authenticate the caller and check its rate limit. Raises PersysError, AioRpcError."""
        request = exchange.request
        if not endpoint.open_to_all:
            self._refuse_other_sites(request)
            exchange.caller = self._identities.of(request)
            self._limit_rate(exchange.caller, request)
        context = self._context(exchange)
        if endpoint.changes or request.body_exists:
            await self._verify_token(context)
        exchange.is_known = True
        if endpoint.permission is not None:
            await self._check_permission(context, endpoint.permission)
        return context

    async def _serve(self, endpoint: _Endpoint, context: RequestContext) -> web.StreamResponse:
        """Run the handler; a change as work of the gateway, which is finished in any case."""
        if not (endpoint.changes and endpoint.unary):
            return await self._answered(endpoint, context)
        context.caller.need(endpoint.changes)
        await read_body(context.request)
        return await self._owned.finish(
            "request", endpoint.changes, partial(self._answered, endpoint, context)
        )

    def _limit_rate(self, who: Caller, request: web.Request) -> None:
        """Raises ProblemError (429)."""
        self._rates.count(who.key)
        if who.needs_verification:
            self._failed_logins.check(request.remote or "")

    async def _verify_token(self, context: RequestContext) -> None:
        """Verify a token before the body is read and before anything is recorded under its name."""
        if context.caller.needs_verification:
            await self._token_verifier.permissions_of(
                context.caller, context.cluster, context.metadata
            )

    async def _check_permission(self, context: RequestContext, needed: Permission) -> None:
        """Raises DeniedError, AioRpcError."""
        caller = context.caller
        if caller is UNAUTHENTICATED:
            return  # -insecure
        permissions = caller.deeds
        if permissions is None:
            permissions = await self._token_verifier.permissions_of(
                caller, context.cluster, context.metadata
            )
        if needed not in permissions:
            raise DeniedError(f"{caller.name} does not have the permission {needed}", reason="role")

    async def _answered(self, endpoint: _Endpoint, context: RequestContext) -> web.StreamResponse:
        """Run the handler, convert its error to a problem, and write the audit entry."""
        try:
            response = await self._handled(endpoint.handler, context)
        except (PersysError, grpc.aio.AioRpcError) as err:
            response = _problem(err).response(context.id, contract=endpoint.contract)
        except (ConnectionError, asyncio.CancelledError):
            await self._audit_if_changed(
                context, endpoint.changes, _LEFT
            )  # the change may have been made
            raise
        await self._audit_if_changed(context, endpoint.changes, response.status)
        return response

    async def _handled(self, handler: Handler, context: RequestContext) -> web.StreamResponse:
        """Run the handler. An unexpected exception is contained and becomes a 500."""
        request = context.request
        answer: web.StreamResponse | None = None
        left: ConnectionError | None = None
        where = request.match_info.route.resource
        key = f"{request.method} {where.canonical if where is not None else ''}"
        with self._supervisor.contain("request", key, failed=lambda _: None):
            try:
                answer = await handler(context)
            except ConnectionError as err:
                left = err  # the client left; aiohttp closes the connection
            except web.RequestPayloadError as err:
                raise InvalidError("body", str(err)) from err
            except web.HTTPException as err:
                raise ProblemError(err.status, err.text or err.reason) from err
            except grpc.aio.AioRpcError as err:
                raise problem_from_rpc(err) from err
        if left is not None:
            raise left
        if answer is not None:
            return answer
        if request.writer.output_size:
            raise ConnectionResetError("failed after part of the response was sent")
        raise ProblemError(500, f"internal error; see the gateway log for request id {context.id}")

    def _refuse_other_sites(self, request: web.Request) -> None:
        """Refuse cross-site requests. They are counted and not logged one by one: anyone can send them."""
        if _is_from_another_site(request):
            self._metrics.refused_cross_site()
            raise ProblemError(403, "cross-site requests are not allowed")

    def _context(self, exchange: _Exchange) -> RequestContext:
        who = exchange.caller
        check = self._identities.of if who is not UNAUTHENTICATED else _admitted
        return RequestContext(
            exchange.request, who, exchange.id, self._clusters, self._default_cluster, check
        )

    def _count_failed_login(self, request: web.Request) -> None:
        with suppress(ProblemError):  # the next request is refused
            self._failed_logins.count(request.remote or "")

    async def _audit_if_changed(self, context: RequestContext, changes: str, status: int) -> None:
        if changes and status not in _NOT_LET_IN:
            await self.record(context, changes, status)

    async def record(self, context: RequestContext, action: str, status: int) -> None:
        """Write an audit entry."""
        path = context.request.match_info
        target = "/".join(value for name, value in path.items() if name != "cluster")
        where = context.request.remote or ""
        noted = AuditEntry(
            self._clock.now(),
            context.caller.name,
            where,
            action,
            context.cluster_id,
            target,
            status,
            context.id,
        )
        await self._audit.record(noted)


async def read_body(request: web.Request) -> bytes:
    """Read the whole body. Raises ProblemError (408, 413) if it is too slow or too large."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError as err:
        raise ProblemError(408, "timeout while reading the request body") from err
    except web.HTTPException as err:
        raise ProblemError(err.status, err.text or err.reason) from err
    except web.RequestPayloadError as err:
        raise InvalidError("body", str(err)) from err


def _problem(err: PersysError | grpc.aio.AioRpcError) -> ProblemError:
    return problem_from(err) if isinstance(err, PersysError) else problem_from_rpc(err)


def _admitted(_request: web.Request) -> None:
    """The check of unauthenticated requests: open routes, or -insecure."""


def _log(exchange: _Exchange, response: web.StreamResponse, seconds: float) -> None:
    """The log line of a request. Successful reads are not logged: there are too many."""
    write_log = log.warning if response.status >= _SERVER_ERROR else log.info
    write_log(
        "request.served",
        method=exchange.request.method,
        path=exchange.request.path,
        status=response.status,
        who=exchange.caller.name,
        request_id=exchange.id,
        seconds=round(seconds, 4),
    )


def _request_id(request: web.Request) -> str:
    sent = request.headers.get(REQUEST_ID, "")
    if sent and len(sent) <= _ID_LENGTH_MAX and sent.isascii() and sent.isprintable():
        return sent
    return f"{_OWN_IDS}{next(_counted):016x}"


def _is_from_another_site(request: web.Request) -> bool:
    """A browser sends its certificate for any page: only same-origin pages may change anything."""
    if request.method in _SAFE and "Upgrade" not in request.headers:
        return False
    origin = request.headers.get("Origin", "")
    site = request.headers.get("Sec-Fetch-Site", "")
    return bool(origin and origin.partition("://")[2] != request.host) or site not in _OWN_ORIGIN


def fallback_routes(pipeline: RequestPipeline) -> Iterator[web.RouteDef]:
    """Must be registered last: it matches every path."""
    yield web.route("*", f"{API}/{{nowhere:.*}}", pipeline.serve(_refuse, open_to_all=True))


async def _refuse(context: RequestContext) -> web.StreamResponse:
    request = context.request
    allowed: set[str] = set()
    for resource in request.app.router.resources():
        if resource is not request.match_info.route.resource:
            allowed |= (await resource.resolve(request))[1]
    if allowed:
        methods = ", ".join(sorted(allowed))
        detail = f"method {request.method} not allowed for {request.path}: expected {methods}"
        raise ProblemError(405, detail, headers={"Allow": methods})
    raise ProblemError(404, f"path {request.path} not found")
