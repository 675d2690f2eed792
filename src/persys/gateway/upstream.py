"""One scheduler: its connection, and whether it can be reached.

Only the connection tells whether somebody is well. A scheduler that refuses, or has no leader to pass on to,
answers, and stays among those that are asked.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import grpc

from persys.infra.answers import parsed
from persys.infra.clock import Clock
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub

CONNECT_SECONDS = 1.0
PROBE_SECONDS = 3.0

Dial = Callable[[str], grpc.aio.Channel]

_READY = grpc.ChannelConnectivity.READY


class Upstream:
    def __init__(self, scheduler_id: str, address: str, dial: Dial, clock: Clock) -> None:
        self.id = scheduler_id or address
        self.address = address
        self.healthy = True  # until a look shows otherwise
        self.is_leader = False
        self.last_seen: datetime | None = None
        self.mode: pb.ModeView | None = None
        self._clock = clock
        self._channel = dial(address)
        # The stub's types are the synchronous ones.
        self.stub: Any = AgentControlStub(parsed(self._channel))

    async def connect(self) -> bool:
        """Whether the connection stands: what is not sent can be sent elsewhere."""
        state = self._channel.get_state(try_to_connect=True)
        if state is not _READY:
            state = await self._settled(state)
        self._noted(reachable=state is _READY)
        return state is _READY

    def broke(self) -> bool:
        """Whether a call failed because the connection did."""
        broken = self._channel.get_state() is not _READY
        if broken:
            self._noted(reachable=False)
        return broken

    async def look(self) -> None:
        """Ask it who leads. An answer of any kind shows that it can be reached."""
        if not await self.connect():
            return
        try:
            self.mode = await self.stub.GetMode(pb.GetModeRequest(), timeout=PROBE_SECONDS)
        except grpc.aio.AioRpcError as err:
            self.mode = None
            self.is_leader = False
            if err.code() is grpc.StatusCode.DEADLINE_EXCEEDED or self.broke():
                self._noted(reachable=False)
            return
        # Older ones do not tell their role: they are alone.
        self.is_leader = self.mode.role in ("", "leader")

    async def close(self, grace_seconds: float | None = None) -> None:
        await self._channel.close(grace_seconds)

    async def _settled(self, state: grpc.ChannelConnectivity) -> grpc.ChannelConnectivity:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                while state not in (_READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE):
                    await self._channel.wait_for_state_change(state)
                    state = self._channel.get_state(try_to_connect=True)
        except TimeoutError:
            pass
        return state

    def _noted(self, *, reachable: bool) -> None:
        self.healthy = reachable
        if reachable:
            self.last_seen = self._clock.now()
        else:
            self.is_leader = False
