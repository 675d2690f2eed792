"""A task group that raises its first failure instead of an exception group."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as failed:
        raise unwrap_single(failed) from None


def unwrap_single(
    group: BaseExceptionGroup[BaseException], *, prefer: type[BaseException] = BaseException
) -> BaseException:
    """One exception of a group; one of the type `prefer`, if there is any."""
    first = (group.subgroup(prefer) or group).exceptions[0]
    return unwrap_single(first, prefer=prefer) if isinstance(first, BaseExceptionGroup) else first
