"""A task group that raises its first failure instead of an exception group, and keeps cancellations.

In Python 3.11 a group whose task fails while its parent is cancelled raises the failure, and the cancellation
is lost: the parent would continue although its caller waits for its end.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def task_group(
    *, prefer: type[BaseException] = BaseException
) -> AsyncIterator[asyncio.TaskGroup]:
    """Of several failures one of the type `prefer` is raised, if there is any."""
    group, parent = asyncio.TaskGroup(), asyncio.current_task()
    assert parent is not None
    cancellations = parent.cancelling()
    by_group_before_exit = False
    try:
        async with group:
            try:
                yield group
            finally:
                by_group_before_exit = _has_cancelled_parent(group)
    except BaseExceptionGroup as failed:
        # The group takes back its own cancellation of the parent only if it was made before the exit.
        if _has_cancelled_parent(group) and not by_group_before_exit:
            parent.uncancel()
        if parent.cancelling() > cancellations:
            raise asyncio.CancelledError from failed
        raise _single(failed, prefer) from None


def _has_cancelled_parent(group: asyncio.TaskGroup) -> bool:
    return bool(getattr(group, "_parent_cancel_requested", False))


def _single(group: BaseExceptionGroup[BaseException], prefer: type[BaseException]) -> BaseException:
    first = (group.subgroup(prefer) or group).exceptions[0]
    return _single(first, prefer) if isinstance(first, BaseExceptionGroup) else first
