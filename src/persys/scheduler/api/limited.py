"""Enforces the limits of the contract on requests. A refusal names the path of the field.

Registrations and heartbeats are not checked here: they are reports, which are trimmed when they are decoded.
"""

from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Self

from google.protobuf.message import Message

from persys.errors import InvalidError
from persys.model.role import Deed
from persys.wire.limits import check as limits_check
from persys.wire.methods import Method


def within_limits(method: Method, request: Any) -> Any:
    """The request, or its messages as they arrive. Raises InvalidError, also during iteration."""
    if method.permission is Deed.REPORT:
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
    limits_check.check(message)


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
