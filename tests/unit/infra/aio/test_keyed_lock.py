import asyncio

import pytest

from persys.infra.aio.keyed_lock import Turns


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def hold(turns: Turns[str], name: str, log: list[str], gate: asyncio.Event) -> None:
    async with turns.of("web"):
        log.append(name)
        await gate.wait()


async def test_the_lock_is_granted_in_the_order_of_requests() -> None:
    turns: Turns[str] = Turns()
    log: list[str] = []
    gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for name in ("first", "second", "third"):
            group.create_task(hold(turns, name, log, gate))
        await settle()
        assert log == ["first"]
        gate.set()

    assert log == ["first", "second", "third"]


async def test_another_key_does_not_wait() -> None:
    turns: Turns[str] = Turns()
    async with turns.of("web"), asyncio.timeout(1), turns.of("db"):
        pass


async def test_a_failure_releases_the_lock() -> None:
    turns: Turns[str] = Turns()
    with pytest.raises(ZeroDivisionError):
        async with turns.of("web"):
            raise ZeroDivisionError

    async with asyncio.timeout(1), turns.of("web"):
        pass


async def test_a_waiter_cancelled_while_the_lock_is_granted_passes_it_to_the_next() -> None:
    turns: Turns[str] = Turns()
    log: list[str] = []
    gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        async with turns.of("web"):
            leaving = group.create_task(hold(turns, "leaving", log, gate))
            staying = group.create_task(hold(turns, "staying", log, gate))
            await settle()
            leaving.cancel()  # and the turn is passed on before it runs again
        gate.set()
        await settle()

        assert leaving.cancelled()
        assert staying.done()
    assert log == ["staying"]


async def test_a_cancelled_holder_releases_the_lock() -> None:
    turns: Turns[str] = Turns()
    log: list[str] = []
    gate = asyncio.Event()
    gate.set()
    async with asyncio.TaskGroup() as group:
        async with turns.of("web"):
            leaving = group.create_task(hold(turns, "leaving", log, gate))
            group.create_task(hold(turns, "staying", log, gate))
            await settle()
        leaving.cancel()  # after the turn was given, before it was taken

    assert log == ["staying"]
