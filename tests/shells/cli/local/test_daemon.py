"""Background processes with a pid file and a log."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from persys.cli.framework.exit_codes import SetupError
from persys.cli.local.daemon import BackgroundProcess, command_line
from persys.cli.local.poll import poll
from persys.cli.local.processes import state_dir_lock

GRACE = timedelta(seconds=10)
SLEEPER = "import time; print('awake', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER


def a_process(state_dir: Path, code: str = SLEEPER, **environ: str) -> BackgroundProcess:
    return BackgroundProcess("sleeper", (sys.executable, "-c", code), environ, state_dir)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BackgroundProcess]:
    process = a_process(tmp_path)
    yield process
    process.stop(grace=timedelta(seconds=1))


def is_awake(process: BackgroundProcess) -> None:
    assert poll(lambda: process.log_path.read_text() or None, within=timedelta(seconds=20))


def test_a_process_that_was_not_started_is_not_running(process: BackgroundProcess) -> None:
    assert process.running() is None
    assert process.stop(grace=GRACE) is False


def test_a_started_process_has_its_own_session_and_log(
    process: BackgroundProcess,
) -> None:
    pid = process.start()

    is_awake(process)
    assert process.running() == pid
    assert os.getsid(pid) == pid


def test_a_stopped_process_is_gone(process: BackgroundProcess) -> None:
    pid = process.start()

    assert process.stop(grace=GRACE) is True
    assert command_line(pid) == []
    assert process.running() is None


def test_a_process_that_ignores_the_signal_is_killed(tmp_path: Path) -> None:
    unresponsive = a_process(tmp_path, STUBBORN)
    pid = unresponsive.start()
    is_awake(unresponsive)

    unresponsive.stop(grace=timedelta(milliseconds=100))

    assert command_line(pid) == []


def test_a_killed_process_is_not_running(process: BackgroundProcess) -> None:
    pid = process.start()
    os.kill(pid, signal.SIGKILL)

    assert poll(lambda: process.running() is None or None, within=timedelta(seconds=10))


def test_another_process_with_the_same_pid_is_not_stopped(
    process: BackgroundProcess, tmp_path: Path
) -> None:
    with subprocess.Popen(["sleep", "600"]) as unrelated:
        started = {"pid": unrelated.pid, "command": list(process.command), "environ": {}}
        (tmp_path / "sleeper.pid").write_text(json.dumps(started))

        assert process.running() is None
        assert process.stop(grace=GRACE) is False
        assert unrelated.poll() is None
        unrelated.kill()


def test_changed_settings_are_detected(process: BackgroundProcess, tmp_path: Path) -> None:
    pid = process.start()

    other = a_process(tmp_path, PORT="1")

    assert process.has_same_settings()
    assert other.running() == pid
    assert not other.has_same_settings()


def test_a_process_that_ended_shows_the_end_of_its_log(tmp_path: Path) -> None:
    failing = a_process(tmp_path, "raise SystemExit('port 1 is taken')")
    failing.start()
    poll(lambda: failing.running() is None or None, within=timedelta(seconds=10))

    with pytest.raises(SetupError, match="port 1 is taken"):
        failing.check_runs()


def test_a_command_that_does_not_exist_cannot_start(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot start ghost"):
        BackgroundProcess("ghost", ("/no/such/program",), {}, tmp_path).start()


def test_a_corrupt_pid_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "sleeper.pid").write_text("12 monkeys")

    with pytest.raises(SetupError, match=r"sleeper\.pid"):
        a_process(tmp_path).running()


def test_only_one_command_works_on_a_state_directory(tmp_path: Path) -> None:
    with (
        state_dir_lock(tmp_path),
        pytest.raises(SetupError, match="another `persys` command is running"),
        state_dir_lock(tmp_path),
    ):
        pass
