"""Schedules over all time zones: occurrences are ordered, and each starts at most one run."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import available_timezones

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from job_builders import a_job
from persys.core.jobs.cron import Cron, zone_of
from persys.core.jobs.schedule import COUNTED_MAX, due, settled_until
from persys.model.job import Job, Overlap, Run, RunState, Schedule

ZONES = sorted(name for name in available_timezones() if name not in ("localtime", "Factory"))
zones = st.sampled_from(ZONES)
minutes = st.one_of(
    st.integers(0, 59).map(str), st.sampled_from(["*", "*/7", "*/30", "15,45", "10-20", "0-59"])
)
hours = st.one_of(st.integers(0, 23).map(str), st.sampled_from(["*", "*/2", "0-3", "2,14"]))
days = st.sampled_from(["*", "1", "*/3", "28-31"])
months = st.sampled_from(["*", "3", "3,10", "11"])
weekdays = st.sampled_from(["*", "0", "1-5", "SUN"])
expressions = st.tuples(minutes, hours, days, months, weekdays).map(" ".join)
instants = st.integers(0, 20 * 365 * 86400).map(
    lambda seconds: datetime(2015, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
)


@given(expressions, zones, instants)
def test_occurrences_after_an_instant_are_strictly_later(
    expression: str, zone: str, at: datetime
) -> None:
    found = list(islice(Cron(expression, zone).all_after(at), 6))

    assert all(before < later for before, later in pairwise([at, *found]))


@given(expressions, zones, instants)
def test_both_searches_find_the_same_occurrences(expression: str, zone: str, at: datetime) -> None:
    cron = Cron(expression, zone)
    later = cron.after(at)
    assert later is not None

    assert cron.until(later) == later
    assert cron.until(later - timedelta(microseconds=1)) == cron.until(at)
    earlier = cron.until(at)
    assert earlier is not None
    assert earlier <= at
    assert cron.after(earlier) == later


@given(st.integers(0, 59), st.integers(0, 23), zones, instants)
def test_a_fixed_time_occurs_once_a_day_in_every_time_zone(
    minute: int, hour: int, zone: str, at: datetime
) -> None:
    found = list(islice(Cron(f"{minute} {hour} * * *", zone).all_after(at), 200))

    for one, other in pairwise(found):
        assert timedelta(hours=20) <= other - one <= timedelta(hours=28)
    local = [one.astimezone(zone_of(zone)) for one in found]
    shifted = [one for one in local if (one.hour, one.minute) != (hour, minute)]
    assert len(shifted) <= 2, "only at the start of summer time"


jumps = st.one_of(
    st.timedeltas(timedelta(seconds=1), timedelta(minutes=90)),
    st.timedeltas(timedelta(0), timedelta(days=800)),
    st.timedeltas(timedelta(days=-800), timedelta(0)),
)


@given(
    expressions,
    zones,
    instants,
    st.lists(jumps, max_size=8),
    st.sampled_from(Overlap),
    st.integers(10, 90_000),
)
def test_whatever_the_clock_does_an_occurrence_starts_at_most_one_run(
    expression: str,
    zone: str,
    at: datetime,
    steps: list[timedelta],
    overlap: Overlap,
    start_within: int,
) -> None:
    schedule = Schedule(expression, zone, overlap, start_within)
    job = replace(a_job(schedule), created_at=at)
    runs: list[Run] = []
    now = at
    for step in steps:
        now += step
        before, count = settled_until(job), len(runs)
        job, runs = advanced(job, runs, now)

        assert settled_until(job) >= before
        for run in runs[count:]:
            assert run.scheduled_at is not None
            assert before < run.scheduled_at <= now
            assert (now - run.scheduled_at).total_seconds() <= start_within
            assert Cron(expression, zone).until(run.scheduled_at) == run.scheduled_at
    ids = [run.run_id for run in runs]
    assert len(ids) == len(set(ids))
    if overlap is not Overlap.ALLOW:
        assert sum(run.state is RunState.RUNNING for run in runs) <= 1


def advanced(job: Job, runs: list[Run], now: datetime) -> tuple[Job, list[Run]]:
    """Store what is due, as a scheduler does. A second look at the same time finds nothing."""
    found = due(job, runs, now)
    if found is None:
        return job, runs
    ended = {run.run_id: run for run, _ in found.replaced}
    runs = [ended.get(run.run_id, run) for run in runs]
    runs += [found.run] if found.run is not None else []
    assert due(found.job, runs, now) is None
    return found.job, runs


@given(st.integers(0, 3000), st.integers(0, 59))
def test_every_occurrence_is_started_or_counted_as_skipped(gone: int, seconds: int) -> None:
    job = a_job(Schedule("* * * * *"))
    now = job.created_at + timedelta(minutes=gone, seconds=seconds)

    found = due(job, (), now)

    if gone == 0:
        assert found is None
        return
    assert found is not None
    assert found.run is not None
    counts = [int(event.message.split()[0]) for event in found.events[:-1]]
    assert sum(counts) == min(gone - 1, COUNTED_MAX)
