"""The HTTP server for /health and /metrics of each process.

It answers one request per connection, with h11: the HTTP library of the gateway takes 10 MB of memory, which
a scheduler would use for nothing else.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, cast

import h11
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    disable_created_metrics,
    generate_latest,
)

from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.infra.net.listener import HttpConnection, HttpLimits, Listener
from persys.infra.telemetry import tracing

# The creation time of counters is not used and would add one series for each.
disable_created_metrics()  # type: ignore[no-untyped-call]  # its library has no types here

# For monitoring only. One address cannot use all connections.
LIMITS = HttpLimits(
    connections_max=128,
    connections_per_address_max=64,
    idle_seconds=15.0,
    unread_seconds=15.0,
    closing_seconds=2.0,
)
_HEAD_BYTES_MAX = 16 * 1024
_TEXT = "text/plain; charset=utf-8"


class Request(NamedTuple):
    path: str
    headers: Iterable[tuple[str, str]]


class Response(NamedTuple):
    status: int
    content_type: str
    body: bytes


class SideServer:
    def __init__(
        self,
        *,
        supervisor: Supervisor,
        registry: CollectorRegistry,
        health: Callable[[], Mapping[str, Any]],
        count: Callable[[], Awaitable[None]] | None = None,
        unhealthy_code: int = 503,
        limits: HttpLimits = LIMITS,
    ) -> None:
        """`count` prepares metrics in steps that would block the event loop if they were computed at once.

        `unhealthy_code` is the HTTP status of /health when the status is not ok. 200 prevents a restart of a
        process whose memory must be preserved.
        """
        self._supervisor = supervisor
        self._registry = registry
        self._health = health
        self._count = count
        self._unhealthy_code = unhealthy_code
        self._limits = limits
        self._group = asyncio.TaskGroup()
        self._listener = Listener(
            self._connect, limits=limits, context=None, port_name="metrics port"
        )
        self._running = False

    async def start(self, host: str, port: int) -> int:
        """Returns the port that is bound (useful for port 0)."""
        bound = await self._listener.bind(host, port)
        await self._group.__aenter__()
        self._running = True
        await self._listener.accept()
        return bound

    async def stop(self) -> None:
        """Stop accepting connections and wait for requests, up to a limit. Idempotent."""
        self._listener.stop_accepting()
        if self._running:
            self._running = False
            asyncio.get_running_loop().call_later(
                self._limits.closing_seconds, self._listener.abort_all
            )
            await self._group.__aexit__(None, None, None)
        self._listener.abort_all()
        await self._listener.close()

    def _connect(self, ended: Callable[[], None]) -> HttpConnection:
        return _Connection(self._limits, self._group, self._answer, ended)

    async def _answer(self, request: Request) -> Response:
        with self._supervisor.contain("http", request.path, failed=_ignore, expects=()):
            return await self._answer_path(request)
        return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _answer_path(self, request: Request) -> Response:
        match request.path:
            case "/health":
                return self._answer_health(request)
            case "/metrics":
                return await self._answer_metrics(request)
            case _:
                return _plain(HTTPStatus.NOT_FOUND)

    def _answer_health(self, request: Request) -> Response:
        with tracing.server_span("GET /health", lambda: request.headers):
            health = self._health()
        code = HTTPStatus.OK if health["status"] == "ok" else self._unhealthy_code
        return Response(code, "application/json; charset=utf-8", json.dumps(health).encode())

    async def _answer_metrics(self, request: Request) -> Response:
        with tracing.server_span("GET /metrics", lambda: request.headers):
            if self._count is not None:
                await self._count()
            body = generate_latest(self._registry)
        return Response(HTTPStatus.OK, CONTENT_TYPE_LATEST, body)


class _Connection(HttpConnection):
    """One request and its response. It ends when the client is too slow."""

    def __init__(
        self,
        limits: HttpLimits,
        group: asyncio.TaskGroup,
        answer: Callable[[Request], Awaitable[Response]],
        ended: Callable[[], None],
    ) -> None:
        self._limits = limits
        self._group = group
        self._answer = answer
        self._ended = ended
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        return self._transport is not None

    @property
    def serving(self) -> bool:
        return self._task is not None and not self._task.done()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transport of uvloop has all methods, but not the class.
        self._transport = cast("asyncio.Transport", transport)
        self._abort_after(self._limits.idle_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._ended()

    def data_received(self, data: bytes) -> None:
        if self._task is not None:
            return  # only one request is read
        self._http.receive_data(data)
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as err:
            self._task = self._group.create_task(self._respond(err))
        else:
            if isinstance(event, h11.Request):
                self._task = self._group.create_task(self._respond(event))

    async def _respond(self, request: h11.Request | h11.RemoteProtocolError) -> None:
        response = await self._response_to(request)
        assert self._transport is not None, "data was received"
        self._abort_after(self._limits.unread_seconds)
        is_head = isinstance(request, h11.Request) and request.method == b"HEAD"
        self._transport.write(self._encoded(response, with_body=not is_head))
        self._transport.close()  # after what was written

    async def _response_to(self, request: h11.Request | h11.RemoteProtocolError) -> Response:
        if isinstance(request, h11.RemoteProtocolError):
            return _plain(HTTPStatus(request.error_status_hint))
        if request.method not in (b"GET", b"HEAD"):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        path = request.target.decode("ascii").partition("?")[0]
        headers = [(name.decode(), value.decode("latin-1")) for name, value in request.headers]
        return await self._answer(Request(path, headers))

    def _encoded(self, response: Response, *, with_body: bool) -> bytes:
        headers = [
            ("Content-Type", response.content_type),
            ("Content-Length", str(len(response.body))),
            ("Connection", "close"),
        ]
        if response.status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET, HEAD"))
        reason = HTTPStatus(response.status).phrase
        head = h11.Response(status_code=response.status, headers=headers, reason=reason)
        body = [h11.Data(data=response.body)] if with_body else []
        events: list[h11.Event] = [head, *body, h11.EndOfMessage()]
        return b"".join(self._http.send(event) or b"" for event in events)

    def _abort_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)


def _ignore(_error: InternalError) -> None:
    """The supervisor has recorded it, and the client gets a response."""


def _plain(status: HTTPStatus) -> Response:
    return Response(status, _TEXT, f"{status.value}: {status.phrase}".encode())
