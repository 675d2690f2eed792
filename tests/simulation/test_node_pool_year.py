"""Node pools over simulated weeks: spend within its limit, no instance left over, every job done."""

import pytest

from persys.sim.nodepools.report import YearReport, plot
from persys.sim.nodepools.year import HOURS_OF_YEAR, POOL, Year


def check(report: YearReport) -> None:
    assert report.done == report.jobs > 0
    assert report.left_over == 0
    assert 0 < report.spend_peak <= POOL.spend_per_hour_max
    assert report.lost_minutes < 0.02 * report.work_minutes
    assert report.wait_of(0.95) <= 15


@pytest.mark.parametrize("seed", [1, 2])
def test_a_week_of_load_is_served_within_the_limits(seed: int) -> None:
    report = Year(seed, hours=7 * 24).run()

    check(report)
    assert plot(report).startswith("<svg")


@pytest.mark.full
def test_a_year_of_load_is_served_within_the_limits() -> None:
    check(Year(1, HOURS_OF_YEAR).run())
