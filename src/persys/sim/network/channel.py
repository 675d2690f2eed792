"""A gRPC channel over the simulated network, as far as the generated stubs need it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from itertools import count
from typing import Any, Self

import grpc

from persys.sim.engine.process import SimProcess
from persys.sim.network.network import Metadata, Network, rpc_error
from persys.sim.network.stream import StreamCall, WatchCall

CONNECT_AGAIN_SECONDS = 0.2
NO_DEADLINE_SECONDS = 3600.0
WATCHES = frozenset({"WatchEvents"})

_numbers = count()


class SimChannel:
    """A channel from one process to an address; the port is ignored."""

    def __init__(self, network: Network, source: SimProcess, endpoint: str) -> None:
        self._network = network
        self._source = source
        self._target = endpoint.partition(":")[0]
        self._connected = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing to close."""

    async def close(self, _grace: float | None = None) -> None:
        """Nothing to close."""

    def unary_unary(self, method: str, **_: Any) -> Callable[..., "SimCall"]:
        def call(
            request: Any, *, timeout: float = NO_DEADLINE_SECONDS, metadata: Metadata = ()
        ) -> SimCall:
            return SimCall(self._network, self._source, self._target, _short(method), request,
                           timeout, tuple(metadata))  # fmt: skip

        return call

    def unary_stream(
        self, method: str, response_deserializer: Callable[[bytes], Any], **_: Any
    ) -> Callable[..., Any]:
        """Only watches take time: the messages of other calls arrive together."""
        if _short(method) not in WATCHES:
            return self.unary_unary(method)

        def call(
            request: Any, *, timeout: float | None = None, metadata: Metadata = ()
        ) -> WatchCall:
            assert timeout is None, "watches have no deadline"
            return WatchCall(
                self._network,
                self._source,
                self._target,
                _short(method),
                response_deserializer,
                request=request,
                metadata=tuple(metadata),
            )

        return call

    def stream_unary(self, method: str, **_: Any) -> Callable[..., Any]:
        def call(*_arguments: Any, **_options: Any) -> Any:
            raise rpc_error(grpc.StatusCode.UNIMPLEMENTED, f"not simulated: {method}")

        return call

    def stream_stream(
        self, method: str, response_deserializer: Callable[[bytes], Any], **_: Any
    ) -> Callable[..., StreamCall]:
        def call(
            requests: AsyncIterator[Any] | None = None,
            *,
            metadata: Metadata = (),
            timeout: float | None = None,
        ) -> StreamCall:
            assert timeout is None, "streams of agents have no deadline"
            return StreamCall(
                self._network,
                self._source,
                self._target,
                _short(method),
                response_deserializer,
                requests=requests,
                metadata=tuple(metadata),
            )

        return call

    def get_state(self, *, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """A frozen process accepts no new connections; existing ones stay open."""
        listener = self._network.listener(self._source.name, self._target)
        if not self._network.is_open(self._source.name, self._target):
            self._connected = False
            return grpc.ChannelConnectivity.CONNECTING
        if listener is None or not listener.serves:
            self._connected = False
            return grpc.ChannelConnectivity.TRANSIENT_FAILURE
        if listener.frozen and not self._connected:
            return grpc.ChannelConnectivity.CONNECTING
        self._connected = True
        return grpc.ChannelConnectivity.READY

    async def wait_for_state_change(self, _state: grpc.ChannelConnectivity) -> None:
        await asyncio.sleep(CONNECT_AGAIN_SECONDS)


class SimCall:
    """A call in progress: awaited for its response, or iterated as a stream."""

    def __init__(
        self,
        network: Network,
        source: SimProcess,
        target: str,
        method: str,
        request: Any,
        timeout: float,
        metadata: Metadata,
    ) -> None:
        self._network = network
        self._call = network.new_call(source, target, method, request, timeout, metadata)
        self._trailing: Metadata = ()
        self._number = next(_numbers)

    def __hash__(self) -> int:
        return self._number  # the same in every process

    def __await__(self) -> Generator[Any, None, Any]:
        messages = yield from self._exchange().__await__()
        return messages[0]

    async def __aiter__(self) -> AsyncIterator[Any]:
        for message in await self._exchange():
            yield message

    def cancel(self) -> None:
        self._call.answer.cancel()

    async def trailing_metadata(self) -> Metadata:
        return self._trailing

    async def _exchange(self) -> list[Any]:
        messages, self._trailing = await self._network.exchange(self._call)
        return messages


def _short(method: str) -> str:
    return method.rpartition("/")[2]
