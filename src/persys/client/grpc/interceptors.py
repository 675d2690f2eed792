"""gRPC interceptors: add a header such as the token to every call, and report the mode of the scheduler."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import grpc

from persys.wire.metadata_keys import DATA_AGE_MS, MODE


class _Details(NamedTuple):
    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class HeaderInterceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    def __init__(self, name: str, value: str) -> None:
        self._header = (name, value)

    def _intercept(
        self, continuation: Callable[[Any, Any], Any], details: Any, request: Any
    ) -> Any:
        with_header = _Details(
            details.method,
            details.timeout,
            [*(details.metadata or ()), self._header],
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )
        return continuation(with_header, request)

    # One implementation for all four kinds of call.
    intercept_unary_unary = _intercept  # type: ignore[assignment]
    intercept_unary_stream = _intercept  # type: ignore[assignment]
    intercept_stream_unary = _intercept  # type: ignore[assignment]
    intercept_stream_stream = _intercept  # type: ignore[assignment]


# Called with the mode and the data age when the mode is not normal.
OnMode = Callable[[str, timedelta], None]


class ModeInterceptor(grpc.UnaryUnaryClientInterceptor):
    def __init__(self, on_mode: OnMode) -> None:
        self._on_mode = on_mode

    def intercept_unary_unary(
        self, continuation: Callable[[Any, Any], Any], details: Any, request: Any
    ) -> Any:
        answer = continuation(details, request)
        metadata = dict(answer.trailing_metadata() or ())
        if MODE in metadata:
            age_ms = int(metadata.get(DATA_AGE_MS, 0))
            self._on_mode(str(metadata[MODE]), timedelta(milliseconds=age_ms))
        return answer
