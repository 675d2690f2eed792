"""What users change, retention, and records after a recovery."""

from datetime import datetime

import pytest
from msgspec.structs import replace

from job_builders import NOON, a_job, a_run, a_template, after, hourly
from persys.core.jobs.changes import (
    RUNNING_MAX,
    Outcome,
    apply,
    cancel,
    delete,
    ended_by_deletion,
    expired,
    run_now,
    suspend,
)
from persys.core.jobs.schedule import due, recovered_job, recovered_runs
from persys.errors import InvalidError, RefusedError
from persys.model.event import EventKind
from persys.model.job import Job, Run, RunState, Schedule


def test_a_new_job_has_the_time_of_its_creation() -> None:
    change = apply(None, a_job(), now=after(hours=1))

    assert change.outcome is Outcome.CREATED
    assert change.job.created_at == change.job.updated_at == after(hours=1)
    assert [event.kind for event in change.events] == [EventKind.JOB_CREATED]


def test_an_invalid_job_is_refused() -> None:
    with pytest.raises(InvalidError, match="completions"):
        apply(None, a_job(completions=0), now=NOON)


def test_the_same_job_is_unchanged() -> None:
    old = hourly(suspended=True, last_scheduled_at=after(hours=1))

    change = apply(old, hourly(created_at=after(hours=9)), now=after(hours=2))

    assert change.outcome is Outcome.UNCHANGED
    assert change.job is old
    assert change.events == ()


def test_a_new_template_keeps_the_schedule_and_what_was_recorded() -> None:
    old = hourly(suspended=True, last_scheduled_at=after(hours=1))

    change = apply(old, hourly(template=a_template(revision="r2")), now=after(hours=2))

    assert change.outcome is Outcome.UPDATED
    assert change.job.suspended
    assert change.job.last_scheduled_at == after(hours=1)
    assert change.job.created_at == NOON
    assert change.job.updated_at == after(hours=2)


@pytest.mark.parametrize(
    "schedule", [Schedule("*/5 * * * *"), Schedule("0 * * * *", "Asia/Kolkata")]
)
def test_occurrences_before_the_change_of_a_schedule_are_not_started(schedule: Schedule) -> None:
    now = after(hours=3, minutes=59)

    changed = apply(hourly(last_scheduled_at=NOON), a_job(schedule), now=now).job

    assert changed.last_scheduled_at == now
    assert due(changed, (), now) is None


def test_occurrences_of_a_suspended_job_are_not_started_later() -> None:
    suspended = suspend(hourly(), suspended=True, now=after(minutes=1)).job
    assert due(suspended, (), after(hours=1)) is None

    resumed = suspend(suspended, suspended=False, now=after(hours=1, minutes=1))

    assert [event.kind for event in resumed.events] == [EventKind.JOB_RESUMED]
    assert due(resumed.job, (), after(hours=1, minutes=2)) is None
    assert due(resumed.job, (), after(hours=2)) is not None


def test_suspending_twice_changes_nothing() -> None:
    job = hourly(suspended=True)

    assert suspend(job, suspended=True, now=after(hours=1)).outcome is Outcome.UNCHANGED


def test_a_run_on_request_has_the_second_in_its_id() -> None:
    run, event = run_now(a_job(), (), now=after(seconds=5))

    assert run.run_id == "backup-20300601120005"
    assert run.scheduled_at is None
    assert event.kind is EventKind.RUN_STARTED


def test_two_runs_in_the_same_second_have_different_ids() -> None:
    first, _ = run_now(a_job(), (), now=NOON)
    second, _ = run_now(a_job(), (first,), now=NOON)

    assert second.run_id == "backup-20300601120001"


def test_a_run_on_request_starts_beside_others_and_while_suspended() -> None:
    run, _ = run_now(hourly(suspended=True), (a_run(),), now=NOON)

    assert run.state is RunState.RUNNING


def test_too_many_runs_are_refused() -> None:
    running = [a_run(f"backup-{number}") for number in range(RUNNING_MAX)]

    with pytest.raises(RefusedError, match="50 runs of job backup are in progress"):
        run_now(a_job(), running, now=NOON)


def test_a_cancelled_run_keeps_its_attempts() -> None:
    run, event = cancel(a_run(next_index=1), now=after(minutes=1))

    assert (run.state, run.ended_at, run.next_index) == (RunState.CANCELLED, after(minutes=1), 1)
    assert event.kind is EventKind.RUN_CANCELLED


def test_a_run_that_has_ended_cannot_be_cancelled() -> None:
    with pytest.raises(RefusedError, match="run backup-1 has ended: Succeeded"):
        cancel(a_run(state=RunState.SUCCEEDED), now=NOON)


def test_a_job_that_is_being_deleted_accepts_no_change() -> None:
    job = delete(a_job(), now=NOON).job

    assert delete(job, now=NOON).outcome is Outcome.UNCHANGED
    for change in (
        lambda: apply(job, a_job(), now=NOON),
        lambda: suspend(job, suspended=True, now=NOON),
        lambda: run_now(job, (), now=NOON),
    ):
        with pytest.raises(RefusedError, match="job backup is being deleted"):
            change()


def finished(name: str, ended_at: datetime) -> Run:
    return a_run(name, RunState.FAILED, ended_at=ended_at)


def test_finished_runs_beyond_keep_expire_oldest_first() -> None:
    runs = [finished(f"backup-{hour}", after(hours=hour)) for hour in (3, 1, 2)]

    assert [run.run_id for run in expired(a_job(keep=1), [*runs, a_run("backup-9")])] == [
        "backup-1",
        "backup-2",
    ]
    assert expired(a_job(keep=3), runs) == []


def test_all_finished_runs_of_a_deleted_job_expire() -> None:
    runs = [finished("backup-1", NOON), a_run("backup-2")]

    assert expired(a_job(deleting=True), runs) == runs[:1]
    ((run, _),) = ended_by_deletion(a_job(deleting=True), runs, NOON)
    assert (run.run_id, run.state) == ("backup-2", RunState.CANCELLED)


def test_runs_without_a_job_are_kept_by_the_default() -> None:
    runs = [finished(f"backup-{number}", after(hours=number)) for number in range(12)]

    assert len(expired(None, runs)) == 2
    assert ended_by_deletion(None, [a_run()], NOON) == []


def test_a_recovery_skips_the_occurrences_since_the_snapshot_with_one_event() -> None:
    job, event = recovered_job(hourly(last_scheduled_at=NOON), after(hours=3, minutes=5))

    assert job.last_scheduled_at == after(hours=3, minutes=5)
    assert event is not None
    assert event.kind is EventKind.JOB_OCCURRENCES_SKIPPED
    assert event.message.startswith(
        "3 occurrences of job backup skipped: the cluster was recovered"
    )
    assert due(job, (), after(hours=3, minutes=6)) is None


@pytest.mark.parametrize(
    "job",
    [a_job(), hourly(last_scheduled_at=after(days=9)), hourly(suspended=True)],
    ids=["no schedule", "recorded later", "suspended"],
)
def test_a_recovery_tells_nothing_of_a_job_without_missed_occurrences(job: Job) -> None:
    recovered, event = recovered_job(job, after(hours=3))

    assert event is None
    assert due(recovered, (), after(hours=3)) is None


def test_a_recovery_marks_only_runs_in_progress() -> None:
    ended = a_run("backup-2", RunState.SUCCEEDED)

    assert recovered_runs([a_run(), ended], NOON) == [replace(a_run(), recovered_at=NOON), ended]
