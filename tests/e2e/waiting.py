"""Waiting for conditions. The deadlines are generous: the machine may be busy with something else."""

import time
from collections.abc import Callable

DEADLINE_SECONDS = 60.0


def eventually(
    holds: Callable[[], bool],
    what: str | Callable[[], str],
    *,
    within: float = DEADLINE_SECONDS,
) -> float:
    """Returns the seconds it took. `what` names the condition, or shows how things stand instead."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > within:
            shown = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {within:g} s: {shown}")
        time.sleep(0.02)
    return time.monotonic() - began
