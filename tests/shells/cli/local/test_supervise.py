"""A supervisor restarts its process after an error, and stops it on SIGTERM."""

import os
import signal
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from persys.cli.framework.exit_codes import SetupError
from persys.cli.local.daemon import BackgroundProcess, command_line
from persys.cli.local.poll import poll
from persys.cli.local.supervise import BACKOFF_MAX, BACKOFF_MIN, backoff_after, exit_text

DEADLINE = timedelta(seconds=60)
GRACE = timedelta(seconds=20)
SLEEPER = "import time; time.sleep(600)"
FAILING = "raise SystemExit('no store')"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER


def supervised(state_dir: Path, code: str) -> BackgroundProcess:
    return BackgroundProcess(
        "sleeper", (sys.executable, "-c", code), {}, state_dir, supervised=True
    )


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[BackgroundProcess]:
    process = supervised(tmp_path, SLEEPER)
    process.start()
    yield process
    process.stop(grace=GRACE)


def pid_of(process: BackgroundProcess, *, other_than: int = 0) -> int:
    def probe() -> int | None:
        pid = process.status().pid
        return pid if pid not in (0, other_than) and command_line(pid) else None

    found = poll(probe, within=DEADLINE)
    assert found is not None, process.log_path.read_text()
    return found


def is_gone(pid: int) -> bool:
    return poll(lambda: command_line(pid) == [] or None, within=DEADLINE) is not None


def test_a_killed_process_is_restarted(sleeper: BackgroundProcess) -> None:
    first = pid_of(sleeper)

    os.kill(first, signal.SIGKILL)

    pid_of(sleeper, other_than=first)
    assert (sleeper.status().restarts, sleeper.status().last_exit) == (1, "killed by SIGKILL")


def test_stopping_the_supervisor_stops_its_process_for_good(sleeper: BackgroundProcess) -> None:
    pid = pid_of(sleeper)

    assert sleeper.stop(grace=GRACE)

    assert is_gone(pid)
    assert sleeper.running() is None


def test_a_process_that_ignores_sigterm_is_killed_with_its_supervisor(tmp_path: Path) -> None:
    process = supervised(tmp_path, STUBBORN)
    process.start()
    pid = pid_of(process)

    process.stop(grace=GRACE)

    assert is_gone(pid)


def test_a_killed_supervisor_takes_its_process_with_it(sleeper: BackgroundProcess) -> None:
    pid = pid_of(sleeper)
    supervisor = sleeper.running()
    assert supervisor is not None

    os.kill(supervisor, signal.SIGKILL)

    assert is_gone(pid)


def test_a_process_that_exits_with_0_is_not_restarted(tmp_path: Path) -> None:
    process = supervised(tmp_path, "pass")
    process.start()

    assert poll(lambda: process.running() is None or None, within=DEADLINE)
    assert process.status().restarts == 0


def test_a_process_that_fails_at_its_start_is_reported_with_the_end_of_its_log(
    tmp_path: Path,
) -> None:
    process = supervised(tmp_path, FAILING)
    process.start()
    try:
        assert poll(lambda: process.status().restarts or None, within=DEADLINE)
        with pytest.raises(SetupError, match=r"exited with code 1(.|\n)*no store"):
            process.check_runs()
    finally:
        process.stop(grace=GRACE)


def test_the_back_off_doubles_up_to_a_limit() -> None:
    pauses = [backoff_after(failures) for failures in range(1, 40)]

    assert pauses[:3] == [BACKOFF_MIN, 2 * BACKOFF_MIN, 4 * BACKOFF_MIN]
    assert pauses[-1] == BACKOFF_MAX


def test_an_exit_is_described_by_its_code_or_signal() -> None:
    assert exit_text(3) == "exited with code 3"
    assert exit_text(-9) == "killed by SIGKILL"
