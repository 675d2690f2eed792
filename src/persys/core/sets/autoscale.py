"""The number of replicas that metrics request.

Each measurement becomes a sample: how many replicas the metrics request at that time. Scaling up needs one
sample; scaling down needs samples of five minutes that all request fewer, and goes to the highest of them.
The window of samples is kept in memory: a new leader collects it again before it scales down.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from persys.core.duration import format_duration
from persys.model.sets import REPLICAS_MAX, ScalePolicy

TOLERANCE = 0.1
DOWN_AFTER = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Measurement:
    """`cpu_percent` and `memory_percent`: averages of the running members, in percent of their requests.

    `prometheus_value`: the value of the query, for all members together. None: not known.
    """

    replicas: int
    running_count: int
    cpu_percent: float | None = None
    memory_percent: float | None = None
    prometheus_value: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """What the metrics request at one time, when the set had `replicas`."""

    at: datetime
    replicas: int
    requested: int
    reason: str = ""


Window = tuple[Sample, ...]  # of one set, ascending by time


@dataclass(frozen=True, slots=True)
class Scaling:
    """The replicas that the set should have now. The reason is also set if nothing changes."""

    replicas: int
    reason: str = ""


def sample(policy: ScalePolicy, measured: Measurement, now: datetime) -> Sample:
    """The highest request of all metrics. An unknown metric requests the current number."""
    requests = list(_requests(policy, measured))
    requested, reason = max(requests, key=lambda one: one[0], default=(measured.replicas, ""))
    return Sample(now, measured.replicas, requested, reason)


def with_sample(window: Window, new: Sample) -> Window:
    """The window with a new sample, and without those that no decision needs."""
    since = new.at - DOWN_AFTER
    older = [one for one in window if one.at <= since]
    newer = [one for one in window if since < one.at < new.at]
    return (*older[-1:], *newer, new)


def desired_replicas(
    policy: ScalePolicy,
    current: int,
    window: Window,
    *,
    now: datetime,
    scaled_at: datetime | None,
) -> Scaling:
    """`scaled_at`: the last automatic change. The limits apply at once, without metrics."""
    within = _clamped(current, policy)
    if within != current:
        return Scaling(within, f"outside of {policy.min_replicas} to {policy.max_replicas}")
    samples = _of_current_size(window, current)
    if not samples:
        return Scaling(current, "the metrics are not known yet")
    last = samples[-1]
    highest = max(samples, key=lambda one: one.requested)
    if last.requested > current:
        wanted = last
    elif highest.requested < current and now - samples[0].at >= DOWN_AFTER:
        wanted = highest
    else:
        return Scaling(current, last.reason)
    cooldown = timedelta(seconds=policy.cooldown_seconds)
    cools_until = scaled_at + cooldown if scaled_at else now
    # A later time is from the wrong clock of another leader.
    if now < cools_until <= now + 2 * cooldown:
        wait = format_duration(timedelta(seconds=math.ceil((cools_until - now).total_seconds())))
        return Scaling(current, f"{wanted.reason}; waits for {wait} after the last change")
    return Scaling(_clamped(wanted.requested, policy), wanted.reason)


def _of_current_size(window: Window, current: int) -> Window:
    """The samples since the set has its current number of replicas: older ones say nothing about it."""
    changed = [at for at, one in enumerate(window) if one.replicas != current]
    return window[changed[-1] + 1 :] if changed else window


def _requests(policy: ScalePolicy, measured: Measurement) -> Iterator[tuple[int, str]]:
    running_count = measured.running_count
    for name, value, target in (
        ("cpu", measured.cpu_percent, policy.cpu_percent),
        ("memory", measured.memory_percent, policy.memory_percent),
    ):
        if target:
            yield _request(name, value, target, measured, "%")
    if policy.prometheus_url:
        total = measured.prometheus_value
        value = total / running_count if total is not None and running_count else None
        yield _request("prometheus", value, policy.prometheus_target, measured, " per member")


def _request(
    name: str, value: float | None, target: float, measured: Measurement, unit: str
) -> tuple[int, str]:
    """The replicas that one metric requests, and why. `value` is the average of the running members.

    To scale up, only running members count: those that start will take a part of the load. To scale down,
    the others are expected to have the same usage.
    """
    current, running_count = measured.replicas, measured.running_count
    if value is None or not math.isfinite(value) or value < 0 or not running_count:
        return current, f"{name} is not known"
    ratio = round(value / target, 6)  # without the error of the division: 55 / 50 is 1.1
    text = f"{name} {value:.4g}{unit}, target {target:.4g}{unit}"
    if 1 - TOLERANCE <= ratio <= 1 + TOLERANCE:
        return current, text
    if ratio > 1:
        return max(current, _rounded_up(running_count * ratio)), text
    return _rounded_up(current * ratio), text


def _rounded_up(count: float) -> int:
    return math.ceil(round(min(count, REPLICAS_MAX), 6))


def _clamped(replicas: int, policy: ScalePolicy) -> int:
    return min(max(replicas, policy.min_replicas), policy.max_replicas)
