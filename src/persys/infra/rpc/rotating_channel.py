"""A gRPC channel that reconnects when the certificate of the process, or the name of the server, changes.

A connection keeps the certificate it was opened with, which expires. After a renewal, new calls use a new
connection, while calls in progress end on the old one; then the old one is closed. Generated stubs use it
like any other channel.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import grpc
from msgspec import Struct

from persys.infra.rpc.authorizer import FORWARDED_IDENTITY, UNNAMED
from persys.infra.rpc.grpc_server import new_channel
from persys.infra.rpc.message_sizes import LIST_BYTES_MAX
from persys.infra.tls.certificates import Certificates, KeyPair
from persys.model.identity import Role

_READY = grpc.ChannelConnectivity.READY
_FAILED = grpc.ChannelConnectivity.TRANSIENT_FAILURE


class Verification(NamedTuple):
    """How the server certificate is verified."""

    expected: Callable[[], str]  # its required name, which can change; empty: the host name
    report: Callable[[bool], object] = lambda _connected: None  # whether there is a connection


class _Connection(Struct, eq=False):
    channel: grpc.aio.Channel
    made_with: KeyPair
    expected: str
    under_way: int = 0
    methods: dict[tuple[str, str], Any] = {}  # msgspec copies the default


class RotatingChannel(grpc.aio.Channel):
    def __init__(
        self,
        target: str,
        certificates: Certificates,
        *,
        verification: Verification,
        answer_bytes_max: int = LIST_BYTES_MAX,
        sends_own_identity: bool = False,
    ) -> None:
        """`sends_own_identity`: calls without an identity pass the identity of this process."""
        self._names_itself = sends_own_identity
        self._target = target
        self._certificates = certificates
        self._verification = verification
        self._is_closed = False
        self._answer_bytes_max = answer_bytes_max
        self._left: list[_Connection] = []
        self._newest = self._connect()

    @property
    def left(self) -> int:
        """The number of old connections that still have calls in progress."""
        return len(self._left)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        self._is_closed = True
        for connection in (self._newest, *self._left):
            await connection.channel.close(grace)
        self._left.clear()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        state = self._current().channel.get_state(try_to_connect)
        self._report(state)
        return state

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._newest.channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._current().channel.channel_ready()

    def unary_unary(self, method: str, *form: Any, **named: Any) -> Any:
        return self._calling("unary_unary", method, *form, **named)

    def unary_stream(self, method: str, *form: Any, **named: Any) -> Any:
        return self._calling("unary_stream", method, *form, **named)

    def stream_unary(self, method: str, *form: Any, **named: Any) -> Any:
        return self._calling("stream_unary", method, *form, **named)

    def stream_stream(self, method: str, *form: Any, **named: Any) -> Any:
        return self._calling("stream_stream", method, *form, **named)

    def _calling(self, kind: str, method: str, *form: Any, **named: Any) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            connection = self._current()
            begin = connection.methods.get((kind, method))
            if begin is None:
                make = getattr(connection.channel, kind)
                begin = connection.methods[kind, method] = make(method, *form, **named)
            if self._names_itself:
                options["metadata"] = self._identified(options.get("metadata") or ())
            begun = begin(*arguments, **options)
            connection.under_way += 1
            begun.add_done_callback(lambda _: self._ended(connection))
            return begun

        return call

    def _identified(self, metadata: Sequence[tuple[str, str | bytes]]) -> Any:
        if any(key == FORWARDED_IDENTITY for key, _ in metadata):
            return metadata
        own = self._certificates.current.claims.identity
        return (*metadata, (FORWARDED_IDENTITY, str(own or f"{Role.GATEWAY}/{UNNAMED}")))

    def _current(self) -> _Connection:
        is_renewed = self._newest.made_with is not self._certificates.current
        if is_renewed or self._newest.expected != self._verification.expected():
            if self._newest.under_way:
                self._left.append(self._newest)
            self._newest = self._connect()
        return self._newest

    def _connect(self) -> _Connection:
        expected = self._verification.expected()
        channel = new_channel(
            self._target,
            self._certificates,
            expected=expected,
            answer_bytes_max=self._answer_bytes_max,
        )
        return _Connection(channel, self._certificates.current, expected)

    def _report(self, state: grpc.ChannelConnectivity) -> None:
        if state in (_READY, _FAILED):
            self._verification.report(state is _READY)

    def _ended(self, connection: _Connection) -> None:
        connection.under_way -= 1
        if not self._is_closed and connection is self._newest:
            self._report(connection.channel.get_state())
        if not connection.under_way and connection in self._left:
            self._left.remove(connection)  # a channel without references closes itself
