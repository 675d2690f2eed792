"""The door of a scheduler that may lead or stand by: it serves, or passes on to the one that leads.

A standby answers reads from its own memory, and says how old that is. All else goes to the leader, streams
too, so that whoever knows one scheduler knows them all. A call that finds no leader waits for the next one,
within its deadline; one that was passed on already is not passed on again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

import grpc

from persys.infra.rpc import new_channel
from persys.model.leader import Leader
from persys.scheduler.api.service import ControlApi
from persys.scheduler.standby import Standby
from persys.wire.beside import DATA_AGE_MS, PASSED_ON, ROLE
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

# What a standby answers by itself.
READS = frozenset(
    {
        "ListNodes",
        "GetNode",
        "ListWorkloads",
        "GetWorkload",
        "GetClusterSummary",
        "ExplainWorkload",
        "PlanWorkloads",
        "GetCapacity",
        "ListEvents",
        "WatchEvents",
        "ListDrifts",
        "GetMode",
    }
)
CALL_SECONDS = 10.0
# As long as the next leader may take to appear.
PATIENCE_SECONDS = 15.0

Context = grpc.aio.ServicerContext[Any, Any]


class Front(control_pb2_grpc.AgentControlServicer):
    def __init__(self) -> None:
        self._leading: ControlApi | None = None
        self._reading: ControlApi | None = None
        self._standby: Standby | None = None
        self._channel: tuple[str, grpc.aio.Channel] | None = None
        self._news = asyncio.Event()
        service = control_pb2.DESCRIPTOR.services_by_name["AgentControl"]
        for method in service.methods:
            make = self._stream if method.server_streaming else self._call
            setattr(self, method.name, make(method.name))

    def lead(self, api: ControlApi) -> None:
        self._leading, self._reading, self._standby = api, None, None
        self.notice()

    def stand_by(self, api: ControlApi, standby: Standby) -> None:
        self._leading, self._reading, self._standby = None, api, standby
        self.notice()

    def notice(self) -> None:
        """Who leads may have changed: those who wait look again."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def leave(self) -> None:
        """Neither: until the next seat is taken, calls wait."""
        self._leading = self._reading = self._standby = None

    async def until_open(self) -> None:
        while self._leading is None and self._reading is None:
            await self._news.wait()

    async def close(self) -> None:
        self.leave()
        if self._channel is not None:
            await self._channel[1].close()
            self._channel = None

    def _call(self, name: str) -> Callable[..., Any]:
        async def call(request: Any, context: Context) -> Any:
            if (own := self._own(name, context)) is not None:
                return await own(request, context)
            try:
                stub = await self._leader_stub(context)
                timeout = context.time_remaining() or CALL_SECONDS
                return await getattr(stub, name)(request, timeout=timeout, metadata=_ON)
            except grpc.aio.AioRpcError as err:
                await _refuse(err, context)

        return call

    def _stream(self, name: str) -> Callable[..., Any]:
        """Answers that are many; `said` is one request, or all that the caller will say."""

        async def stream(said: Any, context: Context) -> None:
            if (own := self._own(name, context)) is not None:
                await _answer(own(said, context), context)
                return
            call = None
            try:
                call = getattr(await self._leader_stub(context), name)(said, metadata=_ON)
                await _answer(aiter(call), context)
            except grpc.aio.AioRpcError as err:
                await _refuse(err, context)
            finally:
                if call is not None:
                    call.cancel()  # the leader shall not go on for somebody who has left

        return stream

    def _own(self, name: str, context: Context) -> Callable[..., Any] | None:
        """How this scheduler answers by itself, if it does."""
        if self._leading is not None:
            return getattr(self._leading, name)  # type: ignore[no-any-return]  # it has every method
        if self._standby is None or self._reading is None or name not in READS:
            return None
        age_ms = round(self._standby.data_age() * 1000)
        context.set_trailing_metadata(((ROLE, "standby"), (DATA_AGE_MS, str(age_ms))))
        return getattr(self._reading, name)  # type: ignore[no-any-return]

    async def _leader_stub(self, context: Context) -> Any:
        """Of the one that leads, or of the next one that will."""
        if any(key == PASSED_ON for key, _ in context.invocation_metadata() or ()):
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, "this scheduler does not lead any more"
            )
        leader = await self._wait_for_leader(context.time_remaining())
        if leader is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no scheduler leads; try again")
        if self._channel is None or self._channel[0] != leader.endpoint:
            if self._channel is not None:
                await self._channel[1].close()
            self._channel = (leader.endpoint, new_channel(leader.endpoint))
        return control_pb2_grpc.AgentControlStub(self._channel[1])

    async def _wait_for_leader(self, remaining: float | None) -> Leader | None:
        patience = PATIENCE_SECONDS if remaining is None else min(remaining / 2, PATIENCE_SECONDS)
        try:
            async with asyncio.timeout(patience):
                while self._standby is None or self._standby.leader is None:
                    await self._news.wait()
                return self._standby.leader
        except TimeoutError:
            return None


_ON = ((PASSED_ON, "1"),)


async def _answer(answers: Any, context: Context) -> None:
    """A method gives its answers one by one, or writes them itself."""
    if not isinstance(answers, AsyncIterator):
        await answers
        return
    async for one in answers:
        await context.write(one)


async def _refuse(err: grpc.aio.AioRpcError, context: Context) -> NoReturn:
    context.set_trailing_metadata(tuple(err.trailing_metadata() or ()))
    await context.abort(err.code(), err.details() or "")
