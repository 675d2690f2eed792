"""Commits the changes of several orders together: one transaction, one fsync.

Each part waits before its commit until all other parts are at theirs or have ended without one. The changes
are then queued in the same iteration of the event loop, so the journal writes them in one transaction. A slow
part delays the others for at most `GATHER_SECONDS`, and is written later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from persys.agent.journal.records import JournalChange

GATHER_SECONDS = 0.1

Commit = Callable[[JournalChange], Awaitable[None]]


class SharedCommit:
    def __init__(self, commit: Commit, parts: int) -> None:
        self._commit = commit
        self._awaited = parts
        self._complete = asyncio.Event()

    @contextmanager
    def part(self) -> Iterator[Commit]:
        """The commit of one part. A part that ends without a commit is not waited for."""
        has_arrived = False

        def arrive() -> None:
            nonlocal has_arrived
            if not has_arrived:
                has_arrived = True
                self._awaited -= 1
            if not self._awaited:
                self._complete.set()

        async def commit(change: JournalChange) -> None:
            arrive()
            with suppress(TimeoutError):
                async with asyncio.timeout(GATHER_SECONDS):
                    await self._complete.wait()
            await self._commit(change)

        try:
            yield commit
        finally:
            arrive()
