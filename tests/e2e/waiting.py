"""Waiting for conditions. The deadlines are long, because the host may be busy."""

import time
from collections.abc import Callable

DEADLINE_SECONDS = 60.0


def eventually(
    holds: Callable[[], bool],
    what: str | Callable[[], str],
    *,
    within: float = DEADLINE_SECONDS,
) -> float:
    """Returns the elapsed seconds. `what` names the condition or returns the current state."""
    started_at = time.monotonic()
    while not holds():
        if time.monotonic() - started_at > within:
            shown = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {within:g} s: {shown}")
        time.sleep(0.02)
    return time.monotonic() - started_at
