"""Sets and jobs of the stub cluster: scripted answers, and the requests that were made."""

# ruff: noqa: N802  # the contract names the methods

from dataclasses import dataclass, field

import grpc

from persys.wire.gen.control.v1 import control_pb2

NOW_SECONDS = 1_700_000_000
SetMessage = control_pb2.SetRequest | control_pb2.ScaleSetRequest | control_pb2.UndoRolloutRequest
JobMessage = control_pb2.JobRequest | control_pb2.SuspendJobRequest | control_pb2.CancelRunRequest


def a_member(
    set_id: str, index: int, health: str = "healthy", **fields: object
) -> control_pb2.MemberView:
    return control_pb2.MemberView(
        **{  # type: ignore[arg-type]  # the stubs want each by name
            "workload_id": f"{set_id}-{index}",
            "index": index,
            "revision": 1,
            "status": "Running",
            "node_id": "n1",
            "health": health,
            **fields,
        }
    )


def a_set(
    set_id: str = "web",
    *,
    phase: str = "Steady",
    members: int = 2,
    revision: int = 1,
    stable: int = 1,
    **fields: object,
) -> control_pb2.SetView:
    """A set whose members are all healthy, at the stable revision."""
    view = control_pb2.SetView(
        **{  # type: ignore[arg-type]  # the stubs want each by name
            "type": "container",
            "desired_state": "Running",
            "phase": phase,
            "target_revision": revision,
            "stable_revision": stable,
            "member_count_wanted": members,
            "members": [a_member(set_id, index, revision=stable) for index in range(members)],
            **fields,
        }
    )
    view.spec.set_id = set_id
    view.spec.replicas = members
    view.spec.template.type = "container"
    view.spec.template.container.image = "nginx"
    view.created_at.FromSeconds(NOW_SECONDS)
    return counted(view)


def counted(view: control_pb2.SetView) -> control_pb2.SetView:
    """The view with the counts of its members."""
    view.member_count = len(view.members)
    view.healthy_count = sum(member.health == "healthy" for member in view.members)
    view.updated_count = sum(member.revision == view.target_revision for member in view.members)
    return view


def a_run(run_id: str, state: str = "Succeeded", **fields: object) -> control_pb2.RunView:
    run = control_pb2.RunView(run_id=run_id, state=state, **fields)  # type: ignore[arg-type]  # as above
    run.started_at.FromSeconds(NOW_SECONDS)
    return run


def a_job(
    job_id: str = "backup", *runs: control_pb2.RunView, **fields: object
) -> control_pb2.JobView:
    job = control_pb2.JobView(type="container", runs=runs, **fields)  # type: ignore[arg-type]  # as above
    job.spec.job_id = job_id
    job.spec.template.type = "container"
    job.spec.template.container.image = "backup"
    job.spec.template.container.restart_policy = "no"
    job.created_at.FromSeconds(NOW_SECONDS)
    return job


@dataclass
class SetsAndJobs:
    """`next_sets` are the answers of the next GetSet calls; the last one stays."""

    sets: dict[str, control_pb2.SetView] = field(default_factory=dict)
    next_sets: list[control_pb2.SetView] = field(default_factory=list)
    applied_sets: list[control_pb2.ApplySetRequest] = field(default_factory=list)
    address: str = ""
    set_calls: list[tuple[str, str, int]] = field(default_factory=list)
    set_refusal: str = ""
    knows_sets: bool = True  # False: an older scheduler
    jobs: dict[str, control_pb2.JobView] = field(default_factory=dict)
    next_jobs: list[control_pb2.JobView] = field(default_factory=list)
    applied_jobs: list[control_pb2.ApplyJobRequest] = field(default_factory=list)
    job_calls: list[tuple[str, str, str]] = field(default_factory=list)

    def ApplySet(self, request, context):  # type: ignore[no-untyped-def]
        if self.set_refusal:
            return control_pb2.SetAnswer(reason=self.set_refusal)
        self.applied_sets.append(request)
        spec, before = request.set, self.sets.get(request.set.set_id)
        view = control_pb2.SetView()
        view.CopyFrom(before or a_set(spec.set_id, revision=0, stable=0, members=0))
        _merge(view, spec)
        if spec.HasField("template") and (before is None or before.spec.template != spec.template):
            view.target_revision += 1
            view.phase = "Rolling"
        view.desired_state = request.desired_state or view.desired_state
        view.member_count_wanted = view.spec.replicas
        same = before is not None and (before.spec, before.desired_state) == (
            view.spec,
            view.desired_state,
        )
        self.sets[spec.set_id] = view
        outcome = "unchanged" if same else "updated" if before else "created"
        return control_pb2.SetAnswer(accepted=True, set=view, outcome=outcome)

    def ListSets(self, request, context):  # type: ignore[no-untyped-def]
        self._check_version(context)
        return control_pb2.ListSetsResponse(sets=self.sets.values())

    def GetSet(self, request, context):  # type: ignore[no-untyped-def]
        self._check_version(context)
        if self.next_sets and request.set_id in self.sets:
            view = self.next_sets[0]
            self.next_sets = self.next_sets[1:] or [view]
            return control_pb2.GetSetResponse(set=view)
        if request.set_id not in self.sets:
            context.abort(grpc.StatusCode.NOT_FOUND, f"set not found: {request.set_id}")
        view = self.sets[request.set_id]
        if view.phase == "Deleting":
            del self.sets[request.set_id]
        return control_pb2.GetSetResponse(set=view)

    def DeleteSet(self, request, context):  # type: ignore[no-untyped-def]
        return self._call("delete", request, phase="Deleting")

    def ScaleSet(self, request, context):  # type: ignore[no-untyped-def]
        if request.set_id not in self.sets:
            context.abort(grpc.StatusCode.NOT_FOUND, f"set not found: {request.set_id}")
        answer = self._call("scale", request, number=request.replicas)
        answer.set.member_count_wanted = request.replicas
        return answer

    def PauseRollout(self, request, context):  # type: ignore[no-untyped-def]
        return self._call("pause", request)

    def ResumeRollout(self, request, context):  # type: ignore[no-untyped-def]
        return self._call("resume", request)

    def PromoteRollout(self, request, context):  # type: ignore[no-untyped-def]
        return self._call("promote", request)

    def UndoRollout(self, request, context):  # type: ignore[no-untyped-def]
        return self._call("undo", request, number=request.revision)

    def _check_version(self, context: grpc.ServicerContext) -> None:
        if not self.knows_sets:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    def _call(
        self, name: str, request: SetMessage, *, number: int = 0, phase: str = ""
    ) -> control_pb2.SetAnswer:
        self.set_calls.append((name, request.set_id, number))
        view = self.sets.get(request.set_id)
        if view is None or self.set_refusal:
            reason = self.set_refusal or f"set not found: {request.set_id}"
            return control_pb2.SetAnswer(reason=reason)
        view.phase = phase or view.phase
        return control_pb2.SetAnswer(accepted=True, set=view)

    def ApplyJob(self, request, context):  # type: ignore[no-untyped-def]
        self.applied_jobs.append(request)
        job_id, before = request.job.job_id, self.jobs.get(request.job.job_id)
        outcome = "created"
        if before is not None:
            outcome = "unchanged" if before.spec == request.job else "updated"
        view = control_pb2.JobView(type="container", spec=request.job)
        self.jobs[job_id] = view
        return control_pb2.JobAnswer(accepted=True, job=view, outcome=outcome)

    def ListJobs(self, request, context):  # type: ignore[no-untyped-def]
        return control_pb2.ListJobsResponse(jobs=self.jobs.values())

    def GetJob(self, request, context):  # type: ignore[no-untyped-def]
        self._check_version(context)
        if request.job_id not in self.jobs:
            context.abort(grpc.StatusCode.NOT_FOUND, f"job not found: {request.job_id}")
        if self.next_jobs:
            view = self.next_jobs[0]
            self.next_jobs = self.next_jobs[1:] or [view]
            return control_pb2.GetJobResponse(job=view)
        return control_pb2.GetJobResponse(job=self.jobs[request.job_id])

    def DeleteJob(self, request, context):  # type: ignore[no-untyped-def]
        return self._job_call("delete", request)

    def RunJob(self, request, context):  # type: ignore[no-untyped-def]
        answer = self._job_call("run", request)
        answer.run_id = f"{request.job_id}-20261118030000"
        return answer

    def SuspendJob(self, request, context):  # type: ignore[no-untyped-def]
        answer = self._job_call("suspend", request, str(request.suspended))
        answer.job.suspended = request.suspended
        return answer

    def CancelRun(self, request, context):  # type: ignore[no-untyped-def]
        return self._job_call("cancel", request, request.run_id)

    def _job_call(self, name: str, request: JobMessage, detail: str = "") -> control_pb2.JobAnswer:
        self.job_calls.append((name, request.job_id, detail))
        job = self.jobs.get(request.job_id)
        if job is None:
            return control_pb2.JobAnswer(reason=f"job not found: {request.job_id}")
        return control_pb2.JobAnswer(accepted=True, job=job)


def _merge(view: control_pb2.SetView, spec: control_pb2.SetSpec) -> None:
    """What the request sets; a request without a template changes nothing else."""
    replicas = spec.replicas if spec.HasField("replicas") else view.spec.replicas or 1
    if spec.HasField("template"):
        view.spec.CopyFrom(spec)
    view.spec.replicas = replicas
