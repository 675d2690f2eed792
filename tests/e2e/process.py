"""One process under test: started, stopped, killed and restarted. Its log is in a file."""

import fcntl
import os
import random
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from e2e.waiting import DEADLINE_SECONDS, eventually

# Below the ephemeral port range of the kernel, so that a port stays free while its
# process is stopped.
_PORTS = range(15_000, 32_000)
# One file per port, locked by the test process that uses the port: several run in parallel.
_LOCKS = Path(tempfile.gettempdir()) / "persys-test-ports"
_given: list[IO[bytes]] = []
# Detection of the other runtimes takes CPU time at each start of an agent; tests that need them enable them.
_ONLY_CONTAINERS = {"PERSYS_COMPOSE_ENABLED": "false", "PERSYS_VM_ENABLED": "false"}


def output(
    words: Sequence[str | Path], *, cwd: Path, variables: Mapping[str, str], seconds: float
) -> str:
    """The output of a command that must succeed."""
    result = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert result.returncode == 0, f"{words}: {result.stdout}{result.stderr}"
    return result.stdout.strip()


def free_port() -> int:
    """A port that no other test gets until this process exits."""
    return free_ports_in_row(1)


def free_ports_in_row(count: int) -> int:
    """The first of several consecutive ports that no other test gets until this process exits."""
    _LOCKS.mkdir(exist_ok=True)
    while True:
        first = random.choice(_PORTS[: 1 - count or None])
        if all(_lock(port) and not _is_bound(port) for port in range(first, first + count)):
            return first


def _lock(port: int) -> bool:
    lock = (_LOCKS / str(port)).open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return False
    _given.append(lock)
    return True


def _is_bound(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            trial.bind(("0.0.0.0", port))
        except OSError:
            return True
    return False


def listens_on(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


class Process:
    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        log: Path,
        ready: Callable[[], bool],
    ) -> None:
        self._arguments = arguments
        # Further settings of all agents: no CPU, memory or disk threshold refuses a workload.
        set_for_all = {k: v for k, v in os.environ.items() if k.startswith("PERSYS_ADMISSION_")}
        path = {"PATH": os.environ["PATH"]}
        self._environment = {**path, **_ONLY_CONTAINERS, **set_for_all, **environment}
        self._ready = ready
        self._log = log
        self._log.touch()
        self._started: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        return self._started is not None and self._started.poll() is None

    @property
    def pid(self) -> int:
        assert self._started is not None
        return self._started.pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def set(self, variable: str, value: str) -> None:
        """Set a variable for the next start."""
        self._environment[variable] = value

    def start(self) -> None:
        """Returns when it is ready."""
        self.launch()
        eventually(lambda: not self.runs or self._ready(), f"{self._arguments[0]} is ready")
        assert self.runs, f"{self._arguments[0]} did not start:\n{self.log[-4000:]}"

    def launch(self) -> None:
        assert not self.runs
        with self._log.open("ab") as log:
            self._started = subprocess.Popen(
                self._arguments,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """kill -9"""
        self.signal(signal.SIGKILL)
        self._wait()

    def stop(self) -> int:
        """Stop it with SIGTERM. Returns the exit code."""
        self.signal(signal.SIGTERM)
        return self._wait()

    def signal(self, number: signal.Signals) -> None:
        assert self._started is not None
        self._started.send_signal(number)
        if number is signal.SIGSTOP:
            # Its threads may continue for a moment.
            os.waitid(os.P_PID, self._started.pid, os.WSTOPPED)

    def close(self) -> None:
        if self.runs:
            self.kill()

    def _wait(self) -> int:
        assert self._started is not None
        return self._started.wait(timeout=DEADLINE_SECONDS)
