"""Supervises one process: `python -m persys.cli.local.supervise STATUS_FILE COMMAND...`.

`persys up` starts each of its processes under a supervisor, because a process exits when it cannot commit,
lead or serve. A process that exits with an error is restarted after a back-off that doubles up to a limit;
exit code 0 ends the supervisor. SIGTERM is forwarded and ends both.

`persys status` reads the status file, which is replaced atomically.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from persys.core.backoff import doubled
from persys.infra.clock import SystemClock

BACKOFF_MIN = timedelta(milliseconds=500)
BACKOFF_MAX = timedelta(seconds=30)
# A process that ran this long has started successfully: the back-off is reset.
SETTLED_AFTER = timedelta(seconds=60)
# Shorter than the grace period of `persys down`, which would kill the supervisor but not the process.
_STOP_SECONDS = 8.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Status:
    pid: int = 0  # 0: not running
    restarts: int = 0
    started_at: str = ""
    last_exit: str = ""


def backoff_after(failures: int) -> timedelta:
    """The back-off before the next start, after this many consecutive failures."""
    return doubled(BACKOFF_MIN, failures - 1, longest=BACKOFF_MAX)


def exit_text(code: int) -> str:
    """Describe a return code of `subprocess`."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def read_status(path: Path) -> Status:
    """The last status of a supervisor; empty if there is none or this version cannot read it."""
    try:
        return Status(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return Status()


class Supervisor:
    def __init__(self, status_path: Path, command: Sequence[str]) -> None:
        self._path = status_path
        self._command = list(command)
        self._clock = SystemClock()
        self._stopping = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._status = Status()

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        failures = 0
        while True:
            started = self._clock.monotonic()
            code = self._run_once()
            if code == 0 or self._stopping.is_set():
                return 0 if self._stopping.is_set() else code
            settled = self._clock.monotonic() - started >= SETTLED_AFTER.total_seconds()
            failures = 1 if settled else failures + 1
            pause = backoff_after(failures)
            self._log(f"{exit_text(code)}; restarting in {pause.total_seconds():g} s")
            if self._stopping.wait(pause.total_seconds()):
                return 0

    def _run_once(self) -> int:
        try:
            self._child = subprocess.Popen(self._command, preexec_fn=_die_with_parent)
        except OSError as err:
            self._log(f"cannot start: {err}")
            self._write(pid=0, last_exit=str(err))
            return 1
        if self._stopping.is_set():  # the signal arrived before the process existed
            self._child.terminate()
        self._write(pid=self._child.pid, started_at=self._clock.now().isoformat())
        code = self._wait(self._child)
        restarts = self._status.restarts + (code != 0 and not self._stopping.is_set())
        self._write(pid=0, last_exit=exit_text(code), restarts=restarts)
        return code

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        while not self._stopping.is_set():
            try:
                return child.wait(timeout=1)
            except subprocess.TimeoutExpired:
                continue
        try:
            return child.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()

    def _stop(self, _number: int, _frame: object) -> None:
        self._stopping.set()
        if self._child is not None:
            self._child.terminate()

    def _log(self, text: str) -> None:
        print(f"supervisor: {' '.join(self._command)}: {text}", flush=True)

    def _write(self, **changes: str | int) -> None:
        self._status = Status(**{**asdict(self._status), **changes})
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self._status)) + "\n", encoding="utf-8")
        fresh.replace(self._path)


def _die_with_parent() -> None:
    """Runs in the child: it gets SIGTERM if its supervisor is killed, so that its port becomes free."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == 1:  # the supervisor was killed before this line
        os._exit(1)


def main() -> int:
    return Supervisor(Path(sys.argv[1]), sys.argv[2:]).run()


if __name__ == "__main__":
    sys.exit(main())
