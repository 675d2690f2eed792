"""Detection of Compose, and the end of programs with their children."""

import asyncio
import os
from pathlib import Path

import pytest

from persys.agent.runtimes.compose.cli import detect
from persys.errors import SettingsError
from persys.infra.aio.path_calls import ThreadPathCalls
from persys.infra.subprocesses import ProgramLock, run

HOST = "unix:///var/run/docker.sock"


async def test_a_binary_that_is_not_compose_is_rejected_by_name() -> None:
    with pytest.raises(SettingsError, match="invalid PERSYS_COMPOSE_BINARY 'false'"):
        await detect("false", HOST)


async def test_a_host_without_compose_has_no_compose_cli(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await detect("", HOST) is None


async def test_compose_v1_is_detected_by_its_version() -> None:
    found = await detect("docker-compose", HOST)
    assert found is not None
    assert found.is_v1 == found.version.startswith("1.")


async def test_a_program_over_its_deadline_is_killed_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "child"
    line = f"sleep 60 & echo $! > {note}; wait"
    with pytest.raises(TimeoutError):
        await run(["sh", "-c", line], env=dict(os.environ), deadline=1.0)
    child = int(note.read_text())
    for _ in range(500):
        if not _is_alive(child):
            return
        await asyncio.sleep(0.01)
    pytest.fail("the child still runs")


async def test_a_lock_is_held_by_the_program_and_waited_for(tmp_path: Path) -> None:
    lock = ProgramLock(tmp_path / "lock", ThreadPathCalls())
    env = dict(os.environ)
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            line = (
                f"test ! -e {tmp_path}/in && touch {tmp_path}/in && sleep 0.1 && rm {tmp_path}/in"
            )
            task = group.create_task(run(["sh", "-c", line], env=env, deadline=10.0, lock=lock))
            task.add_done_callback(lambda done: done.result().ok or pytest.fail("two at once"))


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
