"""Contains unexpected exceptions in the work for one key: a workload, a node, a stream, a call, a record.

An expected failure is a PersysError and passes through: the caller handles it. Any other exception is a
defect of this program. It is logged with its traceback, counted in `persys_internal_errors_total` and kept
for `doctor`; then the caller's `failed` decides what happens to the key. The process continues.
Besides the outermost frame of a process, only this module catches `Exception`.
"""

import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType

import structlog
from prometheus_client import CollectorRegistry, Counter

from persys.errors import PersysError
from persys.infra.clock import Clock

log = structlog.get_logger()

RECENT_MAX = 64
TEXT_MAX = 400
TRACEBACK_MAX = 8_000
TRACEBACK_FRAMES_MAX = 24
BACKOFF_FIRST = timedelta(seconds=1)
BACKOFF_MAX = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class InternalError:
    """One defect, as `doctor` shows it. Repetitions for the same place and key are counted."""

    component: str
    where: str
    key: str
    text: str
    count: int
    last_at: datetime


class Supervisor:
    """One per process. `component` is the program: scheduler, agent, gateway or ca."""

    def __init__(self, component: str, clock: Clock, registry: CollectorRegistry) -> None:
        self._component = component
        self._clock = clock
        self._recent: OrderedDict[tuple[str, str], InternalError] = OrderedDict()
        self._total = Counter(
            "persys_internal_errors",
            "Unexpected exceptions that were contained",
            ("component", "where"),
            registry=registry,
        )

    def contain(
        self, where: str, key: str, *, failed: Callable[[InternalError], None]
    ) -> "Containment":
        """A context whose body may fail: an unexpected exception ends the body, and `failed` is called.

        `where` is one of a fixed set of places, `key` what the work is for. PersysError and cancellation
        pass through. An ExceptionGroup is contained only if it holds an unexpected exception.
        """
        return Containment(self, where, key, failed)

    def record(self, where: str, key: str, err: Exception) -> InternalError:
        """Log, count and keep an unexpected exception."""
        known = self._recent.pop((where, key), None)
        error = InternalError(
            component=self._component,
            where=where,
            key=key,
            text=_text(err),
            count=known.count + 1 if known is not None else 1,
            last_at=self._clock.now(),
        )
        self._recent[where, key] = error
        if len(self._recent) > RECENT_MAX:
            self._recent.popitem(last=False)
        self._total.labels(self._component, where).inc()
        log.error(
            "internal_error",
            component=self._component,
            where=where,
            key=key,
            count=error.count,
            exception=_traceback(err),
        )
        return error

    def resolved(self, where: str, key: str) -> None:
        """The work for this key succeeded again: `doctor` no longer shows it."""
        self._recent.pop((where, key), None)

    def recent(self) -> list[InternalError]:
        """The newest first."""
        return list(reversed(self._recent.values()))

    def retry_after(self, error: InternalError) -> timedelta:
        """How long to wait before the work for this key is tried again."""
        return min(BACKOFF_FIRST * (1 << min(error.count - 1, 16)), BACKOFF_MAX)


class Containment:
    """See `Supervisor.contain`."""

    def __init__(
        self, supervisor: Supervisor, where: str, key: str, failed: Callable[[InternalError], None]
    ) -> None:
        self._supervisor = supervisor
        self._where = where
        self._key = key
        self._failed = failed

    def __enter__(self) -> None:
        """Nothing is acquired."""

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        err: BaseException | None,
        _at: TracebackType | None,
    ) -> bool:
        unexpected = _unexpected(err)
        if unexpected is None:
            return False
        self._failed(self._supervisor.record(self._where, self._key, unexpected))
        return True


def _unexpected(err: BaseException | None) -> Exception | None:
    """The first exception that is neither expected nor a request to stop."""
    if isinstance(err, BaseExceptionGroup):
        found = [one for inner in err.exceptions if (one := _unexpected(inner)) is not None]
        stopping = err.split(Exception)[1] is not None
        return found[0] if found and not stopping else None
    if isinstance(err, Exception) and not isinstance(err, PersysError):
        return err
    return None


def _traceback(err: Exception) -> str:
    """Formatted here and bounded: what a peer put into an exception must not fill the log."""
    text = "".join(traceback.format_exception(err, limit=-TRACEBACK_FRAMES_MAX))
    return text if len(text) <= TRACEBACK_MAX else f"…{text[-TRACEBACK_MAX:]}"


def _text(err: Exception) -> str:
    text = f"{type(err).__name__}: {err}" if str(err) else type(err).__name__
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"
