"""Exponential back-off: the delay before the next attempt doubles up to a limit."""

from datetime import timedelta

_DOUBLINGS_MAX = 16


def doubled(first: timedelta, attempts: int, *, longest: timedelta) -> timedelta:
    """The delay after `attempts` attempts; 0 gives `first`."""
    growth: int = 2 ** min(attempts, _DOUBLINGS_MAX)
    return min(first * growth, longest)
