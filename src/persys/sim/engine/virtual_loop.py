"""An event loop in virtual time: when nothing is ready, its clock jumps to the next timer.

There are no threads, sockets or waits: an hour costs only its callbacks. The order is that of asyncio, so the
same callbacks in the same order give the same run. A process can be frozen, like with SIGSTOP: time
continues, and its callbacks wait until it is resumed.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextvars import Context, ContextVar
from itertools import count
from typing import Any, ParamSpec, Protocol, TypeVar, TypeVarTuple

# Sums of floats may miss a timer by a rounding error.
RESOLUTION_SECONDS = 1e-6

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Process(Protocol):
    @property
    def alive(self) -> bool: ...

    @property
    def frozen(self) -> bool: ...

    backlog: list[asyncio.Handle]  # callbacks to run when it is resumed


# The simulated process that runs the current code. Its timers end with it.
owner: ContextVar[Process] = ContextVar("owner")


class DeadlockError(RuntimeError):
    """Nothing is ready and no timer is set: the run would hang."""


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._virtual_now = 0.0
        self._clock_resolution = RESOLUTION_SECONDS
        self._selector = _TimeMachine(self)
        self.set_task_factory(_numbered_task)

    def time(self) -> float:
        return self._virtual_now

    def advance(self, seconds: float) -> None:
        self._virtual_now += seconds

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        process = context.get(owner) if context is not None else owner.get(None)
        if process is None or not process.frozen:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        process.backlog.append(handle)
        return handle

    def go_on(self, backlog: Iterable[asyncio.Handle]) -> None:
        """Run the held-back callbacks in their order."""
        for handle in backlog:
            super().call_soon(_run, handle)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        process = context.get(owner) if context is not None else owner.get(None)
        if process is None:
            return super().call_at(when, callback, *args, context=context)

        def on_timer() -> None:
            if process.frozen:
                self.call_soon(on_timer, context=context)
            elif process.alive and not timer.cancelled():
                callback(*args)

        timer = super().call_at(when, on_timer, context=context)
        return timer

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run the work immediately instead of in a thread; it takes no virtual time."""
        return super().run_in_executor(executor or _AtOnce(), func, *args)

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no external events."""

    def _write_to_self(self) -> None:
        """There is no selector to wake up."""


class _AtOnce(Executor):
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class _NumberedTask(asyncio.Task[Any]):
    """A task with a stable hash: sets of tasks have the same order in every process."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._number = next(_numbers)
        super().__init__(*args, **options)

    def __hash__(self) -> int:
        return self._number


_numbers = count()


def _numbered_task(
    loop: asyncio.AbstractEventLoop, work: Any, /, **options: Any
) -> "asyncio.Future[Any]":
    return _NumberedTask(work, loop=loop, **options)


def _run(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()


class _TimeMachine:
    """Replaces the selector of the loop: instead of waiting it advances the virtual time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, seconds: float | None) -> list[Any]:
        if seconds is None:
            raise DeadlockError("nothing is ready and no timer is set")
        if seconds > 0:
            self._loop.advance(seconds)
        return []


def later(seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
    """A timer that belongs to no simulated process."""
    return asyncio.get_running_loop().call_later(seconds, callback, context=Context())
