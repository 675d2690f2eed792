"""The contract of Store.commit, for every adapter."""

import asyncio

import pytest

from persys.errors import FencedError, InvalidError, StoreUnavailableError
from persys.store.port import VALUE_BYTES_MAX, Committed, Conflict, Record, Store, Unit


async def put(store: Store, key: str, value: bytes = b"v") -> int:
    (outcome,) = await store.commit([Unit(puts={key: value})])
    assert isinstance(outcome, Committed)
    return outcome.revision


async def test_a_put_is_read_back_with_the_revision_that_wrote_it(store: Store) -> None:
    revision = await put(store, "/a", b"one")

    assert await store.get("/a") == Record("/a", b"one", revision)


async def test_a_key_that_was_never_put_is_absent(store: Store) -> None:
    assert await store.get("/a") is None


async def test_each_commit_raises_the_revision(store: Store) -> None:
    revisions = [await put(store, "/a"), await put(store, "/b"), await put(store, "/a")]

    assert revisions == sorted(set(revisions))


async def test_all_writes_of_a_unit_get_one_revision(store: Store) -> None:
    await store.commit([Unit(puts={"/a": b"1", "/b": b"2", "/c": b"3"})])

    snapshot = await store.read("/")
    assert {record.version for record in snapshot.records} == {snapshot.revision}


async def test_a_unit_whose_guard_holds_is_written(store: Store) -> None:
    version = await put(store, "/a", b"old")

    (outcome,) = await store.commit([Unit(guards={"/a": version}, puts={"/a": b"new"})])

    assert isinstance(outcome, Committed)
    assert await store.get("/a") == Record("/a", b"new", outcome.revision)


async def test_a_unit_with_an_outdated_guard_writes_nothing(store: Store) -> None:
    version = await put(store, "/a", b"old")

    (outcome,) = await store.commit(
        [Unit(guards={"/a": version - 1}, puts={"/a": b"new", "/b": b"new"}, deletes=["/a2"])]
    )

    assert outcome == Conflict("/a", version - 1, version)
    assert [record.value for record in (await store.read("/")).records] == [b"old"]


async def test_a_guard_of_zero_means_the_key_must_not_exist(store: Store) -> None:
    create = Unit(guards={"/a": 0}, puts={"/a": b"v"})

    (first,) = await store.commit([create])
    (second,) = await store.commit([create])

    assert isinstance(first, Committed)
    assert second == Conflict("/a", 0, first.revision)


async def test_a_guard_on_a_key_that_was_deleted_and_put_again_fails(store: Store) -> None:
    version = await put(store, "/a")
    await store.commit([Unit(deletes=["/a"])])
    again = await put(store, "/a")

    (outcome,) = await store.commit([Unit(guards={"/a": version}, puts={"/b": b"v"})])

    assert outcome == Conflict("/a", version, again)


async def test_a_unit_may_rely_on_a_key_it_does_not_write(store: Store) -> None:
    version = await put(store, "/node")
    await put(store, "/node")

    (outcome,) = await store.commit([Unit(guards={"/node": version}, puts={"/a": b"v"})])

    assert isinstance(outcome, Conflict)
    assert await store.get("/a") is None


async def test_a_conflict_does_not_affect_other_units(store: Store) -> None:
    version = await put(store, "/taken")

    outcomes = await store.commit(
        [
            Unit(guards={"/a": 0}, puts={"/a": b"v"}),
            Unit(guards={"/taken": 0}, puts={"/taken": b"other"}),
            Unit(guards={"/b": 0}, puts={"/b": b"v"}),
        ]
    )

    assert isinstance(outcomes[0], Committed)
    assert outcomes[1] == Conflict("/taken", 0, version)
    assert isinstance(outcomes[2], Committed)
    assert [record.key for record in (await store.read("/")).records] == ["/a", "/b", "/taken"]


async def test_units_with_different_guards_on_one_key_are_independent(store: Store) -> None:
    version = await put(store, "/node")

    outcomes = await store.commit(
        [
            Unit(guards={"/node": version}, puts={"/a": b"v"}),
            Unit(guards={"/node": 0}, puts={"/b": b"v"}),
            Unit(guards={"/node": version}, puts={"/c": b"v"}),
        ]
    )

    assert [type(outcome) for outcome in outcomes] == [Committed, Conflict, Committed]


async def test_when_all_units_conflict_nothing_is_written(store: Store) -> None:
    await put(store, "/a")
    before = await store.read("/")

    outcomes = await store.commit([Unit(guards={"/a": 0}, puts={f"/{n}": b"v"}) for n in range(3)])

    assert all(isinstance(outcome, Conflict) for outcome in outcomes)
    assert (await store.read("/")).records == before.records


async def test_a_deleted_key_can_be_put_again(store: Store) -> None:
    version = await put(store, "/a")

    await store.commit([Unit(guards={"/a": version}, deletes=["/a"])])

    assert await store.get("/a") is None
    (outcome,) = await store.commit([Unit(guards={"/a": 0}, puts={"/a": b"again"})])
    assert isinstance(outcome, Committed)


async def test_deleting_an_absent_key_is_allowed(store: Store) -> None:
    (outcome,) = await store.commit([Unit(deletes=["/never"], puts={"/a": b"v"})])

    assert isinstance(outcome, Committed)
    assert await store.get("/a") is not None


async def test_an_empty_commit_has_no_results(store: Store) -> None:
    assert await store.commit([]) == []


async def test_a_valid_fence_allows_all_units(store: Store) -> None:
    version = await put(store, "/leader", b"me")

    (outcome,) = await store.commit([Unit(puts={"/a": b"v"})], fence=("/leader", version))

    assert isinstance(outcome, Committed)


@pytest.mark.parametrize("units", [1, 300])
async def test_an_outdated_fence_refuses_all_units(store: Store, units: int) -> None:
    version = await put(store, "/leader", b"me")
    await put(store, "/leader", b"someone else")

    with pytest.raises(FencedError):
        await store.commit(
            [Unit(puts={f"/w/{number}": b"v"}) for number in range(units)],
            fence=("/leader", version),
        )

    assert (await store.read("/w/")).records == ()


async def test_a_fence_without_its_key_refuses_all_units(store: Store) -> None:
    version = await put(store, "/leader", b"me")
    await store.commit([Unit(deletes=["/leader"])])

    with pytest.raises(FencedError):
        await store.commit([Unit(puts={"/a": b"v"})], fence=("/leader", version))


async def test_a_value_over_the_limit_is_refused_before_anything_is_written(
    store: Store,
) -> None:
    with pytest.raises(InvalidError, match="/large") as refusal:
        await store.commit(
            [Unit(puts={"/small": b"v"}), Unit(puts={"/large": bytes(VALUE_BYTES_MAX + 1)})]
        )

    assert refusal.value.field == "/large"
    assert (await store.read("/")).records == ()


async def test_the_largest_value_is_accepted(store: Store) -> None:
    value = b"x" * VALUE_BYTES_MAX

    await put(store, "/large", value)

    record = await store.get("/large")
    assert record is not None
    assert record.value == value


@pytest.mark.parametrize(
    "unit",
    [
        Unit(puts={f"/{number}": b"v" for number in range(129)}),
        Unit(guards={f"/{number}": 0 for number in range(129)}),
        Unit(puts={f"/{number}": bytes(700_000) for number in range(2)}),
    ],
    ids=["writes", "guards", "bytes"],
)
async def test_a_unit_too_large_for_a_transaction_is_refused(store: Store, unit: Unit) -> None:
    with pytest.raises(InvalidError):
        await store.commit([Unit(puts={"/small": b"v"}), unit])

    assert (await store.read("/")).records == ()


async def test_a_unit_at_the_limits_is_accepted_with_a_fence(store: Store) -> None:
    fence = await put(store, "/leader")
    unit = Unit(
        guards={f"/{number}": 0 for number in range(127)},
        puts={f"/{number}": b"v" for number in range(128)},
    )

    (outcome,) = await store.commit([unit], fence=("/leader", fence))

    assert isinstance(outcome, Committed)


@pytest.mark.parametrize(
    "units",
    [
        [Unit(puts={"/a": b"1"}), Unit(puts={"/a": b"2"})],
        [Unit(puts={"/a": b"1"}, deletes=["/a"])],
        [Unit(puts={"/a": b"1"}), Unit(guards={"/a": 0}, puts={"/b": b"2"})],
    ],
    ids=["two units", "one unit", "guard"],
)
async def test_units_with_overlapping_keys_are_refused(store: Store, units: list[Unit]) -> None:
    with pytest.raises(InvalidError, match="/a"):
        await store.commit(units)


@pytest.mark.parametrize("key", ["", "/\ud800"], ids=["empty", "not text"])
async def test_an_invalid_key_is_refused(store: Store, key: str) -> None:
    with pytest.raises(InvalidError):
        await store.commit([Unit(puts={key: b"v"})])


async def test_the_results_of_many_units_are_in_their_order(store: Store) -> None:
    taken = await put(store, "/workloads/0250")
    before = store.transactions

    outcomes = await store.commit(
        [
            Unit(
                guards={f"/workloads/{number:04d}": 0},
                puts={
                    f"/workloads/{number:04d}": b"w",
                    f"/assignments/{number:04d}": b"a",
                    f"/events/{number:04d}": b"e",
                },
            )
            for number in range(500)
        ]
    )

    conflicts = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, Conflict)]
    assert conflicts == [250]
    assert outcomes[250] == Conflict("/workloads/0250", 0, taken)
    assert len((await store.read("/events/")).records) == 499
    assert 1 <= store.transactions - before <= 12


async def test_many_large_units_are_committed(store: Store) -> None:
    outcomes = await store.commit([Unit(puts={f"/{n:02d}": bytes(600_000)}) for n in range(12)])

    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert [len(record.value) for record in (await store.read("/")).records] == [600_000] * 12


async def test_exactly_one_of_concurrent_commits_on_one_key_succeeds(store: Store) -> None:
    async def increment() -> int:
        lost = 0
        while True:
            record = await store.get("/count")
            version, count = (record.version, int(record.value)) if record else (0, 0)
            unit = Unit(guards={"/count": version}, puts={"/count": b"%d" % (count + 1)})
            (outcome,) = await store.commit([unit])
            if isinstance(outcome, Committed):
                return lost
            lost += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(increment())

    record = await store.get("/count")
    assert record is not None
    assert record.value == b"10"


async def test_a_cancelled_commit_is_complete_or_absent(store: Store) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(store.commit([Unit(puts={"/a": b"v", "/b": b"v"})]))
        await asyncio.sleep(0)
        task.cancel()

    assert len((await store.read("/")).records) in (0, 2)


async def test_a_closed_store_is_unavailable(store: Store) -> None:
    await store.close()

    with pytest.raises(StoreUnavailableError):
        await store.get("/a")
    with pytest.raises(StoreUnavailableError):
        await store.commit([Unit(puts={"/a": b"v"})])
