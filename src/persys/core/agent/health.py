"""Health of a workload from consecutive probes.

The rules are those of Docker, so that both kinds of checks mean the same: failures during the start period do
not count until the first success, and several consecutive failures make it unhealthy. During the start period
it is probed more often, so that a healthy workload is reported early. A VM without a start period gets one in
which it can boot.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from persys.model.spec import HealthCheck

HEALTH = "container.health"  # the key in the metadata of a status, if there is a check
HEALTH_FAILURES = "container.health_failures"  # such as "2 of 3", before the first success
UNHEALTHY = "Unhealthy"  # the code of a running workload whose check fails

INTERVAL_DEFAULT = timedelta(seconds=10)
TIMEOUT_DEFAULT = timedelta(seconds=5)
RETRIES_DEFAULT = 3
BOOT_PERIOD_DEFAULT = timedelta(minutes=3)  # the start period of a VM
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


class HealthState(Struct, frozen=True):
    health: Health = Health.STARTING
    failures: int = 0  # consecutive
    health_error: str = ""  # the failure of the last probe; "": it succeeded


def timing_of(check: HealthCheck, *, boots: bool = False) -> Timing:
    """`boots`: of a VM."""
    start_period = timedelta(seconds=check.start_period_seconds)
    return Timing(
        timedelta(seconds=check.interval_seconds) or INTERVAL_DEFAULT,
        timedelta(seconds=check.timeout_seconds) or TIMEOUT_DEFAULT,
        check.retries or RETRIES_DEFAULT,
        start_period or (BOOT_PERIOD_DEFAULT if boots else timedelta()),
    )


def after_probe(
    health_state: HealthState,
    health_error: str,
    timing: Timing,
    *,
    started_at: datetime,
    now: datetime,
) -> HealthState:
    """`health_error` is "" for a successful probe; `started_at` is when the workload started."""
    if not health_error:
        return HealthState(Health.HEALTHY)
    if _may_still_start(health_state, timing, started_at=started_at, now=now):
        return HealthState(Health.STARTING, 0, health_error)
    failures = health_state.failures + 1
    health = Health.UNHEALTHY if failures >= timing.retries else health_state.health
    return HealthState(health, failures, health_error)


def failures_before_success(health_state: HealthState, timing: Timing) -> str:
    """How many of the failures that make a workload unhealthy there were before the first success."""
    if health_state.health is not Health.STARTING or not health_state.failures:
        return ""
    return f"{health_state.failures} of {timing.retries}"


def next_probe_after(
    health_state: HealthState, timing: Timing, *, started_at: datetime, now: datetime
) -> timedelta:
    if _may_still_start(health_state, timing, started_at=started_at, now=now):
        return min(timing.interval, STARTING_INTERVAL)
    return timing.interval


def restored_health(health: str, timing: Timing) -> HealthState:
    """The last reported health, for an agent that restarted and has not probed yet."""
    if health == Health.HEALTHY:
        return HealthState(Health.HEALTHY)
    if health == Health.UNHEALTHY:
        return HealthState(Health.UNHEALTHY, timing.retries)
    return HealthState()


def _may_still_start(
    health_state: HealthState, timing: Timing, *, started_at: datetime, now: datetime
) -> bool:
    return health_state.health is Health.STARTING and now < started_at + timing.start_period
