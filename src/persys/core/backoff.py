"""How long to wait before the next attempt: twice as long each time, up to a limit."""

from datetime import timedelta

_DOUBLINGS_MAX = 16


def doubled(first: timedelta, attempts: int, *, longest: timedelta) -> timedelta:
    """`attempts` so far: 0 waits for `first`."""
    growth: int = 2 ** min(attempts, _DOUBLINGS_MAX)
    return min(first * growth, longest)
