"""Waiting for conditions. The deadlines are long, because the host may be busy."""

import time
from collections.abc import Callable

DEADLINE_SECONDS = 60.0
_PAUSE_SECONDS = 0.05
_PAUSE_SECONDS_MAX = 1.0


def eventually(
    holds: Callable[[], bool],
    what: str | Callable[[], str],
    *,
    within: float = DEADLINE_SECONDS,
) -> float:
    """Returns the elapsed seconds. `what` names the condition or returns the current state."""
    started_at = checked_at = time.monotonic()
    while not holds():
        if time.monotonic() - started_at > within:
            shown = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {within:g} s: {shown}")
        time.sleep(pause_after(time.monotonic() - checked_at))
        checked_at = time.monotonic()
    return time.monotonic() - started_at


def pause_after(check_seconds: float) -> float:
    """Seconds to wait before the next check. A check that runs a program is repeated less often."""
    return min(max(_PAUSE_SECONDS, 3 * check_seconds), _PAUSE_SECONDS_MAX)
