"""Calls of the agent's own service that came through the control stream, answered by the same door as others.

Many run at once, up to a bound; one that its caller has left is cancelled.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NoReturn

import grpc

from persys.errors import PersysError
from persys.wire.gen.agent.v1 import agent_pb2, agent_pb2_grpc
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.status import grpc_code

CALLS_MAX = 64

Send = Callable[[control_pb2.StreamReply], Awaitable[None]]

_METHODS = agent_pb2.DESCRIPTOR.services_by_name["AgentService"].methods_by_name
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class AbortedError(PersysError):
    """The door refused a call."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class StreamedContext:
    """What the door needs to know of a call that has no connection of its own."""

    def __init__(self, metadata: Mapping[str, str]) -> None:
        self._metadata = tuple(metadata.items())

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        raise AbortedError(code, details)


class StreamedCalls:
    def __init__(self, api: agent_pb2_grpc.AgentServiceServicer) -> None:
        self._api = api
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._under_way: dict[int, asyncio.Task[None]] = {}

    def take(self, call: control_pb2.StreamCall, send: Send, group: asyncio.TaskGroup) -> None:
        if call.cancel:
            if (task := self._under_way.get(call.id)) is not None:
                task.cancel()
            return
        task = group.create_task(self._serve(call, send))
        self._under_way[call.id] = task
        task.add_done_callback(lambda _: self._under_way.pop(call.id, None))

    async def _serve(self, call: control_pb2.StreamCall, send: Send) -> None:
        async with self._room:
            try:
                async for response in self._answers(call):
                    await send(control_pb2.StreamReply(id=call.id, response=response))
                last = control_pb2.StreamReply(id=call.id, last=True)
            except AbortedError as err:
                code = err.code.value[0]
                last = control_pb2.StreamReply(id=call.id, code=code, message=str(err), last=True)
            except PersysError as err:
                code = grpc_code(err).value[0]
                last = control_pb2.StreamReply(id=call.id, code=code, message=str(err), last=True)
            await send(last)

    async def _answers(self, call: control_pb2.StreamCall) -> AsyncIterator[bytes]:
        known = _METHODS.get(call.method)
        method: Callable[..., Any] | None = getattr(self._api, call.method, None)
        if known is None or method is None:
            raise AbortedError(grpc.StatusCode.UNIMPLEMENTED, f"no method {call.method}")
        request = getattr(agent_pb2, known.input_type.name).FromString(call.request)
        context = StreamedContext(call.metadata)
        if inspect.isasyncgenfunction(method):
            async for response in method(request, context):
                yield response.SerializeToString()
        else:
            yield (await method(request, context)).SerializeToString()
