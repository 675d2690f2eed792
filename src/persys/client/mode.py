"""gRPC interceptor that reports the scheduler's mode and data age from trailing metadata."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import grpc

from persys.wire.metadata_keys import DATA_AGE_MS, MODE

# Called with the mode and the data age when the mode is not normal.
ToldMode = Callable[[str, timedelta], None]


class ModeListener(grpc.UnaryUnaryClientInterceptor):
    def __init__(self, told: ToldMode) -> None:
        self._told = told

    def intercept_unary_unary(
        self, continuation: Callable[[Any, Any], Any], details: Any, request: Any
    ) -> Any:
        answer = continuation(details, request)
        beside = dict(answer.trailing_metadata() or ())
        if MODE in beside:
            age_ms = int(beside.get(DATA_AGE_MS, 0))
            self._told(str(beside[MODE]), timedelta(milliseconds=age_ms))
        return answer
