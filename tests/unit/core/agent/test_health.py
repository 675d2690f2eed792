"""Health from consecutive probes, and the delay until the next one."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from persys.core.agent.health import (
    BOOT_PERIOD_DEFAULT,
    Health,
    HealthState,
    Timing,
    after_probe,
    failures_before_success,
    next_probe_after,
    restored_health,
    timing_of,
)
from persys.model.spec import HealthCheck, HealthType

START = datetime(2030, 1, 1, tzinfo=UTC)
TIMING = Timing(timedelta(seconds=10), timedelta(seconds=5), 3, timedelta(seconds=60))


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def probed(
    *health_errors: str, begin: float = 100, health_state: HealthState | None = None
) -> HealthState:
    """After probes ten seconds apart."""
    health_state = health_state or HealthState()
    for index, health_error in enumerate(health_errors):
        now = at(begin + 10 * index)
        health_state = after_probe(health_state, health_error, TIMING, started_at=START, now=now)
    return health_state


def test_one_success_makes_it_healthy() -> None:
    assert probed("") == HealthState(Health.HEALTHY)


def test_failures_in_the_start_period_do_not_count() -> None:
    assert probed("no", "no", "no", "no", begin=0) == HealthState(Health.STARTING, 0, "no")


def test_failures_after_the_start_period_count_even_without_a_success() -> None:
    assert probed("no", "no").health is Health.STARTING
    assert probed("no", "no", "no") == HealthState(Health.UNHEALTHY, 3, "no")


def test_once_it_was_healthy_failures_count_even_in_the_start_period() -> None:
    assert probed("", "no", "no", "no", begin=0).health is Health.UNHEALTHY


def test_only_failures_in_a_row_make_it_unhealthy() -> None:
    assert probed("no", "no", "", "no", "no").health is Health.HEALTHY


@pytest.mark.parametrize(
    ("health_errors", "begin", "failures"),
    [
        (("no", "no"), 100, "2 of 3"),
        (("no", "no", "no"), 100, ""),  # it is unhealthy
        (("no", "no"), 0, ""),  # in the start period
        (("", "no"), 100, ""),  # it was healthy before
    ],
)
def test_failures_before_the_first_success_are_counted(
    health_errors: tuple[str, ...], begin: float, failures: str
) -> None:
    assert failures_before_success(probed(*health_errors, begin=begin), TIMING) == failures


def test_a_success_heals() -> None:
    assert probed("no", "no", "no", "") == HealthState(Health.HEALTHY)


def test_it_is_probed_often_while_it_may_still_start_and_then_at_its_interval() -> None:
    soon = next_probe_after(HealthState(), TIMING, started_at=START, now=at(5))
    later = next_probe_after(HealthState(), TIMING, started_at=START, now=at(60))
    well = next_probe_after(HealthState(Health.HEALTHY), TIMING, started_at=START, now=at(5))

    assert (soon, later, well) == (timedelta(seconds=1), TIMING.interval, TIMING.interval)


def test_unset_fields_of_a_check_have_defaults() -> None:
    assert timing_of(HealthCheck(HealthType.TCP, port=1)) == Timing()
    check = HealthCheck(interval_seconds=1, timeout_seconds=2, retries=4, start_period_seconds=3)
    seconds = [timedelta(seconds=count) for count in (1, 2, 3)]
    assert timing_of(check) == Timing(seconds[0], seconds[1], 4, seconds[2])


def test_a_vm_has_time_to_boot_unless_its_check_has_a_start_period() -> None:
    check = HealthCheck(HealthType.HTTP, port=80)

    assert timing_of(check, boots=True).start_period == BOOT_PERIOD_DEFAULT
    short = replace(check, start_period_seconds=5)
    assert timing_of(short, boots=True).start_period == timedelta(seconds=5)


@pytest.mark.parametrize("health", Health)
def test_health_is_remembered_over_a_restart_of_the_agent(health: Health) -> None:
    assert restored_health(health.value, TIMING).health is health


def test_an_unhealthy_workload_stays_unhealthy_after_a_restart_until_a_success() -> None:
    assert (
        probed("no", health_state=restored_health("unhealthy", TIMING)).health is Health.UNHEALTHY
    )


def test_an_invalid_stored_health_state_is_ignored() -> None:
    assert restored_health("glowing", TIMING) == HealthState()


@given(st.lists(st.sampled_from(["", "no"]), max_size=12))
def test_it_is_unhealthy_exactly_after_as_many_failures_in_a_row_as_allowed(
    health_errors: list[str],
) -> None:
    unhealthy = probed(*health_errors).health is Health.UNHEALTHY

    assert unhealthy == (len(health_errors) >= 3 and not any(a == "" for a in health_errors[-3:]))
