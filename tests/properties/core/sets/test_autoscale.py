"""Automatic scaling for any metrics."""

from hypothesis import given
from hypothesis import strategies as st

from persys.core.sets.autoscale import (
    DOWN_AFTER,
    Measurement,
    Sample,
    desired_replicas,
    sample,
    with_sample,
)
from persys.model.sets import ScalePolicy
from set_builders import NOW, at

values = st.none() | st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1000)
counts = st.integers(0, 50)
POLICY = ScalePolicy(
    2,
    20,
    cpu_percent=50,
    memory_percent=80,
    prometheus_url="http://p",
    prometheus_query="q",
    prometheus_target=5.0,
)
windows = st.lists(
    st.builds(Sample, st.integers(-600, 0).map(at), st.sampled_from([4, 5]), counts), max_size=20
).map(lambda samples: tuple(sorted(samples, key=lambda one: one.at)))


@given(counts, counts, values, values, values)
def test_an_unknown_metric_never_requests_fewer(
    replicas: int, running: int, cpu: float | None, memory: float | None, query: float | None
) -> None:
    taken = sample(POLICY, Measurement(replicas, running, cpu, memory, query), NOW)

    assert taken.requested >= 0
    if None in (cpu, memory, query) or running == 0:
        assert taken.requested >= replicas


@given(counts, windows, st.none() | st.integers(-200, 0).map(at))
def test_the_result_is_within_the_limits(
    current: int, window: tuple[Sample, ...], scaled_at: object
) -> None:
    scaling = desired_replicas(POLICY, current, window, now=NOW, scaled_at=scaled_at)  # type: ignore[arg-type]

    assert POLICY.min_replicas <= scaling.replicas <= POLICY.max_replicas


@given(windows)
def test_fewer_replicas_need_a_whole_window_that_requests_fewer(window: tuple[Sample, ...]) -> None:
    scaling = desired_replicas(POLICY, 5, window, now=NOW, scaled_at=None)

    if scaling.replicas < 5:
        recent = [one for one in window if one.at >= NOW - DOWN_AFTER]
        assert all(one.requested < 5 for one in recent)
        assert scaling.replicas >= max([2, *(one.requested for one in recent)])


@given(windows)
def test_the_window_is_bounded_and_ordered(samples: tuple[Sample, ...]) -> None:
    window: tuple[Sample, ...] = ()
    for one in samples:
        window = with_sample(window, one)

    assert list(window) == sorted(window, key=lambda one: one.at)
    assert sum(one.at <= window[-1].at - DOWN_AFTER for one in window) <= 1 if window else True
