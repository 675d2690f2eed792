"""A task group that raises its first failure instead of an exception group."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def together() -> AsyncIterator[asyncio.TaskGroup]:
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as failed:
        raise first_of(failed) from None


def first_of(
    group: BaseExceptionGroup[BaseException], *, rather: type[BaseException] = BaseException
) -> BaseException:
    """One exception of a group; one of the type `rather`, if there is any."""
    first = (group.subgroup(rather) or group).exceptions[0]
    return first_of(first, rather=rather) if isinstance(first, BaseExceptionGroup) else first
