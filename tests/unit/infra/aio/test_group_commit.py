"""Group commit: items that are queued during a write share the next one."""

import asyncio

import pytest

from persys.errors import RefusedError, UnavailableError
from persys.infra.aio.group_commit import GroupCommit, Pending


def items(batch: list[Pending[str]]) -> list[str]:
    return [pending.item for pending in batch]


class Disk:
    """Records the batches. A write waits for `may_continue`, then raises `problem` if it is set."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.problem: Exception | None = None
        self.may_continue = asyncio.Event()
        self.may_continue.set()

    async def write(self, batch: list[str]) -> None:
        self.batches.append(batch)
        await self.may_continue.wait()
        if self.problem is not None:
            raise self.problem


async def test_a_batch_has_all_queued_items_in_order() -> None:
    queue: GroupCommit[str] = GroupCommit()
    for item in ("a", "b", "c"):
        queue.submit(item)

    assert items(queue.next_batch()) == ["a", "b", "c"]
    assert len(queue) == 0


async def test_a_batch_is_limited_and_the_rest_is_next() -> None:
    queue: GroupCommit[str] = GroupCommit(batch_max=2)
    for item in ("a", "b", "c"):
        queue.submit(item)

    assert items(queue.next_batch()) == ["a", "b"]
    assert items(queue.next_batch()) == ["c"]


async def test_items_with_a_common_key_never_share_a_batch() -> None:
    queue: GroupCommit[str] = GroupCommit(keys_of=lambda item: item.split("+"))
    for item in ("a+b", "b+c", "d", "c"):
        queue.submit(item)

    # "c" waits although its key is not in the batch: "b+c" was submitted before it.
    assert items(queue.next_batch()) == ["a+b", "d"]
    assert items(queue.next_batch()) == ["b+c"]
    assert items(queue.next_batch()) == ["c"]


async def test_an_item_resolves_its_caller_once() -> None:
    queue: GroupCommit[str] = GroupCommit()
    done = queue.submit("a")
    (pending,) = queue.next_batch()

    pending.succeed()
    pending.fail(RefusedError("too late"))

    assert done.result() is None


async def test_a_cancelled_caller_does_not_disturb_the_batch() -> None:
    queue: GroupCommit[str] = GroupCommit()
    queue.submit("a").cancel()
    (pending,) = queue.next_batch()

    pending.succeed()
    pending.fail(RefusedError("nobody waits"))


async def test_queued_items_can_be_failed_together() -> None:
    queue: GroupCommit[str] = GroupCommit()
    waiting = [queue.submit("a"), queue.submit("b")]

    queue.fail_queued(UnavailableError("the store is down"))

    assert all(isinstance(one.exception(), UnavailableError) for one in waiting)
    assert len(queue) == 0


async def test_wait_returns_for_an_item_a_wake_up_or_the_timeout() -> None:
    queue: GroupCommit[str] = GroupCommit()
    await queue.wait(0.001)

    queue.wake()
    await queue.wait()
    queue.clear_wakeup()

    queue.submit("a")
    await queue.wait()
    queue.next_batch()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await queue.wait()


async def test_gathering_delays_concurrent_callers_only() -> None:
    queue: GroupCommit[str] = GroupCommit(gather_seconds=0.02)
    loop = asyncio.get_running_loop()

    queue.submit("alone")
    started_at = loop.time()
    await queue.gather()
    assert loop.time() - started_at < 0.02
    queue.next_batch()

    queue.submit("a")
    queue.submit("b")
    await queue.gather()
    queue.next_batch()
    queue.submit("c")
    started_at = loop.time()
    await queue.gather()
    assert loop.time() - started_at >= 0.02


async def test_callers_during_a_write_share_the_next_write() -> None:
    queue: GroupCommit[str] = GroupCommit()
    disk = Disk()
    disk.may_continue.clear()

    async with asyncio.TaskGroup() as group:
        for item in ("a", "b", "c", "d"):
            group.create_task(queue.flush(queue.submit(item), disk.write))
            await asyncio.sleep(0)
        disk.may_continue.set()

    assert disk.batches == [["a"], ["b", "c", "d"]]


async def test_a_failed_write_fails_every_caller_of_its_batch_and_not_the_next() -> None:
    queue: GroupCommit[str] = GroupCommit()
    disk = Disk()
    disk.may_continue.clear()
    disk.problem = RefusedError("no space left")

    async def outcome(item: str) -> str:
        try:
            await queue.flush(queue.submit(item), disk.write)
        except (RefusedError, UnavailableError) as err:
            return type(err).__name__
        return "written"

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(outcome(item)) for item in ("a", "b", "c")]
        await asyncio.sleep(0)
        disk.may_continue.set()
    disk.problem = None

    assert [task.result() for task in tasks] == [
        "RefusedError",
        "RefusedError",
        "UnavailableError",
    ]
    assert await outcome("d") == "written"


async def test_a_cancelled_writer_does_not_leave_others_waiting() -> None:
    queue: GroupCommit[str] = GroupCommit()
    disk = Disk()
    disk.may_continue.clear()

    async with asyncio.TaskGroup() as group:
        first = group.create_task(queue.flush(queue.submit("a"), disk.write))
        await asyncio.sleep(0)
        second = group.create_task(queue.flush(queue.submit("b"), disk.write))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        disk.may_continue.set()

    assert first.cancelled()
    assert second.exception() is None
    assert disk.batches == [["a"], ["b"]]
