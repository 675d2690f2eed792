"""Traces of calls, from the door of one process to the door of the next. Off unless `start` was called.

Off, each function here costs a comparison, and nothing of OpenTelemetry is imported. What is served is named
by its door and not by an interceptor, because calls also come through streams that carry other calls.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

Headers = tuple[tuple[str, str], ...]
Received = Iterable[tuple[str, str | bytes]]
Work = Callable[[], Awaitable[None]]


class Span:
    """What happens between its beginning and its end. This one is not recorded."""

    @property
    def headers(self) -> Headers:
        """Tells the next process which trace it is part of."""
        return ()

    def answered(self, code: str) -> None:
        """The name of the gRPC code with which it ended."""


class Tracer(Protocol):
    def serving(self, name: str, headers: Received) -> "Opened": ...

    def calling(self, name: str, attributes: dict[str, str]) -> "Opened": ...

    def within(self, name: str, attributes: dict[str, str]) -> "Opened": ...

    def bound(self, work: Work) -> Work: ...

    def close(self) -> None: ...


Opened = AbstractContextManager[Span]

_unrecorded: Opened = nullcontext(Span())
_tracer: Tracer | None = None


def start(service: str, *, endpoint: str, insecure: bool, timeout_ms: int) -> None:
    """Send spans to this OTLP receiver from now on. Without an endpoint, do nothing.

    Raises SettingsError for an endpoint that is none, and for no time at all.
    """
    global _tracer
    if endpoint:
        from persys.infra.otlp import OtlpTracer  # heavy, and most processes trace nothing

        _tracer = OtlpTracer(service, endpoint=endpoint, insecure=insecure, timeout_ms=timeout_ms)


def stop() -> None:
    """Send what is left, if somebody takes it."""
    global _tracer
    if _tracer is not None:
        _tracer.close()
        _tracer = None


def serving(name: str, headers: Callable[[], Received | None]) -> Opened:
    """A call from outside; part of the caller's trace if its headers say so."""
    return _tracer.serving(name, headers() or ()) if _tracer is not None else _unrecorded


def calling(name: str, **attributes: str) -> Opened:
    """A call to another process, which gets the span's headers."""
    return _tracer.calling(name, attributes) if _tracer is not None else _unrecorded


def within(name: str, **attributes: str) -> Opened:
    """Something that takes time inside this process."""
    return _tracer.within(name, attributes) if _tracer is not None else _unrecorded


def bound(work: Work) -> Work:
    """Work for a queue, to be done later as part of what is going on now."""
    return _tracer.bound(work) if _tracer is not None else work
