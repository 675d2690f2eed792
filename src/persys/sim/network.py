"""Calls between simulated processes: serialised, delayed, lost, doubled, cut off, as the faults say.

A call is like one over gRPC: it has a deadline, at which the caller gives up and the handler is cancelled. A
request whose sender has died does not arrive any more.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any, NoReturn

import grpc

from persys.sim.life import Life
from persys.sim.loop import later

DELAY_SECONDS = (0.0002, 0.004)
ECHO_SECONDS_MAX = 0.2


class AbortedError(Exception):
    """How a handler ends that refuses with a status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class Context:
    """As much of gRPC's as handlers use."""

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        raise AbortedError(code, details)

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def set_trailing_metadata(self, metadata: object) -> None:
        """Nobody here reads it."""


@dataclass(slots=True, eq=False)
class Weather:
    """A time of bad weather between two places; empty names mean any. One way: from `source` to `target`."""

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


@dataclass(slots=True)
class _Call:
    source: Life
    target: str
    method: str
    request: Any
    deadline: float
    answer: asyncio.Future[Answer]
    answer_type: Any = field(default=None)


class Network:
    def __init__(self, random: Random, *, resolve: Callable[[str, str], Life | None]) -> None:
        """`resolve` gives the process that listens at an address, as seen by a caller."""
        self._random = random
        self._resolve = resolve
        self.weather: list[Weather] = []
        self.powered_off: set[str] = set()
        self.on_answer: Callable[[Life, str, Any, Any], None] = lambda *_: None
        self.on_request: Callable[[str, str, Any], None] = lambda *_: None

    async def call(
        self, source: Life, target: str, method: str, request: Any, *, timeout: float
    ) -> list[Any]:
        """The answer's messages, one but for streams. AioRpcError as gRPC would raise it."""
        await source.gate("send")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        call = _Call(source, target, method, request, loop.time() + timeout, answer)
        self._send(source.name, target, lambda: self._deliver(call))
        try:
            async with asyncio.timeout(timeout):
                got = await answer
        except TimeoutError as err:
            raise _error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from err
        await source.gate("answered")
        if got.code is not grpc.StatusCode.OK:
            raise _error(got.code, got.details)
        return [call.answer_type.FromString(message) for message in got.messages]

    def _send(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        delay = self._random.uniform(*DELAY_SECONDS)
        copies = 1
        for weather in self.weather:
            if not weather.reaches(source, target):
                continue
            if weather.loss and self._random.random() < weather.loss:
                return
            if weather.delay_seconds:
                delay += self._random.expovariate(1 / weather.delay_seconds)
            if weather.echo and self._random.random() < weather.echo:
                copies = 2
        for copy in range(copies):
            later(delay + copy * self._random.uniform(0, ECHO_SECONDS_MAX), deliver)

    def _deliver(self, call: _Call) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() >= call.deadline or not call.source.alive:
            return
        if call.target in self.powered_off:
            return
        listener = self._resolve(call.source.name, call.target)
        handler = listener.serves.get(call.method) if listener is not None else None
        if listener is None or handler is None:
            refused = Answer(grpc.StatusCode.UNAVAILABLE, f"{call.target} refuses connections")
            self._answer(call, refused)
            return
        listener.spawn(self._handle(listener, handler, call))

    async def _handle(self, listener: Life, handler: Callable[..., Any], call: _Call) -> None:
        request = type(call.request).FromString(call.request.SerializeToString())
        self.on_request(listener.name, call.method, request)
        await listener.gate("receive")
        try:
            async with asyncio.timeout_at(call.deadline):
                got = await _messages(handler(request, Context()))
        except AbortedError as err:
            answer = Answer(err.code, err.details)
        except TimeoutError:
            return
        else:
            for message in got:
                self.on_answer(listener, call.method, request, message)
                call.answer_type = type(message)
            answer = Answer(grpc.StatusCode.OK, "", tuple(one.SerializeToString() for one in got))
        await listener.gate("answer")
        self._answer(call, answer)

    def _answer(self, call: _Call, answer: Answer) -> None:
        def deliver() -> None:
            if not call.answer.done():
                call.answer.set_result(answer)

        self._send(call.target, call.source.name, deliver)


def _error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


class Stub:
    """Stands for a generated stub: any method of the service, as a call through the network."""

    def __init__(self, network: Network, source: Life, target: str) -> None:
        self._network = network
        self._source = source
        self._target = target

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(request: Any, timeout: float, **_others: Any) -> _Pending:
            return _Pending(
                lambda: self._network.call(
                    self._source, self._target, method, request, timeout=timeout
                )
            )

        return call


class _Pending:
    """A call that was made: awaited for its answer, or read as a stream."""

    def __init__(self, call: Callable[[], Awaitable[list[Any]]]) -> None:
        self._call = call

    def __await__(self) -> Generator[Any, None, Any]:
        answer = yield from self._call().__await__()
        return answer[0]

    async def __aiter__(self) -> AsyncIterator[Any]:
        for message in await self._call():
            yield message


async def _messages(answer: Any) -> list[Any]:
    if hasattr(answer, "__aiter__"):
        return [message async for message in answer]
    return [await answer]
