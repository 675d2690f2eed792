"""Unary RPCs as REST routes, generated from the route table: JSON in, JSON out.

The routes of older clients return refusals inside a 200 response, because those clients read them there.
Under /api/v1 a refusal is a problem, and 200 means success.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aiohttp import web

from persys.gateway.http.idempotency import Remembered
from persys.gateway.http.middleware import Ask, Door, Handler, read_body
from persys.gateway.http.paging import asked_page, cut
from persys.gateway.http.preconditions import Conditions
from persys.gateway.http.problems import ProblemError, refusal_in
from persys.gateway.http.responses import JSON, Encoded, answer, encoded, packed
from persys.gateway.http.transcoding import OURS, PAGING, Transcoder
from persys.gateway.upstream.batching import Gathered, read_many
from persys.gateway.upstream.cluster import Answered
from persys.gateway.upstream.single_flight import Shared
from persys.infra.clock import Clock
from persys.wire.methods import METHODS, Audit
from persys.wire.rest.json_codec import to_json
from persys.wire.rest.routes import API, CONTRACT_ROUTES, ROUTES, Form, Route

IN_CLUSTER = "/clusters/{cluster}"
_NOT_FOUND = 404


def audited_as(route: Route) -> str:
    """The RPC name in the audit log; empty if the route is not audited."""
    return route.rpc if METHODS[route.rpc].audit is not Audit.NONE else ""


class UnaryRoutes:
    def __init__(self, door: Door, clock: Clock) -> None:
        self._door = door
        self._shared: Shared[Encoded] = Shared()
        self._gathered: Gathered[Encoded] = Gathered()
        self._remembered = Remembered(clock)
        self._conditions = Conditions()

    def all(self) -> Iterator[web.RouteDef]:
        for route in CONTRACT_ROUTES:
            handler = self._contract(route)
            served = self._door.behind(
                handler, contract=True, changes=audited_as(route), unary=True
            )
            for prefix in ("", IN_CLUSTER):
                yield web.route(route.method, prefix + route.path, served)
        for route in ROUTES:
            if route.form is Form.UNARY:
                handler = self._handler(route)
                served = self._door.behind(handler, changes=audited_as(route), unary=True)
                for prefix in (API, API + IN_CLUSTER):
                    yield web.route(route.method, prefix + route.path, served)

    def _handler(self, route: Route) -> Handler:
        if route.rpc == "GetWorkload":
            return self._reading_one(route)
        return self._reading(route) if route.method == "GET" else self._changing(route)

    def _contract(self, route: Route) -> Handler:
        transcoder = Transcoder(route, strict=False)

        async def handle(ask: Ask) -> web.StreamResponse:
            ask.who.need(route.rpc)
            body = await read_body(ask.request) if route.body else b""
            message = transcoder.request(ask.request.match_info, ask.request.query, body)
            answered = await call(ask, route, message)
            refusal = refusal_in(answered.answer, mode=answered.mode)
            if refusal is not None and refusal.status == _NOT_FOUND:
                raise refusal
            response = web.Response(body=to_json(answered.answer), content_type=JSON)
            return packed(ask.request, response)

        return handle

    def _reading(self, route: Route) -> Handler:
        transcoder = Transcoder(route, ignored=OURS | PAGING)

        async def handle(ask: Ask) -> web.StreamResponse:
            ask.who.need(route.rpc)
            request = ask.request
            message = transcoder.request(request.match_info, request.query, b"")
            page = asked_page(route.rpc, request.query) if request.query_string else None
            if page is not None and route.rpc == "ListEvents":
                message.limit = 0  # the page is cut here
            cluster = ask.cluster
            way = ask.routing_key(cluster, getattr(message, "workload_id", ""))
            key = (cluster.id, route.rpc, ask.who.key, way, page, message.SerializeToString())

            async def begin() -> Encoded:
                answered = await call(ask, route, message)
                cursor = cut(route.rpc, answered.answer, page) if page is not None else ""
                return _encoded(answered.answer, answered, cursor)

            return answer(request, await self._shared.ask(key, begin))

        return handle

    def _reading_one(self, route: Route) -> Handler:
        """GetWorkload, batched with concurrent reads of the same caller."""
        transcoder = Transcoder(route, ignored=OURS | PAGING)

        async def handle(ask: Ask) -> web.StreamResponse:
            ask.who.need(route.rpc)
            request = ask.request
            message = transcoder.request(request.match_info, request.query, b"")
            cluster, name = ask.cluster, message.workload_id
            way = ask.routing_key(cluster, name)

            async def alone() -> Encoded:
                answered = await call(ask, route, message)
                return _encoded(answered.answer, answered)

            async def fetch(names: Sequence[str]) -> Mapping[str, Encoded]:
                if len(names) == 1:
                    return {name: await alone()}
                many = await read_many(cluster, names, key=way, metadata=ask.metadata)
                return {
                    one.workload.workload_id: _encoded(one, answered)
                    for answered in many
                    for one in answered.answer.found
                }

            key = (cluster.id, ask.who.key, way)
            found = await self._gathered.ask(key, name, fetch)
            if found is None:
                found = await self._shared.ask((*key, name), alone)
            return answer(request, found)

        return handle

    def _changing(self, route: Route) -> Handler:
        """Changes, and reads with a body."""
        transcoder = Transcoder(route)

        async def handle(ask: Ask) -> web.StreamResponse:
            ask.who.need(route.rpc)
            request = ask.request
            body = await read_body(request)
            message = transcoder.request(request.match_info, request.query, body)

            async def do() -> web.Response:
                try:
                    async with self._conditions.hold(ask, route):
                        return await self._done(ask, route, message)
                except ProblemError as err:  # stored for the Idempotency-Key like a response
                    return err.response(ask.id, contract=False)

            return await self._remembered.once(request, ask.who.key, ask.cluster_id, body, do)

        return handle

    async def _done(self, ask: Ask, route: Route, message: Any) -> web.Response:
        answered = await call(ask, route, message)
        refusal = refusal_in(answered.answer, mode=answered.mode)
        if refusal is not None:
            raise refusal
        response = web.Response(body=to_json(answered.answer), content_type=JSON)
        return packed(ask.request, response)


def _encoded(message: Any, answered: Answered, cursor: str = "") -> Encoded:
    return encoded(to_json(message), cursor, mode=answered.mode, data_age_ms=answered.data_age_ms)


async def call(ask: Ask, route: Route, message: Any) -> Answered:
    """Raises PersysError, AioRpcError."""
    cluster = ask.cluster
    return await cluster.call(
        route.rpc,
        message,
        key=ask.routing_key(cluster, getattr(message, "workload_id", "")),
        metadata=ask.metadata,
        again=METHODS[route.rpc].idempotent,
    )
