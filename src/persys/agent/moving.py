"""Switches from one link to another without a gap: the new link is registered before the old one is released.

An old link stays open until its calls have ended, for example a followed log. Only the newest link carries
heartbeats.
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
                raise error  # each link maps its own loss to an error

    async def move(self, join: Callable[[Link], Awaitable[T]]) -> T:
        """Open a new link and return the result of `join` on it. If it raises, the old link stays in use."""
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
