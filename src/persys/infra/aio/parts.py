"""The long-lived loops of a process, and the effect of an unexpected exception in each of them.

Only essential loops end the process. A failure of any other loop is recorded, and the loop is restarted with
back-off while the rest continues.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from functools import partial

import structlog

from persys.errors import PersysError
from persys.infra.aio.supervisor import BACKOFF_FIRST, BACKOFF_MAX, InternalError, Supervisor
from persys.infra.clock import Clock

log = structlog.get_logger()

# After a run of this length the back-off is reset.
STABLE_SECONDS = 60.0

Part = Callable[[], Awaitable[None]]


class OnError(StrEnum):
    EXIT = "exit"
    RESTART = "restart"


def supervised(
    parts: Mapping[str, Part],
    policy: Callable[[str], OnError],
    supervisor: Supervisor,
    clock: Clock,
) -> dict[str, Part]:
    """The parts, wrapped according to `policy` for their names."""
    return {
        name: part
        if policy(name) is OnError.EXIT
        else partial(_restarted, name, part, supervisor, clock)
        for name, part in parts.items()
    }


async def _restarted(name: str, part: Part, supervisor: Supervisor, clock: Clock) -> None:
    delay = BACKOFF_FIRST
    while True:
        errors: list[InternalError] = []
        began = clock.monotonic()
        try:
            with supervisor.contain("part", name, failed=errors.append):
                await part()
                return
        except (PersysError, ExceptionGroup) as err:  # a group of nothing but expected errors
            log.warning("part.failed", part=name, reason=str(err))
        if clock.monotonic() - began >= STABLE_SECONDS:
            delay = BACKOFF_FIRST
        await asyncio.sleep(delay.total_seconds())
        delay = min(2 * delay, BACKOFF_MAX)
