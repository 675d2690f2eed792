"""Runs external programs (git, docker compose, qemu-img) with limits on time, output and file size.

A program inherits its lock file and holds the lock until it exits, even if the agent is killed meanwhile: the
next agent waits for it instead of running a second one.
"""

import asyncio
import fcntl
import os
import resource
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import structlog

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


async def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    deadline: float,
    cwd: Path | None = None,
    lock: Path | None = None,
    stdin: bytes = b"",
    file_bytes_max: int = 0,
) -> ProgramResult:
    """Run a program to its end. Raises TimeoutError after killing it, OSError if it cannot be started.

    `file_bytes_max` limits the size of each file that it writes; 0: no limit.
    """
    async with asyncio.timeout(deadline):
        if lock is None:
            return await _run(command, env, cwd, (), stdin, file_bytes_max)
        held = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            await _take(held)
            return await _run(command, env, cwd, (held,), stdin, file_bytes_max)
        finally:
            os.close(held)


async def _take(held: int) -> None:
    while True:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.sleep(_TRY_AGAIN_SECONDS)
        else:
            return


async def _run(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: Path | None,
    held: tuple[int, ...],
    stdin: bytes,
    file_bytes_max: int,
) -> ProgramResult:
    process = await asyncio.create_subprocess_exec(
        *command,
        env=dict(env),
        cwd=cwd,
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
