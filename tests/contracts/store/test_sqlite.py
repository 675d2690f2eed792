"""Specific to SqliteStore: durability, one process at a time, full disks."""

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from persys.errors import CompactedError, NotFoundError, SettingsError, StoreUnavailableError
from persys.infra.clock import SystemClock
from persys.store.port import Committed, Unit
from persys.store.sqlite import SqliteStore

Eventually = Callable[[Callable[[], Awaitable[bool]]], Awaitable[None]]

WRITER = """
import asyncio, sys
from pathlib import Path
from persys.infra.clock import SystemClock
from persys.store.port import Unit
from persys.store.sqlite import SqliteStore

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]), monotonic=SystemClock().monotonic)
    number = 0
    while True:
        puts = {f"/{part}/{number:06d}": b"x" * 700 for part in "ab"}
        (outcome,) = await store.commit([Unit(puts=puts)])
        print(number, outcome.revision, flush=True)
        number += 1

asyncio.run(main())
"""


async def opened(path: Path) -> SqliteStore:
    return await SqliteStore.open(path, monotonic=SystemClock().monotonic)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "persys-test", mount], check=True)
    yield mount
    subprocess.run(["umount", mount], check=True)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that writes continuously and prints the acknowledged writes."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path / "store.db"], stdout=subprocess.PIPE, text=True
    )
    with process:
        yield process
        process.kill()


async def test_reopening_keeps_records_versions_and_the_revision(tmp_path: Path) -> None:
    store = await opened(tmp_path / "store.db")
    await store.commit([Unit(puts={"/a": b"1", "/b": b"2"})])
    await store.commit([Unit(deletes=["/b"])])
    before = await store.read("/")
    await store.close()

    again = await opened(tmp_path / "store.db")

    assert await again.read("/") == before
    (outcome,) = await again.commit([Unit(puts={"/c": b"3"})])
    assert outcome == Committed(before.revision + 1)
    await again.close()


async def test_the_revision_rises_by_one_per_commit_that_writes(tmp_path: Path) -> None:
    store = await opened(tmp_path / "store.db")

    await store.commit([Unit(puts={f"/{number}": b"v"}) for number in range(300)])
    await store.commit([Unit(deletes=["/absent"])])
    await store.commit([Unit(guards={"/0": 99}, puts={"/0": b"v"})])

    assert (await store.read("/")).revision == 1
    assert store.transactions == 1
    await store.close()


async def test_kill_9_of_a_writer_loses_no_acknowledged_write(
    tmp_path: Path, writer: subprocess.Popen[str]
) -> None:
    assert writer.stdout is not None
    acknowledged = [await asyncio.to_thread(writer.stdout.readline) for _ in range(200)]
    writer.kill()
    acknowledged += [line for line in writer.stdout if line.endswith("\n")]
    last_number, last_revision = map(int, acknowledged[-1].split())

    store = await opened(tmp_path / "store.db")
    snapshot = await store.read("/")

    found = [record.key for record in snapshot.records]
    assert found[: len(found) // 2] == [key.replace("/b", "/a") for key in found[len(found) // 2 :]]
    assert len(found) // 2 in (last_number + 1, last_number + 2)
    assert snapshot.revision in (last_revision, last_revision + 1)
    await store.close()


async def test_a_second_process_is_refused_with_the_reason(
    tmp_path: Path, writer: subprocess.Popen[str]
) -> None:
    assert writer.stdout is not None
    await asyncio.to_thread(writer.stdout.readline)

    with pytest.raises(SettingsError, match="already in use by another process"):
        await opened(tmp_path / "store.db")


async def test_a_second_open_in_the_same_process_is_refused_and_keeps_the_lock(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path / "store.db")

    with pytest.raises(SettingsError, match="already in use"):
        await opened(tmp_path / "store.db")

    command = [sys.executable, "-c", WRITER, str(tmp_path / "store.db")]
    other = await asyncio.to_thread(
        lambda: subprocess.run(command, capture_output=True, timeout=20, check=False)
    )
    assert b"already in use" in other.stderr
    await store.close()


async def test_a_full_disk_is_reported_and_writes_work_again_after_it(small_disk: Path) -> None:
    store = await opened(small_disk / "store.db")
    ballast = small_disk / "ballast"
    await store.commit([Unit(puts={"/before": b"v"})])
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    before = await store.read("/")

    with pytest.raises(StoreUnavailableError, match="disk is full"):
        await store.commit([Unit(puts={"/large": bytes(500_000)}), Unit(deletes=["/before"])])

    assert await store.read("/") == before
    ballast.unlink()
    (outcome,) = await store.commit([Unit(puts={"/large": bytes(500_000)})])
    assert outcome == Committed(before.revision + 1)
    await store.close()
    again = await opened(small_disk / "store.db")
    assert [record.key for record in (await again.read("/")).records] == ["/before", "/large"]
    await again.close()


async def test_a_lease_that_expires_on_a_full_disk_is_removed_when_space_is_free(
    small_disk: Path, eventually: Eventually
) -> None:
    store = await opened(small_disk / "store.db")
    lease = await store.grant_lease(1)
    await store.commit([Unit(puts={"/a": b"v"}, lease=lease)])
    ballast = small_disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))

    async def ended() -> bool:
        try:
            await store.commit([Unit(puts={"/b": b"v"}, lease=lease)])
        except StoreUnavailableError:
            return False
        except NotFoundError:
            return True
        return False

    async def gone() -> bool:
        return await store.get("/a") is None

    await eventually(ended)
    assert await store.get("/a") is not None
    ballast.unlink()

    await eventually(gone)
    await store.close()


async def test_the_database_files_stay_bounded(tmp_path: Path) -> None:
    store = await opened(tmp_path / "store.db")

    for number in range(300):
        await store.commit([Unit(puts={"/a": bytes([number % 256]) * 100_000})])

    assert (tmp_path / "store.db-wal").stat().st_size < 16 * 1024 * 1024
    assert (tmp_path / "store.db").stat().st_size < 4 * 1024 * 1024
    await store.close()


async def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    store = await opened(tmp_path / "deep" / "er" / "store.db")
    await store.commit([Unit(puts={"/a": b"v"})])

    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "deep" / "er").iterdir()}
    assert modes == {0o600}
    await store.close()


async def test_history_starts_when_the_store_is_opened(tmp_path: Path) -> None:
    store = await opened(tmp_path / "store.db")
    for _ in range(3):
        await store.commit([Unit(puts={"/a": b"v"})])
    await store.close()

    again = await opened(tmp_path / "store.db")

    with pytest.raises(CompactedError):
        await anext(aiter(again.watch("/", after=1)))
    await again.commit([Unit(puts={"/a": b"new"})])
    (change,) = await anext(aiter(again.watch("/", after=3)))
    assert change.value == b"new"
    await again.close()


async def test_leases_restart_with_their_full_time_after_a_reopen(tmp_path: Path) -> None:
    now = 100.0
    store = await SqliteStore.open(tmp_path / "store.db", monotonic=lambda: now)
    lease = await store.grant_lease(60)
    await store.commit([Unit(puts={"/a": b"v"}, lease=lease)])
    await store.close()

    now = 0.0
    again = await SqliteStore.open(tmp_path / "store.db", monotonic=lambda: now)

    now = 59.0
    assert await again.keep_lease(lease)
    now = 120.0
    assert not await again.keep_lease(lease)
    await again.revoke_lease(lease)
    assert await again.get("/a") is None
    await again.close()


async def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("not a database, but longer than a header of one " * 100)

    with pytest.raises(SettingsError, match="not a SQLite database"):
        await opened(tmp_path / "store.db")


async def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        connection.execute("PRAGMA user_version = 99")

    with pytest.raises(SettingsError, match="newer version"):
        await opened(tmp_path / "store.db")


async def test_an_invalid_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(SettingsError, match=r"file/store\.db"):
        await opened(tmp_path / "file" / "store.db")


async def test_commits_in_progress_finish_before_the_store_closes(tmp_path: Path) -> None:
    store = await opened(tmp_path / "store.db")

    async with asyncio.TaskGroup() as group:
        commits = [
            group.create_task(store.commit([Unit(puts={f"/{number}": b"v"})]))
            for number in range(20)
        ]
        await asyncio.sleep(0)
        group.create_task(store.close())

    assert all(isinstance(commit.result()[0], Committed) for commit in commits)


async def test_a_busy_event_loop_does_not_starve_commits(tmp_path: Path) -> None:
    store = await opened(tmp_path / "store.db")
    clock = SystemClock()
    done = asyncio.Event()

    async def keep_busy() -> None:
        while not done.is_set():
            until = clock.monotonic() + 0.002
            while clock.monotonic() < until:
                pass
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(keep_busy())
        begun_at = clock.monotonic()
        for number in range(10):
            await store.commit([Unit(puts={f"/{number}/{n}": b"v"}) for n in range(64)])
        took = clock.monotonic() - begun_at
        done.set()

    # Starved, ten commits took from four seconds to minutes.
    assert took < 2
    await store.close()


async def test_a_moved_file_refuses_writes_until_it_is_restored(tmp_path: Path) -> None:
    path, unavailable = tmp_path / "store.db", tmp_path / "away.db"
    store = await opened(path)
    await store.commit([Unit(puts={"/a": b"1"})])

    path.rename(unavailable)
    with pytest.raises(StoreUnavailableError, match="moved, removed or replaced"):
        await store.commit([Unit(puts={"/a": b"2"})])
    with pytest.raises(StoreUnavailableError, match="moved, removed or replaced"):
        await store.read("/")

    unavailable.rename(path)
    assert isinstance((await store.commit([Unit(puts={"/a": b"3"})]))[0], Committed)
    await store.close()


async def test_a_store_whose_file_was_removed_can_be_closed(tmp_path: Path) -> None:
    store = await opened(tmp_path / "store.db")
    (tmp_path / "store.db").unlink()

    await store.close()
