"""A file system that does not respond blocks a few threads and nothing else."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from persys.infra.aio.path_calls import PathTimeoutError, ThreadPathCalls, directory_of


class HangingMount:
    """Calls that do not return until the mount is back."""

    def __init__(self) -> None:
        self.back = threading.Event()
        self.calls = 0

    def stat(self) -> str:
        self.calls += 1
        self.back.wait()
        return "found"


@pytest.fixture
def dead() -> Iterator[HangingMount]:
    mount = HangingMount()
    yield mount
    mount.back.set()


async def test_the_result_of_a_call_is_returned(tmp_path: Path) -> None:
    paths = ThreadPathCalls()

    assert (await paths.run(str(tmp_path), tmp_path.stat)).st_ino


@pytest.mark.parametrize(
    "error", [FileNotFoundError("gone"), ValueError("null byte"), MemoryError()]
)
async def test_the_exception_of_a_call_is_raised(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        await ThreadPathCalls().run("/data/x", fail)


async def test_a_call_that_does_not_return_ends_at_its_deadline(dead: HangingMount) -> None:
    paths = ThreadPathCalls(deadline_seconds=0.05)

    with pytest.raises(
        PathTimeoutError, match=r"/mnt/a/x: the file system did not respond within 0\.05 s"
    ):
        await paths.run("/mnt/a/x", dead.stat)


async def test_a_dead_mount_is_not_called_again_and_others_are(dead: HangingMount) -> None:
    paths = ThreadPathCalls(deadline_seconds=0.05, per_directory_max=2)
    for _ in range(2):
        with pytest.raises(PathTimeoutError):
            await paths.run("/mnt/a/x", dead.stat)

    with pytest.raises(PathTimeoutError, match="2 earlier calls below /mnt/a have not returned"):
        await paths.run("/mnt/a/y", dead.stat)
    assert dead.calls == 2
    assert await paths.run("/mnt/b/x", lambda: "found", deadline_seconds=20) == "found"


async def test_the_total_number_of_blocked_calls_is_limited(dead: HangingMount) -> None:
    paths = ThreadPathCalls(deadline_seconds=0.05, calls_max=3)
    for number in range(3):
        with pytest.raises(PathTimeoutError):
            await paths.run(f"/mnt/{number}/x", dead.stat)

    with pytest.raises(PathTimeoutError, match="3 file system calls have not returned"):
        await paths.run("/mnt/9/x", dead.stat)
    assert dead.calls == 3


async def test_a_mount_that_is_back_is_called_again(dead: HangingMount) -> None:
    paths = ThreadPathCalls(deadline_seconds=0.05, per_directory_max=1)
    with pytest.raises(PathTimeoutError):
        await paths.run("/mnt/a/x", dead.stat)

    dead.back.set()
    async with asyncio.timeout(20):
        while True:
            try:
                assert await paths.run("/mnt/a/x", dead.stat) == "found"
                break
            except PathTimeoutError:
                await asyncio.sleep(0.01)


async def test_the_event_loop_continues_while_a_call_is_blocked(dead: HangingMount) -> None:
    paths, ticks = ThreadPathCalls(deadline_seconds=0.3), 0
    async with asyncio.TaskGroup() as group:
        stuck = group.create_task(_ends(paths, dead))
        while not stuck.done():
            ticks += 1
            await asyncio.sleep(0.01)

    assert ticks > 5


async def _ends(paths: ThreadPathCalls, dead: HangingMount) -> None:
    with pytest.raises(PathTimeoutError):
        await paths.run("/mnt/a/x", dead.stat)


async def test_a_call_may_have_its_own_deadline(dead: HangingMount) -> None:
    with pytest.raises(PathTimeoutError, match=r"within 0\.05 s"):
        await ThreadPathCalls().run("/mnt/a/x", dead.stat, deadline_seconds=0.05)


async def test_a_late_result_is_discarded(dead: HangingMount) -> None:
    discarded: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    paths = ThreadPathCalls(deadline_seconds=0.05)
    with pytest.raises(PathTimeoutError):
        await paths.run("/mnt/a/x", dead.stat, discard=discarded.set_result)

    dead.back.set()
    async with asyncio.timeout(20):
        assert await discarded == "found"


async def test_a_thread_that_cannot_be_started_uses_no_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    paths = ThreadPathCalls(per_directory_max=1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                await paths.run("/mnt/a/x", lambda: "found")

    assert await paths.run("/mnt/a/x", lambda: "found") == "found"


async def test_directories_of_workloads_have_their_own_slots(dead: HangingMount) -> None:
    paths = ThreadPathCalls(
        roots=[Path("/var/lib/persys/stacks")], deadline_seconds=0.05, per_directory_max=1
    )
    with pytest.raises(PathTimeoutError):
        await paths.run("/var/lib/persys/stacks/bad/export", dead.stat)

    with pytest.raises(PathTimeoutError, match="below /var/lib/persys/stacks/bad"):
        await paths.run("/var/lib/persys/stacks/bad/source", dead.stat)
    good = await paths.run(
        "/var/lib/persys/stacks/good/export", lambda: "found", deadline_seconds=20
    )
    assert good == "found"


@pytest.mark.parametrize(
    ("path", "directory"),
    [("/", "/"), ("/data", "/data"), ("/mnt/a/b/c", "/mnt/a"), ("/mnt/../data/x/y", "/data/x")],
)
def test_calls_below_one_directory_share_slots(path: str, directory: str) -> None:
    assert directory_of(path) == directory
