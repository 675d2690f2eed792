"""The agent's single connection to libvirtd, reopened after it breaks.

libvirt calls block, so each runs in its own thread. A call that exceeds its deadline continues in its thread
until libvirtd responds or the connection is dead. Threads are daemons, so that a hanging call does not block
the exit of the agent. Event listeners also ping periodically, to detect a libvirtd that hangs. libvirt's own
keepalive is not used: when it closed a connection during a call, it corrupted the memory of the process.

`persys.infra.libvirt_binding` finds the Python binding.

Errors are mapped to a Failure by libvirt's error code, never by its message.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

from persys.errors import PersysError, RuntimeUnavailableError
from persys.infra.libvirt_binding import find_binding
from persys.model.status import Failure, FailureReason

T = TypeVar("T")
DEADLINE_SECONDS = 20.0
PING_SECONDS = 5.0
CLOSE_SECONDS = 2.0
PING_AFTER_SECONDS = 2.0  # since the last event
_LOST = "the connection to libvirt was lost"
Listener = asyncio.Queue["DomainEvent | None"]  # None: the connection was lost
NAME_TAKEN = "NameTaken"
_CODES = {
    FailureReason.INVALID_SPEC: (
        "VIR_ERR_XML_ERROR",
        "VIR_ERR_XML_DETAIL",
        "VIR_ERR_XML_INVALID_SCHEMA",
        "VIR_ERR_INVALID_ARG",
        "VIR_ERR_CONFIG_UNSUPPORTED",
        "VIR_ERR_ARGUMENT_UNSUPPORTED",
    ),
    FailureReason.NETWORK_ERROR: ("VIR_ERR_NO_NETWORK", "VIR_ERR_INVALID_NETWORK"),
    FailureReason.STORAGE_ERROR: (
        "VIR_ERR_NO_STORAGE_POOL",
        "VIR_ERR_NO_STORAGE_VOL",
        "VIR_ERR_INVALID_STORAGE_POOL",
        "VIR_ERR_INVALID_STORAGE_VOL",
        "VIR_ERR_STORAGE_POOL_BUILT",
        "VIR_ERR_STORAGE_VOL_EXIST",
    ),
}


class LibvirtError(Exception):
    """An error from libvirt. Callers distinguish cases by `code`, one of VIR_ERR_*."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class DomainEvent:
    name: str
    uuid: str
    event: int  # VIR_DOMAIN_EVENT_*
    detail: int


class Libvirt:
    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._connection: Any = None
        self._opening: asyncio.Future[Any] | None = None
        self._listeners: set[Listener] = set()
        # Never freed: freeing a connection while libvirt's thread still closes it corrupted the memory of
        # the process. They are small and few.
        self._lost: list[Any] = []

    async def call(self, work: Callable[[Any], T], *, deadline: float = DEADLINE_SECONDS) -> T:
        """Run `work` with a virConnect. The connection and its objects must not be used after the call."""
        libvirt = load()
        try:
            async with asyncio.timeout(deadline):
                connection = await self._open()
                return await _in_thread(partial(work, connection))
        except TimeoutError as err:
            raise RuntimeUnavailableError(f"libvirt at {self._uri} is not responding") from err
        except libvirt.libvirtError as err:
            if _is_dead(connection):
                self._drop_connection(connection)
                raise RuntimeUnavailableError(f"{_LOST}: {err.get_error_message()}") from err
            raise LibvirtError(err.get_error_code(), err.get_error_message()) from err

    async def ping(self) -> None:
        await self.call(lambda connection: connection.getLibVersion(), deadline=PING_SECONDS)

    async def domain_events(self) -> AsyncGenerator[DomainEvent | None, None]:
        """Domain events. The first item is None: the stream is open from then on.

        Raises RuntimeUnavailableError when the connection is lost.
        """
        listener: Listener = asyncio.Queue()
        self._listeners.add(listener)
        try:
            await self.ping()
            yield None
            while True:
                try:
                    async with asyncio.timeout(PING_AFTER_SECONDS):
                        event = await listener.get()
                except TimeoutError:
                    await self.ping()
                    continue
                if event is None:
                    raise RuntimeUnavailableError(_LOST)
                yield event
        finally:
            self._listeners.discard(listener)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await _in_thread(partial(_close, connection))

    async def _open(self) -> Any:
        """Concurrent callers share one attempt to connect, so that a hanging libvirtd blocks one thread."""
        if self._connection is not None and _is_dead(self._connection):
            self._drop_connection(self._connection)
        if self._connection is not None:
            return self._connection
        if self._opening is None or self._opening.done():
            self._opening = self._start_connecting()
        return await asyncio.shield(self._opening)

    def _start_connecting(self) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        notify = partial(_call_soon, loop, self._on_event)
        lose = partial(_call_soon, loop, self._drop_connection)
        opening = _in_thread(partial(_connect, self._uri, notify, lose))
        opening.add_done_callback(self._opened)
        return opening

    def _opened(self, opening: asyncio.Future[Any]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._connection = opening.result()

    def _on_event(self, event: DomainEvent) -> None:
        for listener in self._listeners:
            listener.put_nowait(event)

    def _drop_connection(self, connection: Any) -> None:
        if connection is not self._connection:
            return
        # Not closed: a thread may still be in a call on it. Its socket is already closed.
        self._lost.append(connection)
        self._connection = None
        for listener in self._listeners:
            listener.put_nowait(None)


def _in_thread(work: Callable[[], T]) -> "asyncio.Future[T]":
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        with _ForwardErrors(loop, result):
            _call_soon(loop, _settle, result, result.set_result, work())

    _start_thread(run)
    return result


class _ForwardErrors:
    """Passes an exception of the thread to the future."""

    def __init__(self, loop: asyncio.AbstractEventLoop, result: "asyncio.Future[Any]") -> None:
        self._loop = loop
        self._result = result

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, err: BaseException | None, _trace: object) -> bool:
        if err is not None:
            _call_soon(self._loop, _settle, self._result, self._result.set_exception, err)
        return True


def _settle(result: "asyncio.Future[Any]", set_: Callable[[Any], None], value: Any) -> None:
    if not result.done():
        set_(value)


def _start_thread(work: Callable[[], object]) -> None:
    threading.Thread(target=work, name="libvirt", daemon=True).start()


def _call_soon(
    loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: Any
) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(call, *arguments)


def _connect(uri: str, notify: Callable[[DomainEvent], None], lose: Callable[[Any], None]) -> Any:
    libvirt = load()
    _run_events()

    def broke(connection: Any, _reason: int, _opaque: None) -> None:
        lose(connection)

    def changed(_connection: Any, domain: Any, event: int, detail: int, _opaque: None) -> None:
        notify(DomainEvent(domain.name(), domain.UUIDString(), event, detail))

    try:
        connection = libvirt.open(uri)
        connection.registerCloseCallback(broke, None)
        connection.domainEventRegisterAny(
            None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, changed, None
        )
    except libvirt.libvirtError as err:
        raise RuntimeUnavailableError(
            f"cannot connect to libvirt at {uri}: {err.get_error_message()}"
        ) from err
    return connection


def _is_dead(connection: Any) -> bool:
    try:
        return not connection.isAlive()
    except load().libvirtError:
        return True


def _close(connection: Any) -> None:
    with suppress(load().libvirtError):
        connection.unregisterCloseCallback()
        connection.close()


@cache
def _run_events() -> None:
    """Start the event thread, once per process and before the first connection."""
    libvirt = load()
    libvirt.virEventRegisterDefaultImpl()

    def run() -> None:
        while True:
            with suppress(libvirt.libvirtError):
                libvirt.virEventRunDefaultImpl()

    _start_thread(run)


class VmError(PersysError):
    """A VM cannot be created or started as specified."""

    def __init__(self, reason: FailureReason, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.failure = Failure(reason, message, retryable=reason.retryable, code=code)


def failure_of(err: LibvirtError, otherwise: FailureReason) -> Failure:
    """`otherwise` is the reason for unspecific error codes."""
    libvirt = load()
    for reason, names in _CODES.items():
        if err.code in {getattr(libvirt, name, None) for name in names}:
            return Failure(reason, err.message, retryable=reason.retryable)
    return Failure(otherwise, err.message, retryable=otherwise.retryable)


def is_code(err: LibvirtError, *names: str) -> bool:
    libvirt = load()
    return err.code in {getattr(libvirt, name) for name in names}


@cache
def load() -> Any:
    """The module `libvirt`. Raises RuntimeUnavailableError if there is none for this Python."""
    return find_binding().module
