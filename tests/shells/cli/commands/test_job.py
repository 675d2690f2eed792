"""Jobs: list, get, run, suspend, resume, cancel and delete; `get` and `delete` with the name of a job."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from persys.wire.gen.control.v1.control_pb2 import FailureReason, RunMemberView
from shells.cli.commands.test_set import next_commands
from shells.cli.sets_and_jobs import a_job, a_run

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run

RUN = "backup-20261118030000"
BACKUP = (
    "id: backup\n"
    "job: {completions: 2, retries: 1}\n"
    'schedule: "0 3 * * *"\n'
    "container: {image: 'backup:1'}\n"
)


def test_jobs_are_listed_with_their_last_run(cluster: Cluster, ctl: Run) -> None:
    backup = a_job("backup", a_run("backup-1", "Failed"))
    backup.spec.schedule.cron = "0 3 * * *"
    cluster.jobs = {"backup": backup, "once": a_job("once", suspended=True)}

    titles, first, second = ctl("job", "list").out.splitlines()

    assert titles.split() == [
        "ID",
        "TYPE",
        "SCHEDULE",
        "STATE",
        "LAST",
        "RUN",
        "NEXT",
        "RUN",
        "AGE",
    ]
    assert re.match(r"backup +container +0 3 \* \* \* +Idle +Failed, \d+d ago +- ", first)
    assert second.split()[:5] == ["once", "container", "-", "Suspended", "-"]
    assert ctl("job", "list", "-o", "name").out == "backup\nonce\n"


@pytest.mark.parametrize("words", ["job get backup", "get backup", "get cronjob/backup"])
def test_a_job_is_shown_with_its_runs_and_members(words: str, cluster: Cluster, ctl: Run) -> None:
    member = RunMemberView(
        workload_id="backup-2-1", index=1, attempt=2, status="Running", node_id="n1"
    )
    cluster.jobs = {
        "backup": a_job(
            "backup",
            a_run("backup-2", "Running", active_count=1, succeeded_count=1, members=[member]),
            a_run("backup-1", "Failed", failed_count=2, reason="exit code 3"),
        )
    }

    shown = ctl(*words.split()).out

    for fact in (
        r"State: +Running",
        r"Members: +1, 1 at the same time",
        r"backup-2 +Running +1 +0 +1 ",
        r"backup-1 +Failed +0 +2 +0 .*exit code 3",
        r"backup-2-1 +1 +2 +Running +n1",
    ):
        assert re.search(fact, shown), fact


def test_a_shown_job_is_applied_unchanged(cluster: Cluster, ctl: Run) -> None:
    created = ctl("apply", "-f", "-", stdin=BACKUP)
    shown = ctl("job", "get", "backup", "-o", "yaml")
    again = ctl("apply", "-f", "-", stdin=shown.out)
    changed = ctl("apply", "-f", "-", "--set", "job.retries=3", stdin=BACKUP)

    assert created.out == "job/backup: created\n"
    assert shown.out.startswith(
        "kind: job\nid: backup\njob:\n  completions: 2\n  retries: 1\nschedule: 0 3 * * *\n"
    )
    assert again.out == "job/backup: unchanged\n"
    assert changed.out == "job/backup: updated\n    ~ job.retries  1 -> 3\n"


def test_a_run_is_started(cluster: Cluster, ctl: Run) -> None:
    cluster.jobs = {"backup": a_job()}

    result = ctl("job", "run", "backup")

    assert result.out == f"job/backup: run {RUN} started\n"
    assert cluster.job_calls == [("run", "backup", "")]


def test_a_run_is_waited_for(cluster: Cluster, ctl: Run) -> None:
    pending = RunMemberView(workload_id=f"{RUN}-0", attempt=1, status="Pending")
    running = RunMemberView(workload_id=f"{RUN}-0", attempt=1, status="Running")
    job = a_job()
    job.spec.retries = 2
    cluster.jobs = {"backup": job}
    view = cluster.add_workload(f"{RUN}-0", "Pending")
    view.reason.code, view.reason.message = "Pulling", "pulling backup"
    for members in ([pending], [running]):
        one = a_job("backup", a_run(RUN, "Running", members=members))
        one.spec.retries = 2
        cluster.next_jobs.append(one)
    cluster.next_jobs.append(a_job("backup", a_run(RUN, succeeded_count=1)))

    result = ctl("job", "run", "backup", "--wait")

    assert result.code == 0, result.err
    assert result.out == (
        f"job/backup: run {RUN} started\n"
        f"{RUN}: Running (0 of 1 succeeded)\n"
        f"{RUN}-0: pull (backup)\n"
        f"{RUN}-0: Running (attempt 1 of 3)\n"
        f"job/backup: run {RUN} succeeded (1 of 1 succeeded)\n"
    )
    assert next_commands(result.err) == [f"persysctl job logs backup {RUN}"]


@pytest.mark.parametrize(
    ("state", "reason", "code", "error"),
    [
        ("Failed", "member 0: exit code 3", 1, f"run {RUN} failed: member 0: exit code 3"),
        ("Cancelled", "", 1, f"run {RUN} cancelled: 0 of 1 succeeded"),
        ("Running", "", 3, "Running: timed out after 300ms; 0 of 1 succeeded"),
    ],
)
def test_a_run_that_does_not_succeed_ends_the_wait_with_its_reason(
    state: str, reason: str, code: int, error: str, cluster: Cluster, ctl: Run
) -> None:
    cluster.jobs = {"backup": a_job("backup", a_run(RUN, state, reason=reason))}

    result = ctl("job", "run", "backup", "--wait", "300ms")

    assert result.code == code
    assert f"error: job/backup: {error}\n" in result.err
    assert next_commands(result.err) == [f"persysctl job logs backup {RUN}"]


def test_a_job_is_suspended_and_resumed(cluster: Cluster, ctl: Run) -> None:
    job = a_job()
    job.next_run_at.FromSeconds(4_000_000_000)
    cluster.jobs = {"backup": job}

    suspended = ctl("job", "suspend", "backup")
    resumed = ctl("job", "resume", "backup")

    assert suspended.out == "job backup is suspended: its schedule starts no runs\n"
    assert re.fullmatch(r"job backup is resumed; the next run starts in \d+d\n", resumed.out), (
        resumed.out
    )
    assert cluster.job_calls == [("suspend", "backup", "True"), ("suspend", "backup", "False")]


def test_runs_in_progress_are_cancelled(cluster: Cluster, ctl: Run) -> None:
    cluster.jobs = {
        "backup": a_job(
            "backup", a_run("r3", "Running"), a_run("r2", "Running"), a_run("r1", "Failed")
        )
    }

    every = ctl("job", "cancel", "backup")
    one = ctl("job", "cancel", "backup", "r2")

    assert every.out == "run r3 is cancelled\nrun r2 is cancelled\n"
    assert one.out == "run r2 is cancelled\n"
    cluster.jobs = {"backup": a_job()}
    assert ctl("job", "cancel", "backup").err == "error: no run of job backup is in progress\n"


def test_a_job_is_deleted_by_its_group_and_by_delete(cluster: Cluster, ctl: Run) -> None:
    cluster.jobs = {"backup": a_job()}

    assert ctl("job", "delete", "backup").out == "job/backup: being deleted\n"
    assert ctl("delete", "backup").out == "job/backup: being deleted\n"
    assert cluster.job_calls == [("delete", "backup", "")] * 2


@pytest.mark.parametrize("words", ["get", "run", "suspend", "cancel", "delete", "logs"])
def test_an_unknown_job_is_named(words: str, ctl: Run) -> None:
    result = ctl("job", words, "nothing")

    assert result.code == 1
    assert "job not found: nothing" in result.err


def test_a_name_that_is_not_a_job_is_explained(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("db")

    assert ctl("job", "get", "db").err == (
        "error: job not found: db; it is a workload: see `persysctl get db`\n"
    )


@pytest.mark.parametrize("words", ["stop backup", "start backup", "restart backup"])
def test_a_command_for_workloads_names_the_commands_for_a_job(
    words: str, cluster: Cluster, ctl: Run
) -> None:
    cluster.jobs = {"backup": a_job()}
    cluster.refusal = FailureReason.INVALID_SPEC, "workload not found: backup"

    result = ctl(*words.split())

    assert result.code == 1
    assert "backup is a job: use `persysctl job run`" in result.err
