"""The serial console of VMs and its log.

libvirt allows one console session at a time. A second session is rejected, or with `force` disconnects the
first one, which gets the reason.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from persys.agent.runtimes.docker.mapping import Owner
from persys.agent.runtimes.vm import console_log
from persys.agent.runtimes.vm.domain_xml import machine_uuid
from persys.agent.runtimes.vm.errors import is_code
from persys.agent.runtimes.vm.libvirt import Libvirt, LibvirtError
from persys.agent.runtimes.vm.libvirt_import import load
from persys.agent.runtimes.vm.state_dir import MachinePlace
from persys.errors import NotFoundError, RefusedError, RuntimeUnavailableError
from persys.infra.aio.path_calls import PathCalls
from persys.model.ids import WorkloadId

PIECE_BYTES = 64 * 1024
WAITING_BYTES_MAX = 256 * 1024
WRITE_SECONDS = 20.0
CLOSE_SECONDS = 5.0
_AGAIN_SECONDS = 0.02
_WOULD_BLOCK = -2  # libvirt's result for "would block"


class MachineAccess:
    def __init__(self, libvirt: Libvirt, owner: Owner, paths: PathCalls, root: Path) -> None:
        self._libvirt = libvirt
        self._paths = paths
        self._owner = owner
        self._root = root
        self._open: dict[WorkloadId, Console] = {}

    def log(
        self, workload_id: WorkloadId, *, tail: int, follow: bool, over: Callable[[], bool]
    ) -> AsyncGenerator[bytes, None]:
        path = MachinePlace(self._root, workload_id).console
        return console_log.lines(path, self._paths, tail=tail, follow=follow, over=over)

    @asynccontextmanager
    async def console(self, workload_id: WorkloadId, *, force: bool) -> AsyncIterator["Console"]:
        """Raises RefusedError if the VM is not running, or if the console is in use and not `force`."""
        before = self._open.get(workload_id)
        if before is not None:
            if not force:
                raise RefusedError(_in_use(workload_id))
            await before.end("another session has taken over the console")
        console = Console(self._libvirt)
        try:
            await console.open(machine_uuid(self._owner, workload_id), force=force)
        except LibvirtError as err:
            raise _refusal(err, workload_id) from err
        self._open[workload_id] = console
        try:
            yield console
        finally:
            if self._open.get(workload_id) is console:
                del self._open[workload_id]
            await console.end()


class Console:
    """One open console. libvirt's event thread delivers the bytes, and pauses when the buffer is full."""

    def __init__(self, libvirt: Libvirt) -> None:
        self._libvirt = libvirt
        self._loop = asyncio.get_running_loop()
        self._stream: Any = None
        self._buffer = bytearray()
        self._changed = asyncio.Event()
        self._over = False
        self._paused = False
        self.why_ended = ""  # "": the VM has stopped

    async def open(self, uuid: str, *, force: bool) -> None:
        await self._libvirt.call(lambda connection: self._begin(connection, uuid, force))

    async def read(self) -> bytes | None:
        """The next bytes, or None at the end."""
        await self._changed.wait()
        if not self._buffer:
            return None
        data = bytes(self._buffer)
        self._buffer.clear()
        if not self._over:
            self._changed.clear()
        if self._paused:
            self._paused = False
            await self._with_stream(lambda stream: stream.eventUpdateCallback(_events()))
        return data

    async def write(self, data: bytes) -> None:
        """Returns when the VM has accepted all data. Raises RefusedError if it does not in time."""
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                while data and not self._over:
                    sent = await self._with_stream(partial(_send, data))
                    if sent == _WOULD_BLOCK:
                        await asyncio.sleep(_AGAIN_SECONDS)
                    else:
                        data = data[sent:]
        except TimeoutError as err:
            raise RefusedError("the VM does not accept input on its console") from err

    async def end(self, why: str = "") -> None:
        stream, self._stream = self._stream, None
        self.why_ended = self.why_ended or why
        self._take(b"", over=True)
        if stream is not None:
            with suppress(LibvirtError, RuntimeUnavailableError):  # it may have ended already
                await self._libvirt.call(lambda _: _abort(stream), deadline=CLOSE_SECONDS)

    async def watch(self) -> None:
        """Wait until libvirt is lost, which the console itself does not report. RuntimeUnavailableError."""
        async for _ in self._libvirt.domain_events():
            pass

    def _begin(self, connection: Any, uuid: str, force: bool) -> None:
        libvirt = load()
        domain = connection.lookupByUUIDString(uuid)
        stream = connection.newStream(libvirt.VIR_STREAM_NONBLOCK)
        domain.openConsole(None, stream, libvirt.VIR_DOMAIN_CONSOLE_FORCE if force else 0)
        self._stream = stream
        stream.eventAddCallback(_events(), self._on_event, None)

    def _on_event(self, stream: Any, _events: int, _opaque: None) -> None:
        """Runs in libvirt's event thread."""
        libvirt = load()
        try:
            data = stream.recv(PIECE_BYTES)
            if isinstance(data, bytes) and len(self._buffer) + len(data) > WAITING_BYTES_MAX:
                stream.eventUpdateCallback(_events_of_end())
                self._paused = True
        except libvirt.libvirtError:
            data = b""
        if data == _WOULD_BLOCK:
            return
        if not data:
            with suppress(libvirt.libvirtError):
                stream.eventRemoveCallback()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(lambda: self._take(data, over=not data))

    def _take(self, data: bytes, *, over: bool) -> None:
        self._buffer += data
        self._over = self._over or over
        self._changed.set()

    async def _with_stream(self, call: Callable[[Any], Any]) -> Any:
        stream = self._stream
        if stream is None:
            return 0
        try:
            return await self._libvirt.call(lambda _: call(stream))
        except LibvirtError:
            self._take(b"", over=True)  # the stream has ended
            return 0


def _events() -> int:
    return int(load().VIR_STREAM_EVENT_READABLE) | _events_of_end()


def _events_of_end() -> int:
    libvirt = load()
    return int(libvirt.VIR_STREAM_EVENT_ERROR | libvirt.VIR_STREAM_EVENT_HANGUP)


def _send(data: bytes, stream: Any) -> int:
    return int(stream.send(data))


def _abort(stream: Any) -> None:
    with suppress(load().libvirtError):
        stream.eventRemoveCallback()
    stream.abort()


def _refusal(err: LibvirtError, workload_id: WorkloadId) -> Exception:
    if is_code(err, "VIR_ERR_NO_DOMAIN"):
        return NotFoundError("vm", workload_id)
    if is_code(err, "VIR_ERR_OPERATION_INVALID"):
        return RefusedError(f"cannot open the console of {workload_id}: the VM is not running")
    if is_code(err, "VIR_ERR_OPERATION_FAILED"):
        return RefusedError(_in_use(workload_id))
    return RefusedError(err.message)


def _in_use(workload_id: WorkloadId) -> str:
    return f"the console of {workload_id} is in use; --force disconnects the current session"
