"""Runs in memory: by name and by job."""

from msgspec.structs import replace

from job_builders import a_run
from persys.model.job import JobId
from persys.scheduler.state.runs import Runs, run_name


def test_runs_are_found_by_name_and_by_job() -> None:
    runs, first = Runs(), a_run("backup-1")
    other = replace(a_run("other-1"), job_id=JobId("other"))
    for run in (first, other):
        runs.put(run)

    assert runs.get("backup/backup-1") is first
    assert "other/other-1" in runs
    assert "backup/other-1" not in runs
    assert list(runs.of("backup")) == [first]
    assert len(runs) == 2
    assert set(runs.job_ids()) == {"backup", "other"}


def test_a_run_is_replaced_and_dropped() -> None:
    runs, first = Runs(), a_run("backup-1")
    runs.put(first)
    changed = replace(first, reason="x")

    runs.put(changed)
    assert list(runs.all()) == [changed]
    runs.drop(run_name(changed))
    runs.drop("backup/missing")

    assert len(runs) == 0
    assert list(runs.of("backup")) == []
    assert list(runs.job_ids()) == []
