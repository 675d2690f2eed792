"""One scheduler: its gRPC connection and its health.

Health is the state of the connection. A scheduler that refuses a call, or has no leader to forward to, is
still healthy and stays in use.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import grpc

from persys.infra.clock import Clock
from persys.infra.rpc.parsed_replies import parsed
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub

CONNECT_SECONDS = 1.0
PROBE_SECONDS = 3.0

Dial = Callable[[str], grpc.aio.Channel]

_READY = grpc.ChannelConnectivity.READY


class SchedulerConnection:
    def __init__(self, scheduler_id: str, address: str, dial: Dial, clock: Clock) -> None:
        self.id = scheduler_id or address
        self.address = address
        self.healthy = True  # until a probe fails
        self.is_leader = False
        self.last_seen: datetime | None = None
        self.mode: pb.ModeView | None = None
        self._clock = clock
        self._channel = dial(address)
        # The stub's types are the synchronous ones.
        self.stub: Any = AgentControlStub(parsed(self._channel))

    async def connect(self) -> bool:
        """Whether the connection is ready. An unsent call can go to another scheduler."""
        state = self._channel.get_state(try_to_connect=True)
        if state is not _READY:
            state = await self._settled(state)
        self._set_reachable(reachable=state is _READY)
        return state is _READY

    def lost_connection(self) -> bool:
        """Whether a call failed because the connection was lost."""
        broken = self._channel.get_state() is not _READY
        if broken:
            self._set_reachable(reachable=False)
        return broken

    async def probe(self) -> None:
        """Probe mode and role. Any response means that the scheduler is reachable."""
        if not await self.connect():
            return
        try:
            self.mode = await self.stub.GetMode(pb.GetModeRequest(), timeout=PROBE_SECONDS)
        except grpc.aio.AioRpcError as err:
            self.mode = None
            self.is_leader = False
            if err.code() is grpc.StatusCode.DEADLINE_EXCEEDED or self.lost_connection():
                self._set_reachable(reachable=False)
            return
        # Older schedulers report no role: they run without standbys.
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

    def _set_reachable(self, *, reachable: bool) -> None:
        self.healthy = reachable
        if reachable:
            self.last_seen = self._clock.now()
        else:
            self.is_leader = False
