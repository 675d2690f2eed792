"""Going over from one link to another without a gap: the new one stands before the old one is left.

A link that was left stays until what is under way on it has ended, such as a log that somebody reads; only
the newest carries heartbeats.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self, TypeVar

from persys.agent.link import Connect, Link

T = TypeVar("T")


class Links:
    def __init__(self, connect: Connect, address: str) -> None:
        self._connect = connect
        self._address = address
        self._held: list[tuple[Link, AsyncExitStack]] = []

    @property
    def newest(self) -> Link:
        return self._held[-1][0]

    async def __aenter__(self) -> Self:
        held = AsyncExitStack()
        self._held.append((await held.enter_async_context(self._connect(self._address)), held))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        async with AsyncExitStack() as all_held:
            for _, held in self._held:
                all_held.push_async_exit(held)
            if error is not None:
                raise error  # each link turns the loss of itself into its own error

    async def move(self, join: Callable[[Link], Awaitable[T]]) -> T:
        """What `join` says on the new link. Raises what it raises; then the old one is still in use."""
        async with AsyncExitStack() as new:
            link = await new.enter_async_context(self._connect(self._address))
            joined = await join(link)
            self._held.append((link, new.pop_all()))
        return joined

    async def tidy(self) -> None:
        for link, held in self._held[:-1]:
            if link.over:
                self._held.remove((link, held))
                await held.aclose()
