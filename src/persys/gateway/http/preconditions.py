"""Conditional changes: If-Match, and If-None-Match: * to create only.

The current workload is read and compared by the ETag of its view or by its revision. Changes to one workload
through this gateway are serialised; a concurrent change through another path is not detected.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from aiohttp import web

from persys.gateway.http.middleware import RequestContext
from persys.gateway.http.problems import ProblemError
from persys.gateway.http.responses import etag_of, names
from persys.infra.aio.keyed_lock import KeyedLock
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.methods import METHODS
from persys.wire.rest.json_codec import to_json
from persys.wire.rest.routes import Route

CONDITIONAL = frozenset(method.name for method in METHODS.values() if method.conditional)


class Preconditions:
    def __init__(self) -> None:
        self._locks: KeyedLock[tuple[str, str]] = KeyedLock()

    @asynccontextmanager
    async def hold(self, context: RequestContext, route: Route) -> AsyncIterator[None]:
        """Check the condition and lock the workload. Raises ProblemError (412) if the condition fails."""
        if route.rpc not in CONDITIONAL:
            yield
            return
        workload_id = context.request.match_info["workload_id"]
        async with self._locks.hold((context.cluster.id, workload_id)):
            if "If-Match" in context.request.headers or "If-None-Match" in context.request.headers:
                _check(context.request, await _found(context, workload_id))
            yield


def _check(request: web.Request, found: pb.GetWorkloadResponse | None) -> None:
    tags = () if found is None else (etag_of(to_json(found)), found.workload.revision_id)
    if "If-Match" in request.headers and not (tags and names(request.if_match, *tags)):
        raise ProblemError(412, "the resource has changed (If-Match failed)")
    if "If-None-Match" in request.headers and tags and names(request.if_none_match, *tags):
        raise ProblemError(412, "the resource already exists (If-None-Match failed)")


async def _found(context: RequestContext, workload_id: str) -> pb.GetWorkloadResponse | None:
    try:
        answered = await context.cluster.call(
            "GetWorkload",
            pb.GetWorkloadRequest(workload_id=workload_id),
            key=context.routing_key(context.cluster, workload_id),
            metadata=context.metadata,
            idempotent=True,
        )
    except grpc.aio.AioRpcError as err:
        if err.code() is grpc.StatusCode.NOT_FOUND:
            return None
        raise
    view: pb.GetWorkloadResponse = answered.answer
    return view
