"""The connection to the leader. Its calls end when another scheduler leads: an old leader may be frozen."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from persys.infra.rpc.parsed_replies import parsed
from persys.wire.gen.control.v1 import control_pb2_grpc

CONNECT_SECONDS = 1.0


class LeaderChangedError(Exception):
    """Another scheduler leads now. The old leader may have executed the request."""


class LeaderConnection:
    def __init__(self, endpoint: str, connect: Callable[[str], grpc.aio.Channel]) -> None:
        self.endpoint = endpoint
        self._channel = connect(endpoint)
        # The stub's types are the synchronous ones.
        self.stub: Any = control_pb2_grpc.AgentControlStub(parsed(self._channel))
        self._under_way: set[Any] = set()
        self._over = False

    async def connect(self) -> bool:
        """Whether the connection is ready: an unsent request can be sent to another leader."""
        state = self._channel.get_state(try_to_connect=True)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                while state is not grpc.ChannelConnectivity.READY:
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE or self._over:
                        return False
                    await self._channel.wait_for_state_change(state)
                    state = self._channel.get_state(try_to_connect=True)
        except TimeoutError:
            return False
        return not self._over

    @contextmanager
    def using(self, call: Any) -> Iterator[Any]:
        """Raises LeaderChangedError if the call was ended because another scheduler leads."""
        self._under_way.add(call)
        try:
            yield call
        except asyncio.CancelledError:
            # Awaiting a cancelled call raises CancelledError although this task was not cancelled.
            task = asyncio.current_task()
            if self._over and task is not None and not task.cancelling():
                raise LeaderChangedError from None
            raise
        finally:
            self._under_way.discard(call)
            call.cancel()

    def end(self) -> None:
        self._over = True
        for call in list(self._under_way):
            call.cancel()

    async def close(self) -> None:
        self.end()
        await self._channel.close()
