"""One etcd member: its channel and its stubs."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import grpc

from persys.errors import SettingsError

Stubs = TypeVar("Stubs")

_OPTIONS = (
    # A page of large records or the backlog of a watch may be large; etcd limits its requests itself.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # etcd disconnects clients that ping more often than every 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Separate connections per store: one store's lost connection does not affect another.
    ("grpc.use_local_subchannel_pool", 1),
)


class Member(Generic[Stubs]):
    def __init__(
        self,
        endpoint: str,
        tls: grpc.ChannelCredentials | None,
        stubs: Callable[[grpc.aio.Channel], Stubs],
    ) -> None:
        target = endpoint.removeprefix("http://").removeprefix("https://").rstrip("/")
        if not target.rpartition(":")[2].isdigit():
            raise SettingsError(
                f"ETCD_ENDPOINTS: invalid endpoint {endpoint!r}: expected HOST:PORT, for example "
                "etcd1:2379"
            )
        if tls is None:
            self.channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        else:
            self.channel = grpc.aio.secure_channel(target, tls, options=_OPTIONS)
        self.stubs = stubs(self.channel)

    async def connect(self, *, patience_seconds: float) -> bool:
        """Whether the member is connected. A refused connection fails at once, others time out."""
        state = self.channel.get_state(try_to_connect=True)
        if state is grpc.ChannelConnectivity.READY:
            return True
        try:
            async with asyncio.timeout(patience_seconds):
                while state is not grpc.ChannelConnectivity.READY:
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                        return False
                    await self.channel.wait_for_state_change(state)
                    state = self.channel.get_state(try_to_connect=True)
        except TimeoutError:
            return False
        return True
