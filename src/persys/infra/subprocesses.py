"""Runs external programs (git, docker compose, qemu-img) with limits on time, output and file size.

A program inherits its lock file and holds the lock until it exits, even if this process is killed
meanwhile: the next process waits for it instead of running a second one.

A program inherits the working directory of this process. A change of directory would happen between fork and
exec, while this process waits: a file system that does not respond would stop it.
"""

import asyncio
import fcntl
import os
import resource
import signal
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import structlog

from persys.infra.aio.path_calls import PathCalls, PathTimeoutError

log = structlog.get_logger()

OUTPUT_BYTES_MAX = 4 * 1024 * 1024
END_SECONDS = 5.0  # to exit after SIGKILL
_TRY_AGAIN_SECONDS = 0.1
_CHUNK_BYTES = 65536


class ProgramResult(NamedTuple):
    code: int
    out: str
    err: str
    is_cut: bool = False  # the output exceeded OUTPUT_BYTES_MAX; `out` is its tail

    @property
    def ok(self) -> bool:
        return self.code == 0


class ProgramLock(NamedTuple):
    """A lock file. It is accessed through `paths`, because its file system may not respond."""

    path: Path
    paths: PathCalls

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[int]:
        """Wait for the lock. Yields its descriptor. Raises OSError, PathTimeoutError."""
        file = await self.paths.run(self.path, partial(_open, self.path), discard=FileIO.close)
        try:
            await self._lock(file)
            yield file.fileno()
        finally:
            try:
                await self.paths.run(self.path, file.close)
            except (OSError, PathTimeoutError) as err:
                log.error("program.lock_not_closed", path=str(self.path), reason=str(err))

    async def _lock(self, file: FileIO) -> None:
        while True:
            if await self.paths.run(self.path, partial(_try_lock, file)):
                return
            await asyncio.sleep(_TRY_AGAIN_SECONDS)


def _open(path: Path) -> FileIO:
    return FileIO(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600), "r+")


def _try_lock(file: FileIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    deadline: float,
    lock: ProgramLock | None = None,
    stdin: bytes = b"",
    file_bytes_max: int = 0,
) -> ProgramResult:
    """Run a program to its end. Raises TimeoutError after killing it, OSError if it cannot be started.

    Raises PathTimeoutError if the file system of `lock` does not respond.
    `file_bytes_max` limits the size of each file that it writes; 0: no limit.
    """
    async with asyncio.timeout(deadline):
        if lock is None:
            return await _run(command, env, (), stdin, file_bytes_max)
        async with lock.hold() as held:
            return await _run(command, env, (held,), stdin, file_bytes_max)


async def _run(
    command: Sequence[str],
    env: Mapping[str, str],
    held: tuple[int, ...],
    stdin: bytes,
    file_bytes_max: int,
) -> ProgramResult:
    process = await asyncio.create_subprocess_exec(
        *command,
        env=dict(env),
        pass_fds=held,
        stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # so that its child processes can be killed with it
    )
    assert process.stdout is not None, "it is a pipe"
    assert process.stderr is not None, "it is a pipe"
    try:
        if file_bytes_max:
            _limit_files(process.pid, file_bytes_max)
        async with asyncio.TaskGroup() as group:
            out = group.create_task(_read(process.stdout))
            err = group.create_task(_read(process.stderr))
            code = group.create_task(process.wait())
            if process.stdin is not None:
                group.create_task(_feed(process.stdin, stdin))
    finally:
        if process.returncode is None:
            await _end(process, command[0])
    is_cut = out.result().is_cut
    return ProgramResult(code.result(), out.result().text, err.result().text, is_cut)


async def _end(process: asyncio.subprocess.Process, program: str) -> None:
    """Kill the process group. A process in uninterruptible sleep does not exit and is abandoned."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        log.error("program.not_ended", program=program, pid=process.pid)


def _limit_files(pid: int, bytes_max: int) -> None:
    """Set the file size limit of a process; its future child processes inherit it."""
    with suppress(ProcessLookupError):  # it has exited
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (bytes_max, bytes_max))


async def _feed(stream: asyncio.StreamWriter, content: bytes) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # it has exited before reading all
        stream.write(content)
        await stream.drain()
        stream.close()


class _Output(NamedTuple):
    text: str
    is_cut: bool


async def _read(stream: asyncio.StreamReader) -> _Output:
    """The output of a stream, or its tail if it exceeds OUTPUT_BYTES_MAX."""
    chunks: deque[bytes] = deque()
    size, is_cut = 0, False
    while chunk := await stream.read(_CHUNK_BYTES):
        chunks.append(chunk)
        size += len(chunk)
        while size - len(chunks[0]) >= OUTPUT_BYTES_MAX:
            size -= len(chunks.popleft())
            is_cut = True
    content = b"".join(chunks)
    is_cut = is_cut or len(content) > OUTPUT_BYTES_MAX
    return _Output(content[-OUTPUT_BYTES_MAX:].decode("utf-8", "replace"), is_cut)
