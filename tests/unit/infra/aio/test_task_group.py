"""A task group raises one failure, and never loses a cancellation of its parent."""

import asyncio
from collections.abc import Coroutine

import pytest

from persys.infra.aio.task_group import task_group

at_exit_or_inside = pytest.mark.parametrize("at_exit", [True, False])


class FirstError(Exception):
    pass


class SecondError(Exception):
    pass


async def fail(error: type[Exception], *, after: asyncio.Event | None = None) -> None:
    if after is not None:
        await after.wait()
    raise error


async def fail_when_cancelled() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        raise FirstError


async def run_group(
    *work: Coroutine[None, None, None],
    at_exit: bool,
    prefer: type[BaseException] = BaseException,
) -> None:
    """Run tasks in a group. `at_exit`: the parent waits at the end of the group, otherwise inside it."""
    async with task_group(prefer=prefer) as group:
        for one in work:
            group.create_task(one)
        if not at_exit:
            await asyncio.Event().wait()


@at_exit_or_inside
async def test_the_failure_itself_is_raised_and_no_cancellation_is_left(at_exit: bool) -> None:
    task = asyncio.current_task()
    assert task is not None

    with pytest.raises(FirstError):
        await run_group(fail(FirstError), at_exit=at_exit)

    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_the_preferred_of_several_failures_is_raised() -> None:
    with pytest.raises(SecondError):
        await run_group(fail(FirstError), fail(SecondError), at_exit=True, prefer=SecondError)


@at_exit_or_inside
async def test_a_cancelled_parent_is_cancelled_although_a_task_fails_then(at_exit: bool) -> None:
    running = asyncio.create_task(run_group(fail_when_cancelled(), at_exit=at_exit))
    await asyncio.sleep(0.01)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running


@at_exit_or_inside
async def test_a_cancellation_at_the_time_of_a_failure_is_kept(at_exit: bool) -> None:
    failing = asyncio.Event()
    running = asyncio.create_task(run_group(fail(FirstError, after=failing), at_exit=at_exit))
    await asyncio.sleep(0.01)
    failing.set()
    await asyncio.sleep(0)  # the task fails in this turn of the loop
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running


@at_exit_or_inside
async def test_the_clean_up_of_a_cancelled_parent_is_not_interrupted(at_exit: bool) -> None:
    failing, cleaned = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        try:
            await run_group(fail(FirstError, after=failing), at_exit=at_exit)
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    running = asyncio.create_task(run())
    await asyncio.sleep(0.01)
    failing.set()
    await asyncio.sleep(0)  # the task fails in this turn of the loop
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert cleaned.is_set()


async def test_a_failure_in_the_clean_up_of_a_cancelled_parent_is_raised_once() -> None:
    """The cancellation was received before the group: the group must not repeat it."""
    seen: list[str] = []

    async def run() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                await run_group(fail(FirstError), at_exit=True)
            except FirstError:
                seen.append("failure")
            await asyncio.sleep(0)
            seen.append("end")

    running = asyncio.create_task(run())
    await asyncio.sleep(0.01)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert seen == ["failure", "end"]
