"""`persysctl job`: list, get, run, logs, suspend, resume, cancel and delete jobs."""

import sys
from argparse import Namespace
from datetime import datetime

from persys.cli.commands.lookup import get_job
from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.ages import BLANK, age, short_duration, timestamp
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import (
    Column,
    cropped,
    key_value_lines,
    render_list,
    render_one,
    table,
)
from persys.errors import NotFoundError, RefusedError
from persys.infra.clock import SystemClock
from persys.wire.gen.control.v1.control_pb2 import JobView, RunMemberView, RunView

RUNNING = "Running"
_COLUMNS: tuple[Column[JobView], ...] = (
    Column("ID", lambda job, now: job.spec.job_id),
    Column("TYPE", lambda job, now: job.type),
    Column("SCHEDULE", lambda job, now: _schedule_text(job) or BLANK),
    Column("STATE", lambda job, now: _state(job)),
    Column("LAST RUN", lambda job, now: _last_run_text(job, now)),
    Column("NEXT RUN", lambda job, now: _next_run_text(job, now) or BLANK),
    Column("AGE", lambda job, now: age(job, "created_at", now=now)),
    Column("TIMEZONE", lambda job, now: job.spec.schedule.timezone or BLANK, wide=True),
    Column("RETRIES", lambda job, now: str(job.spec.retries), wide=True),
)
_RUN_COLUMNS: tuple[Column[RunView], ...] = (
    Column("RUN", lambda run, now: run.run_id),
    Column("STATE", lambda run, now: run.state),
    Column("SUCCEEDED", lambda run, now: str(run.succeeded_count)),
    Column("FAILED", lambda run, now: str(run.failed_count)),
    Column("ACTIVE", lambda run, now: str(run.active_count)),
    Column("STARTED", lambda run, now: age(run, "started_at", now=now)),
    Column("DURATION", lambda run, now: _duration_text(run, now)),
    Column("BY", lambda run, now: "schedule" if run.HasField("scheduled_at") else "request"),
    Column("REASON", lambda run, now: cropped(run.reason) or BLANK),
)
_MEMBER_COLUMNS: tuple[Column[RunMemberView], ...] = (
    Column("MEMBER", lambda member, now: member.workload_id),
    Column("INDEX", lambda member, now: str(member.index)),
    Column("ATTEMPT", lambda member, now: str(member.attempt)),
    Column("STATUS", lambda member, now: member.status),
    Column("NODE", lambda member, now: member.node_id or BLANK),
    Column("REASON", lambda member, now: cropped(member.reason) or BLANK),
)


def list_jobs(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            client.list_jobs,
            lambda found: render_list(
                found, options, columns=_COLUMNS, name=_name, empty="no jobs"
            ),
            watch=options.watch,
        )


def get(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: get_job(client, options.id),
            lambda job: render(job, options),
            watch=options.watch,
        )


def run(options: Namespace) -> int:
    from persys.cli.commands.job_wait import RunWait  # start-up time
    from persys.cli.commands.workload_change import JOB_PREFIX, Change, Changes, finish

    with scheduler_client(options) as client:
        changes = Changes(client, options)

        def send() -> tuple[Change, RunWait]:
            answer = client.run_job(options.id)
            if answer.reason:
                print(f"note: {answer.reason}", file=sys.stderr)
            return Change(f"run {answer.run_id} started"), RunWait(options.id, answer.run_id)

        changes.request(JOB_PREFIX + options.id, send)
        return finish(changes.wait(announce=True), options)


def logs(options: Namespace) -> ExitCode:
    from persys.cli.commands.logs import checked  # start-up time
    from persys.cli.commands.member_logs import members_of, show_members

    since = checked(options)
    with scheduler_client(options) as client:
        job = get_job(client, options.id)
        run_id = find_run(job, options.run_id).run_id  # --follow stays with this run
        return show_members(
            client,
            options,
            since,
            lambda: members_of(client.get_job(options.id), run_id),
            prefixed=job.spec.completions > 1,
        )


def suspend(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        client.suspend_job(options.id, suspended=True)
    print(f"job {options.id} is suspended: its schedule starts no runs")
    return ExitCode.OK


def resume(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        job = client.suspend_job(options.id, suspended=False)
    after = _next_run_text(job, SystemClock().now())
    print(f"job {options.id} is resumed{after and f'; the next run starts {after}'}")
    return ExitCode.OK


def cancel(options: Namespace) -> ExitCode:
    """Cancel one run, or all that are in progress."""
    with scheduler_client(options) as client:
        job = get_job(client, options.id)
        running = [one.run_id for one in job.runs if one.state == RUNNING]
        chosen = [options.run_id] if options.run_id else running
        if not chosen:
            raise RefusedError(f"no run of job {options.id} is in progress")
        for run_id in chosen:
            client.cancel_run(options.id, run_id)
            print(f"run {run_id} is cancelled")
    return ExitCode.OK


def delete(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        for job_id in options.ids:
            client.delete_job(job_id)
            print(f"job/{job_id}: being deleted")
    return ExitCode.OK


def find_run(job: JobView, run_id: str) -> RunView:
    """The run, or the newest one. Raises NotFoundError."""
    if not run_id and not job.runs:
        name = job.spec.job_id
        raise RefusedError(f"job {name} has no runs; start one with `persysctl job run {name}`")
    for found in job.runs:
        if found.run_id == run_id or not run_id:
            return found
    raise NotFoundError("run", run_id)


def render(job: JobView, options: Namespace) -> str:
    if options.output == "yaml":
        from persys.wire.specfile.export import job_text  # imported only when needed

        return job_text(job).rstrip("\n")
    return render_one(job, options, describe=_describe, name=_name)


def _name(job: JobView) -> str:
    return job.spec.job_id


def _describe(job: JobView, now: datetime, wide: bool) -> str:
    spec = job.spec
    facts = key_value_lines(
        (
            ("Id", spec.job_id),
            ("Type", job.type),
            ("State", _state(job)),
            ("Schedule", _schedule_text(job)),
            ("Time zone", spec.schedule.timezone),
            ("Next run", _next_run_text(job, now)),
            ("Members", f"{spec.completions or 1}, {spec.parallelism or 1} at the same time"),
            ("Retries", str(spec.retries)),
            ("Deadline", short_duration(spec.deadline_seconds) if spec.deadline_seconds else ""),
            ("Created", f"{age(job, 'created_at', now=now)} ago"),
        )
    )
    parts = [facts]
    if job.runs:
        parts.append(table(_RUN_COLUMNS, list(job.runs), now))
    shown = [one for one in job.runs if wide or one.state == RUNNING] or list(job.runs[:1])
    members = [member for one in shown for member in one.members]
    if members:
        parts.append(table(_MEMBER_COLUMNS, members, now))
    if wide:
        from persys.cli.framework.output import dump, to_dict

        text = dump(to_dict(spec.template), "yaml")
        parts.append("Template:\n" + "\n".join(f"  {line}" for line in text.splitlines()))
    return "\n\n".join(parts)


def _state(job: JobView) -> str:
    if job.deleting:
        return "Deleting"
    if any(one.state == RUNNING for one in job.runs):
        return RUNNING
    return "Suspended" if job.suspended else "Idle"


def _schedule_text(job: JobView) -> str:
    return job.spec.schedule.cron


def _last_run_text(job: JobView, now: datetime) -> str:
    if not job.runs:
        return BLANK
    return f"{job.runs[0].state}, {age(job.runs[0], 'started_at', now=now)} ago"


def _next_run_text(job: JobView, now: datetime) -> str:
    at = timestamp(job, "next_run_at")
    if at is None or job.suspended:
        return ""
    return f"in {short_duration((at - now).total_seconds())}"


def _duration_text(run: RunView, now: datetime) -> str:
    started, ended = timestamp(run, "started_at"), timestamp(run, "ended_at")
    if started is None:
        return BLANK
    return short_duration(((ended or now) - started).total_seconds())
