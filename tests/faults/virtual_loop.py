"""An event loop in virtual time that runs models of other programs in this process."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from persys.sim.engine.virtual_loop import VirtualLoop

# No process of the host has such an id: a signal to it has no effect.
FIRST_PID = 1 << 30


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    stdin: bytes = b""


class ExitResult(NamedTuple):
    code: int = 0
    out: bytes = b""
    err: bytes = b""


Program = Callable[[Command], ExitResult]
OVERSIZED_BYTES = 6 * 1024 * 1024
_FAILED = ExitResult(1, err=b"it failed (injected by the test)")


class ProgramLoop(VirtualLoop):
    """`run` implements all programs, `fault_of` returns the fault of a started program."""

    def __init__(self, run: Program, fault_of: Callable[[Command], str]) -> None:
        super().__init__()
        self._run = run
        self._fault_of = fault_of
        self._last_pid = FIRST_PID
        self.running: dict[int, _Transport] = {}

    async def subprocess_exec(
        self, protocol_factory: Callable[[], Any], program: str, *args: str, **options: Any
    ) -> tuple["_Transport", Any]:
        env, cwd = options.get("env") or {}, str(options.get("cwd") or "")
        command = Command((program, *args), env, cwd)
        fault = self._fault_of(command)  # may raise: the program cannot be started
        protocol = protocol_factory()
        self._last_pid += 1
        transport = _Transport(self, self._last_pid, protocol)
        self.running[self._last_pid] = transport
        has_input = options.get("stdin") == asyncio.subprocess.PIPE
        transport.begin(command, self._model(fault), has_input=has_input)
        return transport, protocol

    def kill(self, pid: int) -> None:
        """The effect of `os.killpg` on one of these programs."""
        if pid not in self.running:
            raise ProcessLookupError(pid)
        self.running[pid].end(ExitResult(-9))

    def _model(self, fault: str) -> Callable[[Command], ExitResult | None]:
        """None: it does not end on its own."""
        match fault:
            case "":
                return self._run
            case "hang":
                return lambda _command: None
            case "oversized":
                return lambda _command: ExitResult(
                    0, b"x" * OVERSIZED_BYTES, b"y" * OVERSIZED_BYTES
                )
            case _:
                return lambda _command: _FAILED


class _Pipe(asyncio.Transport):
    """One end of a pipe; it stores the written data."""

    def __init__(self, closed: Callable[[bytes], None] = lambda _content: None) -> None:
        super().__init__()
        self._content = b""
        self._is_closed = False
        self._closed = closed

    def write(self, data: Any) -> None:
        self._content += bytes(data)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._closed(self._content)

    def close_pipe(self) -> None:
        """The program has ended."""
        self._is_closed = True

    def is_closing(self) -> bool:
        return self._is_closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class _Transport(asyncio.SubprocessTransport):
    def __init__(self, loop: ProgramLoop, pid: int, protocol: Any) -> None:
        super().__init__()
        self._loop, self._pid, self._protocol = loop, pid, protocol
        self._code: int | None = None
        self._ended = asyncio.Event()
        self._pipes: dict[int, _Pipe] = {}

    def begin(
        self, command: Command, run: Callable[[Command], ExitResult | None], *, has_input: bool
    ) -> None:
        self._pipes = {1: _Pipe(), 2: _Pipe()}
        if has_input:
            self._pipes[0] = _Pipe(
                lambda content: self._work(
                    Command(command.words, command.env, command.cwd, content), run
                )
            )
        self._protocol.connection_made(self)
        if not has_input:
            self._work(command, run)

    def _work(self, command: Command, run: Callable[[Command], ExitResult | None]) -> None:
        result = run(command)
        if result is not None:
            self._loop.call_soon(self.end, result)

    def end(self, ended: ExitResult) -> None:
        if self._code is not None:
            return
        self._code = ended.code
        self._loop.running.pop(self._pid, None)
        for pipe in self._pipes.values():
            pipe.close_pipe()
        for number, content in ((1, ended.out), (2, ended.err)):
            if content:
                self._protocol.pipe_data_received(number, content)
            self._protocol.pipe_connection_lost(number, None)
        self._protocol.process_exited()
        self._ended.set()

    def get_pid(self) -> int:
        return self._pid

    def get_returncode(self) -> int | None:
        return self._code

    def get_pipe_transport(self, fd: int) -> Any:
        return self._pipes.get(fd)

    def is_closing(self) -> bool:
        return self._code is not None

    def close(self) -> None: ...

    async def _wait(self) -> int | None:
        await self._ended.wait()
        return self._code


def kill_group(loop: ProgramLoop) -> Callable[[int, int], None]:
    """`os.killpg` that also ends programs of this loop."""
    real = os.killpg

    def kill(pid: int, number: int) -> None:
        if pid >= FIRST_PID:
            loop.kill(pid)
        else:
            real(pid, number)

    return kill
