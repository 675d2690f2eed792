"""Passes over keys, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from persys.errors import ConflictError, PersysError
from persys.infra.aio.keyed_passes import PASSES_MAX, Again, KeyedPasses
from persys.infra.aio.supervisor import KeyedWork, Supervisor
from persys.infra.clock import SystemClock
from persys.sim.engine.hardware import WallClock
from persys.sim.engine.virtual_loop import VirtualLoop

Pass = Callable[[str], Awaitable[Again | None]]


class Fixture:
    def __init__(self, make_pass: Pass) -> None:
        self.wall = WallClock()
        self.clock: SystemClock = self.wall.as_read()
        self.may_start = True
        self.made: list[tuple[str, float]] = []
        self._make_pass = make_pass
        supervisor = Supervisor("test", self.clock, CollectorRegistry())
        self.passes = KeyedPasses(
            self.clock,
            KeyedWork(supervisor, "key", self.clock, expects=PersysError),
            name="key",
            make_pass=self._noted,
            may_start=lambda: self.may_start,
        )

    async def _noted(self, key: str) -> Again | None:
        self.made.append((key, round(asyncio.get_running_loop().time(), 2)))
        return await self._make_pass(key)

    def at(self, **span: float) -> datetime:
        return self.clock.now() + timedelta(**span)


def run(
    scenario: Callable[[Fixture], Coroutine[Any, Any, None]], make_pass: Pass, *keys: str
) -> Fixture:
    loop = VirtualLoop()

    async def main() -> Fixture:
        fixture = Fixture(make_pass)
        running = loop.create_task(fixture.passes.run(keys))
        await asyncio.sleep(0)
        await scenario(fixture)
        running.cancel()
        await asyncio.wait([running])
        return fixture

    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


async def nothing(_key: str) -> Again | None:
    return Again()


def test_each_key_begins_with_one_pass_and_then_costs_nothing() -> None:
    async def scenario(_fixture: Fixture) -> None:
        await asyncio.sleep(3600)

    fixture = run(scenario, nothing, "a", "b")

    assert [key for key, _ in fixture.made] == ["a", "b"]


def test_changes_of_a_key_share_a_pass_and_the_pause_grows_with_its_cost() -> None:
    async def costly(_key: str) -> Again | None:
        return Again(cost_seconds=0.1)

    async def scenario(fixture: Fixture) -> None:
        for _ in range(100):
            await asyncio.sleep(0.02)
            fixture.passes.wake("a")
        await asyncio.sleep(2)

    fixture = run(scenario, costly, "a")

    assert [at for _, at in fixture.made] == [0.0, 1.0, 2.0, 3.0]


def test_a_change_during_a_pass_is_followed_by_another_pass() -> None:
    async def slow(_key: str) -> Again | None:
        await asyncio.sleep(1)
        return Again()

    async def scenario(fixture: Fixture) -> None:
        await asyncio.sleep(0.5)
        fixture.passes.wake("a")
        await asyncio.sleep(5)

    fixture = run(scenario, slow, "a")

    assert [at for _, at in fixture.made] == [0.0, 1.02]


def test_a_pass_is_repeated_at_the_time_that_it_named() -> None:
    times: list[datetime] = []

    async def at_ten(_key: str) -> Again | None:
        return Again(at=times.pop() if times else None)

    async def scenario(fixture: Fixture) -> None:
        times.append(fixture.at(minutes=10))
        fixture.passes.wake("a")
        await asyncio.sleep(3600)

    fixture = run(scenario, at_ten)

    assert [at for _, at in fixture.made] == [0.0, 600.0]


def test_a_wall_clock_that_is_set_ahead_is_noticed_within_a_minute() -> None:
    times: list[datetime] = []

    async def tomorrow(_key: str) -> Again | None:
        return Again(at=times.pop() if times else None)

    async def scenario(fixture: Fixture) -> None:
        times.append(fixture.at(days=1))
        fixture.passes.wake("a")
        await asyncio.sleep(10)
        fixture.wall.ahead += timedelta(days=1)
        await asyncio.sleep(61)

    fixture = run(scenario, tomorrow)

    assert len(fixture.made) == 2


def test_an_expected_error_is_shown_and_the_pass_repeated() -> None:
    errors = [ConflictError("another writer")]

    async def failing(_key: str) -> Again | None:
        if errors:
            raise errors.pop()
        return Again()

    async def scenario(fixture: Fixture) -> None:
        await asyncio.sleep(0.5)
        assert fixture.passes.problem("a") == "another writer"
        await asyncio.sleep(5)
        assert fixture.passes.problem("a") == ""

    fixture = run(scenario, failing, "a")

    assert [at for _, at in fixture.made] == [0.0, 1.0]


def test_a_defect_costs_its_key_only_and_is_retried_with_back_off() -> None:
    async def broken(key: str) -> Again | None:
        if key == "a":
            raise ZeroDivisionError("a defect")
        return Again(after_seconds=1.0)

    async def scenario(_fixture: Fixture) -> None:
        await asyncio.sleep(16)

    fixture = run(scenario, broken, "a", "b")

    assert [at for key, at in fixture.made if key == "a"] == [0.0, 1.0, 3.0, 7.0, 15.0]
    assert sum(key == "b" for key, _ in fixture.made) >= 15


def test_a_key_that_does_not_exist_any_more_is_forgotten() -> None:
    async def gone(_key: str) -> Again | None:
        return None

    async def scenario(fixture: Fixture) -> None:
        await asyncio.sleep(1)
        fixture.passes.wake("a")
        await asyncio.sleep(1)

    fixture = run(scenario, gone, "a")

    assert len(fixture.made) == 2


def test_nothing_starts_while_it_may_not() -> None:
    async def scenario(fixture: Fixture) -> None:
        fixture.may_start = False
        fixture.passes.wake("a")
        await asyncio.sleep(60)
        assert fixture.made == []
        fixture.may_start = True
        await asyncio.sleep(2)

    fixture = run(scenario, nothing)

    assert len(fixture.made) == 1


def test_only_some_keys_have_a_pass_at_the_same_time() -> None:
    most = running = 0

    async def counted(_key: str) -> Again | None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1
        return Again()

    async def scenario(_fixture: Fixture) -> None:
        await asyncio.sleep(10)

    fixture = run(scenario, counted, *(f"k{number}" for number in range(20)))

    assert len(fixture.made) == 20
    assert most == PASSES_MAX
