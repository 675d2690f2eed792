"""The virtual event loop: time jumps, the order is stable, and crashed processes run no timers."""

import asyncio

import pytest

from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import Trace
from persys.sim.engine.virtual_loop import DeadlockError, VirtualLoop, later


def test_a_day_of_sleep_passes_at_once() -> None:
    loop = VirtualLoop()

    loop.run_until_complete(asyncio.sleep(86_400))

    assert loop.time() == pytest.approx(86_400)
    loop.close()


def test_an_endless_wait_is_an_error() -> None:
    loop = VirtualLoop()
    endless = loop.create_future()

    with pytest.raises(DeadlockError):
        loop.run_until_complete(endless)
    loop.close()


def test_timers_of_a_process_end_with_it_and_world_timers_do_not() -> None:
    fired: list[str] = []

    async def body(_process: SimProcess) -> None:
        asyncio.get_running_loop().call_later(5, fired.append, "process")
        later(5, lambda: fired.append("world"))
        await asyncio.sleep(60)

    async def scenario() -> None:
        process = SimProcess("n1", Trace(asyncio.get_running_loop().time), died=lambda _: None)
        async with asyncio.TaskGroup() as group:
            group.create_task(process.run(body))
            await asyncio.sleep(1)
            process.crash()
            await asyncio.sleep(10)

    loop = VirtualLoop()
    loop.run_until_complete(scenario())
    loop.close()

    assert fired == ["world"]
