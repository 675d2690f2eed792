"""A service behind a door: every call and every message of a stream passes it.

What would surprise: a certificate or a token that is taken back ends its streams too, at their next message.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn, Self

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from persys.errors import DeniedError, UnavailableError
from persys.infra import bearer
from persys.infra.door import CALLER, SHOWN, Context, Door


def guarded(servicer: Any, service: ServiceDescriptor, door: Door | None) -> Any:
    """The same servicer behind a door; without one, anybody is served."""
    if door is None:
        return servicer
    return _Guarded(servicer, service, door)


class _Guarded:
    def __init__(self, servicer: Any, service: ServiceDescriptor, door: Door) -> None:
        for method in service.methods:
            inner = getattr(servicer, method.name)
            make = _call
            if method.server_streaming:
                make = _answers if inspect.isasyncgenfunction(inner) else _conversation
            setattr(self, method.name, make(method.name, inner, door))


def _call(name: str, inner: Callable[..., Any], door: Door) -> Callable[..., Any]:
    async def call(request: Any, context: Context) -> Any:
        entered = await _enter(name, request, context, door)
        if hasattr(entered, "__aiter__"):
            return await _heard(name, inner, entered, context, door)
        return await inner(entered, context)

    return call


def _conversation(name: str, inner: Callable[..., Any], door: Door) -> Callable[..., Any]:
    """One that writes its answers by itself."""

    async def converse(request: Any, context: Context) -> None:
        entered = await _enter(name, request, context, door)
        watched = _Watched(name, context, door)
        if hasattr(entered, "__aiter__"):
            await _heard(name, inner, entered, watched, door)
        else:
            await inner(entered, watched)

    return converse


async def _heard(
    name: str, inner: Callable[..., Any], entered: Any, context: Any, door: Door
) -> Any:
    messages = _Messages(name, entered, context, door)
    try:
        return await inner(messages, context)
    except asyncio.CancelledError:
        # So it looks when a call is passed on whose messages end in error.
        if messages.denied is None:
            raise
        await _refuse(messages.denied, context)


def _answers(name: str, inner: Callable[..., Any], door: Door) -> Callable[..., Any]:
    async def answers(request: Any, context: Context) -> AsyncIterator[Any]:
        entered = await _enter(name, request, context, door)
        shown, token_id = SHOWN.get(), _token_id()
        async for one in inner(entered, context):
            try:
                door.look_again(shown, token_id, name, context)
            except DeniedError as err:
                await _refuse(err, context)
            yield one

    return answers


class _Watched:
    """The way back to a caller, for as long as what it has shown is good."""

    def __init__(self, name: str, context: Context, door: Door) -> None:
        self._name = name
        self._context = context
        self._door = door
        self._shown, self._token_id = SHOWN.get(), _token_id()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, message: Any) -> None:
        try:
            self._door.look_again(self._shown, self._token_id, self._name, self._context)
        except DeniedError as err:
            await _refuse(err, self._context)
        await self._context.write(message)


class _Messages:
    """What comes on a stream, for as long as its sender's certificate is good."""

    def __init__(
        self, name: str, messages: AsyncIterator[Any], context: Context, door: Door
    ) -> None:
        self._name = name
        self._messages = messages
        self._context = context
        self._door = door
        self._shown, self._token_id = SHOWN.get(), _token_id()
        self.denied: DeniedError | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            message = await anext(self._messages)
        except DeniedError as err:  # of what is taken from this sender
            self._door.tell(err, self._name, self._context)
            self.denied = err
            raise
        try:
            self._door.look_again(self._shown, self._token_id, self._name, self._context)
        except DeniedError as err:
            self.denied = err
            raise
        return message


async def _enter(name: str, request: Any, context: Context, door: Door) -> Any:
    try:
        return door.admit(name, context, request)
    except DeniedError as err:
        await _refuse(err, context)
    except UnavailableError as err:
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(err))


async def _refuse(err: DeniedError, context: Context) -> NoReturn:
    denied, unknown = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED
    await context.abort(unknown if err.reason == bearer.REASON else denied, str(err))


def _token_id() -> str:
    caller = CALLER.get()
    return caller.token_id if caller is not None else ""
