"""Upload routes: a snapshot to restore, a VM image to add. Data is forwarded and not stored here.

The response to an image upload is one progress message per line. It starts after the whole file was
received, because few clients read a response while they are sending.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from aiohttp import web

from persys.gateway.http.middleware import Handler, RequestContext, RequestPipeline
from persys.gateway.http.problems import ProblemError, refusal_in
from persys.gateway.http.responses import JSON
from persys.gateway.http.transcoding import Transcoder
from persys.gateway.routes.streams import NDJSON, forward_stream, with_stream_limit, write_lines
from persys.gateway.routes.unary import IN_CLUSTER, audited_as
from persys.gateway.upstream.stream_buffer import StreamBuffer
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.rest.json_codec import to_json
from persys.wire.rest.routes import API, ROUTES, Form, Route

PART_BYTES = 256 * 1024
PART_SECONDS = 30.0
RESTORE_SECONDS = 300.0
FIRST_SECONDS = 30.0  # clients do not read the response while they upload


def upload_routes(pipeline: RequestPipeline, stopping: asyncio.Event) -> Iterator[web.RouteDef]:
    for route in ROUTES:
        if route.form is Form.UPLOAD:
            make = image_handler if route.rpc == "AddImage" else snapshot_handler
            served = pipeline.serve(
                with_stream_limit(pipeline, make(route, stopping)), changes=audited_as(route)
            )
            for prefix in (API, API + IN_CLUSTER):
                yield web.put(prefix + route.path, served)


def snapshot_handler(route: Route, stopping: asyncio.Event) -> Handler:
    async def handle(context: RequestContext) -> web.StreamResponse:
        context.caller.need(route.rpc)
        upstream = await context.cluster.reach("")
        chunks = (pb.SnapshotChunk(data=part) async for part in _parts(context.request))
        call = upstream.stub.RestoreSnapshot(
            chunks, timeout=RESTORE_SECONDS, metadata=context.metadata
        )
        answer: pb.RecoveryAnswer = await call
        refusal = refusal_in(answer, mode="")
        if refusal is not None:
            raise refusal
        return web.Response(body=to_json(answer), content_type=JSON)

    return handle


def image_handler(route: Route, stopping: asyncio.Event) -> Handler:
    transcoder = Transcoder(route)

    async def handle(context: RequestContext) -> web.StreamResponse:
        context.caller.need(route.rpc)
        start = transcoder.request(context.request.match_info, context.request.query, b"")
        upstream = await context.cluster.reach("")
        if not start.url and not start.size_bytes:
            start.size_bytes = context.request.content_length or 0
        upload = _Upload(upstream.stub, context, start)
        return await forward_stream(
            context,
            upload,
            stopping,
            kind=NDJSON,
            write=_write_progress,
            first_seconds=FIRST_SECONDS,
        )

    return handle


async def _write_progress(
    context: RequestContext, buffer: StreamBuffer, response: web.StreamResponse
) -> None:
    await write_lines(context, buffer, response)


class _Upload:
    """An AddImage call. Yields the progress of each node; during the upload only the newest is kept."""

    def __init__(self, stub: Any, context: RequestContext, start: pb.AddImageStart) -> None:
        self._context = context
        self._start = start
        self._begun = asyncio.Event()
        self._over = asyncio.Event()
        self._sent = bool(start.url)
        self._call = stub.AddImage(self._requests(), metadata=context.metadata)

    def cancel(self) -> None:
        self._over.set()
        self._begun.set()
        self._call.cancel()

    async def __aiter__(self) -> AsyncIterator[pb.ImageProgress]:
        newest: dict[str, pb.ImageProgress] = {}
        async for progress in self._call:
            self._begun.set()
            if not progress.node_id:
                if progress.done:
                    self._over.set()
                continue
            newest[progress.node_id] = progress
            if self._sent:
                for one in newest.values():
                    yield one
                newest.clear()
        for one in newest.values():
            yield one

    async def _requests(self) -> AsyncIterator[pb.AddImageRequest]:
        yield pb.AddImageRequest(start=self._start)
        await self._begun.wait()  # a refusal would be lost behind a failed write
        if not self._start.url:
            async for part in _parts(self._context.request):
                if self._over.is_set():
                    break
                yield pb.AddImageRequest(data=part)
        self._sent = True


async def _parts(request: web.Request) -> AsyncIterator[bytes]:
    """The body in chunks. Raises ProblemError (408) for a client that stalls."""
    content = request.content
    while True:
        try:
            async with asyncio.timeout(PART_SECONDS):
                part = await content.read(PART_BYTES)
        except TimeoutError as err:
            raise ProblemError(408, "timeout while reading the request body") from err
        if not part:
            return
        yield part
