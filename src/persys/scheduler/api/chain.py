"""The interceptors between authorization and the handler of each RPC, configured by its row in METHODS.

Read-only mode, audit, ownership of changes, the scope of tokens with a prefix, containment of defects,
refusals, metrics and traces.
Authorization (`infra/rpc/authorized_service.py`) and forwarding to the leader
(`scheduler/ha/forwarding.py`) run before this.

A change runs in a task of the process: a client that disconnects, or whose deadline passes, does not cancel
it. An upload is processed after all of it was received.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import grpc
from google.protobuf.message import Message

from persys.errors import (
    DefectError,
    FencedError,
    FrozenError,
    InvalidError,
    MissingFieldError,
    PersysError,
    UnavailableError,
)
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import Clock
from persys.infra.rpc.authorized_service import as_writer, contained
from persys.infra.telemetry import tracing
from persys.model.role import Permission
from persys.scheduler.api.methods import DECISIONS, REFUSALS, SERVICE, is_refusal
from persys.scheduler.auth.audit import Audit
from persys.scheduler.auth.prefix_scope import (
    current_prefix,
    home_of,
    limit_response,
    limited_context,
)
from persys.scheduler.metrics.counters import Metrics
from persys.scheduler.recovery.mode import ModeTracker
from persys.wire import errors as wire_errors
from persys.wire.limits import check as limits_check
from persys.wire.metadata_keys import DATA_AGE_MS, MODE
from persys.wire.methods import Audit as Audited
from persys.wire.methods import Method, ReadOnly


def within_limits(method: Method, request: Any) -> Any:
    """The request, or its messages as they arrive. Raises InvalidError, also during iteration."""
    if method.permission is Permission.REPORT:
        return request
    if not isinstance(request, Message):
        return Messages(method, request)
    _check(method, request)
    return request


async def received(method: Method, messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """All messages of an upload, after the last was received. Raises InvalidError if they are too large."""
    size = 0
    complete: deque[Any] = deque()
    async for message in messages:
        size += message.ByteSize()
        if size > method.upload_bytes_max:
            raise InvalidError("upload", f"expected at most {method.upload_bytes_max} bytes")
        complete.append(message)
    return _Received(complete)


class _Received:
    """Yields each message once and releases it."""

    def __init__(self, messages: deque[Any]) -> None:
        self._messages = messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if not self._messages:
            raise StopAsyncIteration
        return self._messages.popleft()


def _check(method: Method, message: Message) -> None:
    size = message.ByteSize()
    if size > method.request_bytes_max:
        raise InvalidError(
            "request", f"{size} bytes, expected at most {method.request_bytes_max} bytes"
        )
    limits_check.check(message, items=method.items)


class Messages:
    """The messages of a stream. Raises InvalidError at a message that exceeds a limit."""

    def __init__(self, method: Method, messages: AsyncIterator[Any]) -> None:
        self._method = method
        self._messages = messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        message = await anext(self._messages)
        _check(self._method, message)
        return message


Context = grpc.aio.ServicerContext[Any, Any]
Handler = Callable[[Any, Any], Awaitable[Any]]

# These end a call with a status although its response could carry a refusal: the client must retry elsewhere,
# or sent an invalid request.
_STATUS_ONLY = (FencedError, MissingFieldError, DefectError)


@dataclass(frozen=True, slots=True)
class Chain:
    """Everything that is applied to a handler. All of it is required: no default allows a call."""

    metrics: Metrics
    clock: Clock
    modes: ModeTracker
    audit: Audit
    owned: OwnedWork
    note_contact: Callable[[str], None]  # of a home cluster
    supervisor: Supervisor

    def wrap(self, method: Method, handler: Callable[..., Any]) -> Handler:
        self.metrics.expect(method.name)
        if method.stream.of_answers:
            return self._stream(method, as_writer(handler))
        return self._call(method, handler)

    def _call(self, method: Method, handler: Handler) -> Handler:
        full_name = f"{SERVICE}/{method.name}"

        async def call(request: Any, context: Context) -> Any:
            self._note_contact(context)
            began = self.clock.monotonic()
            code = grpc.StatusCode.UNKNOWN
            with tracing.server_span(full_name, context.invocation_metadata) as span:
                try:
                    answer = await self._answer(method, handler, request, context)
                    code = grpc.StatusCode.OK
                except PersysError as err:
                    code = wire_errors.grpc_code(err)
                    await context.abort(code, str(err))
                except asyncio.CancelledError:
                    code = grpc.StatusCode.CANCELLED
                    raise
                finally:
                    self.metrics.answered(method.name, code.name, self.clock.monotonic() - began)
                    span.answered(code.name)
            return answer

        return call

    async def _answer(
        self, method: Method, handler: Handler, request: Any, context: Context
    ) -> Any:
        """The handler's response, or one that refuses. Raises what can only be reported as a status."""
        refuse = REFUSALS.get(method.name)
        try:
            self._gate(method, context)
        except FrozenError as err:
            if refuse is None:
                raise
            return refuse(err)
        try:
            request = within_limits(method, request)
            if method.mutating and method.stream.of_requests:
                request = await received(method, request)
            work = partial(self._work, method, handler, request, context)
            if not method.mutating:
                return await work()
            return await self.owned.finish(
                "request", method.name, work, deadline_seconds=method.deadline_seconds
            )
        except PersysError as err:
            if refuse is None or isinstance(err, _STATUS_ONLY):
                raise
            if method.name in DECISIONS and isinstance(err, UnavailableError):
                raise
            if method.stream.of_requests and isinstance(err, InvalidError):
                raise  # an upload that cannot be read
            return refuse(err)

    async def _work(self, method: Method, handler: Handler, request: Any, context: Context) -> Any:
        with self.audit.request(context):
            answer = await contained(self.supervisor, method.name, handler(request, context))
            answer = limit_response(method, answer, current_prefix())
            if method.audit is Audited.END and not is_refusal(answer):
                await self.audit.write(method, request)
            return answer

    def _stream(self, method: Method, handler: Handler) -> Handler:
        async def stream_call(request: Any, context: Context) -> None:
            self._note_contact(context)
            code = grpc.StatusCode.CANCELLED
            try:
                self._gate(method, context)
                with self.audit.request(context):
                    request = within_limits(method, request)
                    if method.audit is Audited.START:
                        request = await self._audited(method, request)
                    limited = limited_context(method, context, current_prefix())
                    await contained(self.supervisor, method.name, handler(request, limited))
                code = grpc.StatusCode.OK
            except PersysError as err:
                code = wire_errors.grpc_code(err)
                await context.abort(code, str(err))
            finally:
                self.metrics.streamed(method.name, code.name)

        return stream_call

    async def _audited(self, method: Method, request: Any) -> Any:
        """The request, after its event is written; for a stream it is written with the first message."""
        if not method.stream.of_requests:
            await self.audit.write(method, request)
            return request
        return self._first_audited(method, request)

    async def _first_audited(
        self, method: Method, messages: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        first = await anext(messages, None)
        if first is None:
            return
        await self.audit.write(method, first)
        yield first
        async for message in messages:
            yield message

    def _note_contact(self, context: Context) -> None:
        if home := home_of(context):
            self.note_contact(home)

    def _gate(self, method: Method, context: Context) -> None:
        """In a frozen mode changes are refused, and every response carries the age of its data."""
        if not self.modes.is_frozen:
            return
        age_ms = round(self.modes.data_age().total_seconds() * 1000)
        mode = self.modes.state.mode.value
        context.set_trailing_metadata(((MODE, mode), (DATA_AGE_MS, str(age_ms))))
        if method.read_only is ReadOnly.REFUSE:
            raise self.modes.refusal()
