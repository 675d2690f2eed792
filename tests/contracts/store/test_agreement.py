"""For every commit, SQLite gives the same results as the memory store, also after a reopen."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from examples import times
from persys.errors import FencedError, InvalidError
from persys.infra.clock import SystemClock
from persys.store.memory import MemoryStore
from persys.store.port import Outcome, Store, Unit
from persys.store.sqlite import SqliteStore

keys = st.sampled_from(["/a", "/a/b", "/b", "/ä", "/b'\"", "/c%_"])
versions = st.integers(min_value=0, max_value=6)
units = st.builds(
    Unit,
    guards=st.dictionaries(keys, versions, max_size=2),
    puts=st.dictionaries(keys, st.binary(max_size=8), max_size=3),
    deletes=st.lists(keys, max_size=2),
)
commits = st.tuples(
    st.lists(units, max_size=3), st.none() | st.tuples(st.sampled_from(["/a", "/fence"]), versions)
)
Commit = tuple[list[Unit], tuple[str, int] | None]


async def committed(store: Store, commit: Commit) -> list[Outcome] | type[Exception]:
    try:
        return await store.commit(commit[0], fence=commit[1])
    except (InvalidError, FencedError) as err:
        return type(err)


@given(st.lists(commits, max_size=12), st.integers(min_value=0, max_value=12))
@settings(max_examples=times(0.6), deadline=None)
def test_sqlite_and_memory_agree_on_every_sequence(history: list[Commit], reopen_at: int) -> None:
    monotonic = SystemClock().monotonic

    async def compare(path: Path) -> None:
        memory, sqlite = MemoryStore(monotonic), await SqliteStore.open(path, monotonic=monotonic)
        for place, commit in enumerate(history):
            if place == reopen_at:
                await sqlite.close()
                sqlite = await SqliteStore.open(path, monotonic=monotonic)
            assert await committed(sqlite, commit) == await committed(memory, commit)
            assert await sqlite.read("") == await memory.read("")
            assert await sqlite.read("/a") == await memory.read("/a")
        await sqlite.close()
        await memory.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(compare(Path(directory) / "store.db"))


@given(st.lists(commits, min_size=1, max_size=12))
@settings(max_examples=times(0.6), deadline=None)
def test_a_watch_replays_to_the_state_that_is_read(history: list[Commit]) -> None:
    async def replay() -> None:
        store = MemoryStore(SystemClock().monotonic)
        for commit in history:
            await committed(store, commit)
        snapshot = await store.read("")
        rebuilt: dict[str, tuple[bytes, int]] = {}
        seen = 0
        changes = store.watch("", after=0)
        while seen < snapshot.revision:
            for change in await anext(changes):
                seen = change.version
                rebuilt.pop(change.key, None)
                if change.value is not None:
                    rebuilt[change.key] = (change.value, change.version)
        await store.close()

        assert rebuilt == {one.key: (one.value, one.version) for one in snapshot.records}

    asyncio.run(replay())
