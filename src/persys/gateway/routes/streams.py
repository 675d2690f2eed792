"""Streaming routes: events as server-sent events, logs and snapshots as raw bytes.

A refusal before the first message is a problem with its HTTP status. A later one is the last event of a
watch; a byte stream is aborted, so a client does not mistake a part for the whole.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
from aiohttp import web

from persys.core.numbers import whole_number
from persys.errors import DeniedError, InvalidError
from persys.gateway.http.middleware import REQUEST_ID, Handler, RequestContext, RequestPipeline
from persys.gateway.http.problems import ProblemError
from persys.gateway.http.transcoding import Transcoder
from persys.gateway.routes.unary import IN_CLUSTER, audited_as
from persys.gateway.upstream.stream_buffer import (
    FIRST_SECONDS,
    IDLE,
    GatewayStoppingError,
    StreamBuffer,
    stream_buffer,
)
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.rest.json_codec import to_json, to_plain
from persys.wire.rest.routes import API, ROUTES, Form, Route

KEEPALIVE_SECONDS = 15.0
RECONNECT_MS = 2000
EVENT_STREAM = "text/event-stream"
NDJSON = "application/x-ndjson"
# A proxy must forward each event at once.
_UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

Write = Callable[[RequestContext, StreamBuffer, web.StreamResponse], Awaitable[None]]


def stream_routes(pipeline: RequestPipeline, stopping: asyncio.Event) -> Iterator[web.RouteDef]:
    make = {Form.EVENTS: watch_handler, Form.TEXT: text_handler}
    for route in ROUTES:
        if route.form in make:
            handler = with_stream_limit(pipeline, make[route.form](route, stopping))
            served = pipeline.serve(handler, changes=audited_as(route))
            for prefix in (API, API + IN_CLUSTER):
                yield web.get(prefix + route.path, served, allow_head=False)


def with_stream_limit(pipeline: RequestPipeline, handler: Handler) -> Handler:
    """Count the request against the stream limit of its identity."""

    async def handle(context: RequestContext) -> web.StreamResponse:
        with pipeline.streams.one(context.caller.key):
            return await handler(context)

    return handle


def watch_handler(route: Route, stopping: asyncio.Event) -> Handler:
    transcoder = Transcoder(route)

    async def handle(context: RequestContext) -> web.StreamResponse:
        message: pb.WatchEventsRequest = transcoder.request(
            context.request.match_info, context.request.query, b""
        )
        message.bookmarks = True  # a reconnecting client resumes at the last bookmark
        if (last := context.request.headers.get("Last-Event-ID")) is not None:
            message.after_sequence = _sequence(last)
        return await stream(
            context, route, message, stopping, kind=EVENT_STREAM, write=_write_events
        )

    return handle


async def _write_events(
    context: RequestContext, buffer: StreamBuffer, response: web.StreamResponse
) -> None:
    await response.write(b"retry: %d\n\n" % RECONNECT_MS)
    try:
        async for event in buffer.answers(KEEPALIVE_SECONDS):
            await response.write(b":\n\n" if event is IDLE else event_text(event))
    except ProblemError as err:
        body = msgspec.json.encode(err.plain(context.id))
        await response.write(b"event: problem\ndata: " + body + b"\n\n")


def event_text(event: pb.EventView) -> bytes:
    kind = event.kind.encode() or b"bookmark"
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.sequence, kind, to_json(event))


def text_handler(route: Route, stopping: asyncio.Event) -> Handler:
    transcoder = Transcoder(route)
    usual = "text/plain" if route.rpc == "StreamLogs" else "application/octet-stream"

    async def handle(context: RequestContext) -> web.StreamResponse:
        message = transcoder.request(context.request.match_info, context.request.query, b"")
        if NDJSON in context.request.headers.get("Accept", ""):
            return await stream(context, route, message, stopping, kind=NDJSON, write=write_lines)
        return await stream(context, route, message, stopping, kind=usual, write=_write_data)

    return handle


async def _write_data(
    context: RequestContext, buffer: StreamBuffer, response: web.StreamResponse
) -> None:
    try:
        async for chunk in buffer.answers(KEEPALIVE_SECONDS):
            if chunk is not IDLE:
                await response.write(chunk.data)
            elif context.request.transport is None:
                return  # the client disconnected
    except ProblemError:
        _abort(context)


async def write_lines(
    context: RequestContext, buffer: StreamBuffer, response: web.StreamResponse
) -> None:
    """One JSON message per line. An empty object is a keep-alive; the last line may be a problem."""
    try:
        async for message in buffer.answers(KEEPALIVE_SECONDS):
            plain: dict[str, Any] = {} if message is IDLE else to_plain(message)
            await response.write(msgspec.json.encode(plain) + b"\n")
    except ProblemError as err:
        await response.write(msgspec.json.encode({"problem": err.plain(context.id)}) + b"\n")


async def stream(
    context: RequestContext,
    route: Route,
    message: Any,
    stopping: asyncio.Event,
    *,
    kind: str,
    write: Write,
) -> web.StreamResponse:
    """Open a stream and forward it. Raises PersysError before the response has started."""
    context.caller.need(route.rpc)
    cluster = context.cluster
    key = context.routing_key(cluster, getattr(message, "workload_id", ""))
    upstream = await cluster.reach(key)
    call = getattr(upstream.stub, route.rpc)(message, metadata=context.metadata)
    return await forward_stream(context, call, stopping, kind=kind, write=write)


async def forward_stream(
    context: RequestContext,
    call: Any,
    stopping: asyncio.Event,
    *,
    kind: str,
    write: Write,
    first_seconds: float = FIRST_SECONDS,
) -> web.StreamResponse:
    """Forward a gRPC stream. A refusal within `first_seconds` is returned with its HTTP status."""
    headers = {**_UNBUFFERED, REQUEST_ID: context.id, "Content-Type": kind}
    response = web.StreamResponse(headers=headers)
    try:
        async with stream_buffer(
            call, stopping, watch_credentials=context.watch_credentials
        ) as buffer:
            await buffer.begin(first_seconds)
            await response.prepare(context.request)
            await write(context, buffer, response)
    except ConnectionError:
        pass  # the client disconnected
    except DeniedError:
        if not response.prepared:
            raise
        _abort(context)
    except GatewayStoppingError as err:
        if not response.prepared:
            raise ProblemError(503, str(err)) from err
        if kind != EVENT_STREAM:
            _abort(context)
    return response


def _abort(context: RequestContext) -> None:
    """Abort the connection: without the final chunk the client sees that the body is incomplete."""
    if context.request.transport is not None:
        context.request.transport.abort()


def _sequence(text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise InvalidError("Last-Event-ID", f"{text[:40]!r}: expected an event sequence number")
    return number
