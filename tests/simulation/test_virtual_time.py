"""The virtual event loop: time jumps, the order is stable, and crashed processes run no timers."""

import asyncio

import pytest

from persys.sim.engine.process import Life
from persys.sim.engine.trace import Trace
from persys.sim.engine.virtual_loop import StandstillError, VirtualLoop, later


def test_a_day_of_sleep_passes_at_once() -> None:
    loop = VirtualLoop()

    loop.run_until_complete(asyncio.sleep(86_400))

    assert loop.time() == pytest.approx(86_400)
    loop.close()


def test_an_endless_wait_is_an_error() -> None:
    loop = VirtualLoop()
    endless = loop.create_future()

    with pytest.raises(StandstillError):
        loop.run_until_complete(endless)
    loop.close()


def test_timers_of_a_process_end_with_it_and_world_timers_do_not() -> None:
    rang: list[str] = []

    async def body(_life: Life) -> None:
        asyncio.get_running_loop().call_later(5, rang.append, "process")
        later(5, lambda: rang.append("world"))
        await asyncio.sleep(60)

    async def story() -> None:
        life = Life("n1", Trace(asyncio.get_running_loop().time), died=lambda _: None)
        async with asyncio.TaskGroup() as group:
            group.create_task(life.run(body))
            await asyncio.sleep(1)
            life.crash()
            await asyncio.sleep(10)

    loop = VirtualLoop()
    loop.run_until_complete(story())
    loop.close()

    assert rang == ["world"]
