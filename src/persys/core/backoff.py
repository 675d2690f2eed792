"""Exponential back-off: the delay before the next attempt grows up to a limit.

Used by every loop that tries again. The callers are level-triggered and take the time as an argument, so this
only computes a delay.
"""

from datetime import timedelta

# Far beyond any limit; without it a power would overflow a timedelta.
_STEPS_MAX = 24


def doubled(first: timedelta, attempts: int, *, longest: timedelta) -> timedelta:
    """The delay after `attempts` attempts; 0 gives `first`, each further one twice as much."""
    return grown(first, attempts, factor=2, longest=longest)


def grown(first: timedelta, attempts: int, *, factor: float, longest: timedelta) -> timedelta:
    """The delay after `attempts` attempts; 0 gives `first`, each further one `factor` times as much."""
    return min(first * factor ** min(attempts, _STEPS_MAX), longest)


def doubled_seconds(first: float, attempts: int, *, longest: float) -> float:
    """The same in seconds."""
    return min(first * 2.0 ** min(attempts, _STEPS_MAX), longest)
