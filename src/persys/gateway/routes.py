"""Calls of the contract as routes: JSON in, JSON out. One table gives them all.

The contract's own routes keep its answers, refusals included, because older clients read them there. Under
/api/v1 a refusal is a problem, and what comes back with 200 was done.
"""

import asyncio
from collections.abc import Iterator

from aiohttp import web

from persys.gateway.cluster import Answered
from persys.gateway.door import Ask, Door, Handler
from persys.gateway.problems import ProblemError, refusal_in
from persys.gateway.transcoding import OURS, PAGING, Transcoder
from persys.wire.foreign import says_not_found
from persys.wire.rest import API, CONTRACT_ROUTES, ROUTES, Form, Route
from persys.wire.rest_json import to_json

JSON = "application/json"
BODY_SECONDS = 30.0
READS = frozenset({"GET", "HEAD"})
# These read, although their question is too long for a URL.
ASKING = frozenset({"PlanWorkloads", "GetCapacity"})
IN_CLUSTER = "/clusters/{cluster}"


def reads(route: Route) -> bool:
    return route.method in READS or route.rpc in ASKING


def unary_routes(door: Door) -> Iterator[web.RouteDef]:
    for route in CONTRACT_ROUTES:
        served = door.behind(contract_handler(route), contract=True)
        for prefix in ("", IN_CLUSTER):
            yield web.route(route.method, prefix + route.path, served)
    for route in ROUTES:
        if route.form is Form.UNARY:
            served = door.behind(api_handler(route))
            for prefix in (API, API + IN_CLUSTER):
                yield web.route(route.method, prefix + route.path, served)


def contract_handler(route: Route) -> Handler:
    transcoder = Transcoder(route, strict=False)

    async def handle(ask: Ask) -> web.StreamResponse:
        answered = await ask_cluster(ask, route, transcoder)
        refusal = refusal_in(answered.answer, mode=answered.mode)
        if refusal is not None and refusal.status == 404 and says_not_found(refusal.detail):
            raise refusal
        return web.Response(body=to_json(answered.answer), content_type=JSON)

    return handle


def api_handler(route: Route) -> Handler:
    transcoder = Transcoder(route, ignored=OURS | PAGING if route.method == "GET" else OURS)

    async def handle(ask: Ask) -> web.StreamResponse:
        answered = await ask_cluster(ask, route, transcoder)
        refusal = refusal_in(answered.answer, mode=answered.mode)
        if refusal is not None:
            raise refusal
        return web.Response(body=to_json(answered.answer), content_type=JSON)

    return handle


async def ask_cluster(ask: Ask, route: Route, transcoder: Transcoder) -> Answered:
    """Raises PersysError, AioRpcError."""
    ask.who.need(route.rpc)
    request = ask.request
    body = await read_body(request) if route.body else b""
    message = transcoder.request(request.match_info, request.query, body)
    cluster = ask.cluster
    return await cluster.call(
        route.rpc,
        message,
        key=ask.routing_key(cluster, getattr(message, "workload_id", "")),
        metadata=ask.metadata,
        again=reads(route),
    )


async def read_body(request: web.Request) -> bytes:
    """Raises ProblemError for one that takes too long; aiohttp refuses one that is too large."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError as err:
        raise ProblemError(408, "the body takes too long") from err
