"""The contract of Store.read, for every adapter."""

import asyncio

from persys.store.port import Committed, Store, Unit


async def test_a_read_returns_the_keys_of_a_prefix_in_order(store: Store) -> None:
    keys = ["/b/2", "/a/1", "/b/10", "/b", "/c/1", "/b/1", "/bb"]
    await store.commit([Unit(puts={key: key.encode()}) for key in keys])

    snapshot = await store.read("/b/")

    assert [record.key for record in snapshot.records] == ["/b/1", "/b/10", "/b/2"]
    assert [record.value for record in snapshot.records] == [b"/b/1", b"/b/10", b"/b/2"]


async def test_an_empty_read_has_a_revision(store: Store) -> None:
    (outcome,) = await store.commit([Unit(puts={"/a": b"v"})])
    assert isinstance(outcome, Committed)

    snapshot = await store.read("/none/")

    assert snapshot.records == ()
    assert snapshot.revision >= outcome.revision


async def test_an_empty_prefix_reads_everything(store: Store) -> None:
    await store.commit([Unit(puts={"/a": b"v", "b": b"v"})])

    assert [record.key for record in (await store.read("")).records] == ["/a", "b"]


async def test_keys_beyond_ascii_are_found_by_their_prefix(store: Store) -> None:
    await store.commit([Unit(puts={"/ä": b"v", "/äß": b"v", "/ä\U0010ffff": b"v", "/å": b"v"})])

    assert [record.key for record in (await store.read("/ä")).records] == [
        "/ä",
        "/äß",
        "/ä\U0010ffff",
    ]


async def test_values_are_any_bytes(store: Store) -> None:
    value = bytes(range(256))
    await store.commit([Unit(puts={"/a": value, "/empty": b""})])

    assert [record.value for record in (await store.read("/")).records] == [value, b""]


async def test_a_large_read_is_of_one_revision(store: Store) -> None:
    keys = [f"/w/{number:05d}" for number in range(5000)]
    await store.commit(
        [Unit(puts=dict.fromkeys(keys[n : n + 100], b"0")) for n in range(0, 5000, 100)]
    )
    ends = {keys[0]: b"0", keys[-1]: b"0"}
    stop = asyncio.Event()

    async def write() -> None:
        round_ = 0
        while not stop.is_set():
            round_ += 1
            await store.commit([Unit(puts=dict.fromkeys(ends, b"%d" % round_))])

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        snapshots = [await store.read("/w/") for _ in range(5)]
        stop.set()

    for snapshot in snapshots:
        assert [record.key for record in snapshot.records] == keys
        assert snapshot.records[0].value == snapshot.records[-1].value
        assert max(record.version for record in snapshot.records) <= snapshot.revision


async def test_a_read_of_large_values_is_complete(store: Store) -> None:
    for begin in range(0, 80, 10):
        await store.commit(
            [Unit(puts={f"/{number:03d}": bytes(200_000)}) for number in range(begin, begin + 10)]
        )

    assert len((await store.read("/")).records) == 80
