import asyncio

import pytest

from persys.infra.aio.keyed_lock import KeyedLock


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def hold(locks: KeyedLock[str], name: str, log: list[str], gate: asyncio.Event) -> None:
    async with locks.hold("web"):
        log.append(name)
        await gate.wait()


async def test_the_lock_is_granted_in_the_order_of_requests() -> None:
    locks: KeyedLock[str] = KeyedLock()
    log: list[str] = []
    gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for name in ("first", "second", "third"):
            group.create_task(hold(locks, name, log, gate))
        await settle()
        assert log == ["first"]
        gate.set()

    assert log == ["first", "second", "third"]


async def test_another_key_does_not_wait() -> None:
    locks: KeyedLock[str] = KeyedLock()
    async with locks.hold("web"), asyncio.timeout(1), locks.hold("db"):
        pass


async def test_a_failure_releases_the_lock() -> None:
    locks: KeyedLock[str] = KeyedLock()
    with pytest.raises(ZeroDivisionError):
        async with locks.hold("web"):
            raise ZeroDivisionError

    async with asyncio.timeout(1), locks.hold("web"):
        pass


async def test_a_waiter_cancelled_while_the_lock_is_granted_passes_it_to_the_next() -> None:
    locks: KeyedLock[str] = KeyedLock()
    log: list[str] = []
    gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        async with locks.hold("web"):
            leaving = group.create_task(hold(locks, "leaving", log, gate))
            staying = group.create_task(hold(locks, "staying", log, gate))
            await settle()
            leaving.cancel()  # and the turn is passed on before it runs again
        gate.set()
        await settle()

        assert leaving.cancelled()
        assert staying.done()
    assert log == ["staying"]


async def test_a_cancelled_holder_releases_the_lock() -> None:
    locks: KeyedLock[str] = KeyedLock()
    log: list[str] = []
    gate = asyncio.Event()
    gate.set()
    async with asyncio.TaskGroup() as group:
        async with locks.hold("web"):
            leaving = group.create_task(hold(locks, "leaving", log, gate))
            group.create_task(hold(locks, "staying", log, gate))
            await settle()
        leaving.cancel()  # after the turn was given, before it was taken

    assert log == ["staying"]
