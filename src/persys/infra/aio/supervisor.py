"""Contains unexpected exceptions in the work for one key: a workload, a node, a stream, a call, a record.

An expected failure is a PersysError and passes through: the caller handles it. Any other exception is a
defect of this program. It is logged with its traceback, counted in `persys_internal_errors_total` and stored
for `doctor`; then the caller's `failed` decides what happens to the key. The process continues.
`Supervisor.keep_running` restarts the loops of a process, except for the essential ones, which end it.
Apart from the outermost frame of a process, only this module catches `Exception`.
"""

import asyncio
import traceback
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
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
    """A loop of the process. One that does not end the process is restarted with back-off after an exception.

    The error is recorded for `where`, by default the name of the loop. Errors in `tolerates` are only logged.
    """

    name: str
    run: Callable[[], Awaitable[None]]
    ends_process: bool = False
    where: str = ""
    tolerates: tuple[type[PersysError], ...] = ()


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The result of one run of a loop. `raises`: the error that ends it, as a value."""

    restarts: bool
    raises: Exception | None = None


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

    async def keep_running(self, loop: Loop) -> None:
        """Run a loop of the process. FencedError passes through."""
        if loop.ends_process:
            await loop.run()
            return
        attempts = 0
        while True:
            began = self._clock.monotonic()
            # In a task of its own: its failure must not replace a cancellation of this task. A cancelled
            # task group raises the failure of a task instead, and the loop would be restarted.
            async with asyncio.TaskGroup() as group:
                attempt = group.create_task(self._attempt(loop), name=loop.name)
            outcome = attempt.result()
            if outcome.raises is not None:
                raise outcome.raises
            if not outcome.restarts:
                return
            if self._clock.monotonic() - began >= STABLE_SECONDS:
                attempts = 0
            delay = doubled(BACKOFF_FIRST, attempts, longest=BACKOFF_MAX)
            await asyncio.sleep(delay.total_seconds())
            attempts += 1

    async def _attempt(self, loop: Loop) -> "_Attempt":
        where, key = (loop.where, loop.name) if loop.where else (loop.name, "")
        expects: Expected = (FencedError, *loop.tolerates)
        try:
            with self.contain(where, key, failed=lambda _error: None, expects=expects):
                await loop.run()
                return _Attempt(restarts=False)
        except (PersysError, ExceptionGroup) as err:
            if not _consists_of(err, loop.tolerates):
                return _Attempt(restarts=False, raises=err)
            log.warning("part.failed", part=loop.name, reason=str(err))
        return _Attempt(restarts=True)

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


def _consists_of(err: Exception, kinds: tuple[type[PersysError], ...]) -> bool:
    """Whether it is one of these errors, or a group of nothing else."""
    if isinstance(err, ExceptionGroup):
        return all(_consists_of(inner, kinds) for inner in err.exceptions)
    return isinstance(err, kinds)


def _traceback(err: Exception) -> str:
    """The formatted traceback with a size limit: data of a peer in an exception must not fill the log."""
    text = "".join(traceback.format_exception(err, limit=-TRACEBACK_FRAMES_MAX))
    return text if len(text) <= TRACEBACK_MAX else f"…{text[-TRACEBACK_MAX:]}"


def _text(err: Exception) -> str:
    text = f"{type(err).__name__}: {err}" if str(err) else type(err).__name__
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"
