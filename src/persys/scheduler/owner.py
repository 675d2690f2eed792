"""Work that is done even if whoever asked for it leaves: it belongs to whoever leads, and ends with that."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TypeVar

from persys.errors import FencedError, PersysError

T = TypeVar("T")


class Owner:
    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None

    @contextmanager
    def owning(self, group: asyncio.TaskGroup) -> Iterator[None]:
        """Work is taken inside this."""
        self._group = group
        try:
            yield
        finally:
            self._group = None

    async def do(self, work: Coroutine[None, None, T]) -> T:
        """Done even if the caller leaves. What it raises is for the caller, not for the group.

        Raises FencedError when this scheduler does not lead any more; it may have been done all the same.
        """
        if self._group is None:
            work.close()
            raise FencedError("this scheduler does not lead any more; try again")
        task = self._group.create_task(_outcome(work))
        try:
            outcome = await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise FencedError("this scheduler does not lead any more; try again") from None
            raise
        if isinstance(outcome, PersysError):
            raise outcome
        return outcome


async def _outcome(work: Coroutine[None, None, T]) -> T | PersysError:
    try:
        return await work
    except PersysError as err:
        return err
