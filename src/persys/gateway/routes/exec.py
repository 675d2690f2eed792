"""Exec, port forwarding and files over a WebSocket.

Frames are protocol messages, for exec ExecInput from the client and ExecOutput to it: protobuf in binary
frames, JSON in text frames. Output uses the format of the client's first frame. The close code is 1000 at the
end of the command, connection or archive, else 4000 plus the HTTP status, with the reason.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
from aiohttp import WSCloseCode, WSMsgType, web
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from persys.errors import InvalidError, PersysError
from persys.gateway.http.authentication import SOCKET_PROTOCOL
from persys.gateway.http.middleware import Handler, RequestContext, RequestPipeline
from persys.gateway.http.problems import ProblemError, problem_from, problem_from_rpc
from persys.gateway.http.transcoding import SERVICE, Transcoder
from persys.gateway.routes.streams import with_stream_limit
from persys.gateway.routes.unary import IN_CLUSTER, audited_as
from persys.gateway.upstream.scheduler import SchedulerConnection
from persys.infra.aio.task_group import task_group
from persys.wire.rest.json_codec import fill, read_json, to_json
from persys.wire.rest.routes import API, ROUTES, Form, Route

FRAME_BYTES_MAX = 1024 * 1024
START_SECONDS = 10.0
HEARTBEAT_SECONDS = 20.0
REASON_BYTES_MAX = 123
_CLOSE_BASE = 4000
# A URL with one of these fields has the whole start message.
_COMPLETE = ("command", "console", "port", "path")


def exec_routes(pipeline: RequestPipeline, stopping: asyncio.Event) -> Iterator[web.RouteDef]:
    for route in ROUTES:
        if route.form is Form.SOCKET:
            handler = with_stream_limit(pipeline, exec_handler(pipeline, route, stopping))
            served = pipeline.serve(handler, changes=audited_as(route))
            for prefix in (API, API + IN_CLUSTER):
                yield web.get(prefix + route.path, served, allow_head=False)


def exec_handler(pipeline: RequestPipeline, route: Route, stopping: asyncio.Event) -> Handler:
    transcoder = Transcoder(route, ignored=frozenset({"frames"}))

    async def handle(context: RequestContext) -> web.StreamResponse:
        context.caller.need(route.rpc)
        start = transcoder.request(context.request.match_info, context.request.query, b"")
        upstream = await context.cluster.reach(start.workload_id)
        socket = web.WebSocketResponse(
            protocols=(SOCKET_PROTOCOL,), heartbeat=HEARTBEAT_SECONDS, max_msg_size=FRAME_BYTES_MAX
        )
        if not socket.can_prepare(context.request).ok:
            detail = "expected a WebSocket upgrade request"
            raise ProblemError(426, detail, headers={"Upgrade": "websocket"})
        await socket.prepare(context.request)
        # A session may be long: the audit gets an entry at its start and one at its end.
        await pipeline.record(context, route.rpc, socket.status)
        await _Session(context, socket, route.rpc, start, upstream).run(stopping)
        return socket

    return handle


class _Session:
    def __init__(
        self,
        context: RequestContext,
        socket: web.WebSocketResponse,
        rpc: str,
        start: Any,
        upstream: SchedulerConnection,
    ) -> None:
        self._context = context
        self._socket = socket
        self._rpc = rpc
        self._input: type[Any] = GetMessageClass(SERVICE.methods_by_name[rpc].input_type)
        self._start = start
        self._upstream = upstream
        self._as_text = False
        self._exited = False

    async def run(self, stopping: asyncio.Event) -> None:
        code, reason = int(WSCloseCode.OK), ""
        try:
            await self._relay(stopping)
        except PersysError as err:
            problem = problem_from(err)
            code, reason = _CLOSE_BASE + problem.status, problem.detail
        except grpc.aio.AioRpcError as err:
            problem = problem_from_rpc(err)
            code, reason = _CLOSE_BASE + problem.status, problem.detail
        except ConnectionError:
            return  # the client disconnected
        await self._socket.close(code=code, message=_cut(reason))

    async def _relay(self, stopping: asyncio.Event) -> None:
        first = await self._first()
        begun = asyncio.Event()
        call = getattr(self._upstream.stub, self._rpc)(metadata=self._context.metadata)
        try:
            async with task_group() as group:
                tasks = [
                    group.create_task(self._feed(call, first, begun)),
                    group.create_task(_until_stopped(stopping)),
                    group.create_task(self._context.watch_credentials()),
                ]
                async for output in call:
                    begun.set()
                    await self._send(output)
                for task in tasks:
                    task.cancel()
        finally:
            call.cancel()

    async def _first(self) -> Any:
        """The start message: from the URL, or from the first frame. The path wins over both."""
        if any(getattr(self._start, name, None) for name in _COMPLETE):
            # A start message in the URL comes from a browser, which reads text frames.
            self._as_text = self._context.request.query.get("frames", "") != "binary"
            return self._input(start=self._start)
        try:
            async with asyncio.timeout(START_SECONDS):
                first = await anext(self._inputs(), None)
        except TimeoutError as err:
            raise ProblemError(408, "timeout while waiting for the start message") from err
        if first is None or not first.HasField("start"):
            raise InvalidError("start", "expected in the first message of a session")
        first.start.workload_id = self._start.workload_id
        return first

    async def _feed(self, call: Any, first: Any, begun: asyncio.Event) -> None:
        """Forward input to the scheduler. A failed write is ignored: the read side raises the reason."""
        try:
            await call.write(first)
            await begun.wait()
            async for one in self._inputs():
                one.ClearField("start")
                await call.write(one)
        except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
            return
        raise ConnectionResetError("the client disconnected")

    async def _inputs(self) -> AsyncIterator[Any]:
        async for frame in self._socket:
            if frame.type is WSMsgType.TEXT:
                self._as_text = True
                message = self._input()
                fill(message, read_json(frame.data.encode()))
                yield message
            elif frame.type is WSMsgType.BINARY:
                try:
                    yield self._input.FromString(frame.data)
                except DecodeError as err:
                    raise InvalidError(
                        "frame", f"expected a message {self._input.DESCRIPTOR.name}"
                    ) from err
            else:
                return

    async def _send(self, output: Message) -> None:
        if self._as_text:
            await self._socket.send_str(to_json(output).decode())
        else:
            await self._socket.send_bytes(output.SerializeToString())


async def _until_stopped(stopping: asyncio.Event) -> None:
    await stopping.wait()
    raise ProblemError(503, "the gateway is stopping")


def _cut(reason: str) -> bytes:
    return reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore").encode()
