"""Calls between simulated processes: serialised, and delayed, lost, duplicated or cut by faults.

A call behaves like gRPC: at its deadline the caller gives up and the handler is cancelled. A request of a
crashed process does not arrive.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NoReturn, Protocol

import grpc

from persys.sim.engine.process import SimProcess
from persys.sim.engine.virtual_loop import later

DELAY_SECONDS = (0.0002, 0.004)
ECHO_SECONDS_MAX = 0.2

Metadata = tuple[tuple[str, str], ...]


class AbortedError(Exception):
    """A handler aborted the call with a status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class Context:
    """The part of gRPC's context that handlers use. `deadline` is an instant on the loop's clock."""

    def __init__(self, metadata: Metadata = (), deadline: float | None = None) -> None:
        self._metadata = metadata
        self._deadline = deadline
        self._trailing: Metadata = ()
        self.written: list[Any] = []

    async def write(self, message: Any) -> None:
        """Add a message to a streamed response."""
        self.written.append(message)

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        raise AbortedError(code, details)

    def invocation_metadata(self) -> Metadata:
        return self._metadata

    def time_remaining(self) -> float | None:
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    def trailing_metadata(self) -> Metadata:
        return self._trailing

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        self._trailing = metadata


@dataclass(slots=True, eq=False)
class LinkFaults:
    """Faults of one direction of a link, from `source` to `target`; an empty name matches any."""

    source: str = ""
    target: str = ""
    loss: float = 0.0
    echo: float = 0.0
    delay_seconds: float = 0.0

    def reaches(self, source: str, target: str) -> bool:
        return self.source in ("", source) and self.target in ("", target)


@dataclass(slots=True)
class Answer:
    code: grpc.StatusCode
    details: str = ""
    messages: tuple[bytes, ...] = ()
    trailing: Metadata = ()


@dataclass(slots=True)
class Call:
    source: SimProcess
    target: str
    method: str
    request: Any
    deadline: float
    answer: asyncio.Future[Answer]
    metadata: Metadata = ()
    answer_type: Any = field(default=None)


class Stream(Protocol):
    @property
    def caller(self) -> str: ...

    def cut(self) -> None: ...

    def lose(self, direction: str) -> None: ...


class Network:
    def __init__(self, random: Random, *, resolve: Callable[[str, str], SimProcess | None]) -> None:
        """`resolve` returns the process that listens at an address, for a caller."""
        self._random = random
        self._resolve = resolve
        self.link_faults: list[LinkFaults] = []
        self.powered_off: set[str] = set()
        self.behind_nat: set[str] = set()  # reachable only over connections that they opened
        self.silent_registries: set[str] = set()  # pulls from them hang
        self.streams: set[Stream] = set()
        self.breaks: dict[str, int] = {}  # caller: its stream breaks after this many messages
        self.on_answer: Callable[[SimProcess, str, Any, Any, Metadata], None] = lambda *_: None
        self.on_send: Callable[[SimProcess, str], None] = lambda *_: None
        self.on_request: Callable[[str, str, Any], None] = lambda *_: None

    async def call(
        self, source: SimProcess, target: str, method: str, request: Any, *, timeout: float
    ) -> list[Any]:
        """The response messages: one for a unary call. Raises AioRpcError like gRPC."""
        messages, _ = await self.exchange(self.new_call(source, target, method, request, timeout))
        return messages

    def new_call(
        self,
        source: SimProcess,
        target: str,
        method: str,
        request: Any,
        timeout: float,
        metadata: Metadata = (),
    ) -> Call:
        loop = asyncio.get_running_loop()
        self.on_send(source, method)
        answer: asyncio.Future[Answer] = loop.create_future()
        return Call(source, target, method, request, loop.time() + timeout, answer, metadata)

    async def exchange(self, call: Call) -> tuple[list[Any], Metadata]:
        await call.source.gate("send")
        self._send(call.source.name, call.target, lambda: self._deliver(call))
        try:
            async with asyncio.timeout_at(call.deadline):
                got = await call.answer
        except TimeoutError as err:
            raise rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from err
        await call.source.gate("answered")
        if got.code is not grpc.StatusCode.OK:
            raise rpc_error(got.code, got.details, got.trailing)
        return [call.answer_type.FromString(message) for message in got.messages], got.trailing

    def is_open(self, source: str, target: str) -> bool:
        """Whether a connection can be opened now."""
        if target in self.powered_off or source in self.powered_off or target in self.behind_nat:
            return False
        return not any(
            link_faults.loss >= 1
            and (link_faults.reaches(source, target) or link_faults.reaches(target, source))
            for link_faults in self.link_faults
        )

    def listener(self, source: str, target: str) -> SimProcess | None:
        return self._resolve(source, target)

    def crossing(self, source: str, target: str) -> float | None:
        """The delay of a message on an ordered connection; None: it is lost."""
        delay = self._random.uniform(*DELAY_SECONDS)
        if source in self.powered_off or target in self.powered_off:
            return None
        for link_faults in self.link_faults:
            if not link_faults.reaches(source, target):
                continue
            if link_faults.loss and self._random.random() < link_faults.loss:
                return None
            if link_faults.delay_seconds:
                delay += self._random.expovariate(1 / link_faults.delay_seconds)
        return delay

    def sent_on(self, stream: Stream) -> None:
        """A message was sent: the stream may break here."""
        if (left := self.breaks.get(stream.caller)) is None:
            return
        self.breaks[stream.caller] = left - 1
        if left <= 1:
            del self.breaks[stream.caller]
            stream.cut()

    def _send(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        delay = self._random.uniform(*DELAY_SECONDS)
        copies = 1
        for link_faults in self.link_faults:
            if not link_faults.reaches(source, target):
                continue
            if link_faults.loss and self._random.random() < link_faults.loss:
                return
            if link_faults.delay_seconds:
                delay += self._random.expovariate(1 / link_faults.delay_seconds)
            if link_faults.echo and self._random.random() < link_faults.echo:
                copies = 2
        for copy in range(copies):
            later(delay + copy * self._random.uniform(0, ECHO_SECONDS_MAX), deliver)

    def _deliver(self, call: Call) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() >= call.deadline or not call.source.alive:
            return
        if call.target in self.powered_off or call.target in self.behind_nat:
            return
        listener = self._resolve(call.source.name, call.target)
        handler = listener.serves.get(call.method) if listener is not None else None
        if listener is None or handler is None:
            refused = Answer(grpc.StatusCode.UNAVAILABLE, f"{call.target} refuses connections")
            self._answer(call, refused)
            return
        listener.spawn(self._handle(listener, handler, call))

    async def _handle(self, listener: SimProcess, handler: Callable[..., Any], call: Call) -> None:
        request = type(call.request).FromString(call.request.SerializeToString())
        listener.answers_call()
        self.on_request(listener.name, call.method, request)
        await listener.gate("receive")
        context = Context(call.metadata, call.deadline)
        try:
            async with asyncio.timeout_at(call.deadline):
                got = await _messages(handler(request, context), context)
        except AbortedError as err:
            answer = Answer(err.code, err.details, trailing=context.trailing_metadata())
        except TimeoutError:
            return
        else:
            if asyncio.get_running_loop().time() >= call.deadline:
                return  # it was frozen: the caller has given up
            trailing = context.trailing_metadata()
            for message in got:
                self.on_answer(listener, call.method, request, message, trailing)
                call.answer_type = type(message)
            encoded = tuple(one.SerializeToString() for one in got)
            answer = Answer(grpc.StatusCode.OK, "", encoded, trailing)
        await listener.gate("answer")
        self._answer(call, answer)

    def _answer(self, call: Call, answer: Answer) -> None:
        def deliver() -> None:
            if not call.answer.done():
                call.answer.set_result(answer)

        self._send(call.target, call.source.name, deliver)


def rpc_error(code: grpc.StatusCode, details: str, trailing: Metadata = ()) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)


async def _messages(answer: Any, context: Context) -> list[Any]:
    """A handler yields its messages, writes them to the context, or returns the only one."""
    if hasattr(answer, "__aiter__"):
        return [message async for message in answer]
    only = await answer
    return context.written if only is None else [only]
