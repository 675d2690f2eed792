"""The number of concurrent calls follows what the engine can take."""

import asyncio
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from persys.infra.aio.adaptive_limit import (
    FIRST,
    HIGHEST,
    LOWEST,
    AdaptiveLimit,
    Search,
    after_window,
)

RATES = st.floats(min_value=1e-6, max_value=1e6)


def settled(rate_at: Callable[[int], float], *, windows: int = 100) -> int:
    """The best limit for an engine that ends so many calls per second with so many at once."""
    search = Search()
    for _ in range(windows):
        search = after_window(search, rate_at(search.limit))
    return search.best


def test_an_engine_with_idle_cores_gets_many_calls() -> None:
    assert settled(lambda at_once: 10.0 * at_once) == HIGHEST


def test_an_engine_gets_no_more_calls_than_it_has_cores_for() -> None:
    assert 24 <= settled(lambda at_once: 10.0 * min(at_once, 32)) <= 40


def test_an_engine_whose_cores_are_busy_gets_few_calls() -> None:
    assert settled(lambda at_once: 20.0) == LOWEST


def test_an_engine_that_slows_down_under_many_calls_gets_few() -> None:
    assert settled(lambda at_once: 100.0 / at_once) == LOWEST


def test_the_limit_rises_again_when_the_engine_has_room() -> None:
    search = Search()
    for _ in range(50):
        search = after_window(search, 20.0)
    assert search.best == LOWEST

    for _ in range(50):
        search = after_window(search, 10.0 * search.limit)

    assert search.best == HIGHEST


@given(st.lists(RATES, max_size=300))
def test_the_limit_stays_within_its_bounds(rates: list[float]) -> None:
    search = Search()
    for rate in rates:
        search = after_window(search, rate)

        assert LOWEST <= search.limit <= HIGHEST


async def test_at_most_the_limit_run_at_once_and_all_run() -> None:
    limit, at_once, most, ended = AdaptiveLimit(), 0, 0, 0

    async def call() -> None:
        nonlocal at_once, most, ended
        async with limit.slot():
            at_once += 1
            most = max(most, at_once - limit.limit)
            await asyncio.sleep(0)
            at_once -= 1
            ended += 1
            limit.measured(0.1)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for _ in range(1_000):
            group.create_task(call())

    assert most <= FIRST  # calls in progress when the limit was lowered
    assert ended == 1_000
    assert limit.limit > FIRST  # more at once, and none took longer


async def test_a_limit_that_is_never_reached_does_not_change() -> None:
    limit = AdaptiveLimit()
    for _ in range(100):
        async with limit.slot():
            limit.measured(0.1)

    assert limit.limit == FIRST


async def test_a_waiting_caller_that_is_cancelled_does_not_keep_its_slot() -> None:
    limit, release = AdaptiveLimit(), asyncio.Event()

    async def hold() -> None:
        async with limit.slot():
            await release.wait()

    holders = [asyncio.create_task(hold()) for _ in range(FIRST)]
    waiting = asyncio.create_task(hold())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    release.set()

    async with asyncio.timeout(20):
        await asyncio.gather(*holders, *(hold() for _ in range(3 * FIRST)))
