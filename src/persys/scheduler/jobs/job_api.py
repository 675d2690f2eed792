"""The RPCs of jobs, and their views."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

from persys.core.federation.cluster_ids import HOME_STOP_AFTER
from persys.core.federation.scope import check_scope
from persys.core.jobs.changes import JobChange, Outcome
from persys.core.jobs.checks import check_job_id
from persys.core.jobs.schedule import next_occurrence
from persys.core.reconcile.situation import COMPLETED
from persys.errors import InvalidError
from persys.infra.aio.offload import TimeSlice, off_loop
from persys.infra.clock import Clock
from persys.model.job import Job, JobId, Run
from persys.model.secret import Secret
from persys.model.sets import Template
from persys.scheduler.api.methods import Context, need
from persys.scheduler.auth.prefix_scope import current_prefix
from persys.scheduler.jobs.jobs import Jobs
from persys.scheduler.reconcile.intent import check_stop_after
from persys.scheduler.secrets.references import check_stored
from persys.scheduler.state.cluster import ClusterState, WorkloadState
from persys.scheduler.state.runs import run_name
from persys.wire.control.jobs import job_of, job_view, member_view, run_view
from persys.wire.control.sets import in_template, template_of
from persys.wire.control.spec_decode import holds_yaml, parse_spec
from persys.wire.gen.control.v1 import control_pb2

MEMBERS_SHOWN_MAX = 1000  # of all runs of a job, the newest first


class JobRequests:
    """Parses and checks the jobs that callers send."""

    def __init__(self, *, lease: timedelta, secrets: Mapping[str, Secret]) -> None:
        self._lease = lease
        self._secrets = secrets

    async def parse(self, message: control_pb2.JobSpec, *, prefix: str) -> Job:
        """`prefix`: the only names that the caller may use; "": all. Raises InvalidError."""
        need(message.job_id, "job.job_id")
        check_job_id(message.job_id)
        if not message.HasField("template"):
            need("", "job.template")
        return job_of(message, await self._template(message.template, prefix=prefix))

    async def _template(self, message: control_pb2.WorkloadSpec, *, prefix: str) -> Template:
        try:
            check_stop_after(message.stop_after_seconds, self._lease)
            if holds_yaml(message):
                parsed = await off_loop(partial(parse_spec, message))
            else:
                parsed = parse_spec(message)
            check_scope(prefix, parsed.spec, parsed.rules, parsed.metadata)
            if HOME_STOP_AFTER in parsed.metadata:
                raise InvalidError(
                    f"spec.metadata[{HOME_STOP_AFTER!r}]",
                    "is not allowed in a template: the scheduler would stop members of a run",
                )
            check_stored(parsed.spec, self._secrets)
        except InvalidError as err:
            raise in_template(err, "job") from err
        return template_of(parsed)


def in_job(err: InvalidError) -> InvalidError:
    """The error of a field of a job, with its full path in the request."""
    if err.field == "job" or err.field.startswith("job."):
        return err
    return InvalidError(f"job.{err.field}", err.problem)


class JobViews:
    def __init__(self, cluster: ClusterState, jobs: Jobs, clock: Clock) -> None:
        self._cluster = cluster
        self._jobs = jobs
        self._clock = clock

    def summary(self, job: Job) -> control_pb2.JobView:
        """With the newest run only, without its members."""
        runs = islice(self._jobs.runs(job.job_id), 1)
        return job_view(job, map(run_view, runs), next_run_at=self._next_run_at(job))

    def complete(self, job: Job) -> control_pb2.JobView:
        views: list[control_pb2.RunView] = []
        left = MEMBERS_SHOWN_MAX
        for run in self._jobs.runs(job.job_id):
            members = list(islice(self._members(run), left))
            left -= len(members)
            members.sort(key=lambda one: (one.index, one.attempt))
            views.append(run_view(run, members))
        return job_view(job, views, next_run_at=self._next_run_at(job))

    def _next_run_at(self, job: Job) -> datetime | None:
        try:
            return next_occurrence(job, self._clock.now())
        except InvalidError:
            return None  # this machine does not know the time zone

    def _members(self, run: Run) -> Iterator[control_pb2.RunMemberView]:
        """Those that have not succeeded first: the list may be cut."""
        workloads = self._cluster.workloads
        succeeded: list[WorkloadState] = []
        for workload_id in self._cluster.members.of(run_name(run)):
            entry = workloads[workload_id]
            status = entry.workload_status
            if status is not None and status.code == COMPLETED:
                succeeded.append(entry)
            else:
                yield _member_view(entry)
        yield from map(_member_view, succeeded)


def _member_view(entry: WorkloadState) -> control_pb2.RunMemberView:
    node_id = entry.assignment.node_id if entry.assignment is not None else ""
    return member_view(entry.workload, entry.workload_status, node_id)


class JobsApi:
    def __init__(self, requests: JobRequests, jobs: Jobs, views: JobViews, clock: Clock) -> None:
        self._requests = requests
        self._jobs = jobs
        self._views = views
        self._clock = clock

    async def ApplyJob(
        self, request: control_pb2.ApplyJobRequest, context: Context
    ) -> control_pb2.JobAnswer:
        try:
            wanted = await self._requests.parse(request.job, prefix=current_prefix())
            change = await self._jobs.apply(wanted)
        except InvalidError as err:
            raise in_job(err) from err
        return self._answer(change, outcome=change.outcome)

    async def ListJobs(
        self, request: control_pb2.ListJobsRequest, context: Context
    ) -> control_pb2.ListJobsResponse:
        slices, response = TimeSlice(self._clock), control_pb2.ListJobsResponse()
        for job in self._jobs.all():
            response.jobs.append(self._views.summary(job))
            await slices.between()
        return response

    async def GetJob(
        self, request: control_pb2.GetJobRequest, context: Context
    ) -> control_pb2.GetJobResponse:
        need(request.job_id, "job_id")
        return control_pb2.GetJobResponse(job=self._views.complete(self._jobs.get(request.job_id)))

    async def DeleteJob(
        self, request: control_pb2.JobRequest, context: Context
    ) -> control_pb2.JobAnswer:
        need(request.job_id, "job_id")
        return self._answer(await self._jobs.delete(JobId(request.job_id)))

    async def RunJob(
        self, request: control_pb2.JobRequest, context: Context
    ) -> control_pb2.JobAnswer:
        """`reason` names other runs that are in progress; the run is started all the same."""
        need(request.job_id, "job_id")
        job_id = JobId(request.job_id)
        run, others = await self._jobs.run_now(job_id)
        return control_pb2.JobAnswer(
            accepted=True,
            reason=_others_text(others),
            job=self._views.summary(self._jobs.get(job_id)),
            run_id=run.run_id,
        )

    async def SuspendJob(
        self, request: control_pb2.SuspendJobRequest, context: Context
    ) -> control_pb2.JobAnswer:
        need(request.job_id, "job_id")
        change = await self._jobs.suspend(JobId(request.job_id), suspended=request.suspended)
        return self._answer(change)

    async def CancelRun(
        self, request: control_pb2.CancelRunRequest, context: Context
    ) -> control_pb2.JobAnswer:
        need(request.job_id, "job_id")
        need(request.run_id, "run_id")
        job = await self._jobs.cancel(JobId(request.job_id), request.run_id)
        return control_pb2.JobAnswer(
            accepted=True, job=self._views.summary(job), run_id=request.run_id
        )

    def _answer(self, change: JobChange, outcome: Outcome | None = None) -> control_pb2.JobAnswer:
        return control_pb2.JobAnswer(
            accepted=True, job=self._views.summary(change.job), outcome=outcome or ""
        )


def _others_text(others: list[Run]) -> str:
    if not others:
        return ""
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return f"run {others[0].run_id}{more} is in progress too"
