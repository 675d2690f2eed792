"""One channel to one peer: every call has a deadline, every refusal is one of our errors."""

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar, cast

import grpc

from persys.errors import RefusedError

Request = TypeVar("Request")
Response = TypeVar("Response")

MESSAGE_BYTES_MAX = 8 * 1024 * 1024
DEFAULT_TIMEOUT = timedelta(seconds=10)


class RequestRefusedError(RefusedError):
    """The peer understood and said no. `reason` is a name from the contract's FailureReason, or empty."""

    def __init__(self, text: str, *, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


def open_channel(target: str) -> grpc.Channel:
    """Connects on first use."""
    return grpc.insecure_channel(
        target,
        options=(
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
            ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
            # A client that waits for a scheduler to come back should see it within a second.
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 1_000),
            # The peers are on the operator's own network; a proxy for the web is not meant for them.
            ("grpc.enable_http_proxy", 0),
        ),
    )


def call(method: Callable[..., Response], request: Request, *, timeout: timedelta) -> Response:
    try:
        return method(request, timeout=timeout.total_seconds())
    except grpc.RpcError as err:
        from persys.wire.status import error_from  # only failures pay for it

        # Every RpcError that a call raises is also a Call, which the stubs do not say.
        answer = cast("grpc.Call", err)
        raise error_from(answer.code(), answer.details()) from err
