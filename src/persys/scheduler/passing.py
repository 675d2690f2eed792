"""Forwards a call to the leader with deadline, trace context and trailing metadata."""

from typing import Any, NoReturn

import grpc
import msgspec

from persys.infra.rpc.authorizer import (
    CALLER,
    PASSED_CERTIFICATE,
    PASSED_IDENTITY,
    PASSED_SOURCE,
    PASSED_VIA,
    SHOWN,
)
from persys.infra.rpc.bearer import AUTHORIZATION
from persys.infra.telemetry import tracing
from persys.scheduler.api.service import SERVICE
from persys.scheduler.upstream import LeaderChangedError, Upstream
from persys.wire.metadata_keys import NOT_LEADING, PASSED_ON, REVISION

CALL_SECONDS = 10.0

_TRACE_HEADERS = ("traceparent", "tracestate")

Context = grpc.aio.ServicerContext[Any, Any]


def add_beside(context: Context, *pairs: tuple[str, Any]) -> None:
    """Add trailing metadata; a repeated key replaces the earlier value."""
    said = dict(context.trailing_metadata() or ())
    context.set_trailing_metadata(tuple({**said, **dict(pairs)}.items()))


def is_passed_on(context: Context) -> bool:
    return any(key == PASSED_ON for key, _ in context.invocation_metadata() or ())


async def pass_on(upstream: Upstream, name: str, request: Any, context: Context) -> tuple[Any, int]:
    """The response, and the store's revision at that time; 0 if it was not sent."""
    full_name = f"{SERVICE}/{name}"
    remaining = context.time_remaining()
    # 0: the deadline has passed. The caller has given up and may have sent another request since.
    timeout = CALL_SECONDS if remaining is None else remaining
    with (
        tracing.serving(full_name, context.invocation_metadata) as served,
        tracing.calling(full_name, leader=upstream.endpoint) as span,
    ):
        call = getattr(upstream.stub, name)(
            request, timeout=timeout, metadata=beside(context, span)
        )
        try:
            with upstream.using(call):
                answer = await call
        except grpc.aio.AioRpcError as err:
            span.answered(err.code().name)
            served.answered(err.code().name)
            raise
        except LeaderChangedError:
            await refuse_change(context)
        span.answered(grpc.StatusCode.OK.name)
        served.answered(grpc.StatusCode.OK.name)
        told = dict(await call.trailing_metadata() or ())
        revision = int(told.pop(REVISION, 0))
        add_beside(context, *told.items())
        return answer, revision


def beside(
    context: Context, span: tracing.Span | None = None
) -> tuple[tuple[str, str | bytes], ...]:
    """The metadata of a forwarded call. It includes the token: the leader authenticates it again."""
    headers: tuple[tuple[str, str], ...] = span.headers if span is not None else ()
    received = context.invocation_metadata() or ()
    if not headers:
        headers = tuple((key, str(text)) for key, text in received if key in _TRACE_HEADERS)
    caller = CALLER.get()
    named: tuple[tuple[str, str], ...] = (
        ((PASSED_IDENTITY, str(caller.identity)),) if caller is not None else ()
    )
    if caller is not None:
        named += ((PASSED_SOURCE, caller.source), (PASSED_VIA, caller.via))
    shown = SHOWN.get()
    said = ((PASSED_CERTIFICATE, msgspec.json.encode(shown)),) if shown is not None else ()
    # Without authentication the connection is not encrypted: tokens are not forwarded.
    tokens = ((key, text) for key, text in received if key == AUTHORIZATION and caller is not None)
    return ((PASSED_ON, "1"), *named, *said, *tokens, *headers)


def is_certain_not_taken(err: grpc.aio.AioRpcError) -> bool:
    return any(key == NOT_LEADING for key, _ in err.trailing_metadata() or ())


async def refuse(err: grpc.aio.AioRpcError, context: Context) -> NoReturn:
    context.set_trailing_metadata(tuple(err.trailing_metadata() or ()))
    await context.abort(err.code(), err.details() or "")


async def refuse_change(context: Context) -> NoReturn:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "the leader has changed; try again")
