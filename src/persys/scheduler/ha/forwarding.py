"""Routes the RPCs of a scheduler: handled here if it leads, else forwarded to the leader.

A standby serves the reads that METHODS marks from its own memory, with their age. Everything else is
forwarded to the leader, streams too, so that any scheduler can be called. So are the reads of another
cluster, because only the leader records its contact. Without a leader a call waits for the next one within
its deadline. A call that may have reached a leader is not sent to another: it fails, and the caller decides
whether to retry. A forwarded call is not forwarded again.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import grpc
import msgspec

from persys.infra.rpc.authorizer import (
    CALLER,
    CLIENT_CLAIMS,
    FORWARDED_CERTIFICATE,
    FORWARDED_IDENTITY,
    FORWARDED_SOURCE,
    FORWARDED_VIA,
)
from persys.infra.rpc.bearer import AUTHORIZATION
from persys.infra.telemetry import tracing
from persys.model.role import Permission
from persys.scheduler.api.methods import SERVICE
from persys.scheduler.api.service import ControlApi
from persys.scheduler.auth.prefix_scope import home_of
from persys.scheduler.ha.leader_client import LeaderChangedError, LeaderConnection
from persys.scheduler.ha.standby import Standby
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.metadata_keys import DATA_AGE_MS, FORWARDED, HOME, NOT_LEADER, REVISION, ROLE
from persys.wire.methods import METHODS, Method

CALL_SECONDS = 10.0

_TRACE_HEADERS = ("traceparent", "tracestate")

Context = grpc.aio.ServicerContext[Any, Any]


def add_trailing_metadata(context: Context, *pairs: tuple[str, Any]) -> None:
    """Add trailing metadata; a repeated key replaces the earlier value."""
    present = dict(context.trailing_metadata() or ())
    context.set_trailing_metadata(tuple({**present, **dict(pairs)}.items()))


def is_forwarded(context: Context) -> bool:
    return any(key == FORWARDED for key, _ in context.invocation_metadata() or ())


async def forward(
    upstream: LeaderConnection, name: str, request: Any, context: Context
) -> tuple[Any, int]:
    """The response, and the store's revision at that time; 0 if it was not sent."""
    full_name = f"{SERVICE}/{name}"
    remaining = context.time_remaining()
    # 0: the deadline has passed. The caller has given up and may have sent another request since.
    timeout = CALL_SECONDS if remaining is None else remaining
    with (
        tracing.server_span(full_name, context.invocation_metadata) as served,
        tracing.client_span(full_name, leader=upstream.endpoint) as span,
    ):
        call = getattr(upstream.stub, name)(
            request, timeout=timeout, metadata=forwarded_metadata(context, span)
        )
        try:
            with upstream.using(call):
                answer = await call
        except grpc.aio.AioRpcError as err:
            span.answered(err.code().name)
            served.answered(err.code().name)
            raise
        except LeaderChangedError:
            await abort_leader_changed(context)
        span.answered(grpc.StatusCode.OK.name)
        served.answered(grpc.StatusCode.OK.name)
        trailing = dict(await call.trailing_metadata() or ())
        revision = int(trailing.pop(REVISION, 0))
        add_trailing_metadata(context, *trailing.items())
        return answer, revision


def forwarded_metadata(
    context: Context, span: tracing.Span | None = None
) -> tuple[tuple[str, str | bytes], ...]:
    """The metadata of a forwarded call. It includes the token: the leader authenticates it again."""
    headers: tuple[tuple[str, str], ...] = span.headers if span is not None else ()
    received = context.invocation_metadata() or ()
    if not headers:
        headers = tuple((key, str(text)) for key, text in received if key in _TRACE_HEADERS)
    caller = CALLER.get()
    named: tuple[tuple[str, str], ...] = (
        ((FORWARDED_IDENTITY, str(caller.identity)),) if caller is not None else ()
    )
    if caller is not None:
        named += ((FORWARDED_SOURCE, caller.source), (FORWARDED_VIA, caller.via))
    shown = CLIENT_CLAIMS.get()
    certificate = (
        ((FORWARDED_CERTIFICATE, msgspec.json.encode(shown)),) if shown is not None else ()
    )
    # Without authentication the connection is not encrypted: tokens are not forwarded.
    tokens = ((key, text) for key, text in received if key == AUTHORIZATION and caller is not None)
    home = home_of(context) if caller is None else ""
    homes = ((HOME, home),) if home else ()
    return ((FORWARDED, "1"), *named, *certificate, *tokens, *homes, *headers)


def was_not_executed(err: grpc.aio.AioRpcError) -> bool:
    return any(key == NOT_LEADER for key, _ in err.trailing_metadata() or ())


async def refuse(err: grpc.aio.AioRpcError, context: Context) -> NoReturn:
    context.set_trailing_metadata(tuple(err.trailing_metadata() or ()))
    await context.abort(err.code(), err.details() or "")


async def abort_leader_changed(context: Context) -> NoReturn:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "the leader has changed; try again")


# The time until the next leader is elected.
PATIENCE_SECONDS = 15.0
PATIENCE_SHARE = 0.8  # of a call's time; the rest is for the leader
# Less than an agent waits for the reply to its registration before it treats this as an old scheduler.
STREAM_BEGIN_SECONDS = 4.0
AGAIN_SECONDS = 0.1


class LeaderRouter:
    def __init__(self, upstream: Callable[[str], LeaderConnection]) -> None:
        """`upstream` connects to the leader at an endpoint."""
        self._new_upstream = upstream
        self._leading: ControlApi | None = None
        self._reading: ControlApi | None = None
        self._standby: Standby | None = None
        self._revision: Callable[[], int] = lambda: 0
        self._upstream: LeaderConnection | None = None
        self._left: list[LeaderConnection] = []
        self._wakeup = asyncio.Event()
        for method in METHODS.values():
            if method.name == "WatchEvents":
                continue
            make = self._stream if method.stream.of_answers else self._call
            setattr(self, method.name, make(method))

    def lead(self, api: ControlApi, *, revision: Callable[[], int]) -> None:
        """`revision` is the store's revision after the last commit."""
        self._revision = revision
        self._leading, self._reading, self._standby = api, None, None
        self.leader_changed()

    @property
    def leads(self) -> bool:
        return self._leading is not None

    def stand_by(self, api: ControlApi, standby: Standby) -> None:
        self._leading, self._reading, self._standby = None, api, standby
        self.leader_changed()

    def leader_changed(self) -> None:
        """The leader may have changed: waiting calls check again, calls to the old leader end."""
        leader = self._standby.leader if self._standby is not None else None
        if self._upstream is not None and (
            self._leading is not None
            or (leader is not None and leader.endpoint != self._upstream.endpoint)
        ):
            self._upstream.end()
            self._left.append(self._upstream)
            self._upstream = None
        wakeup, self._wakeup = self._wakeup, asyncio.Event()
        wakeup.set()

    def stop_serving(self) -> None:
        """Neither leader nor standby: calls wait until the next replica starts."""
        self._leading = self._reading = self._standby = None

    async def until_serving(self) -> None:
        while self._leading is None and self._reading is None:
            await self._wakeup.wait()

    async def close(self) -> None:
        self.stop_serving()
        for one in (self._upstream, *self._left):
            if one is not None:
                await one.close()

    def _call(self, method: Method) -> Callable[..., Any]:
        name = method.name

        async def call(request: Any, context: Context) -> Any:
            if self._can_serve(method) and not home_of(context):
                return await self._read(name, request, context)
            deadline = _deadline_for(context.time_remaining())
            while (upstream := await self._leader_connection(context, deadline)) is not None:
                try:
                    answer, revision = await forward(upstream, name, request, context)
                    if method.mutating and self._standby is not None:
                        # A caller that reads its own change from this standby must see it.
                        await self._standby.catch_up(revision)
                    return answer
                except grpc.aio.AioRpcError as err:
                    if hasattr(request, "__aiter__") or not was_not_executed(err):
                        await refuse(err, context)
                await self._pause()
            answer = await getattr(self._leading, name)(request, context)
            if method.mutating and is_forwarded(context):
                add_trailing_metadata(context, (REVISION, str(self._revision())))
            return answer

        return call

    async def WatchEvents(  # noqa: N802
        self, request: control_pb2.WatchEventsRequest, context: Context
    ) -> None:
        """Resumes at the next leader after the last event, so that the client sees no interruption.

        Not served from a standby's memory, in which events may be briefly out of order.
        """
        while (upstream := await self._leader_connection(context, PATIENCE_SECONDS)) is not None:
            call = upstream.stub.WatchEvents(
                request, timeout=context.time_remaining(), metadata=forwarded_metadata(context)
            )
            try:
                with upstream.using(call):
                    async for event in call:
                        request.after_sequence = event.sequence
                        await context.write(event)
            except grpc.aio.AioRpcError as err:
                if (
                    err.code() is not grpc.StatusCode.UNAVAILABLE
                    or not request.HasField("after_sequence")
                    or is_forwarded(context)
                ):
                    await refuse(err, context)
            except LeaderChangedError:
                if not request.HasField("after_sequence"):
                    await abort_leader_changed(context)
            await self._pause()
        leading: Any = self._leading
        await leading.WatchEvents(request, context)

    def _stream(self, method: Method) -> Callable[..., Any]:
        name = method.name
        # The reply to an agent's first message is immediate if there is a leader. Initial metadata is sent
        # before it: the agent waits briefly for a refusal.
        is_control = method.permission is Permission.REPORT

        async def stream_call(messages: Any, context: Context) -> None:
            if is_control:
                await context.send_initial_metadata(())
            try:
                async with asyncio.timeout(STREAM_BEGIN_SECONDS) as begin:
                    upstream = await self._leader_connection(context, PATIENCE_SECONDS)
                    if upstream is None:
                        begin.reschedule(None)
                        await getattr(self._leading, name)(messages, context)
                        return
                    if not is_control:
                        begin.reschedule(None)
                    call = getattr(upstream.stub, name)(
                        messages,
                        timeout=context.time_remaining(),
                        metadata=forwarded_metadata(context),
                    )
                    with upstream.using(call):
                        async for one in call:
                            begin.reschedule(None)
                            await context.write(one)
            except grpc.aio.AioRpcError as err:
                await refuse(err, context)
            except (LeaderChangedError, TimeoutError):
                await abort_leader_changed(context)

        return stream_call

    def _can_serve(self, method: Method) -> bool:
        """Whether this standby can serve the call from memory. GetMode always can."""
        if self._standby is None or self._reading is None or not method.standby:
            return False
        return self._standby.has_read or method.name == "GetMode"

    async def _read(self, name: str, request: Any, context: Context) -> Any:
        assert self._standby is not None
        standby = self._standby
        answer = await getattr(self._reading, name)(request, context)
        age_ms = round(standby.data_age() * 1000)
        if name == "GetMode":
            leader = standby.leader
            answer.role = "standby"
            answer.leader = leader.name if leader is not None else ""
            answer.leader_endpoint = leader.endpoint if leader is not None else ""
            answer.data_age_ms = age_ms
        add_trailing_metadata(context, (ROLE, "standby"), (DATA_AGE_MS, str(age_ms)))
        return answer

    async def _leader_connection(
        self, context: Context, deadline: float
    ) -> LeaderConnection | None:
        """The connection to the present or next leader. None: this scheduler leads."""
        if self._leading is not None:
            return None
        if is_forwarded(context):
            context.set_trailing_metadata(((NOT_LEADER, "1"),))
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this scheduler does not lead")
        try:
            async with asyncio.timeout(deadline):
                return await self._next_leader()
        except TimeoutError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no leader is elected; try again")

    async def _next_leader(self) -> LeaderConnection | None:
        while self._leading is None:
            if (upstream := await self._connected()) is not None:
                return upstream
            await self._pause()
        return None

    async def _connected(self) -> LeaderConnection | None:
        leader = self._standby.leader if self._standby is not None else None
        if leader is None or not leader.endpoint:
            return None
        if self._upstream is None:
            self._upstream = self._new_upstream(leader.endpoint)
        upstream = self._upstream
        return upstream if await upstream.connect() else None

    async def _pause(self) -> None:
        """Wait for a change of the leader, or briefly: the leader may not be ready yet."""
        with suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_SECONDS):
                await self._wakeup.wait()


def _deadline_for(remaining: float | None) -> float:
    if remaining is None:
        return PATIENCE_SECONDS
    return min(remaining * PATIENCE_SHARE, PATIENCE_SECONDS)
