"""The contract of leases, for every adapter. etcd grants no lease under two seconds."""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

import pytest

from persys.errors import NotFoundError
from persys.infra.clock import SystemClock
from persys.store.port import Committed, LeaseId, Store, Unit, WatchEvent

Watch = AsyncIterator[tuple[WatchEvent, ...]]
Take = Callable[[Watch, int], Coroutine[None, None, list[tuple[WatchEvent, ...]]]]
Eventually = Callable[[Callable[[], Awaitable[bool]]], Awaitable[None]]

NEVER = LeaseId(4711)


async def test_records_of_an_expired_lease_are_deleted_and_watched(
    store: Store, take: Take
) -> None:
    lease = await store.grant_lease(2)
    (outcome,) = await store.commit([Unit(puts={"/a": b"v", "/b": b"v"}, lease=lease)])
    assert isinstance(outcome, Committed)
    await store.commit([Unit(puts={"/stays": b"v"})])

    _, gone = await take(store.watch("/", after=outcome.revision), 2)

    assert sorted((change.key, change.value) for change in gone) == [("/a", None), ("/b", None)]
    assert [record.key for record in (await store.read("/")).records] == ["/stays"]


async def test_a_renewed_lease_does_not_expire(store: Store, eventually: Eventually) -> None:
    clock = SystemClock()
    kept, left = await store.grant_lease(2), await store.grant_lease(2)
    await store.commit([Unit(puts={"/kept": b"v"}, lease=kept)])
    await store.commit([Unit(puts={"/left": b"v"}, lease=left)])
    begun_at = clock.monotonic()

    async def outlived() -> bool:
        assert await store.keep_lease(kept)
        return await store.get("/left") is None and clock.monotonic() - begun_at > 2.5

    await eventually(outlived)
    assert await store.get("/kept") is not None


async def test_an_expired_lease_cannot_be_renewed(store: Store, eventually: Eventually) -> None:
    lease = await store.grant_lease(1)
    await store.commit([Unit(puts={"/a": b"v"}, lease=lease)])

    async def gone() -> bool:
        return await store.get("/a") is None

    await eventually(gone)
    assert not await store.keep_lease(lease)


async def test_a_revoked_lease_deletes_its_records_at_once(store: Store) -> None:
    lease = await store.grant_lease(60)
    await store.commit([Unit(puts={"/a": b"v"}, lease=lease), Unit(puts={"/b": b"v"})])

    await store.revoke_lease(lease)

    assert [record.key for record in (await store.read("/")).records] == ["/b"]
    assert not await store.keep_lease(lease)


async def test_revoking_an_expired_lease_is_allowed(store: Store) -> None:
    await store.revoke_lease(NEVER)


async def test_an_unknown_lease_cannot_be_renewed(store: Store) -> None:
    assert not await store.keep_lease(NEVER)


async def test_a_put_without_the_lease_detaches_the_record(store: Store) -> None:
    lease = await store.grant_lease(60)
    await store.commit([Unit(puts={"/a": b"leased"}, lease=lease)])
    await store.commit([Unit(puts={"/a": b"free"})])

    await store.revoke_lease(lease)

    assert await store.get("/a") is not None


async def test_a_put_with_an_expired_lease_is_refused(store: Store) -> None:
    lease = await store.grant_lease(60)
    await store.revoke_lease(lease)

    with pytest.raises(NotFoundError, match=str(lease)):
        await store.commit([Unit(puts={"/a": b"v"}, lease=lease)])

    assert await store.get("/a") is None


async def test_a_key_of_an_expired_lease_can_be_put_again(store: Store) -> None:
    lease = await store.grant_lease(60)
    claim = Unit(guards={"/leader": 0}, puts={"/leader": b"me"}, lease=lease)
    await store.commit([claim])
    await store.revoke_lease(lease)

    (outcome,) = await store.commit([Unit(guards={"/leader": 0}, puts={"/leader": b"you"})])

    assert isinstance(outcome, Committed)
