"""Contains unexpected exceptions in the work for one key: a workload, a node, a stream, a call, a record.

An expected failure is a PersysError and passes through: the caller handles it. Any other exception is a
defect of this program. It is logged with its traceback, counted in `persys_internal_errors_total` and stored
for `doctor`; then the caller's `failed` decides what happens to the key. The process continues.
`supervised_parts` restarts the long-lived loops of a process, except for the essential ones, which end it.
Apart from the outermost frame of a process, only this module catches `Exception`.
"""

import asyncio
import traceback
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Generic, TypeVar

import structlog
from prometheus_client import CollectorRegistry, Counter

from persys.core.backoff import doubled
from persys.errors import FencedError, PersysError
from persys.infra.clock import Clock

log = structlog.get_logger()

Key = TypeVar("Key", bound=str)
Expected = type[PersysError] | tuple[type[PersysError], ...]

RECENT_MAX = 64
TEXT_MAX = 400
TRACEBACK_MAX = 8_000
TRACEBACK_FRAMES_MAX = 24
BACKOFF_FIRST = timedelta(seconds=1)
BACKOFF_MAX = timedelta(minutes=5)

# After a run of this length the back-off is reset.
STABLE_SECONDS = 60.0

Part = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class InternalError:
    """One defect, shown by `doctor`. Repetitions for the same place and key are counted."""

    component: str
    where: str
    key: str
    text: str
    count: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of the process. One that does not end the process is restarted after an unexpected exception."""

    name: str
    run: Callable[[], Coroutine[None, None, None]]
    ends_process: bool = False


class Supervisor:
    """One per process. `component` is the program: scheduler, agent, gateway or ca."""

    def __init__(self, component: str, clock: Clock, registry: CollectorRegistry) -> None:
        self._component = component
        self._clock = clock
        self._recent: OrderedDict[tuple[str, str], InternalError] = OrderedDict()
        self.latest: InternalError | None = None
        self._total = Counter(
            "persys_internal_errors",
            "Unexpected exceptions that were contained",
            ("component", "where"),
            registry=registry,
        )

    def contain(
        self,
        where: str,
        key: str,
        *,
        failed: Callable[[InternalError], None],
        expects: Expected = PersysError,
    ) -> "Containment":
        """A context that stops unexpected exceptions of its body and calls `failed` with them.

        `where` is one of a fixed set of places, `key` identifies the work. Exceptions in `expects` and
        cancellation pass through; a caller that handles only some errors sets `expects`. An
        ExceptionGroup is contained only if it includes an unexpected exception.
        """
        return Containment(self, where, key, failed, expects)

    def record(self, where: str, key: str, err: Exception) -> InternalError:
        """Log, count and store an unexpected exception."""
        known = self._recent.pop((where, key), None)
        error = InternalError(
            component=self._component,
            where=where,
            key=key,
            text=_text(err),
            count=known.count + 1 if known is not None else 1,
            last_at=self._clock.now(),
        )
        self._recent[where, key] = self.latest = error
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
        """The recent errors, newest first."""
        return list(reversed(self._recent.values()))

    def supervised(self, loop: Loop) -> Coroutine[None, None, None]:
        return loop.run() if loop.ends_process else self.keep_running(loop.name, loop.run)

    async def keep_running(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        """Run a loop of the process; restart it with back-off after an unexpected exception.

        For loops that are not essential. FencedError passes through.
        """
        failures: list[InternalError] = []
        while True:
            with self.contain(name, "", failed=failures.append, expects=FencedError):
                await loop()
                return
            await asyncio.sleep(self.retry_after(failures.pop()).total_seconds())

    def retry_after(self, error: InternalError) -> timedelta:
        """The delay before the work for this key is retried."""
        return doubled(BACKOFF_FIRST, error.count - 1, longest=BACKOFF_MAX)


class Containment:
    """See `Supervisor.contain`."""

    def __init__(
        self,
        supervisor: Supervisor,
        where: str,
        key: str,
        failed: Callable[[InternalError], None],
        expects: Expected,
    ) -> None:
        self._supervisor = supervisor
        self._where = where
        self._key = key
        self._failed = failed
        self._expects = expects

    def __enter__(self) -> None:
        """Acquires nothing."""

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        err: BaseException | None,
        _at: TracebackType | None,
    ) -> bool:
        unexpected = _unexpected(err, self._expects)
        if unexpected is None:
            return False
        self._failed(self._supervisor.record(self._where, self._key, unexpected))
        return True


class KeyedWork(Generic[Key]):
    """Contains the work for each key at one place, with back-off per key after a failure.

    Only the errors in `expects` pass through.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        where: str,
        clock: Clock,
        *,
        expects: Expected = FencedError,
    ) -> None:
        self._supervisor = supervisor
        self._where = where
        self._clock = clock
        self._expects = expects
        self._due_at: dict[Key, float] = {}

    def is_due(self, key: Key) -> bool:
        """Whether the key has no failure, or its back-off is over."""
        return self.due_in(key) == 0

    def due_in(self, key: Key) -> float:
        """The remaining back-off in seconds."""
        due_at = self._due_at.get(key)
        return 0.0 if due_at is None else max(0.0, due_at - self._clock.monotonic())

    @contextmanager
    def contain(
        self, key: Key, *, failed: Callable[[InternalError], None] | None = None
    ) -> Iterator[None]:
        """The context of one piece of work. `failed` is called in addition to the back-off."""
        with self._supervisor.contain(
            self._where, key, failed=partial(self._note, key, failed), expects=self._expects
        ):
            yield
            self.forget(key)

    def forget(self, key: Key) -> None:
        """Clear the back-off: the work succeeded or is no longer needed."""
        if self._due_at and self._due_at.pop(key, None) is not None:
            self._supervisor.resolved(self._where, key)

    def _note(
        self, key: Key, failed: Callable[[InternalError], None] | None, error: InternalError
    ) -> None:
        delay = self._supervisor.retry_after(error).total_seconds()
        self._due_at[key] = self._clock.monotonic() + delay
        if failed is not None:
            failed(error)


def _unexpected(err: BaseException | None, expects: Expected) -> Exception | None:
    """The first exception that is neither expected nor a cancellation."""
    if isinstance(err, BaseExceptionGroup):
        found = [
            one for inner in err.exceptions if (one := _unexpected(inner, expects)) is not None
        ]
        stopping = err.split(Exception)[1] is not None
        return found[0] if found and not stopping else None
    if isinstance(err, Exception) and not isinstance(err, expects):
        return err
    return None


def _traceback(err: Exception) -> str:
    """The formatted traceback with a size limit: data of a peer in an exception must not fill the log."""
    text = "".join(traceback.format_exception(err, limit=-TRACEBACK_FRAMES_MAX))
    return text if len(text) <= TRACEBACK_MAX else f"…{text[-TRACEBACK_MAX:]}"


def _text(err: Exception) -> str:
    text = f"{type(err).__name__}: {err}" if str(err) else type(err).__name__
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"


class OnError(StrEnum):
    EXIT = "exit"
    RESTART = "restart"


def supervised_parts(
    parts: Mapping[str, Part],
    policy: Callable[[str], OnError],
    supervisor: Supervisor,
    clock: Clock,
) -> dict[str, Part]:
    """The parts, wrapped according to `policy` for their names."""
    return {
        name: part
        if policy(name) is OnError.EXIT
        else partial(_restarted, name, part, supervisor, clock)
        for name, part in parts.items()
    }


async def _restarted(name: str, part: Part, supervisor: Supervisor, clock: Clock) -> None:
    attempts = 0
    while True:
        errors: list[InternalError] = []
        began = clock.monotonic()
        try:
            with supervisor.contain("part", name, failed=errors.append):
                await part()
                return
        except (PersysError, ExceptionGroup) as err:  # a group of nothing but expected errors
            log.warning("part.failed", part=name, reason=str(err))
        if clock.monotonic() - began >= STABLE_SECONDS:
            attempts = 0
        delay = doubled(BACKOFF_FIRST, attempts, longest=BACKOFF_MAX)
        await asyncio.sleep(delay.total_seconds())
        attempts += 1
