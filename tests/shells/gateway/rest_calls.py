"""The calls of `scheduler/calls.py` as HTTP requests, derived from their routes."""

import json
import ssl
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from google.protobuf.json_format import MessageToDict

from persys.wire.methods import METHODS, Form
from persys.wire.rest.routes import API, CONTRACT_ROUTES, ROUTES, Route
from shells.gateway.running_gateway import RunningGateway
from shells.scheduler.calls import CALLS

# All routes of each call.
REST: dict[str, Route] = {
    f"{route.method} {prefix}{route.path}": route
    for prefix, routes in ((API, ROUTES), ("", CONTRACT_ROUTES))
    for route in routes
    if route.rpc in CALLS
}
UNARY = [where for where, route in REST.items() if route.form is Form.UNARY]
assert {route.rpc for route in REST.values()} == {name for name in CALLS if METHODS[name].routes}, (
    "every call with a route is here"
)


class SentRequest(NamedTuple):
    method: str
    path: str
    body: bytes


async def sent(where: str, own: str) -> SentRequest:
    """The request for a call with this name."""
    route = REST[where]
    request = CALLS[route.rpc].request(own)
    if route.form in (Form.UPLOAD, Form.SOCKET):
        start, body = await _start_of(request)
    else:
        start, body = request, b""
    fields = MessageToDict(start, preserving_proto_field_name=True) if start is not None else {}
    path = where.partition(" ")[2]
    for name in [part[1:-1] for part in path.split("/") if part.startswith("{")]:
        path = path.replace(f"{{{name}}}", quote(fields.pop(name), safe=""))
    if route.body:
        return SentRequest(route.method, path, json.dumps(fields).encode())
    query = f"?{urlencode(fields, doseq=True)}" if fields else ""
    return SentRequest(route.method, path + query, body)


async def send(api: RunningGateway, context: ssl.SSLContext, where: str, own: str) -> int:
    """Send the request with its own Idempotency-Key and read the response. Returns the status."""
    request = await sent(where, own)
    if REST[where].form is Form.SOCKET:
        async with api.session.ws_connect(request.path, ssl=context) as socket:
            async for _ in socket:
                pass
        return HTTPStatus.SWITCHING_PROTOCOLS
    headers = {"Idempotency-Key": own}
    async with api.session.request(
        request.method, request.path, data=request.body, headers=headers, ssl=context
    ) as response:
        await response.read()
        return response.status


async def _start_of(messages: AsyncIterator[Any]) -> tuple[Any, bytes]:
    """The body of an upload: the data of all messages after the start; a snapshot has only data."""
    start, body = None, b""
    async for message in messages:
        if hasattr(message, "start") and message.HasField("start"):
            start = message.start
        else:
            body += message.data
    return start, body
