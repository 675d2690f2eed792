"""The AgentControl service, put together from its parts: each call is counted, timed, traced,
and refused by code.

A part is any object whose methods have the names of the contract. What no part has is UNIMPLEMENTED.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc

from persys.errors import InvalidError, PersysError
from persys.infra import tracing
from persys.infra.clock import Clock
from persys.scheduler.api.freezing import heeding, heeding_stream
from persys.scheduler.api.limited import limited
from persys.scheduler.metrics import Metrics
from persys.scheduler.modes import Modes
from persys.wire import status
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

Request = TypeVar("Request")
Answer = TypeVar("Answer")

Context = grpc.aio.ServicerContext[Any, Any]

SERVICE = "persys.control.v1.AgentControl"
SERVICE_DESCRIPTOR = control_pb2.DESCRIPTOR.services_by_name["AgentControl"]
_METHODS = SERVICE_DESCRIPTOR.methods_by_name


class ControlApi(control_pb2_grpc.AgentControlServicer):
    def __init__(self, *parts: object, metrics: Metrics, clock: Clock, modes: Modes) -> None:
        for name in _METHODS:
            for part in parts:
                if (method := getattr(part, name, None)) is not None:
                    inner = limited(name, method)
                    setattr(self, name, _measured(name, inner, metrics, clock, modes))


def need(value: str, field: str) -> None:
    if not value:
        raise InvalidError(field, "is missing")


def _measured(
    name: str, method: Callable[..., Any], metrics: Metrics, clock: Clock, modes: Modes
) -> Callable[..., Any]:
    if inspect.isasyncgenfunction(method):
        return _measured_stream(name, heeding_stream(method, modes), metrics)
    if _METHODS[name].server_streaming:
        return _measured_conversation(name, heeding(name, method, modes), metrics)
    return _measured_call(name, heeding(name, method, modes), metrics, clock)


def _measured_call(
    name: str,
    method: Callable[[Request, Context], Awaitable[Answer]],
    metrics: Metrics,
    clock: Clock,
) -> Callable[[Request, Context], Awaitable[Answer]]:
    """Count, time and trace a method, and turn what it raises into a status."""
    metrics.expect(name)
    full_name = f"{SERVICE}/{name}"

    async def measured(request: Request, context: Context) -> Answer:
        began = clock.monotonic()
        code = grpc.StatusCode.UNKNOWN
        with tracing.serving(full_name, context.invocation_metadata) as span:
            try:
                answer = await method(request, context)
                code = grpc.StatusCode.OK
            except PersysError as err:
                code = status.grpc_code(err)
                await context.abort(code, str(err))
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            finally:
                metrics.answered(name, code.name, clock.monotonic() - began)
                span.answered(code.name)
        return answer

    return measured


def _measured_stream(
    name: str,
    method: Callable[[Request, Context], AsyncIterator[Answer]],
    metrics: Metrics,
) -> Callable[[Request, Context], AsyncIterator[Answer]]:
    """The same for a stream, but for time and trace: how long it lasts is the client's choice."""
    metrics.expect(name)

    async def measured(request: Request, context: Context) -> AsyncIterator[Answer]:
        try:
            async for answer in method(request, context):
                yield answer
        except PersysError as err:
            code = status.grpc_code(err)
            metrics.streamed(name, code.name)
            await context.abort(code, str(err))
        metrics.streamed(name, grpc.StatusCode.OK.name)

    return measured


def _measured_conversation(
    name: str, method: Callable[[Request, Context], Awaitable[None]], metrics: Metrics
) -> Callable[[Request, Context], Awaitable[None]]:
    """The same for a method that writes its answers by itself."""
    metrics.expect(name)

    async def measured(request: Request, context: Context) -> None:
        code = grpc.StatusCode.CANCELLED
        try:
            await method(request, context)
            code = grpc.StatusCode.OK
        except PersysError as err:
            code = status.grpc_code(err)
            await context.abort(code, str(err))
        finally:
            metrics.streamed(name, code.name)

    return measured
