"""Accepted work finishes although its caller disconnects."""

import asyncio
from functools import partial

import pytest

from builders import a_supervisor, owned_work
from persys.errors import ConflictError, DefectError, FencedError, UnavailableError
from persys.infra.aio.owned_work import OwnedWork


async def test_the_caller_gets_the_result() -> None:
    async def work() -> int:
        return 7

    async with owned_work() as owned:
        assert await owned.finish("test", "a", work) == 7


async def test_work_finishes_although_its_caller_was_cancelled() -> None:
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


async def test_an_expected_error_reaches_the_caller_unchanged() -> None:
    async def work() -> None:
        raise ConflictError("taken")

    async with owned_work() as owned:
        with pytest.raises(ConflictError, match="taken"):
            await owned.finish("test", "a", work)


async def test_an_unexpected_error_fails_only_its_own_call() -> None:
    async def broken() -> None:
        raise ValueError("unforeseen")

    async def sound() -> str:
        return "done"

    async with owned_work() as owned:
        with pytest.raises(DefectError, match="internal error: ValueError: unforeseen"):
            await owned.finish("test", "a", broken)
        assert await owned.finish("test", "b", sound) == "done"


async def test_more_than_the_limit_are_refused() -> None:
    async def endless() -> None:
        await asyncio.Event().wait()

    async with owned_work(limit=1) as owned, asyncio.TaskGroup() as group:
        first = group.create_task(owned.finish("test", "a", endless))
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match="1 requests are in progress"):
            await owned.finish("test", "b", endless)
        first.cancel()


async def test_a_deadline_ends_the_wait_and_not_the_work() -> None:
    may_end, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await may_end.wait()
        ended.set()

    async with owned_work() as owned:
        with pytest.raises(UnavailableError, match=r"no result within 0.01s"):
            await owned.finish("test", "a", work, deadline_seconds=0.01)
        may_end.set()
        async with asyncio.timeout(10):
            await ended.wait()


async def test_cancelled_or_refused_work_raises_the_error_of_its_owner() -> None:
    owned = OwnedWork(a_supervisor(), limit=10, stopped=lambda: FencedError("replaced"))

    async def refused() -> bool:
        try:
            await owned.finish("test", "a", asyncio.Event().wait)
        except FencedError:
            return True
        return False

    assert await refused()  # nothing runs it yet
    async with asyncio.TaskGroup() as group:
        running = group.create_task(owned.run())
        await asyncio.sleep(0)
        waiting = group.create_task(refused())
        await asyncio.sleep(0)
        running.cancel()

    assert waiting.result()
    assert await refused()


async def test_draining_waits_for_all_work_in_progress() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        await asyncio.sleep(0)
        ended.append(name)

    async with owned_work() as owned, asyncio.TaskGroup() as group:
        for name in ("a", "b"):
            group.create_task(owned.finish("test", name, partial(work, name)))
        await asyncio.sleep(0)
        await owned.drained()
        assert (sorted(ended), owned.count) == (["a", "b"], 0)
