"""One run of a simulated process, from its start to its crash.

Everything the process does to the world passes a gate of its life. A crash shuts the gates first, so that
what the code still does while its tasks are being cancelled has no effect on anybody.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from typing import Any

from persys.sim.loop import VirtualLoop, owner
from persys.sim.trace import Trace


class Life:
    def __init__(self, name: str, trace: Trace, *, died: Callable[["Life"], None]) -> None:
        self.name = name
        self.title = name
        self.alive = True
        self.frozen = False
        self.backlog: list[asyncio.Handle] = []
        self.thawed_at = -1.0
        self.ends: list[Callable[[], None]] = []  # what the kernel does when the process is gone
        self.restart_seconds: float | None = None  # None: whoever ends it starts it again
        self.serves: dict[str, Callable[..., Any]] = {}
        self.calls: set[asyncio.Task[Any]] = set()  # one for each call that is being answered
        self._trace = trace
        self._died = died
        self._group: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None
        self._context = Context()
        self._struck: Callable[[], None] = lambda: None
        self._doom: tuple[str, int] | None = (
            None  # the deed at which it shall die, and how many more
        )

    async def run(self, body: Callable[["Life"], Coroutine[None, None, None]]) -> None:
        """The body until it ends, raises or the crash comes. Cancelled only by the crash."""
        self._task = asyncio.current_task()
        owner.set(self)
        self._context = copy_context()
        async with asyncio.TaskGroup() as self._group:
            await body(self)

    def answers_call(self) -> None:
        """The current task ends when its caller gives up."""
        task = asyncio.current_task()
        assert task is not None
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)

    def doom(self, deed: str, count: int, struck: Callable[[], None] = lambda: None) -> None:
        """Die at the `count`-th deed of this kind from now on."""
        self._doom = (deed, count)
        self._struck = struck

    def spare(self) -> None:
        self._doom = None

    def passes(self, deed: str) -> None:
        """Here its doom may strike."""
        if self.alive and self._doom is not None and self._doom[0] == deed:
            left = self._doom[1] - 1
            self._doom = (deed, left) if left > 0 else None
            if left <= 0:
                self._trace.add(self.name, f"dies at {deed}")
                self._struck()
                self.crash()

    async def gate(self, deed: str) -> None:
        """Before and after each deed. Who is dead does not come through."""
        self.passes(deed)
        if self.alive:
            return
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError  # it was cleaning up: a dead process does not
        await asyncio.get_running_loop().create_future()

    def freeze(self) -> None:
        """As by SIGSTOP: none of its code runs, time goes on, and what comes waits for it."""
        self.frozen = True

    def thaw(self) -> None:
        if not self.frozen:
            return
        self.frozen = False
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.thawed_at = loop.time()
        backlog, self.backlog = self.backlog, []
        loop.go_on(backlog)

    def crash(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self.serves = {}
        self.thaw()  # so that its tasks can be ended
        ends, self.ends = self.ends, []
        for end in ends:
            end()
        if self._task is not None:
            self._task.cancel()
        self._died(self)

    async def together(self, parts: Iterable[Awaitable[None]]) -> None:
        """All parts of the process; the first to fail ends them all."""
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(_as_coroutine(part))

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None] | None:
        """Work that dies with the process, such as the answer to a call."""
        if self.alive and self._group is not None:
            return self._group.create_task(work, context=self._context.copy())
        work.close()
        return None


async def _as_coroutine(part: Awaitable[None]) -> None:
    await part
