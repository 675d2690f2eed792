"""Handlers behind the limits of the contract: a request that exceeds one is refused by the field's path.

The refusal is in the answer where the contract has fields for it, else a status.
Registrations and heartbeats are not among them: they are reports, which are trimmed where they are read.
"""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Self

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from persys.errors import InvalidError
from persys.wire import limits
from persys.wire.gen.control.v1 import control_pb2

_METHODS = control_pb2.DESCRIPTOR.services_by_name["AgentControl"].methods_by_name
_FLAGS = ("accepted", "success")
_TEXTS = ("reason", "error_message")

REPORTS = frozenset({"RegisterNode", "Heartbeat", "ControlStream"})


def limited(name: str, handler: Callable[..., Any]) -> Callable[..., Any]:
    """The same handler, called only with messages within their limits. InvalidError else."""
    if name in REPORTS:
        return handler

    if inspect.isasyncgenfunction(handler):

        async def answers(request: Any, context: Any) -> AsyncIterator[Any]:
            async with aclosing(handler(_within(request), context)) as found:
                async for answer in found:
                    yield answer

        return answers

    refuse = _refusal(_METHODS[name].output_type)

    async def call(request: Any, context: Any) -> Any:
        try:
            within = _within(request)
        except InvalidError as err:
            if refuse is None:
                raise
            return refuse(str(err))
        return await handler(within, context)

    return call


def _refusal(answer: Descriptor) -> Callable[[str], Message] | None:
    """What makes the answer that refuses; None for a message that has no fields for it."""
    text = next((name for name in _TEXTS if name in answer.fields_by_name), None)
    if text is None or not any(flag in answer.fields_by_name for flag in _FLAGS):
        return None
    values: dict[str, Any] = {}
    if "failure_reason" in answer.fields_by_name:
        values["failure_reason"] = control_pb2.INVALID_SPEC
    if "decision" in answer.fields_by_name:
        values["decision"] = "rejected"
    make = GetMessageClass(answer)
    return lambda why: make(**{text: why}, **values)


def _within(request: Any) -> Any:
    if isinstance(request, Message):
        limits.check(request)
        return request
    return Messages(request)


class Messages:
    """What comes on a stream. Raises InvalidError at a message that exceeds a limit."""

    def __init__(self, messages: AsyncIterator[Any]) -> None:
        self._messages = messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        message = await anext(self._messages)
        limits.check(message)
        return message
