"""Cancels a call at each await, as a server does when its caller disconnects."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from itertools import count
from types import coroutine
from typing import Any, NamedTuple

WAITS_MAX = 200


class Moment(NamedTuple):
    """The `number`-th await of a call: when it starts or, with `late`, when it ends."""

    number: int
    late: bool

    def __str__(self) -> str:
        return f"at the {'end' if self.late else 'start'} of wait {self.number}"


async def cancelled_at(moment: Moment, call: Coroutine[Any, Any, Any]) -> bool:
    """Run the call in a separate task. False: it ended before it reached that await."""
    reached: list[Moment] = []

    async def run() -> None:
        await _driven(call, moment, reached)

    task = asyncio.ensure_future(run())
    await asyncio.wait([task])
    if not reached:
        task.result()
    elif not task.cancelled():
        task.exception()  # refused because of the current state: not tested here
    return bool(reached)


async def at_every_wait(attempt: Callable[[Moment], Awaitable[bool]]) -> int:
    """Call `attempt` for each moment until its call ends uncancelled. Returns the number of awaits."""
    for number in range(WAITS_MAX):
        reached = [await attempt(Moment(number, late)) for late in (False, True)]
        if not any(reached):
            return number
    raise AssertionError(f"the call waits more than {WAITS_MAX} times")


@coroutine
def _driven(
    call: Coroutine[Any, Any, Any], moment: Moment, reached: list[Moment]
) -> Generator[Any, Any, Any]:
    """Like `await call`. At the moment its task is cancelled, before or after the awaited work is done."""
    task = asyncio.current_task()
    assert task is not None
    resume: Callable[[Any], Any] = call.send
    value: Any = None
    for number in count():
        try:
            awaited = resume(value)
        except StopIteration as ended:
            return ended.value
        if number == moment.number:
            reached.append(moment)
            if moment.late and isinstance(awaited, asyncio.Future):
                awaited.add_done_callback(lambda _: task.cancel())  # before the task is woken by it
            else:
                task.cancel()
        try:
            resume, value = call.send, (yield awaited)
        except BaseException as err:  # noqa: BLE001 - passed on
            resume, value = call.throw, err
    return None
