"""When a certificate is renewed, and when somebody is told that this does not work."""

from datetime import datetime, timedelta
from enum import StrEnum

RETRY_FIRST = timedelta(seconds=5)
RETRY_SHARE = (
    20  # of what is left of its life; so an hour before the end it is tried every three minutes
)
RETRY_LEAST = timedelta(seconds=1)


class Freshness(StrEnum):
    """How much is left of a certificate."""

    FRESH = "fresh"
    DUE = "due"  # past half of its life: it is being renewed, or should be
    CRITICAL = "critical"  # the last tenth: renewing has failed for long
    EXPIRED = "expired"


def renew_at(not_before: datetime, not_after: datetime) -> datetime:
    return not_before + (not_after - not_before) / 2


def freshness(not_before: datetime, not_after: datetime, now: datetime) -> Freshness:
    if now >= not_after:
        return Freshness.EXPIRED
    if not_after - now <= (not_after - not_before) / 10:
        return Freshness.CRITICAL
    return Freshness.DUE if now >= renew_at(not_before, not_after) else Freshness.FRESH


def retry_after(
    attempt: int, *, not_after: datetime, now: datetime, every: timedelta | None, roll: float
) -> timedelta:
    """After the n-th failure in a row. `every` is what an operator has set; `roll` is 0 to 1.

    Longer each time, so that an authority that comes back is not run down; but several tries are always
    left before the end.
    """
    if every is not None:
        return every
    patient = RETRY_FIRST * (1 << min(attempt - 1, 10))
    urgent = max(RETRY_LEAST, (not_after - now) / RETRY_SHARE)
    return min(patient, urgent) * (0.8 + 0.4 * roll)
