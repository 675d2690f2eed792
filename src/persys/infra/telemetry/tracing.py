"""Distributed traces of calls. Off until `start` is called.

While tracing is off, each function costs one comparison, and OpenTelemetry is not imported. Handlers open
their spans themselves instead of an interceptor, because calls also arrive through the control stream.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

Headers = tuple[tuple[str, str], ...]
Received = Iterable[tuple[str, str | bytes]]
Work = Callable[[], Awaitable[None]]


class Span:
    """A span that is not recorded."""

    @property
    def headers(self) -> Headers:
        """The trace context for the next process."""
        return ()

    def answered(self, code: str) -> None:
        """Set the gRPC code of the response."""


class Tracer(Protocol):
    def server_span(self, name: str, headers: Received) -> "Opened": ...

    def client_span(self, name: str, attributes: dict[str, str]) -> "Opened": ...

    def internal_span(self, name: str, attributes: dict[str, str]) -> "Opened": ...

    def bind_span(self, work: Work) -> Work: ...

    def close(self) -> None: ...


Opened = AbstractContextManager[Span]

_unrecorded: Opened = nullcontext(Span())
_tracer: Tracer | None = None


def start(service: str, *, endpoint: str, insecure: bool, timeout_ms: int) -> None:
    """Export spans to this OTLP receiver. Without an endpoint, do nothing.

    Raises SettingsError for an invalid endpoint or timeout.
    """
    global _tracer
    if endpoint:
        from persys.infra.telemetry.otlp import OtlpTracer  # a slow import, needed only for tracing

        _tracer = OtlpTracer(service, endpoint=endpoint, insecure=insecure, timeout_ms=timeout_ms)


def stop() -> None:
    """Export the remaining spans."""
    global _tracer
    if _tracer is not None:
        _tracer.close()
        _tracer = None


def server_span(name: str, headers: Callable[[], Received | None]) -> Opened:
    """The span of a received call; part of the caller's trace if its headers have one."""
    return _tracer.server_span(name, headers() or ()) if _tracer is not None else _unrecorded


def client_span(name: str, **attributes: str) -> Opened:
    """The span of a call to another process, which receives the span's headers."""
    return _tracer.client_span(name, attributes) if _tracer is not None else _unrecorded


def internal_span(name: str, **attributes: str) -> Opened:
    """A span of work inside this process."""
    return _tracer.internal_span(name, attributes) if _tracer is not None else _unrecorded


def bind_span(work: Work) -> Work:
    """Work for a queue that will run as part of the current span."""
    return _tracer.bind_span(work) if _tracer is not None else work
