"""Ids and numbers of the members of a run, and their intents from the template.

The number of an attempt follows from its index and the attempt: `index + (attempt - 1) * completions`. An
attempt is recorded before its workload is created, so a creation that was interrupted is repeated with the
same id, and another attempt never has it.
"""

from datetime import UTC, datetime, timedelta
from math import ceil

from msgspec.structs import replace

from persys.core.jobs.situation import AttemptKey
from persys.core.sets.members import with_index
from persys.model.ids import WorkloadId
from persys.model.job import JobId, Run, RunId
from persys.model.spec import ComposeSpec, RestartPolicy, Spec
from persys.model.workload import Membership, Workload

_ONCE = RestartPolicy("no")


def scheduled_run_id(job_id: JobId, occurrence: datetime) -> RunId:
    return RunId(f"{job_id}-{occurrence.astimezone(UTC):%Y%m%d%H%M}")


def requested_run_id(job_id: JobId, at: datetime) -> RunId:
    """It has two digits more than that of an occurrence: the ids never collide."""
    return RunId(f"{job_id}-{at.astimezone(UTC):%Y%m%d%H%M%S}")


def number_of(run: Run, key: AttemptKey) -> int:
    return key.index + (key.attempt - 1) * run.completions


def member_id(run: Run, key: AttemptKey) -> WorkloadId:
    return WorkloadId(f"{run.run_id}-{number_of(run, key)}")


def membership(run: Run, key: AttemptKey) -> Membership:
    return Membership(
        owner=run.run_id,
        index=key.index,
        number=number_of(run, key),
        revision=key.attempt,
        job_id=run.job_id,
    )


def member_workload(run: Run, key: AttemptKey, now: datetime) -> Workload:
    """The intent of an attempt. Only the retries of the run start it again."""
    template = run.template
    return Workload(
        id=member_id(run, key),
        spec=with_index(_run_once(template.spec), key.index),
        revision=template.revision,
        created_at=now,
        updated_at=now,
        resources=template.resources,
        metadata=template.metadata,
        rules=template.rules,
        membership=membership(run, key),
        run_deadline_seconds=seconds_left(run, now),
        networks=template.networks,
    )


def _run_once(spec: Spec) -> Spec:
    """The restart policies of a Compose stack are in its file."""
    return spec if isinstance(spec, ComposeSpec) else replace(spec, restart=_ONCE)


def ends_by(run: Run) -> datetime | None:
    """The deadline of the run. None: it has none."""
    if not run.deadline_seconds:
        return None
    return run.started_at + timedelta(seconds=run.deadline_seconds)


def seconds_left(run: Run, now: datetime) -> int:
    """Until the deadline of the run, at least 1; 0: it has none."""
    deadline = ends_by(run)
    return max(1, ceil((deadline - now).total_seconds())) if deadline is not None else 0
