"""Decides when a certificate is renewed, and when a failing renewal is reported."""

from datetime import datetime, timedelta
from enum import StrEnum

from persys.core.backoff import doubled

RETRY_FIRST = timedelta(seconds=5)
RETRY_LONGEST = RETRY_FIRST * 2**10
RETRY_SHARE = 20  # of the remaining lifetime: every three minutes in the last hour
RETRY_LEAST = timedelta(seconds=1)


class Freshness(StrEnum):
    """How much of a certificate's lifetime is left."""

    FRESH = "fresh"
    DUE = "due"  # past half of its lifetime: it is being renewed, or should be
    CRITICAL = "critical"  # in the last tenth: renewal has failed for long
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
    """The delay after the n-th consecutive failure. `every` is configured by an operator; `roll` is 0 to 1.

    The delay grows so that a returning persys-ca is not overloaded, but several attempts always remain before
    the certificate expires.
    """
    if every is not None:
        return every
    urgent = max(RETRY_LEAST, (not_after - now) / RETRY_SHARE)
    delay = doubled(RETRY_FIRST, attempt - 1, longest=min(urgent, RETRY_LONGEST))
    return delay * (0.8 + 0.4 * roll)
