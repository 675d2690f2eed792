"""Single flight: a call is shared only by requests that arrived before it started."""

import asyncio

import pytest

from persys.errors import UnavailableError
from persys.gateway.upstream.single_flight import SingleFlight


class Source:
    """Counts its calls, and returns when the test releases it."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = asyncio.Event()

    async def call(self) -> int:
        self.begun += 1
        own = self.begun
        await self.may_end.wait()
        return own


async def run_loop(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_request_during_a_call_gets_the_next_one() -> None:
    shared: SingleFlight[int] = SingleFlight()
    source = Source()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(shared.call("a", source.call))
        await run_loop()
        later = [group.create_task(shared.call("a", source.call)) for _ in range(10)]
        await run_loop()
        assert source.begun == 1
        source.may_end.set()

    assert first.result() == 1
    assert {one.result() for one in later} == {2}


async def test_other_keys_do_not_wait() -> None:
    shared: SingleFlight[int] = SingleFlight()
    source = Source()
    source.may_end.set()

    assert [await shared.call(key, source.call) for key in "abc"] == [1, 2, 3]


async def test_a_failure_is_shared_and_not_cached() -> None:
    shared: SingleFlight[int] = SingleFlight()
    source = Source()
    gate = asyncio.Event()

    async def fail() -> int:
        await gate.wait()
        raise UnavailableError("away")

    async with asyncio.TaskGroup() as group:
        first = group.create_task(outcome_of(shared, fail))
        await run_loop()
        later = [group.create_task(outcome_of(shared, fail)) for _ in range(3)]
        await run_loop()
        gate.set()
    source.may_end.set()

    assert {one.result() for one in (first, *later)} == {"away"}
    assert await shared.call("a", source.call) == 1


async def outcome_of(shared: SingleFlight[int], ask: object) -> str:
    with pytest.raises(UnavailableError) as error:
        await shared.call("a", ask)  # type: ignore[arg-type]
    return str(error.value)


async def test_a_cancelled_waiter_affects_no_other() -> None:
    shared: SingleFlight[int] = SingleFlight()
    source = Source()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(shared.call("a", source.call))
        await run_loop()
        leader = group.create_task(shared.call("a", source.call))
        await run_loop()
        stays, leaves = (group.create_task(shared.call("a", source.call)) for _ in range(2))
        await run_loop()
        leaves.cancel()
        await run_loop()
        source.may_end.set()

    assert (first.result(), leader.result(), stays.result()) == (1, 2, 2)
