"""Messages of jobs: the job of a user, decoded into the model, and the views of jobs and runs.

`core/jobs/checks.py` checks the values; here only words are parsed.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from persys.core.jobs import indexes
from persys.errors import InvalidError
from persys.model.job import (
    KEEP_DEFAULT,
    START_WITHIN_SECONDS_DEFAULT,
    Job,
    JobId,
    Overlap,
    Run,
    RunState,
    Schedule,
)
from persys.model.sets import Template
from persys.model.spec import type_of
from persys.model.status import Status, WorkloadStatus
from persys.model.workload import Workload
from persys.wire.control.sets import template_message
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import timestamp

_OVERLAPS: Mapping[str, Overlap] = {"": Overlap.FORBID, **{one.value: one for one in Overlap}}
_UNKNOWN = datetime(1970, 1, 1, tzinfo=UTC)  # the times of a job that is not stored yet


def job_of(message: control_pb2.JobSpec, template: Template) -> Job:
    return Job(
        JobId(message.job_id),
        template,
        created_at=_UNKNOWN,
        updated_at=_UNKNOWN,
        completions=message.completions or 1,
        parallelism=message.parallelism or 1,
        retries=message.retries,
        deadline_seconds=message.deadline_seconds,
        keep=message.keep or KEEP_DEFAULT,
        fail_on=tuple(sorted(set(message.fail_on))),
        schedule=_schedule_of(message.schedule) if message.HasField("schedule") else None,
    )


def _schedule_of(message: control_pb2.JobSchedule) -> Schedule:
    overlap = _OVERLAPS.get(message.overlap)
    if overlap is None:
        expected = ", ".join(one.value for one in Overlap)
        raise InvalidError(
            "schedule.overlap", f"invalid overlap {message.overlap[:80]!r}: expected {expected}"
        )
    return Schedule(
        message.cron,
        message.timezone,
        overlap,
        message.start_within_seconds or START_WITHIN_SECONDS_DEFAULT,
    )


def job_message(job: Job) -> control_pb2.JobSpec:
    message = control_pb2.JobSpec(
        job_id=job.job_id,
        template=template_message(job.template),
        completions=job.completions,
        parallelism=job.parallelism,
        retries=job.retries,
        deadline_seconds=job.deadline_seconds,
        keep=job.keep,
        fail_on=job.fail_on,
    )
    if job.schedule is not None:
        message.schedule.CopyFrom(
            control_pb2.JobSchedule(
                cron=job.schedule.cron,
                timezone=job.schedule.timezone,
                overlap=job.schedule.overlap.value,
                start_within_seconds=job.schedule.start_within_seconds,
            )
        )
    return message


def job_view(
    job: Job, runs: Iterable[control_pb2.RunView], *, next_run_at: datetime | None
) -> control_pb2.JobView:
    view = control_pb2.JobView(
        spec=job_message(job),
        type=type_of(job.template.spec),
        suspended=job.suspended,
        deleting=job.deleting,
        created_at=timestamp(job.created_at),
        updated_at=timestamp(job.updated_at),
        runs=runs,
    )
    if job.last_scheduled_at is not None:
        view.last_scheduled_at.CopyFrom(timestamp(job.last_scheduled_at))
    if next_run_at is not None:
        view.next_run_at.CopyFrom(timestamp(next_run_at))
    return view


def member_view(
    workload: Workload, status: WorkloadStatus | None, node_id: str
) -> control_pb2.RunMemberView:
    assert workload.membership is not None
    return control_pb2.RunMemberView(
        workload_id=workload.id,
        index=workload.membership.index,
        attempt=workload.membership.revision,
        status=status.status if status is not None else Status.PENDING,
        node_id=node_id,
        reason=status.message if status is not None else "",
    )


def run_view(run: Run, members: Iterable[control_pb2.RunMemberView] = ()) -> control_pb2.RunView:
    view = control_pb2.RunView(
        run_id=run.run_id,
        state=run.state.value,
        reason=run.reason,
        started_at=timestamp(run.started_at),
        succeeded_count=indexes.size(run.succeeded),
        failed_count=indexes.size(run.failed),
        active_count=len(run.members) if run.state is RunState.RUNNING else 0,
        members=members,
    )
    if run.scheduled_at is not None:
        view.scheduled_at.CopyFrom(timestamp(run.scheduled_at))
    if run.ended_at is not None:
        view.ended_at.CopyFrom(timestamp(run.ended_at))
    return view
