"""An event loop in virtual time: when nothing is ready, its clock jumps to the next timer.

No thread, no socket, no waiting: an hour costs what its callbacks cost. Order is that of asyncio itself, so
the same callbacks in the same order give the same run.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any, Protocol, TypeVarTuple

# Sums of floats may fall short of a timer by a hair.
RESOLUTION_SECONDS = 1e-6

Ts = TypeVarTuple("Ts")


class Mortal(Protocol):
    @property
    def alive(self) -> bool: ...


# The simulated process on whose behalf code runs. Its timers die with it.
owner: ContextVar[Mortal] = ContextVar("owner")


class StandstillError(RuntimeError):
    """Nothing is ready and no timer is set: whoever waits would wait for ever."""


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._virtual_now = 0.0
        self._clock_resolution = RESOLUTION_SECONDS
        self._selector = _TimeMachine(self)

    def time(self) -> float:
        return self._virtual_now

    def advance(self, seconds: float) -> None:
        self._virtual_now += seconds

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        mortal = context.get(owner) if context is not None else owner.get(None)
        if mortal is None:
            return super().call_at(when, callback, *args, context=context)

        def ring() -> None:
            if mortal.alive:
                callback(*args)

        return super().call_at(when, ring, context=context)

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none: nothing comes from outside."""

    def _write_to_self(self) -> None:
        """Nobody sleeps who would have to be woken."""


class _TimeMachine:
    """Stands where the loop expects its selector: instead of waiting it lets the time pass."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, seconds: float | None) -> list[Any]:
        if seconds is None:
            raise StandstillError("nothing is ready and no timer is set")
        if seconds > 0:
            self._loop.advance(seconds)
        return []


def later(seconds: float, deed: Callable[[], object]) -> asyncio.TimerHandle:
    """A timer of the world itself, which outlives whoever sets it."""
    return asyncio.get_running_loop().call_later(seconds, deed, context=Context())
