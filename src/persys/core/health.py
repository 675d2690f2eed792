"""Whether a workload is well, from one probe to the next.

As Docker judges it, so that both kinds of checks mean the same: failures during the start period do not count
until the first success, and it takes several in a row to be unhealthy. What would surprise: in its start
period it is probed more often, so that it is known to be well soon.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from persys.model.spec import HealthCheck

HEALTH = "container.health"  # in the metadata of a status, if anybody checks it
UNHEALTHY = "Unhealthy"  # why what runs is not as it should be

INTERVAL_DEFAULT = timedelta(seconds=10)
TIMEOUT_DEFAULT = timedelta(seconds=5)
RETRIES_DEFAULT = 3
STARTING_INTERVAL = timedelta(seconds=1)


class Health(StrEnum):
    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


class Timing(Struct, frozen=True):
    interval: timedelta = INTERVAL_DEFAULT
    timeout: timedelta = TIMEOUT_DEFAULT
    retries: int = RETRIES_DEFAULT
    start_period: timedelta = timedelta()


class Vitals(Struct, frozen=True):
    health: Health = Health.STARTING
    failures: int = 0  # in a row
    ailment: str = ""  # what the last probe found, if it found something


def timing_of(check: HealthCheck) -> Timing:
    return Timing(
        timedelta(seconds=check.interval_seconds) or INTERVAL_DEFAULT,
        timedelta(seconds=check.timeout_seconds) or TIMEOUT_DEFAULT,
        check.retries or RETRIES_DEFAULT,
        timedelta(seconds=check.start_period_seconds),
    )


def after_probe(
    vitals: Vitals, ailment: str, timing: Timing, *, started_at: datetime, now: datetime
) -> Vitals:
    """`ailment` is "" for a probe that found all well; `started_at` is when the workload started."""
    if not ailment:
        return Vitals(Health.HEALTHY)
    if _may_still_start(vitals, timing, started_at=started_at, now=now):
        return Vitals(Health.STARTING, 0, ailment)
    failures = vitals.failures + 1
    health = Health.UNHEALTHY if failures >= timing.retries else vitals.health
    return Vitals(health, failures, ailment)


def next_probe_after(
    vitals: Vitals, timing: Timing, *, started_at: datetime, now: datetime
) -> timedelta:
    if _may_still_start(vitals, timing, started_at=started_at, now=now):
        return min(timing.interval, STARTING_INTERVAL)
    return timing.interval


def remembered(health: str, timing: Timing) -> Vitals:
    """As it was when it was last told, before an agent that starts again has probed anything."""
    if health == Health.HEALTHY:
        return Vitals(Health.HEALTHY)
    if health == Health.UNHEALTHY:
        return Vitals(Health.UNHEALTHY, timing.retries)
    return Vitals()


def _may_still_start(
    vitals: Vitals, timing: Timing, *, started_at: datetime, now: datetime
) -> bool:
    return vitals.health is Health.STARTING and now < started_at + timing.start_period
