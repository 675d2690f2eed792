"""Records callers: in the events of their requests, and in events of denied requests.

Events that are committed while a request is served get its identity and source address. For an RPC that
commits nothing itself (exec, images, volumes, snapshots) an event is written, see `wire/methods.py`.
The leader writes denied requests as events, within a limit.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import structlog

from persys.core.auth.denials import WINDOW_SECONDS, Denial, DenialLimiter
from persys.errors import ConflictError, PersysError, StoreUnavailableError
from persys.infra.clock import Clock
from persys.infra.rpc.authorizer import CALLER, peer_address
from persys.model.event import Event, EventKind
from persys.scheduler.commit.committer import Committer
from persys.scheduler.commit.transaction import ORIGIN, Origin, Transaction
from persys.wire.methods import Method

log = structlog.get_logger()

TEXT_LENGTH_MAX = 200
# A forwarded port has one call per connection. Further ones of a caller to a port are not written again.
_REPEATED = frozenset({EventKind.PORT_FORWARDED})
_REPEAT_SECONDS = 60.0
_RECENT_MAX = 1_000


class Audit:
    def __init__(self, committer: Committer, clock: Clock) -> None:
        self._committer = committer
        self._clock = clock
        self._recent: dict[Any, float] = {}

    @contextmanager
    def request(self, context: Any) -> Iterator[None]:
        """Events committed inside, also in tasks that are started inside, name the caller."""
        origin = _origin(context)
        before = ORIGIN.set(origin)
        try:
            yield
        finally:
            origin.is_open = False
            ORIGIN.reset(before)

    async def write(self, method: Method, request: Any) -> None:
        """Write the event of an RPC that commits none itself. If it cannot be stored, it is logged."""
        event = _event(method, request, self._clock)
        if event is None or (event.kind in _REPEATED and self._is_repeated(event)):
            return
        try:
            await self._committer.commit(Transaction(done=lambda: None, events=[event]))
        except PersysError as err:
            origin = ORIGIN.get()
            log.warning(
                "audit.not_stored",
                method=method.name,
                identity=origin.identity if origin is not None else "",
                source=origin.source if origin is not None else "",
                workload_id=event.workload_id,
                detail=event.message,
                reason=str(err),
            )

    def _is_repeated(self, event: Event) -> bool:
        """Whether this caller did the same within the last minute. Each connection is a call of its own."""
        now, origin = self._clock.monotonic(), ORIGIN.get()
        key = (origin and (origin.identity, origin.source), event.workload_id, event.message)
        self._recent = {one: until for one, until in self._recent.items() if until > now}
        if key in self._recent:
            return True
        if len(self._recent) < _RECENT_MAX:
            self._recent[key] = now + _REPEAT_SECONDS
        return False


def _origin(context: Any) -> Origin:
    caller = CALLER.get()
    if caller is not None:
        return Origin(caller.label, caller.source)
    peer = getattr(context, "peer", None)  # a simulation has no addresses
    return Origin("", peer_address(peer()) if peer is not None else "")


def _event(method: Method, request: Any, clock: Clock) -> Event | None:
    if getattr(request, "dry_run", False):
        return None
    start = getattr(request, "start", request)
    kind = EventKind(method.event)
    if getattr(start, "console", False):
        kind = EventKind.CONSOLE_OPENED
    return Event(
        clock.now(),
        kind,
        _detail(start)[:TEXT_LENGTH_MAX],
        workload_id=getattr(start, "workload_id", "")[:TEXT_LENGTH_MAX],
        node_id=getattr(start, "node_id", "")[:TEXT_LENGTH_MAX],
    )


def _detail(start: Any) -> str:
    """Of a command only the program: its arguments may hold secrets."""
    command = getattr(start, "command", ())
    if command:
        return str(command[0])
    service = f"service {start.service}, " if getattr(start, "service", "") else ""
    if port := getattr(start, "port", 0):
        return f"{service}port {port}"
    if path := getattr(start, "path", ""):
        return f"{service}{'to' if start.upload else 'from'} {path}"
    name: str = getattr(start, "name", "") or getattr(start, "key", "")
    return name


class DenialLog:
    def __init__(self, committer: Committer, clock: Clock, window: float = WINDOW_SECONDS) -> None:
        self._committer = committer
        self._clock = clock
        self._limiter = DenialLimiter(window)
        self._due: list[str] = []
        self._wakeup = asyncio.Event()

    def note(self, denial: Denial) -> None:
        if self._committer.modes.is_frozen:
            return
        line = self._limiter.take(denial, self._clock.monotonic())
        if line is not None:
            self._due.append(line)
        self._wakeup.set()

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._until_end()):
                    await self._wakeup.wait()
            self._wakeup.clear()
            self._due += self._limiter.close(self._clock.monotonic())
            await self._write()

    def _until_end(self) -> float | None:
        ends_at = self._limiter.ends_at
        return None if ends_at is None else max(0.0, ends_at - self._clock.monotonic())

    async def _write(self) -> None:
        lines, self._due = self._due, []
        now = self._clock.now()
        events = [Event(now, EventKind.ACCESS_DENIED, line) for line in lines]
        with suppress(StoreUnavailableError, ConflictError):
            await self._committer.commit(Transaction(done=lambda: None, events=events))
