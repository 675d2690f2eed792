"""Which wake-ups cause an inspection."""

import asyncio
from typing import Any

from persys.agent.workloads.work_queue import WorkQueue
from persys.model.ids import WorkloadId

WEB = WorkloadId("web")


def a_queue() -> WorkQueue:
    journal: Any = None  # the workloads of a pass come from it
    return WorkQueue(journal)


async def test_a_wake_up_is_served_by_the_next_inspection() -> None:
    queue = a_queue()
    queue.wake(WEB)

    assert queue.begin(WEB)
    assert not queue.begin(WEB)


async def test_a_wake_up_during_an_inspection_causes_another_one() -> None:
    queue = a_queue()
    queue.wake(WEB)
    queue.begin(WEB)
    queue.wake(WEB)

    assert queue.begin(WEB)


async def test_a_wake_up_that_was_served_does_not_cancel_a_later_timer() -> None:
    queue = a_queue()
    queue.wake(WEB)
    await queue.take()
    queue.begin(WEB)
    queue.wake_after(WEB, 0.01)

    assert not queue.begin(WEB)
    async with asyncio.timeout(20):
        assert await queue.take() == WEB
    assert queue.begin(WEB)
