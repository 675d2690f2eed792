"""Accepted work belongs to the process: a caller that leaves changes nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from builders import a_supervisor
from persys.errors import ConflictError, UnavailableError
from persys.infra.aio.owned import OwnedWork


@asynccontextmanager
async def owned_work(limit: int = 10) -> AsyncIterator[OwnedWork]:
    owned = OwnedWork(a_supervisor(), limit=limit)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(owned.run())
        await asyncio.sleep(0)
        yield owned
        running.cancel()


async def test_the_caller_gets_the_result() -> None:
    async def work() -> int:
        return 7

    async with owned_work() as owned:
        assert await owned.finish("test", "a", work) == 7


async def test_work_ends_although_its_caller_was_cancelled() -> None:
    may_end, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await may_end.wait()
        ended.set()

    async with owned_work() as owned, asyncio.TaskGroup() as group:
        caller = group.create_task(owned.finish("test", "a", work))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.sleep(0)
        may_end.set()
        async with asyncio.timeout(10):
            await ended.wait()


async def test_an_expected_error_reaches_the_caller_as_it_is() -> None:
    async def work() -> None:
        raise ConflictError("taken")

    async with owned_work() as owned:
        with pytest.raises(ConflictError, match="taken"):
            await owned.finish("test", "a", work)


async def test_an_unexpected_error_costs_only_its_own_call() -> None:
    async def broken() -> None:
        raise ValueError("unforeseen")

    async def sound() -> str:
        return "done"

    async with owned_work() as owned:
        with pytest.raises(UnavailableError, match="internal error: ValueError: unforeseen"):
            await owned.finish("test", "a", broken)
        assert await owned.finish("test", "b", sound) == "done"


async def test_more_than_the_limit_are_refused() -> None:
    async def endless() -> None:
        await asyncio.Event().wait()

    async with owned_work(limit=1) as owned, asyncio.TaskGroup() as group:
        first = group.create_task(owned.finish("test", "a", endless))
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match="1 requests are under way"):
            await owned.finish("test", "b", endless)
        first.cancel()
