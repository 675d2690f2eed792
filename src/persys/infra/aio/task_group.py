"""A task group that raises its first failure instead of an exception group, and keeps cancellations.

In Python 3.11 and 3.12 a group whose task fails while its parent is cancelled raises the failure, and the
cancellation is lost: the parent would continue although its caller waits for its end. In Python 3.13 the
group raises the failure too and cancels the parent once more, which would interrupt its clean-up.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_CANCELS_AGAIN = sys.version_info >= (3, 13)


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
        if _CANCELS_AGAIN:
            await _receive_cancellation(parent)
        # The group takes back its own cancellation of the parent only if it was made before the exit.
        elif _has_cancelled_parent(group) and not by_group_before_exit:
            parent.uncancel()
        if parent.cancelling() > cancellations:
            raise asyncio.CancelledError from failed
        raise _single(failed, prefer) from None


async def _receive_cancellation(parent: "asyncio.Task[object]") -> None:
    """Receive the second cancellation here. The number of cancellations stays the same."""
    if parent.cancelling():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)


def _has_cancelled_parent(group: asyncio.TaskGroup) -> bool:
    return bool(getattr(group, "_parent_cancel_requested", False))


def _single(group: BaseExceptionGroup[BaseException], prefer: type[BaseException]) -> BaseException:
    first = (group.subgroup(prefer) or group).exceptions[0]
    return _single(first, prefer) if isinstance(first, BaseExceptionGroup) else first
