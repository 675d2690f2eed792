"""Unary RPCs as REST routes, generated from the route table: JSON in, JSON out.

The routes of older clients return refusals inside a 200 response, because those clients read them there.
Under /api/v1 a refusal is a problem, and 200 means success.

With an Idempotency-Key, a retried request gets the stored response of the first one. Responses are stored for
ten minutes per identity and cluster. The same key with another request is refused. Responses with 5xx, or
with a status that asks for a retry, are not stored.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from aiohttp import web
from msgspec import Struct

from persys.errors import InvalidError
from persys.gateway.http.middleware import Handler, RequestContext, RequestPipeline, read_body
from persys.gateway.http.paging import cut, requested_page
from persys.gateway.http.preconditions import Preconditions
from persys.gateway.http.problems import ProblemError, refusal_in
from persys.gateway.http.responses import JSON, JsonBody, answer, compressed, json_body
from persys.gateway.http.transcoding import OURS, PAGING, Transcoder
from persys.gateway.upstream.batching import Batcher, read_many
from persys.gateway.upstream.cluster import RpcResponse
from persys.gateway.upstream.single_flight import SingleFlight
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.clock import Clock
from persys.wire.methods import METHODS, Audit
from persys.wire.rest.json_codec import to_json
from persys.wire.rest.routes import API, CONTRACT_ROUTES, ROUTES, Form, Route

IDEMPOTENCY_KEY = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
KEEP_SECONDS = 600.0
KEPT_MAX = 10_000
KEPT_BYTES_MAX = 64 * 1024 * 1024
BODY_BYTES_MAX = 64 * 1024
_KEY_LENGTH_MAX = 255
_AGAIN = frozenset({401, 408, 429})
_SERVER_ERROR = 500
IN_CLUSTER = "/clusters/{cluster}"
_NOT_FOUND = 404


class _Kept(Struct, frozen=True):
    until: float
    request: bytes
    status: int
    body: bytes
    content_type: str


class _Key(NamedTuple):
    who: str
    cluster_id: str
    idempotency_key: str


class IdempotencyCache:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[_Key, _Kept] = {}  # the oldest first
        self._kept_bytes = 0
        self._locks: KeyedLock[_Key] = KeyedLock()

    async def once(
        self,
        request: web.Request,
        who: str,
        cluster_id: str,
        body: bytes,
        do: Callable[[], Awaitable[web.Response]],
    ) -> web.Response:
        """Run `do`, or return the stored response. Raises ProblemError if the key was used differently.

        `cluster_id` is the target cluster, whether it comes from the path, the header or the query.
        """
        idempotency_key = request.headers.get(IDEMPOTENCY_KEY)
        if idempotency_key is None:
            return await do()
        if not 0 < len(idempotency_key) <= _KEY_LENGTH_MAX:
            raise InvalidError(IDEMPOTENCY_KEY, f"expected 1 to {_KEY_LENGTH_MAX} characters")
        key = _Key(who, cluster_id, idempotency_key)
        digest = _digest(request, body)
        async with self._locks.hold(key):
            self._evict()
            if (kept := self._kept.get(key)) is not None:
                return _replayed(kept, digest)
            response = await do()
            self._keep(key, digest, response)
            return response

    def _keep(self, key: _Key, digest: bytes, response: web.Response) -> None:
        body = response.body
        if response.status >= _SERVER_ERROR or response.status in _AGAIN:
            return
        if isinstance(body, bytes) and len(body) <= BODY_BYTES_MAX:
            until = self._clock.monotonic() + KEEP_SECONDS
            self._kept[key] = _Kept(until, digest, response.status, body, response.content_type)
            self._kept_bytes += len(body)

    def _evict(self) -> None:
        now = self._clock.monotonic()
        while self._kept:
            oldest = next(iter(self._kept))
            is_within_limits = len(self._kept) < KEPT_MAX and self._kept_bytes < KEPT_BYTES_MAX
            if self._kept[oldest].until > now and is_within_limits:
                return
            self._kept_bytes -= len(self._kept.pop(oldest).body)


def _digest(request: web.Request, body: bytes) -> bytes:
    return sha256(b"\0".join((request.method.encode(), request.path_qs.encode(), body))).digest()


def _replayed(kept: _Kept, digest: bytes) -> web.Response:
    if kept.request != digest:
        raise ProblemError(422, f"this {IDEMPOTENCY_KEY} was used for another request")
    return web.Response(
        status=kept.status,
        body=kept.body,
        content_type=kept.content_type,
        headers={REPLAYED: "true"},
    )


def audited_as(route: Route) -> str:
    """The RPC name in the audit log; empty if the route is not audited."""
    return route.rpc if METHODS[route.rpc].audit is not Audit.NONE else ""


class UnaryRoutes:
    def __init__(self, pipeline: RequestPipeline, clock: Clock) -> None:
        self._pipeline = pipeline
        self._shared: SingleFlight[JsonBody] = SingleFlight()
        self._batcher: Batcher[JsonBody] = Batcher()
        self._remembered = IdempotencyCache(clock)
        self._conditions = Preconditions()

    def all(self) -> Iterator[web.RouteDef]:
        for route in CONTRACT_ROUTES:
            handler = self._contract(route)
            served = self._pipeline.serve(
                handler, contract=True, changes=audited_as(route), unary=True
            )
            for prefix in ("", IN_CLUSTER):
                yield web.route(route.method, prefix + route.path, served)
        for route in ROUTES:
            if route.form is Form.UNARY:
                handler = self._handler(route)
                served = self._pipeline.serve(handler, changes=audited_as(route), unary=True)
                for prefix in (API, API + IN_CLUSTER):
                    yield web.route(route.method, prefix + route.path, served)

    def _handler(self, route: Route) -> Handler:
        if route.rpc == "GetWorkload":
            return self._reading_one(route)
        return self._reading(route) if route.method == "GET" else self._changing(route)

    def _contract(self, route: Route) -> Handler:
        transcoder = Transcoder(route, strict=False)

        async def handle(context: RequestContext) -> web.StreamResponse:
            context.caller.need(route.rpc)
            body = await read_body(context.request) if route.body else b""
            message = transcoder.request(context.request.match_info, context.request.query, body)
            answered = await call(context, route, message)
            refusal = refusal_in(answered.answer, mode=answered.mode)
            if refusal is not None and refusal.status == _NOT_FOUND:
                raise refusal
            response = web.Response(body=to_json(answered.answer), content_type=JSON)
            return compressed(context.request, response)

        return handle

    def _reading(self, route: Route) -> Handler:
        transcoder = Transcoder(route, ignored=OURS | PAGING)

        async def handle(context: RequestContext) -> web.StreamResponse:
            context.caller.need(route.rpc)
            request = context.request
            message = transcoder.request(request.match_info, request.query, b"")
            page = requested_page(route.rpc, request.query) if request.query_string else None
            if page is not None and route.rpc == "ListEvents":
                message.limit = 0  # the page is cut here
            cluster = context.cluster
            routing_key = context.routing_key(cluster, getattr(message, "workload_id", ""))
            key = (
                cluster.id,
                route.rpc,
                context.caller.key,
                routing_key,
                page,
                message.SerializeToString(),
            )

            async def begin() -> JsonBody:
                answered = await call(context, route, message)
                cursor = cut(route.rpc, answered.answer, page) if page is not None else ""
                return _encoded(answered.answer, answered, cursor)

            return answer(request, await self._shared.call(key, begin))

        return handle

    def _reading_one(self, route: Route) -> Handler:
        """GetWorkload, batched with concurrent reads of the same caller."""
        transcoder = Transcoder(route, ignored=OURS | PAGING)

        async def handle(context: RequestContext) -> web.StreamResponse:
            context.caller.need(route.rpc)
            request = context.request
            message = transcoder.request(request.match_info, request.query, b"")
            cluster, name = context.cluster, message.workload_id
            routing_key = context.routing_key(cluster, name)

            async def fetch_one() -> JsonBody:
                answered = await call(context, route, message)
                return _encoded(answered.answer, answered)

            async def fetch(names: Sequence[str]) -> Mapping[str, JsonBody]:
                if len(names) == 1:
                    return {name: await fetch_one()}
                many = await read_many(cluster, names, key=routing_key, metadata=context.metadata)
                return {
                    one.workload.workload_id: _encoded(one, answered)
                    for answered in many
                    for one in answered.answer.found
                }

            key = (cluster.id, context.caller.key, routing_key)
            found = await self._batcher.get(key, name, fetch)
            if found is None:
                found = await self._shared.call((*key, name), fetch_one)
            return answer(request, found)

        return handle

    def _changing(self, route: Route) -> Handler:
        """Changes, and reads with a body."""
        transcoder = Transcoder(route)

        async def handle(context: RequestContext) -> web.StreamResponse:
            context.caller.need(route.rpc)
            request = context.request
            body = await read_body(request)
            message = transcoder.request(request.match_info, request.query, body)

            async def do() -> web.Response:
                try:
                    async with self._conditions.hold(context, route):
                        return await self._done(context, route, message)
                except ProblemError as err:  # stored for the Idempotency-Key like a response
                    return err.response(context.id, contract=False)

            return await self._remembered.once(
                request, context.caller.key, context.cluster_id, body, do
            )

        return handle

    async def _done(self, context: RequestContext, route: Route, message: Any) -> web.Response:
        answered = await call(context, route, message)
        refusal = refusal_in(answered.answer, mode=answered.mode)
        if refusal is not None:
            raise refusal
        response = web.Response(body=to_json(answered.answer), content_type=JSON)
        return compressed(context.request, response)


def _encoded(message: Any, answered: RpcResponse, cursor: str = "") -> JsonBody:
    return json_body(to_json(message), cursor, mode=answered.mode, data_age_ms=answered.data_age_ms)


async def call(context: RequestContext, route: Route, message: Any) -> RpcResponse:
    """Raises PersysError, AioRpcError."""
    cluster = context.cluster
    return await cluster.call(
        route.rpc,
        message,
        key=context.routing_key(cluster, getattr(message, "workload_id", "")),
        metadata=context.metadata,
        idempotent=METHODS[route.rpc].idempotent,
    )
