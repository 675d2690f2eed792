"""The AgentControl service, put together from its parts: each call is counted, timed, and refused by code.

A part is any object whose methods have the names of the contract. What no part has is UNIMPLEMENTED.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc

from persys.errors import InvalidError, PersysError
from persys.infra.clock import Clock
from persys.scheduler.metrics import Metrics
from persys.wire import status
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

Request = TypeVar("Request")
Answer = TypeVar("Answer")

Context = grpc.aio.ServicerContext[Any, Any]


class ControlApi(control_pb2_grpc.AgentControlServicer):
    def __init__(self, *parts: object, metrics: Metrics, clock: Clock) -> None:
        service = control_pb2.DESCRIPTOR.services_by_name["AgentControl"]
        for name in (method.name for method in service.methods):
            for part in parts:
                if (method := getattr(part, name, None)) is not None:
                    setattr(self, name, _measured(name, method, metrics, clock))


def need(value: str, field: str) -> None:
    if not value:
        raise InvalidError(field, "is missing")


def _measured(
    name: str, method: Callable[..., Any], metrics: Metrics, clock: Clock
) -> Callable[..., Any]:
    measure = _measured_stream if inspect.isasyncgenfunction(method) else _measured_call
    return measure(name, method, metrics, clock)


def _measured_call(
    name: str,
    method: Callable[[Request, Context], Awaitable[Answer]],
    metrics: Metrics,
    clock: Clock,
) -> Callable[[Request, Context], Awaitable[Answer]]:
    """Count and time a method, and turn what it raises into a status."""
    answered = metrics.requests.labels(name, "OK")
    seconds = metrics.seconds.labels(name)

    async def measured(request: Request, context: Context) -> Answer:
        began = clock.monotonic()
        try:
            answer = await method(request, context)
        except PersysError as err:
            await _refuse(name, err, metrics, context)
        answered.inc()
        seconds.observe(clock.monotonic() - began)
        return answer

    return measured


def _measured_stream(
    name: str,
    method: Callable[[Request, Context], AsyncIterator[Answer]],
    metrics: Metrics,
    _clock: Clock,
) -> Callable[[Request, Context], AsyncIterator[Answer]]:
    """The same for a stream, but for the time: how long it lasts is the client's choice."""
    answered = metrics.requests.labels(name, "OK")

    async def measured(request: Request, context: Context) -> AsyncIterator[Answer]:
        try:
            async for answer in method(request, context):
                yield answer
        except PersysError as err:
            await _refuse(name, err, metrics, context)
        answered.inc()

    return measured


async def _refuse(name: str, err: PersysError, metrics: Metrics, context: Context) -> None:
    code = status.grpc_code(err)
    metrics.requests.labels(name, code.name).inc()
    await context.abort(code, str(err))
