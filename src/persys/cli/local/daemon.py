"""A background process with its own session, log file and pid file.

A supervised process runs under a supervisor, which restarts it when it exits with an error; the pid is that
of the supervisor.

The pid file also records the command line and the environment. A pid may be reused after a reboot, so a
process counts as ours only while its command line equals the recorded one.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from persys.cli.framework.exit_codes import SetupError
from persys.cli.local.poll import poll
from persys.cli.local.supervise import Status, read_status

_EXEC_DEADLINE = timedelta(seconds=5)
_KILL_SECONDS = 5
_TAIL_LINES = 15


@dataclass(frozen=True)
class _Started:
    pid: int
    command: list[str]
    environ: dict[str, str]


@dataclass(frozen=True)
class BackgroundProcess:
    name: str
    command: tuple[str, ...]
    environ: Mapping[str, str]  # added to the inherited environment
    state_dir: Path
    supervised: bool = False  # a supervisor restarts it when it exits with an error

    @property
    def log_path(self) -> Path:
        return self.state_dir / f"{self.name}.log"

    def running(self) -> int | None:
        """The pid of the process, with any settings; None if it is not running."""
        started = self._started()
        if started is None:
            return None
        return started.pid if command_line(started.pid) == started.command else None

    def status(self) -> Status:
        """The status of the process under the supervisor, with its number of restarts."""
        return read_status(self._status_path)

    def has_same_settings(self) -> bool:
        started = self._started()
        return started is not None and (started.command, started.environ) == (
            self._started_command,
            self.environ,
        )

    def start(self) -> int:
        try:
            self.state_dir.mkdir(parents=True, exist_ok=True)
            with self.log_path.open("ab") as log:
                self._status_path.unlink(missing_ok=True)
                process = subprocess.Popen(
                    self._started_command,
                    env={**os.environ, **self.environ},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd="/",
                    start_new_session=True,
                )
            self._write(process.pid)
        except OSError as err:
            raise SetupError(f"cannot start {self.name}: {err}") from err
        # For an instant after the start the kernel shows no command line, as for an ended process.
        poll(
            lambda: command_line(process.pid) or process.poll(),
            within=_EXEC_DEADLINE,
            every=timedelta(milliseconds=5),
        )
        # The process outlives this command; init reaps it.
        process.returncode = 0
        return process.pid

    def stop(self, *, grace: timedelta) -> bool:
        """Send SIGTERM, then SIGKILL after the grace period. False if it was not running."""
        pid = self.running()
        if pid is None:
            self._pid_path.unlink(missing_ok=True)
            return False
        try:
            _terminate(pid, grace)
        except PermissionError as err:
            raise SetupError(f"cannot stop {self.name} (pid {pid}): run as its owner") from err
        self._pid_path.unlink(missing_ok=True)
        return True

    def check_runs(self, *, restarts_before: int = 0) -> None:
        """Raises SetUpError with the end of the log if it is not running or was restarted."""
        if self.running() is None:
            raise self.failure("exited")
        status = self.status()
        if self.supervised and status.restarts > restarts_before:
            raise self.failure(status.last_exit or "exited")

    def failure(self, problem: str) -> SetupError:
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        tail = "\n".join(lines[-_TAIL_LINES:])
        return SetupError(f"{self.name} {problem}; the end of {self.log_path}:\n{tail}")

    @property
    def _started_command(self) -> list[str]:
        if not self.supervised:
            return list(self.command)
        return [
            sys.executable,
            "-m",
            "persys.cli.local.supervise",
            str(self._status_path),
            *self.command,
        ]

    @property
    def _status_path(self) -> Path:
        return self.state_dir / f"{self.name}.status"

    @property
    def _pid_path(self) -> Path:
        return self.state_dir / f"{self.name}.pid"

    def _write(self, pid: int) -> None:
        started = _Started(pid, self._started_command, dict(self.environ))
        self._pid_path.write_text(json.dumps(asdict(started)) + "\n", encoding="utf-8")

    def _started(self) -> _Started | None:
        try:
            return _Started(**json.loads(self._pid_path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as err:
            raise SetupError(f"cannot read {self._pid_path}; remove it: {err}") from err


def command_line(pid: int) -> list[str]:
    """Empty for a process that has ended, including a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _terminate(pid: int, grace: timedelta) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        for number, seconds in (
            (signal.SIGTERM, grace.total_seconds()),
            (signal.SIGKILL, _KILL_SECONDS),
        ):
            signal.pidfd_send_signal(handle, number)
            if ended.poll(seconds * 1000):
                return
    except ProcessLookupError:
        return
    finally:
        os.close(handle)
    raise SetupError(f"process {pid} is still running after SIGKILL")
