"""Serves calls of the agent's own gRPC service that arrive through the control stream.

They use the same servicer as direct calls. Unary calls run concurrently up to a limit. Streaming calls have
limits of their own in the use case that serves them, so that they never delay an order. A call whose caller
disconnects is cancelled.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
)
from contextlib import aclosing
from functools import partial
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError, Message

from persys.agent.api.service import REFUSES_IN_ANSWER
from persys.errors import InvalidError, PersysError
from persys.infra.aio.flow_control import Inbox, SendWindow
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.wire.errors import grpc_code
from persys.wire.gen.agent.v1 import agent_pb2, agent_pb2_grpc
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.limits import check as limits_check

CALLS_MAX = 64  # unary calls that run concurrently
OPEN_CALLS_MAX = 1_024  # all open calls: running, queued and streaming

Send = Callable[[control_pb2.StreamReply], Coroutine[Any, Any, None]]
Write = Callable[[Message], Awaitable[None]]

_METHODS = agent_pb2.DESCRIPTOR.services_by_name["AgentService"].methods_by_name


class AbortedError(PersysError):
    """The servicer aborted a call with a gRPC status."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class TunnelContext:
    """The servicer context of a call that has no gRPC connection of its own."""

    def __init__(self, metadata: Mapping[str, str], write: Write) -> None:
        self._metadata = tuple(metadata.items())
        self.write = write

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        raise AbortedError(code, details)


class TunnelServer:
    def __init__(self, api: agent_pb2_grpc.AgentServiceServicer, supervisor: Supervisor) -> None:
        self._api = api
        self._supervisor = supervisor
        self._slots = asyncio.Semaphore(CALLS_MAX)
        self._open_calls: dict[tuple[Send, int], _Call] = {}  # call ids are unique per stream

    def handle(self, call: control_pb2.StreamCall, send: Send, group: asyncio.TaskGroup) -> None:
        if call.method:
            if (problem := self._problem(call, send)) is not None:
                group.create_task(send(problem))
                return
            begun = _Call(call, send)
            begun.task = group.create_task(self._serve(begun))
            self._open_calls[send, call.id] = begun
            begun.task.add_done_callback(lambda _: self._open_calls.pop((send, call.id), None))
        elif (known := self._open_calls.get((send, call.id))) is not None:
            known.receive(call)

    def _problem(self, call: control_pb2.StreamCall, send: Send) -> control_pb2.StreamReply | None:
        """The reply that refuses a call, or None if it can start."""
        code, text = (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"too many open calls: the limit is {OPEN_CALLS_MAX}",
        )
        if (send, call.id) in self._open_calls:
            code, text = grpc.StatusCode.ALREADY_EXISTS, f"call {call.id} is already open"
        elif len(self._open_calls) < OPEN_CALLS_MAX:
            try:
                limits_check.check(call)
            except InvalidError as err:
                code, text = grpc.StatusCode.INVALID_ARGUMENT, str(err)
            else:
                return None
        return control_pb2.StreamReply(id=call.id, code=code.value[0], message=text, last=True)

    def cancel_calls(self, send: Send) -> None:
        """Cancel the calls of a stream that has closed."""
        for (opened_by, _), call in list(self._open_calls.items()):
            if opened_by == send and call.task is not None:
                call.task.cancel()

    async def _serve(self, call: "_Call") -> None:
        errors: list[InternalError] = []
        with self._supervisor.contain("call", call.opening.method, failed=errors.append):
            try:
                last = await self._answer(call)
            except AbortedError as err:
                last = _refusal(err.code, str(err))
            except PersysError as err:
                last = _refusal(grpc_code(err), str(err))
        if errors:
            last = _refusal(grpc.StatusCode.INTERNAL, f"internal error: {errors[0].text}")
        await call.reply(last)

    async def _answer(self, call: "_Call") -> control_pb2.StreamReply:
        """Write all replies except the last one, which is returned."""
        name = call.opening.method
        known = _METHODS.get(name)
        method: Callable[..., Any] | None = getattr(self._api, name, None)
        if known is None or method is None:
            raise AbortedError(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {name}")
        kind = getattr(agent_pb2, known.input_type.name)
        read = partial(_read, kind, checked=name not in REFUSES_IN_ANSWER)
        context = TunnelContext(call.opening.metadata, call.write)
        if not known.server_streaming:
            async with self._slots:
                answer = await method(read(call.opening.request), context)
            return control_pb2.StreamReply(response=answer.SerializeToString(), last=True)
        requests = call.requests(read) if known.client_streaming else read(call.opening.request)
        answers = method(requests, context)
        if isinstance(answers, AsyncGenerator):
            # An abandoned generator would hold its resources until the garbage collector closes it.
            async with aclosing(answers):
                async for answer in answers:
                    await call.write(answer)
        else:
            await answers
        return control_pb2.StreamReply(last=True)


def _read(kind: type[Message], request: bytes, *, checked: bool) -> Message:
    """`checked`: the limits are checked here, and not when the order is decoded."""
    try:
        message = kind.FromString(request)
    except DecodeError as err:
        text = f"the request cannot be parsed as {kind.DESCRIPTOR.name}"
        raise AbortedError(grpc.StatusCode.INVALID_ARGUMENT, text) from err
    if checked:
        limits_check.check(message)
    return message


def _refusal(code: grpc.StatusCode, text: str) -> control_pb2.StreamReply:
    return control_pb2.StreamReply(code=code.value[0], message=text, last=True)


class _Call:
    """An open call: its queued requests and its send window."""

    def __init__(self, opening: control_pb2.StreamCall, send: Send) -> None:
        self.opening = opening
        self.task: asyncio.Task[None] | None = None
        self._send = send
        self._window = opening.window
        self._may_send = SendWindow(opening.window or 1)
        # One more than the window, for the end marker.
        self._arrived: Inbox[bytes | AbortedError | None] = Inbox(opening.window + 1)
        self._taken = 0

    def receive(self, call: control_pb2.StreamCall) -> None:
        assert self.task is not None
        if self._window and not self._may_send.give_back(call.taken):
            self._break(f"acknowledged {call.taken} messages that were not sent")
        elif (call.more and not self._arrived.put(call.request)) or (
            call.last and not self._arrived.put(None)
        ):
            self._break("sent more messages than the window allows")
        if call.cancel:
            self.task.cancel()

    def _break(self, why: str) -> None:
        """Fail this call only. A call that reads no more requests is ended by its caller."""
        err = AbortedError(grpc.StatusCode.INVALID_ARGUMENT, f"the scheduler {why}")
        self._arrived.replace_all(err)

    async def requests(self, read: Callable[[bytes], Message]) -> AsyncIterator[Message]:
        request: bytes | AbortedError | None = self.opening.request
        while request is not None:
            if isinstance(request, AbortedError):
                raise request
            self._taken += 1
            yield read(request)
            if self._window and self._taken >= self._window // 2:
                await self.reply(control_pb2.StreamReply(taken=self._taken))
                self._taken = 0
            request = await self._arrived.get()

    async def write(self, message: Message) -> None:
        if self._window:
            await self._may_send.acquire()
        await self.reply(control_pb2.StreamReply(response=message.SerializeToString()))

    async def reply(self, reply: control_pb2.StreamReply) -> None:
        reply.id = self.opening.id
        await self._send(reply)
