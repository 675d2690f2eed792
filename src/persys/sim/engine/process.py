"""One simulated process, from its start to its crash.

Every effect of the process on the world passes a gate. A crash closes the gates first, so code that still
runs while its tasks are being cancelled has no effect.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from typing import Any

from persys.sim.engine.trace import Trace
from persys.sim.engine.virtual_loop import VirtualLoop, owner


class SimProcess:
    def __init__(self, name: str, trace: Trace, *, died: Callable[["SimProcess"], None]) -> None:
        self.name = name
        self.title = name
        self.alive = True
        self.frozen = False
        self.backlog: list[asyncio.Handle] = []
        self.thawed_at = -1.0
        self.ends: list[Callable[[], None]] = []  # called after the crash, like a kernel does
        self.restart_seconds: float | None = None  # None: no automatic restart
        self.serves: dict[str, Callable[..., Any]] = {}
        self.calls: set[asyncio.Task[Any]] = set()  # one for each call being served
        self._trace = trace
        self._died = died
        self._group: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None
        self._context = Context()
        self._on_crash: Callable[[], None] = lambda: None
        self._crash_at: tuple[str, int] | None = None  # crash at this gate, after this many passes

    async def run(self, body: Callable[["SimProcess"], Coroutine[None, None, None]]) -> None:
        """Run the body until it ends, raises or crashes. Only a crash cancels it."""
        self._task = asyncio.current_task()
        owner.set(self)
        self._context = copy_context()
        async with asyncio.TaskGroup() as self._group:
            await body(self)

    def answers_call(self) -> None:
        """The current task serves a call: it ends when the caller gives up."""
        task = asyncio.current_task()
        assert task is not None
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)

    def crash_at(self, point: str, count: int, on_crash: Callable[[], None] = lambda: None) -> None:
        """Crash at the `count`-th pass of this gate from now on."""
        self._crash_at = (point, count)
        self._on_crash = on_crash

    def cancel_crash(self) -> None:
        self._crash_at = None

    def reach_point(self, point: str) -> None:
        """Crash here if this gate was chosen."""
        if self.alive and self._crash_at is not None and self._crash_at[0] == point:
            left = self._crash_at[1] - 1
            self._crash_at = (point, left) if left > 0 else None
            if left <= 0:
                self._trace.add(self.name, f"crashes at {point}")
                self._on_crash()
                self.crash()

    async def gate(self, point: str) -> None:
        """Called before and after each effect. A crashed process does not pass."""
        self.reach_point(point)
        if self.alive:
            return
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError  # a crashed process runs no clean-up
        await asyncio.get_running_loop().create_future()

    def freeze(self) -> None:
        """Like SIGSTOP: no code of the process runs, time continues, input waits."""
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
        self.thaw()  # so that its tasks can be cancelled
        ends, self.ends = self.ends, []
        for end in ends:
            end()
        if self._task is not None:
            self._task.cancel()
        self._died(self)

    async def together(self, parts: Iterable[Awaitable[None]]) -> None:
        """Run all parts of the process; the first failure ends them all."""
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(_as_coroutine(part))

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None] | None:
        """Start a task that ends with the process, such as the handler of a call."""
        if self.alive and self._group is not None:
            return self._group.create_task(work, context=self._context.copy())
        work.close()
        return None


async def _as_coroutine(part: Awaitable[None]) -> None:
    await part
