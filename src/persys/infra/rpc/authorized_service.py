"""Wraps a gRPC service with authorization of every call, repeated while a stream is open.

A stream whose certificate or token expires or is revoked ends within RECHECK_SECONDS, even without messages.
An unexpected exception in a handler ends only its call, with INTERNAL. Bytes that cannot be parsed are
refused with INVALID_ARGUMENT and not logged: gRPC itself responds with UNKNOWN and logs a traceback. Stream
handlers are served as coroutines that write their responses to the context.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, Self

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from persys.errors import DefectError, DeniedError, InvalidError, UnavailableError
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.infra.aio.task_group import task_group
from persys.infra.rpc import bearer
from persys.infra.rpc.authorizer import AuthorizedCall, Authorizer, Context

RECHECK_SECONDS = 5.0

Handler = Callable[[Any, Any], Awaitable[Any]]

# Raised by gRPC in a handler whose call has ended. Not a defect.
_CALL_ENDED = (grpc.aio.AbortError, grpc.aio.UsageError)


class AuthorizedService:
    """The servicer with each handler wrapped. With `authorizer` None (-insecure) every caller is admitted."""

    def __init__(
        self,
        servicer: Any,
        service: ServiceDescriptor,
        authorizer: Authorizer | None,
        supervisor: Supervisor,
        *,
        recheck_seconds: float = RECHECK_SECONDS,
    ) -> None:
        self._service = service
        self._authorizer = authorizer
        self._supervisor = supervisor
        self._recheck_seconds = recheck_seconds
        for method in service.methods:
            handler: Any = getattr(servicer, method.name, None)
            if not (inspect.iscoroutinefunction(handler) or inspect.isasyncgenfunction(handler)):
                setattr(self, method.name, _unimplemented)  # the method of the generated base class
                continue
            if method.server_streaming:
                handler = as_writer(handler)
            streams = method.server_streaming or method.client_streaming
            make = self._stream if streams else self._unary
            setattr(self, method.name, make(method.name, handler))

    def add_to(self, server: grpc.aio.Server) -> None:
        handlers = {
            method.name: _method_handler(method, getattr(self, method.name))
            for method in self._service.methods
        }
        generic = grpc.method_handlers_generic_handler(self._service.full_name, handlers)
        server.add_generic_rpc_handlers((generic,))

    def _unary(self, name: str, handler: Handler) -> Handler:
        async def call(request: Any, context: Context) -> Any:
            if isinstance(request, _Unparsed):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, request.problem)
            authorized = await self._authorize(name, request, context)
            return await self._contained(name, handler(authorized.request, context), context)

        return call

    def _stream(self, name: str, handler: Handler) -> Handler:
        async def serve_stream(request: Any, context: Context) -> Any:
            if isinstance(request, _Unparsed):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, request.problem)
            if hasattr(request, "__aiter__"):
                request = _Parsed(request)
            authorized = await self._authorize(name, request, context)
            authorizer = self._authorizer
            if authorizer is None:
                return await self._contained(name, handler(authorized.request, context), context)
            session = _Session(name, authorized, context, authorizer)
            messages = authorized.request
            if hasattr(messages, "__aiter__"):
                messages = session.checked(messages)
            try:
                async with task_group() as group:
                    watch = group.create_task(session.watch(self._recheck_seconds))
                    response = await self._contained(name, handler(messages, session), context)
                    watch.cancel()
                return response
            except DeniedError as err:
                await _refuse(err, context)
            except asyncio.CancelledError:
                # A forwarded call whose messages end with an error ends in the same way.
                if session.denied is None:
                    raise
                await _refuse(session.denied, context)

        return serve_stream

    async def _authorize(self, name: str, request: Any, context: Context) -> AuthorizedCall:
        if self._authorizer is None:
            return AuthorizedCall(request)
        try:
            return self._authorizer.authorize(name, context, request)
        except DeniedError as err:
            await _refuse(err, context)
        except UnavailableError as err:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(err))

    async def _contained(self, name: str, work: Awaitable[Any], context: Context) -> Any:
        try:
            return await contained(self._supervisor, name, work)
        except DefectError as err:
            await context.abort(grpc.StatusCode.INTERNAL, str(err))


async def contained(supervisor: Supervisor, name: str, work: Awaitable[Any]) -> Any:
    """Await the work of one call. Raises DefectError in place of an unexpected exception."""
    ended: BaseException | None = None
    failures: list[InternalError] = []
    with supervisor.contain("rpc", name, failed=failures.append):
        try:
            return await work
        except _CALL_ENDED as err:
            ended = err
    if ended is not None:
        raise ended
    raise DefectError(f"internal error in {name}: {failures[0].text}")


def as_writer(handler: Callable[..., Any]) -> Handler:
    """The handler as a coroutine that writes its responses to the context."""
    if not inspect.isasyncgenfunction(handler):
        return handler

    async def write(request: Any, context: Any) -> None:
        responses = handler(request, context)
        try:
            async for response in responses:
                await context.write(response)
        finally:
            await responses.aclose()

    return write


class _Session:
    """The context of an open stream. Authorization is checked at each message and while idle."""

    def __init__(
        self, name: str, authorized: AuthorizedCall, context: Context, authorizer: Authorizer
    ) -> None:
        self._name = name
        self._authorized = authorized
        self._context = context
        self._authorizer = authorizer
        self.denied: DeniedError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def watch(self, every_seconds: float) -> NoReturn:
        """Raises DeniedError once the caller is no longer authorized."""
        while True:
            await asyncio.sleep(every_seconds)
            self._recheck()

    async def write(self, message: Any) -> None:
        self._recheck()
        await self._context.write(message)

    def checked(self, messages: AsyncIterator[Any]) -> "_Messages":
        return _Messages(messages, self)

    def _recheck(self) -> None:
        try:
            self._authorizer.recheck(self._authorized, self._name, self._context)
        except DeniedError as err:
            self.denied = err
            raise

    async def next_of(self, messages: AsyncIterator[Any]) -> Any:
        try:
            message = await anext(messages)
        except DeniedError as err:  # refused by `narrow`
            self._authorizer.report_denial(err, self._name, self._context)
            self.denied = err
            raise
        self._recheck()
        return message


class _Unparsed:
    """A request that cannot be parsed."""

    def __init__(self, kind: type[Message]) -> None:
        self.problem = f"the request cannot be parsed as {kind.DESCRIPTOR.name}"


def _method_handler(method: MethodDescriptor, handler: Handler) -> Any:
    kind: Any = GetMessageClass(method.input_type)

    def parse(data: bytes) -> Any:
        try:
            return kind.FromString(data)
        except DecodeError:
            return _Unparsed(kind)

    make: Any = _MAKERS[method.client_streaming, method.server_streaming]
    return make(handler, request_deserializer=parse, response_serializer=_encode)


def _encode(response: Message) -> bytes:
    return response.SerializeToString()


# Keys: whether requests, and responses, are streams.
_MAKERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


class _Parsed:
    """The messages of a stream. Raises InvalidError for bytes that cannot be parsed."""

    def __init__(self, messages: AsyncIterator[Any]) -> None:
        self._messages = messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        message = await anext(self._messages)
        if isinstance(message, _Unparsed):
            raise InvalidError("message", message.problem)
        return message


class _Messages:
    """Checked messages. Not a generator: gRPC may read it from another task than the handler."""

    def __init__(self, messages: AsyncIterator[Any], session: _Session) -> None:
        self._messages = messages
        self._session = session

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self._session.next_of(self._messages)


async def _unimplemented(_request: Any, context: Context) -> NoReturn:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not supported by this version")


async def _refuse(err: DeniedError, context: Context) -> NoReturn:
    denied, unknown = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED
    await context.abort(unknown if err.reason == bearer.REASON else denied, str(err))
