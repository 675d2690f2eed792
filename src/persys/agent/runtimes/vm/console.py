"""The serial console of VMs and its log.

libvirt allows one console session at a time. A second session is rejected, or with `force` disconnects the
first one, which gets the reason.

virtlogd writes the log. It rotates the file and names older files .0, .1 and so on, newest first. A restarted
VM appends to the same log. The log has no timestamps and does not separate runs.
"""

import asyncio
import os
import re
import threading
from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.agent.runtimes.vm.domain_xml import domain_uuid
from persys.agent.runtimes.vm.inspection import inspect_domain
from persys.agent.runtimes.vm.libvirt import Libvirt, LibvirtError, is_code, load
from persys.agent.runtimes.vm.state_dir import VmStateDir
from persys.core.agent.report import LOG_TAIL_BYTES_MAX
from persys.errors import NotFoundError, RefusedError, RuntimeUnavailableError
from persys.infra.aio.path_calls import PathCalls, PathTimeoutError
from persys.model.ids import WorkloadId

# Colours, cursor movement and other control sequences of firmware and boot loaders.
CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[ -/]+[0-~]|[0-Z\\-~])|[\x00-\x08\x0b-\x1f\x7f]")


LOG_POLL_SECONDS = 0.25
LOG_CHUNK_BYTES = 32 * 1024
TAIL_BYTES_MAX = 4 * 1024 * 1024
ALL_BYTES_MAX = 64 * 1024 * 1024  # limit without `follow`
_ROTATED_MAX = 100  # rotated files
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*)?[ -/]*$")
CHUNK_BYTES = 64 * 1024
WAITING_BYTES_MAX = 256 * 1024
WRITE_SECONDS = 20.0
CLOSE_SECONDS = 5.0
_RETRY_SECONDS = 0.02
_WOULD_BLOCK = -2  # libvirt's result for "would block"


class VmAccess:
    def __init__(self, libvirt: Libvirt, owner: OwnerLabels, paths: PathCalls, root: Path) -> None:
        self._libvirt = libvirt
        self._paths = paths
        self._owner = owner
        self._root = root
        self._open: dict[WorkloadId, Console] = {}

    def log(
        self, workload_id: WorkloadId, *, tail: int, follow: bool, over: Callable[[], bool]
    ) -> AsyncGenerator[bytes, None]:
        path = VmStateDir(self._root, workload_id).console
        return lines(path, self._paths, tail=tail, follow=follow, over=over)

    async def addresses(self, workload_id: WorkloadId) -> tuple[str, ...]:
        """The addresses of a running VM. Raises RefusedError if it is not running."""
        uuid = domain_uuid(self._owner, workload_id)
        try:
            view = await self._libvirt.call(lambda connection: inspect_domain(connection, uuid))
        except LibvirtError as err:
            raise RefusedError(err.message) from err
        if view is None:
            raise NotFoundError("vm", workload_id)
        if view.number < 0:
            raise RefusedError(f"cannot connect to {workload_id}: the VM is not running")
        return view.addresses

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
            await console.open(domain_uuid(self._owner, workload_id), force=force)
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
                        await asyncio.sleep(_RETRY_SECONDS)
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
            data = stream.recv(CHUNK_BYTES)
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


async def lines(
    path: Path, paths: PathCalls, *, tail: int, follow: bool, over: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    """Log output in chunks, without terminal control sequences. `tail` 0: all.

    With `follow` it ends when `over` returns True and all output was read. Raises RefusedError.
    """
    try:
        async with _reading(path, paths, follows=True) as reader:
            async for piece in _begin(reader, path, paths, tail):
                yield piece
            while follow:
                ends = over()  # before the read, so that output until then is not lost
                piece = await paths.run(path, reader.more)
                if piece:
                    yield piece
                elif ends:
                    return
                else:
                    await asyncio.sleep(LOG_POLL_SECONDS)
    except OSError as err:
        raise RefusedError(f"cannot read the console log: {err.strerror}") from err


async def _begin(
    reader: "_Reader", path: Path, paths: PathCalls, tail: int
) -> AsyncGenerator[bytes, None]:
    end = b""
    async for piece in _all(reader, path, paths):
        if not tail:
            yield piece
        else:
            end = (end + piece)[-TAIL_BYTES_MAX:]
    if tail:
        yield b"".join(end.splitlines(keepends=True)[-tail:])


async def _all(reader: "_Reader", path: Path, paths: PathCalls) -> AsyncGenerator[bytes, None]:
    """The existing log in chunks, oldest first.

    The total is limited: a guest that writes faster than the log is read would never let it end.
    """
    left = ALL_BYTES_MAX
    for older in await paths.run(path, reader.older):
        async with _reading(older, paths, follows=False) as before:
            while left > 0 and (piece := await paths.run(path, before.more)):
                left -= len(piece)
                yield piece
    while left > 0 and (piece := await paths.run(path, reader.more)):
        left -= len(piece)
        yield piece


@asynccontextmanager
async def _reading(path: Path, paths: PathCalls, *, follows: bool) -> AsyncIterator["_Reader"]:
    reader = _Reader(path, follows=follows)
    try:
        yield reader
    finally:
        with suppress(PathTimeoutError):  # close waits for a read that hangs
            await paths.run(path, reader.close)


class _Reader:
    """Reads a file from the start. With `follows` it continues in the next file after rotation. Blocks.

    A read that hangs may return after `close`, in its own thread; it then leaves no file open.
    """

    def __init__(self, path: Path, *, follows: bool) -> None:
        self._path = path
        self._follows = follows
        self._file: BinaryIO | None = None
        self._is_closed = False
        self._lock = threading.Lock()  # of the two above; not held while a call may hang
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def older(self) -> list[Path]:
        """Rotated files, oldest first."""
        names = (self._path.with_name(f"{self._path.name}.{n}") for n in range(_ROTATED_MAX))
        return [path for path in reversed(list(names)) if path.exists()]

    def more(self) -> bytes:
        """The next chunk, or b"" if there is none yet."""
        while piece := self._next():
            text = self._rest + self._decode(piece)
            unfinished = _UNFINISHED.search(text)
            end = unfinished.start() if unfinished else len(text)
            self._rest = text[end:]
            if shown := CONTROL.sub("", text[:end]):
                return shown.encode()
        return b""

    def _next(self) -> bytes:
        piece = self._read()
        if not piece and self._follows and self._was_rotated():
            self._replace_file(None)
            piece = self._read()
        return piece

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._replace_file(None)

    def _read(self) -> bytes:
        if self._file is None:
            try:
                self._replace_file(self._path.open("rb"))
            except FileNotFoundError:
                return b""
        file = self._file
        return file.read(LOG_CHUNK_BYTES) if file is not None else b""

    def _replace_file(self, file: BinaryIO | None) -> None:
        """After `close`, the new file is closed."""
        with self._lock:
            left = file if self._is_closed and file is not None else self._file
            self._file = None if self._is_closed else file
        if left is not None:
            left.close()

    def _was_rotated(self) -> bool:
        """Whether this file was rotated."""
        if self._file is None:
            return False
        try:
            return not os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False


def tail_of(path: Path) -> str:
    """The end of the log, or "" if there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 2 * LOG_TAIL_BYTES_MAX))
            written = file.read()
    except OSError:
        return ""
    return CONTROL.sub("", written.decode("utf-8", "replace"))
