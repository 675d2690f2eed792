"""Base of all call groups of SchedulerClient: the stub and the default deadline."""

from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from persys.client.grpc.channel import DEFAULT_TIMEOUT, Trust, open_channel
from persys.model.role import Role
from persys.wire.metadata_keys import HOME

if TYPE_CHECKING:
    from persys.client.grpc.interceptors import OnMode
    from persys.client.rest.connection import Gateway
    from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub


class _Closed(Protocol):
    def close(self) -> None: ...


class SchedulerCalls:
    def __init__(
        self,
        target: "str | Gateway",
        *,
        timeout: timedelta = DEFAULT_TIMEOUT,
        on_mode: "OnMode | None" = None,
        trust: Trust | None = None,
        token: str = "",
        home: str = "",
    ) -> None:
        """`target` is host:port of a scheduler, or a gateway. Raises SettingsError for unreadable files.

        Without `trust` the connection to a scheduler is plain text; a gateway has its own `trust`. `token` is
        sent in addition to the certificate. `home` is the id of the cluster that calls; it is sent only in
        plain text, where no token identifies it. `on_mode` is called when a response comes from a scheduler
        that is not in normal mode.
        """
        self._timeout = timeout
        self._channel: _Closed
        self._stub: AgentControlStub
        if isinstance(target, str):
            self.target = target
            self._channel, self._stub = _scheduler(target, trust, token, home, on_mode)
        else:
            from persys.client.rest.stub import RestStub

            self.target = target.url
            self._channel = stub = RestStub(target, on_mode)
            self._stub = stub.as_grpc()


def _scheduler(
    target: str, trust: Trust | None, token: str, home: str, on_mode: "OnMode | None"
) -> "tuple[_Closed, AgentControlStub]":
    import grpc

    from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub

    channel = open_channel(target, Role.SCHEDULER, trust)
    if token and trust is not None:  # never sent in plain text
        from persys.client.grpc.interceptors import HeaderInterceptor

        token_header = HeaderInterceptor("authorization", f"Bearer {token}")
        channel = grpc.intercept_channel(channel, token_header)
    if home and trust is None:
        from persys.client.grpc.interceptors import HeaderInterceptor

        channel = grpc.intercept_channel(channel, HeaderInterceptor(HOME, home))
    if on_mode is not None:
        from persys.client.grpc.interceptors import ModeInterceptor

        channel = grpc.intercept_channel(channel, ModeInterceptor(on_mode))
    return channel, AgentControlStub(channel)
