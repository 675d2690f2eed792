"""Which occurrence starts a run, and which ones are skipped."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from job_builders import NOON, a_job, a_run, after, hourly
from persys.core.jobs.changes import RUNNING_MAX
from persys.core.jobs.schedule import COUNTED_MAX, Due, due, next_occurrence
from persys.model.event import EventKind
from persys.model.job import Job, Overlap, Run, RunState, Schedule

ONE = after(hours=1)


def decided(job: Job, now: datetime, *runs: Run) -> Due:
    found = due(job, runs, now)
    assert found is not None
    return found


def test_nothing_is_due_before_the_first_occurrence() -> None:
    assert due(hourly(), (), after(minutes=59, seconds=59)) is None


def test_an_occurrence_starts_a_run_with_its_id_and_is_recorded_with_it() -> None:
    found = decided(hourly(completions=3, parallelism=2, retries=1, fail_on=(7,)), ONE)

    assert found.rule == "start"
    assert found.job.last_scheduled_at == ONE
    assert found.run is not None
    assert found.run.run_id == "backup-203006011300"
    assert found.run.scheduled_at == ONE
    assert (found.run.completions, found.run.parallelism) == (3, 2)
    assert (found.run.retries, found.run.fail_on) == (1, (7,))
    assert [event.kind for event in found.events] == [EventKind.RUN_STARTED]


def test_a_recorded_occurrence_is_not_due_again() -> None:
    assert due(hourly(last_scheduled_at=ONE), (), after(hours=1, minutes=30)) is None


@pytest.mark.parametrize("back", [timedelta(seconds=1), timedelta(hours=5), timedelta(days=400)])
def test_a_clock_that_goes_back_repeats_nothing(back: timedelta) -> None:
    assert due(hourly(last_scheduled_at=ONE), (), ONE - back) is None


def test_a_clock_that_jumps_ahead_starts_only_the_newest_occurrence() -> None:
    found = decided(hourly(), after(hours=5, minutes=10))

    assert found.run is not None
    assert found.run.scheduled_at == after(hours=5)
    assert found.events[0].kind is EventKind.JOB_OCCURRENCES_SKIPPED
    assert found.events[0].message == "4 occurrences of job backup skipped: a later one was due too"


def test_an_occurrence_that_is_too_late_is_skipped_with_those_before_it() -> None:
    found = decided(hourly(start_within=60), after(hours=3, minutes=2))

    assert found.run is None
    assert found.rule == "too-late"
    assert found.job.last_scheduled_at == after(hours=3)
    assert [event.kind for event in found.events] == [EventKind.JOB_OCCURRENCES_SKIPPED]
    assert found.events[0].message.startswith("3 occurrences of job backup skipped: the last of")


def test_an_occurrence_starts_until_the_end_of_start_within() -> None:
    assert decided(hourly(start_within=60), after(hours=1, seconds=60)).run is not None


def test_a_year_of_downtime_costs_a_bounded_count() -> None:
    every_minute = a_job(Schedule("* * * * *", start_within_seconds=60))

    found = decided(every_minute, after(days=365, seconds=30))

    assert found.run is not None
    assert found.run.scheduled_at == after(days=365)
    assert found.events[0].message.startswith(f"{COUNTED_MAX} or more occurrences")


def test_forbid_skips_an_occurrence_while_a_run_is_in_progress() -> None:
    found = decided(hourly(Overlap.FORBID), ONE, a_run("backup-7"))

    assert found.run is None
    assert found.rule == "overlap"
    assert found.job.last_scheduled_at == ONE
    assert "run backup-7 is in progress" in found.events[0].message
    assert due(found.job, (), after(hours=1, minutes=1)) is None, "also when that run has ended"


def test_forbid_ignores_finished_runs() -> None:
    assert decided(hourly(Overlap.FORBID), ONE, a_run(state=RunState.FAILED)).run is not None


def test_allow_starts_beside_a_run_in_progress() -> None:
    found = decided(hourly(Overlap.ALLOW), ONE, a_run())

    assert found.run is not None
    assert found.replaced == ()


def test_allow_skips_when_too_many_runs_are_in_progress() -> None:
    running = [a_run(f"backup-{number}") for number in range(RUNNING_MAX)]

    found = decided(hourly(Overlap.ALLOW), ONE, *running)

    assert found.run is None
    assert found.rule == "too-many"


def test_replace_cancels_all_runs_in_progress_with_the_start() -> None:
    ended = a_run("backup-3", RunState.SUCCEEDED)

    found = decided(hourly(Overlap.REPLACE), ONE, a_run("backup-1"), ended, a_run("backup-2"))

    assert found.run is not None
    assert found.rule == "replace"
    assert [(run.run_id, run.state, run.ended_at) for run, _ in found.replaced] == [
        ("backup-1", RunState.CANCELLED, ONE),
        ("backup-2", RunState.CANCELLED, ONE),
    ]
    assert found.replaced[0][0].reason == "replaced by backup-203006011300"
    assert {event.kind for _, event in found.replaced} == {EventKind.RUN_CANCELLED}
    assert [event.kind for event in found.events] == [EventKind.RUN_STARTED]


def test_an_existing_run_of_an_occurrence_is_not_started_again() -> None:
    """The record of the job may be older than that of the run."""
    known = a_run("backup-203006011300", RunState.SUCCEEDED)

    found = decided(hourly(), ONE, known)

    assert found.run is None
    assert found.rule == "exists"


@pytest.mark.parametrize("changes", [{"suspended": True}, {"deleting": True}, {"schedule": None}])
def test_nothing_is_due_without_an_active_schedule(changes: dict[str, object]) -> None:
    job = replace(hourly(), **changes)

    assert due(job, (), ONE) is None
    assert next_occurrence(job, NOON) is None


def test_the_next_occurrence_is_after_now_and_after_the_recorded_one() -> None:
    assert next_occurrence(hourly(), NOON) == ONE
    assert next_occurrence(hourly(), ONE) == after(hours=2)
    assert next_occurrence(hourly(last_scheduled_at=after(hours=9)), ONE) == after(hours=10)


def test_an_occurrence_in_the_repeated_hour_has_an_id_of_its_own() -> None:
    schedule = Schedule("0 * * * *", "Europe/Berlin")
    job = a_job(schedule, created_at=NOON.replace(year=2025, month=10, day=26, hour=0, minute=30))
    ids = []
    for hour in (1, 2):
        found = decided(job, job.created_at.replace(hour=hour, minute=5))
        assert found.run is not None
        ids.append(found.run.run_id)
        job = replace(found.job)

    assert ids == ["backup-202510260100", "backup-202510260200"]
