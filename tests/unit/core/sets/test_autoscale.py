"""The number of replicas that metrics request."""

import pytest
from msgspec.structs import replace

from persys.core.sets.autoscale import (
    Measurement,
    Sample,
    Scaling,
    Window,
    desired_replicas,
    sample,
    with_sample,
)
from persys.model.sets import ScalePolicy
from set_builders import NOW, at

CPU = ScalePolicy(2, 10, cpu_percent=50)
BOTH = replace(CPU, memory_percent=80)
QUEUE = ScalePolicy(
    1, 10, prometheus_url="http://p", prometheus_query="queue", prometheus_target=10.0
)


def measured(replicas: int = 4, running: int | None = None, **values: object) -> Measurement:
    count = replicas if running is None else running
    return Measurement(replicas, count, **values)  # type: ignore[arg-type]  # names of metrics


def requested(policy: ScalePolicy, measurement: Measurement) -> int:
    return sample(policy, measurement, NOW).requested


def a_window(*requests: int, replicas: int = 4, every: int = 60) -> Window:
    """Samples in an interval of so many seconds, the last one now."""
    first = -(len(requests) - 1) * every
    return tuple(
        Sample(at(first + number * every), replicas, request, f"cpu asks for {request}")
        for number, request in enumerate(requests)
    )


def scaled(
    window: Window, policy: ScalePolicy = CPU, *, current: int = 4, last: float | None = None
) -> int:
    scaled_at = None if last is None else at(last)
    return desired_replicas(policy, current, window, now=NOW, scaled_at=scaled_at).replicas


@pytest.mark.parametrize(
    ("cpu", "replicas"),
    [(100.0, 8), (60.0, 5), (25.0, 2), (26.0, 3), (0.0, 0), (50.0, 4), (55.0, 4), (45.0, 4)],
)
def test_the_request_is_the_ratio_of_usage_and_target(cpu: float, replicas: int) -> None:
    assert requested(CPU, measured(cpu_percent=cpu)) == replicas


def test_a_difference_within_ten_percent_changes_nothing() -> None:
    assert requested(CPU, measured(10, cpu_percent=55.0)) == 10
    assert requested(CPU, measured(10, cpu_percent=56.0)) == 12
    assert requested(CPU, measured(10, cpu_percent=45.0)) == 10
    assert requested(CPU, measured(10, cpu_percent=44.0)) == 9


def test_an_exact_ratio_is_not_rounded_up() -> None:
    assert requested(ScalePolicy(1, 10, cpu_percent=70), measured(3, cpu_percent=140.0)) == 6


def test_the_highest_request_of_all_metrics_counts() -> None:
    assert requested(BOTH, measured(cpu_percent=10.0, memory_percent=120.0)) == 6
    assert requested(BOTH, measured(cpu_percent=100.0, memory_percent=20.0)) == 8


def test_an_unknown_metric_never_scales_down() -> None:
    assert requested(BOTH, measured(cpu_percent=10.0)) == 4
    assert requested(BOTH, measured(cpu_percent=100.0)) == 8
    assert requested(CPU, measured(cpu_percent=None)) == 4
    assert requested(CPU, measured(cpu_percent=float("nan"))) == 4
    assert requested(CPU, measured(cpu_percent=-1.0)) == 4


def test_a_metric_that_is_not_configured_is_ignored() -> None:
    assert requested(CPU, measured(cpu_percent=50.0, memory_percent=500.0)) == 4


def test_members_that_start_are_expected_to_take_a_part_of_the_load() -> None:
    """Two of four members run at twice the target: four are enough."""
    assert requested(CPU, measured(4, running=2, cpu_percent=100.0)) == 4


def test_members_that_do_not_run_do_not_lower_the_request() -> None:
    assert requested(CPU, measured(4, running=2, cpu_percent=50.0)) == 4
    assert requested(CPU, measured(4, running=2, cpu_percent=25.0)) == 2


def test_without_a_running_member_nothing_is_known() -> None:
    assert requested(CPU, measured(4, running=0, cpu_percent=0.0)) == 4
    assert requested(QUEUE, measured(4, running=0, prometheus_value=500.0)) == 4


def test_the_value_of_a_query_is_divided_among_the_members() -> None:
    assert requested(QUEUE, measured(4, prometheus_value=75.0)) == 8
    assert requested(QUEUE, measured(4, prometheus_value=11.0)) == 2


def test_an_endless_value_requests_the_most_replicas() -> None:
    assert requested(QUEUE, measured(4, prometheus_value=1e308)) == 10_000


def test_a_sample_says_why() -> None:
    assert sample(CPU, measured(cpu_percent=87.25), NOW).reason == "cpu 87.25%, target 50%"
    assert sample(CPU, measured(), NOW).reason == "cpu is not known"


def test_scaling_up_needs_one_sample() -> None:
    assert scaled(a_window(3, 4, 7)) == 7


def test_scaling_stays_within_the_limits() -> None:
    assert scaled(a_window(99)) == 10
    assert scaled(a_window(0, 0, 0, 0, 0, 0)) == 2


def test_scaling_down_needs_five_minutes_of_lower_requests() -> None:
    assert scaled(a_window(2, 2, 2, 2, 2)) == 4
    assert scaled(a_window(2, 2, 2, 2, 2, 2)) == 2


def test_scaling_down_goes_to_the_highest_request_of_the_window() -> None:
    assert scaled(a_window(2, 3, 2, 2, 2, 2)) == 3


def test_one_higher_request_prevents_scaling_down() -> None:
    assert scaled(a_window(2, 2, 4, 2, 2, 2)) == 4


def test_requests_of_another_size_do_not_count() -> None:
    """The set was scaled by hand a minute ago."""
    window = (*a_window(2, 2, 2, 2, 2, 2)[:-1], Sample(NOW, 6, 3, "cpu"))

    assert scaled(window, current=6) == 6


def test_the_cooldown_delays_both_directions() -> None:
    assert scaled(a_window(7), last=-59) == 4
    assert scaled(a_window(7), last=-60) == 7
    assert scaled(a_window(2, 2, 2, 2, 2, 2), last=-59) == 4


def test_a_last_change_by_a_clock_that_was_ahead_does_not_prevent_scaling() -> None:
    assert scaled(a_window(7), last=60) == 4  # clocks of two leaders may differ a little
    assert scaled(a_window(7), last=86_400) == 7


def test_the_cooldown_is_explained() -> None:
    scaling = desired_replicas(CPU, 4, a_window(7), now=NOW, scaled_at=at(-50))

    assert scaling == Scaling(4, "cpu asks for 7; waits for 10s after the last change")


def test_without_samples_nothing_is_scaled() -> None:
    assert desired_replicas(CPU, 4, (), now=NOW, scaled_at=None) == Scaling(
        4, "the metrics are not known yet"
    )


def test_the_limits_apply_without_samples_and_at_once() -> None:
    assert scaled((), current=1, last=-1) == 2
    assert scaled((), current=11, last=-1) == 10


def test_the_window_keeps_five_minutes_and_one_older_sample() -> None:
    window: Window = ()
    for number in range(-1200, 1, 60):
        window = with_sample(window, Sample(at(number), 4, 2))

    assert [one.at for one in window] == [at(number) for number in range(-300, 1, 60)]
    assert scaled(window) == 2


def test_a_window_between_two_samples_keeps_the_older_one() -> None:
    window = with_sample((Sample(at(-400), 4, 2), Sample(at(-310), 4, 2)), Sample(NOW, 4, 2))

    assert [one.at for one in window] == [at(-310), NOW]
