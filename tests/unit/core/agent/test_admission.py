"""When a node rejects new workloads: above its load thresholds, or without capacity."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persys.core.agent.admission import Load, demand_of, smoothed, too_busy, too_much
from persys.model.placement import Resources
from persys.model.spec import (
    ComposeSpec,
    ContainerSpec,
    Disk,
    ManagedVolume,
    Spec,
    StackNeeds,
    VMSpec,
)

HALF = timedelta(seconds=30)
MOST = Load(80, 80, 80)
percents = st.floats(0, 100)
loads = st.builds(Load, percents, percents, percents)


def test_the_first_load_sample_is_not_smoothed() -> None:
    assert smoothed(None, Load(90, 1, 2), elapsed=HALF, half_life=HALF) == Load(90, 1, 2)


def test_after_a_half_life_an_old_figure_counts_half() -> None:
    found = smoothed(Load(100, 0, 50), Load(0, 100, 50), elapsed=HALF, half_life=HALF)

    assert found == Load(50, 50, 50)


def test_a_long_burst_exceeds_the_threshold_and_a_short_one_does_not() -> None:
    load = Load(10, 10, 10)
    seen = []
    for _ in range(20):
        load = smoothed(load, Load(100, 10, 10), elapsed=timedelta(seconds=5), half_life=HALF)
        seen.append(bool(too_busy(load, MOST)))

    assert seen[0] is False
    assert seen[-1] is True
    assert seen == sorted(seen)


def test_without_a_half_life_only_the_newest_counts() -> None:
    found = smoothed(Load(100, 100, 100), Load(), elapsed=HALF, half_life=timedelta())

    assert found == Load()


@given(loads, loads, st.floats(0, 1000))
def test_a_smoothed_figure_lies_between_the_old_and_the_new(
    before: Load, sample: Load, seconds: float
) -> None:
    found = smoothed(before, sample, elapsed=timedelta(seconds=seconds), half_life=HALF)

    for name in ("cpu", "memory", "disk"):
        low, high = sorted((getattr(before, name), getattr(sample, name)))
        assert low - 1e-9 <= getattr(found, name) <= high + 1e-9


def test_a_refusal_names_all_that_is_too_high_with_the_figures() -> None:
    found = too_busy(Load(93.4, 12, 81), MOST)

    assert "cpu 93 % used; new workloads are accepted up to 80 %" in found
    assert "disk 81 % used" in found
    assert "memory" not in found


@given(loads)
def test_a_threshold_of_100_refuses_nothing(load: Load) -> None:
    assert not too_busy(load, Load(100, 100, 100))


def test_the_sum_of_reservations_never_exceeds_the_capacity() -> None:
    capacity = Resources(2000, 1024, 10)

    assert not too_much(
        Resources(500, 24, 0), given=Resources(1500, 1000, 10), allocatable=capacity
    )
    assert (
        too_much(Resources(501), given=Resources(1500), allocatable=capacity)
        == "cpu: 1500 of 2000 millicores allocated, and the workload requests 501"
    )


def test_a_workload_without_requests_is_not_refused_for_reservations_of_others() -> None:
    given_away = Resources(9000, 9000, 9000)

    assert not too_much(Resources(), given=given_away, allocatable=Resources(1, 1, 1))


@pytest.mark.parametrize(
    ("spec", "demand"),
    [
        (
            ContainerSpec(
                "x",
                cpu_millicores=250,
                memory_bytes=(1 << 20) + 1,
                managed_volumes=(ManagedVolume("d", "/d", size_gb=3),),
            ),
            Resources(250, 2, 3),
        ),
        (VMSpec(2, 512, disks=(Disk(size_gb=4),)), Resources(2000, 512, 4)),
        (
            ComposeSpec(yaml="x", needs=StackNeeds(cpu_millicores=300, memory_mb=64)),
            Resources(300, 64),
        ),
        (
            ComposeSpec(
                yaml="x", needs=StackNeeds(cpu_millicores=300), reserved=Resources(100, 32, 5)
            ),
            Resources(100, 32, 5),
        ),
        (ComposeSpec("git", git_repo="r", reserved=Resources(100, 32)), Resources(100, 32)),
        (ComposeSpec("git", git_repo="r"), Resources()),
    ],
    ids=["container", "vm", "stack", "reserved_stack", "repository", "unknown_repository"],
)
def test_a_container_is_admitted_by_its_limits_and_a_stack_by_its_reservation(
    spec: Spec, demand: Resources
) -> None:
    assert demand_of(spec) == demand
