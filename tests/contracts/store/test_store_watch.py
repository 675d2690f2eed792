"""The contract of Store.watch and Store.compact, for every adapter."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest

from persys.errors import CompactedError, StoreUnavailableError
from persys.store.port import Committed, Store, Unit, WatchEvent

Watch = AsyncIterator[tuple[WatchEvent, ...]]
Take = Callable[[Watch, int], Coroutine[None, None, list[tuple[WatchEvent, ...]]]]


async def commit(store: Store, unit: Unit) -> int:
    (outcome,) = await store.commit([unit])
    assert isinstance(outcome, Committed)
    return outcome.revision


async def start(store: Store) -> int:
    return (await store.read("/")).revision


async def test_changes_are_in_order_one_tuple_per_revision(store: Store, take: Take) -> None:
    after = await start(store)
    first = await commit(store, Unit(puts={"/a": b"1", "/b": b"1"}))
    second = await commit(store, Unit(puts={"/a": b"2"}))
    third = await commit(store, Unit(deletes=["/b"], puts={"/c": b"3"}))

    assert await take(store.watch("/", after=after), 3) == [
        (WatchEvent("/a", b"1", first), WatchEvent("/b", b"1", first)),
        (WatchEvent("/a", b"2", second),),
        (WatchEvent("/c", b"3", third), WatchEvent("/b", None, third)),
    ]


async def test_a_watch_waits_for_future_changes(store: Store, take: Take) -> None:
    after = await start(store)

    async with asyncio.TaskGroup() as group:
        taking = group.create_task(take(store.watch("/", after=after), 50))
        for number in range(50):
            await commit(store, Unit(puts={"/a": b"%d" % number}))

    assert [changes[0].value for changes in taking.result()] == [b"%d" % n for n in range(50)]


async def test_a_watch_sees_only_its_prefix(store: Store, take: Take) -> None:
    after = await start(store)
    await commit(store, Unit(puts={"/other": b"v"}))
    revision = await commit(store, Unit(puts={"/nodes/a": b"v", "/workloads/a": b"v"}))

    assert await take(store.watch("/nodes/", after=after), 1) == [
        (WatchEvent("/nodes/a", b"v", revision),)
    ]


async def test_a_watch_resumes_after_the_last_version_seen(store: Store, take: Take) -> None:
    after = await start(store)
    revisions = [await commit(store, Unit(puts={"/a": b"%d" % n})) for n in range(5)]
    seen = await take(store.watch("/", after=after), 2)

    resumed = await take(store.watch("/", after=seen[-1][-1].version), 3)

    assert [changes[0].version for changes in resumed] == revisions[2:]


async def test_a_snapshot_and_a_watch_from_its_revision_leave_no_gap(
    store: Store, take: Take
) -> None:
    async def write() -> None:
        for number in range(60):
            await commit(store, Unit(puts={f"/w/{number:03d}": b"v"}))

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        snapshot = await store.read("/w/")
        missing = 60 - len(snapshot.records)
        changes = (
            await take(store.watch("/w/", after=snapshot.revision), missing) if missing else []
        )

    keys = [record.key for record in snapshot.records] + [one.key for (one,) in changes]
    assert keys == [f"/w/{number:03d}" for number in range(60)]


async def test_a_watch_does_not_see_a_conflict(store: Store, take: Take) -> None:
    after = await start(store)
    await commit(store, Unit(puts={"/a": b"1"}))
    await store.commit([Unit(guards={"/a": 0}, puts={"/a": b"never"})])
    await store.commit([Unit(deletes=["/absent"])])
    await commit(store, Unit(puts={"/a": b"2"}))

    taken = await take(store.watch("/", after=after), 2)

    assert [changes[0].value for changes in taken] == [b"1", b"2"]


async def test_every_watcher_sees_all_changes(store: Store, take: Take) -> None:
    after = await start(store)

    async with asyncio.TaskGroup() as group:
        watchers = [group.create_task(take(store.watch("/", after=after), 10)) for _ in range(3)]
        for number in range(10):
            await commit(store, Unit(puts={"/a": b"%d" % number}))

    assert watchers[0].result() == watchers[1].result() == watchers[2].result()


async def test_one_large_revision_is_one_tuple(store: Store, take: Take) -> None:
    after = await start(store)
    unit = Unit(puts={f"/{number:03d}": bytes(9000) for number in range(128)})
    await commit(store, unit)
    await commit(store, unit)

    taken = await take(store.watch("/", after=after), 2)

    assert [len(changes) for changes in taken] == [128, 128]


async def test_history_before_a_compaction_is_gone(store: Store, take: Take) -> None:
    after = await start(store)
    for number in range(5):
        last = await commit(store, Unit(puts={"/a": b"%d" % number}))

    await store.compact(last)

    with pytest.raises(CompactedError):
        await take(store.watch("/", after=after), 1)


async def test_a_compaction_keeps_its_own_revision_and_all_records(
    store: Store, take: Take
) -> None:
    await commit(store, Unit(puts={"/a": b"v", "/b": b"v"}))
    await commit(store, Unit(puts={"/c": b"v"}))
    last = await commit(store, Unit(deletes=["/b"]))

    await store.compact(last)

    assert await take(store.watch("/", after=last - 1), 1) == [(WatchEvent("/b", None, last),)]
    assert [record.key for record in (await store.read("/")).records] == ["/a", "/c"]


async def test_compacting_twice_or_in_the_future_is_allowed(store: Store, take: Take) -> None:
    after = await commit(store, Unit(puts={"/a": b"1"}))
    last = await commit(store, Unit(puts={"/a": b"2"}))

    await store.compact(after)
    await store.compact(after)
    await store.compact(last + 1_000_000)

    assert len(await take(store.watch("/", after=after), 1)) == 1


async def test_a_watch_ends_with_unavailable_when_the_store_is_closed(store: Store) -> None:
    after = await commit(store, Unit(puts={"/a": b"v"}))
    seen = asyncio.Event()

    async def watch() -> None:
        async for _ in store.watch("/", after=after - 1):
            seen.set()

    async def close() -> None:
        await seen.wait()
        await store.close()

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(close())
        with pytest.raises(StoreUnavailableError):
            await watch()
