"""A real gRPC server of both services with scripted answers, and persysctl run against it."""

# ruff: noqa: N802  # the contract names the methods

import io
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import grpc
import pytest

from persys.cli import persysctl
from persys.wire.gen.agent.v1 import agent_pb2, agent_pb2_grpc
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc
from shells.cli.sets_and_jobs import SetsAndJobs

NOW_SECONDS = 1_700_000_000


@dataclass
class Cluster(
    SetsAndJobs, control_pb2_grpc.AgentControlServicer, agent_pb2_grpc.AgentServiceServicer
):
    """Stores what a test sets, records requests. `after_change` simulates the rest of the cluster."""

    nodes: dict[str, control_pb2.NodeView] = field(default_factory=dict)
    workloads: dict[str, control_pb2.WorkloadView] = field(default_factory=dict)
    applied: list[control_pb2.ApplyWorkloadRequest] = field(default_factory=list)
    batches: list[list[str]] = field(default_factory=list)  # the workloads of each ApplyWorkloads
    is_older: bool = False  # it knows no ApplyWorkloads
    refusal: tuple[control_pb2.FailureReason, str] | None = None
    refused_ids: dict[str, tuple[control_pb2.FailureReason, str]] = field(default_factory=dict)
    abort: tuple[grpc.StatusCode, str] | None = None
    after_change: Callable[[control_pb2.WorkloadView], None] = lambda workload: None
    after_drain: Callable[[], None] = lambda: None
    stores_specs: bool = False  # a new spec is a new revision
    before_get: Callable[[str], None] = lambda workload_id: None  # called with an existing one
    looks_before_gone: int = 0
    away: bool = False  # does not answer status requests
    generated_at: Callable[[], datetime] | None = None  # its clock
    decision_response: control_pb2.SubmitAutomationSuggestionResponse | None = None
    suggestions: list[control_pb2.AutomationSuggestion] = field(default_factory=list)
    decisions: list[control_pb2.SuggestionView] = field(default_factory=list)
    allowed_secrets: list[str] = field(default_factory=list)
    rebuilds: list[control_pb2.RebuildFromAgentsRequest] = field(default_factory=list)
    heard: Callable[[dict[str, object]], None] = lambda beside: (
        None
    )  # receives the metadata of each call
    drain_deadline: int = 0
    health: agent_pb2.HealthCheckResponse = field(
        default_factory=lambda: agent_pb2.HealthCheckResponse(
            healthy=True, version="1.2.3", runtime_status={"container": "ready"}
        )
    )
    actions: list[agent_pb2.AgentAction] = field(default_factory=list)
    statuses: list[agent_pb2.WorkloadStatus] = field(default_factory=list)
    explanation: control_pb2.ExplainWorkloadResponse | None = None
    explain_limit: int = 0
    unknown_to_explain: set[str] = field(default_factory=set)
    unknown_to_exec: set[str] = field(default_factory=set)
    archive: bytes = b""
    pools: dict[str, control_pb2.NodePoolView] = field(default_factory=dict)
    services: dict[str, control_pb2.ServiceView] = field(default_factory=dict)
    pool_plan: control_pb2.PlanNodePoolResponse = field(
        default_factory=control_pb2.PlanNodePoolResponse
    )
    plans: list[control_pb2.WorkloadPlan] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)
    planned_sets: list[control_pb2.SetSpec] = field(default_factory=list)
    capacity: control_pb2.GetCapacityResponse | None = None
    drifts: list[control_pb2.DriftView] = field(default_factory=list)
    volumes: list[control_pb2.VolumeView] = field(default_factory=list)
    images: list[control_pb2.ImageView] = field(default_factory=list)
    images_begun: list[control_pb2.AddImageStart] = field(default_factory=list)
    image_bytes: int = 0
    image_problem: str = ""
    orphans_unrecorded: int = 0
    events: list[control_pb2.EventView] = field(default_factory=list)
    event_requests: list[control_pb2.ListEventsRequest] = field(default_factory=list)
    watches: list[control_pb2.WatchEventsRequest] = field(default_factory=list)
    # For each call of a watch: the events, then the status it ends with.
    turns: list[tuple[list[control_pb2.EventView], grpc.StatusCode]] = field(default_factory=list)

    mode: control_pb2.ModeView = field(
        default_factory=lambda: control_pb2.ModeView(mode="normal", store="sqlite:/x", nodes=1)
    )
    identity: control_pb2.IdentityView = field(default_factory=control_pb2.IdentityView)
    diagnostics: control_pb2.DiagnosticsView = field(default_factory=control_pb2.DiagnosticsView)
    snapshot: list[bytes] = field(default_factory=list)
    restored: bytes = b""
    recovery: control_pb2.RecoveryAnswer = field(default_factory=control_pb2.RecoveryAnswer)

    def ApplyService(self, request, context):  # type: ignore[no-untyped-def]
        if self.refusal is not None:
            return control_pb2.ServiceAnswer(reason=self.refusal[1])
        service_id = request.service.service_id
        before = self.services.get(service_id)
        outcome = "created" if before is None else "updated"
        view = control_pb2.ServiceView(spec=request.service)
        if before is not None and before.spec == request.service:
            outcome, view = "unchanged", before
        self.services[service_id] = view
        return control_pb2.ServiceAnswer(accepted=True, service=view, outcome=outcome)

    def ListServices(self, request, context):  # type: ignore[no-untyped-def]
        return control_pb2.ListServicesResponse(services=self.services.values())

    def GetService(self, request, context):  # type: ignore[no-untyped-def]
        if request.service_id not in self.services:
            context.abort(grpc.StatusCode.NOT_FOUND, f"service not found: {request.service_id}")
        return control_pb2.GetServiceResponse(service=self.services[request.service_id])

    def DeleteService(self, request, context):  # type: ignore[no-untyped-def]
        service = self.services.pop(request.service_id, None)
        if service is None:
            return control_pb2.ServiceAnswer(reason=f"service not found: {request.service_id}")
        return control_pb2.ServiceAnswer(accepted=True, service=service)

    def CreateNodePool(self, request, context):  # type: ignore[no-untyped-def]
        if self.refusal is not None:
            return control_pb2.NodePoolAnswer(reason=self.refusal[1])
        view = control_pb2.NodePoolView(spec=request.pool)
        self.pools[request.pool.pool_id] = view
        return control_pb2.NodePoolAnswer(accepted=True, pool=view)

    def ListNodePools(self, request, context):  # type: ignore[no-untyped-def]
        return control_pb2.ListNodePoolsResponse(pools=self.pools.values())

    def GetNodePool(self, request, context):  # type: ignore[no-untyped-def]
        if request.pool_id not in self.pools:
            context.abort(grpc.StatusCode.NOT_FOUND, f"node pool not found: {request.pool_id}")
        return control_pb2.GetNodePoolResponse(pool=self.pools[request.pool_id])

    def PlanNodePool(self, request, context):  # type: ignore[no-untyped-def]
        return self.pool_plan

    def PauseNodePool(self, request, context):  # type: ignore[no-untyped-def]
        pool = self.pools[request.pool_id]
        pool.paused = request.paused
        return control_pb2.NodePoolAnswer(accepted=True, pool=pool)

    def DeleteNodePool(self, request, context):  # type: ignore[no-untyped-def]
        pool = self.pools.pop(request.pool_id)
        return control_pb2.NodePoolAnswer(accepted=True, pool=pool)

    def ListVolumes(self, request, context):  # type: ignore[no-untyped-def]
        found = [
            each
            for each in self.volumes
            if request.workload_id in ("", each.workload_id) and request.name in ("", each.name)
        ]
        silent = control_pb2.NodeProblem(node_id="n9", problem="does not respond")
        return control_pb2.ListVolumesResponse(volumes=found, problems=[silent])

    def DeleteVolume(self, request, context):  # type: ignore[no-untyped-def]
        others = [each for each in self.volumes if each.name != request.name]
        if len(others) == len(self.volumes):
            return control_pb2.DeleteVolumeResponse(error_message="volume not found: it")
        self.volumes = others
        return control_pb2.DeleteVolumeResponse(success=True)

    def ListImages(self, request, context):  # type: ignore[no-untyped-def]
        silent = control_pb2.NodeProblem(node_id="n9", problem="does not respond")
        return control_pb2.ListImagesResponse(images=self.images, problems=[silent])

    def AddImage(self, request_iterator, context):  # type: ignore[no-untyped-def]
        start = next(request_iterator).start
        self.images_begun.append(start)
        self._maybe_abort(context)
        yield control_pb2.ImageProgress()
        for part in request_iterator:
            self.image_bytes += len(part.data)
            yield control_pb2.ImageProgress(
                node_id="n1", received_bytes=self.image_bytes, size_bytes=start.size_bytes
            )
        yield control_pb2.ImageProgress(
            node_id="n1", received_bytes=self.image_bytes, done=True, sha256="abc"
        )
        if self.image_problem:
            yield control_pb2.ImageProgress(node_id="n2", done=True, problem=self.image_problem)
        yield control_pb2.ImageProgress(done=True)

    def RemoveImage(self, request, context):  # type: ignore[no-untyped-def]
        self._maybe_abort(context)
        problems = [control_pb2.NodeProblem(node_id="n2", problem=self.image_problem)]
        return control_pb2.RemoveImageResponse(
            node_ids=["n1"], problems=problems if self.image_problem else []
        )

    def GetDiagnostics(self, request, context):  # type: ignore[no-untyped-def]
        return self.diagnostics

    def GetIdentity(self, request, context):  # type: ignore[no-untyped-def]
        return self.identity

    def GetMode(self, request, context):  # type: ignore[no-untyped-def]
        return self.mode

    def SaveSnapshot(self, request, context):  # type: ignore[no-untyped-def]
        for chunk in self.snapshot:
            yield control_pb2.SnapshotChunk(data=chunk)
        self._maybe_abort(context)

    def RestoreSnapshot(self, request_iterator, context):  # type: ignore[no-untyped-def]
        self.restored = b"".join(chunk.data for chunk in request_iterator)
        return self.recovery

    def RebuildFromAgents(self, request, context):  # type: ignore[no-untyped-def]
        self._maybe_abort(context)
        self.rebuilds.append(request)
        return self.recovery

    def AcceptEmpty(self, request, context):  # type: ignore[no-untyped-def]
        return self.recovery

    def add_node(self, node_id: str, **fields: object) -> control_pb2.NodeView:
        self.nodes[node_id] = control_pb2.NodeView(node_id=node_id, status="Ready", **fields)  # type: ignore[arg-type]  # the stubs want each by name
        return self.nodes[node_id]

    def add_workload(
        self, workload_id: str, status: str = "Running", **fields: object
    ) -> control_pb2.WorkloadView:
        view = control_pb2.WorkloadView(
            **{  # type: ignore[arg-type]  # the stubs want each by name
                "workload_id": workload_id,
                "type": "container",
                "desired_state": "Running",
                "status": status,
                "revision_id": "r1",
                **fields,
            }
        )
        view.last_updated.FromSeconds(NOW_SECONDS)
        self.workloads[workload_id] = view
        return view

    def ListNodes(self, request, context):  # type: ignore[no-untyped-def]
        self.heard(dict(context.invocation_metadata()))
        self._maybe_abort(context)
        if self.mode.mode != "normal":
            context.set_trailing_metadata(
                (("persys-mode", self.mode.mode), ("persys-data-age-ms", "12345"))
            )
        return control_pb2.ListNodesResponse(
            nodes=[n for n in self.nodes.values() if request.status in ("", n.status)]
        )

    def GetNode(self, request, context):  # type: ignore[no-untyped-def]
        if self.away:
            context.abort(grpc.StatusCode.UNAVAILABLE, "connection refused")
        if request.node_id not in self.nodes:
            context.abort(grpc.StatusCode.NOT_FOUND, f"node not found: {request.node_id}")
        return control_pb2.GetNodeResponse(node=self.nodes[request.node_id])

    def CordonNode(self, request, context):  # type: ignore[no-untyped-def]
        return self._change_node(request, cordoned=True)

    def UncordonNode(self, request, context):  # type: ignore[no-untyped-def]
        return self._change_node(request, cordoned=False)

    def DrainNode(self, request, context):  # type: ignore[no-untyped-def]
        response = self._change_node(request, cordoned=True)
        if response.accepted:
            self.drain_deadline = request.deadline_seconds
            self.after_drain()
        return response

    def ConfirmNodeDead(self, request, context):  # type: ignore[no-untyped-def]
        return self._change_node(request, confirmed_dead=True)

    def RemoveNode(self, request, context):  # type: ignore[no-untyped-def]
        response = self._change_node(request)
        self.nodes.pop(request.node_id, None)
        return response

    def TaintNode(self, request, context):  # type: ignore[no-untyped-def]
        response = self._change_node(request)
        if response.accepted:
            node = self.nodes[request.node_id]
            del node.taints[:]
            node.taints.extend(request.taints)
            response.node.CopyFrom(node)
        return response

    def _change_node(
        self,
        request: control_pb2.NodeRequest
        | control_pb2.DrainNodeRequest
        | control_pb2.TaintNodeRequest,
        **changes: bool,
    ) -> control_pb2.NodeAnswer:
        node = self.nodes.get(request.node_id)
        if node is None:
            return control_pb2.NodeAnswer(reason=f"node not found: {request.node_id}")
        for name, value in changes.items():
            setattr(node, name, value)
        return control_pb2.NodeAnswer(accepted=True, node=node)

    def ListWorkloads(self, request, context):  # type: ignore[no-untyped-def]
        if isinstance(request, agent_pb2.ListWorkloadsRequest):
            return agent_pb2.ListWorkloadsResponse(workloads=self.statuses)
        return control_pb2.ListWorkloadsResponse(
            workloads=[
                w
                for w in self.workloads.values()
                if request.status in ("", w.status) and request.node_id in ("", w.assigned_node_id)
            ]
        )

    def GetWorkload(self, request, context):  # type: ignore[no-untyped-def]
        if self.away:
            context.abort(grpc.StatusCode.UNAVAILABLE, "connection refused")
        if request.workload_id in self.workloads:
            self.before_get(request.workload_id)
        view = self.workloads.get(request.workload_id)
        if view is not None and view.status == "Deleting":
            self.looks_before_gone -= 1
            if self.looks_before_gone < 0:
                del self.workloads[request.workload_id]
                view = None
        if view is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"workload not found: {request.workload_id}")
        return control_pb2.GetWorkloadResponse(workload=view)

    def GetClusterSummary(self, request, context):  # type: ignore[no-untyped-def]
        found = control_pb2.GetClusterSummaryResponse(
            total_nodes=len(self.nodes), ready_nodes=len(self.nodes), total_workloads=3
        )
        if self.generated_at is not None:
            found.generated_at.FromDatetime(self.generated_at())
        return found

    def ApplyWorkload(self, request, context):  # type: ignore[no-untyped-def]
        self._maybe_abort(context)
        refusal = self.refusal or self.refused_ids.get(request.workload_id)
        if refusal is not None:
            reason, text = refusal
            return control_pb2.ApplyWorkloadResponse(failure_reason=reason, error_message=text)
        self.applied.append(request)
        view = self.workloads.get(request.workload_id)
        if view is None:
            view = self.add_workload(request.workload_id)
        view.desired_state = request.desired_state or view.desired_state
        view.revision_id = request.revision_id or view.revision_id
        if self.stores_specs and request.HasField("spec"):
            if view.spec != request.spec:
                view.revision_id = f"r{len(self.applied)}"
            view.spec.CopyFrom(request.spec)
        self._change(view)
        return control_pb2.ApplyWorkloadResponse(success=True, revision_id=view.revision_id)

    def ApplyWorkloads(self, request, context):  # type: ignore[no-untyped-def]
        if self.is_older:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method")
        self.batches.append([one.workload_id for one in request.workloads])
        results = []
        for one in request.workloads:
            answer = self.ApplyWorkload(one, context)  # type: ignore[no-untyped-call]
            results.append(
                control_pb2.WorkloadApplied(
                    workload_id=one.workload_id,
                    success=answer.success,
                    failure_reason=answer.failure_reason,
                    error_message=answer.error_message,
                    revision_id=answer.revision_id,
                )
            )
        return control_pb2.ApplyWorkloadsResponse(accepted=True, results=results)

    def DeleteWorkload(self, request, context):  # type: ignore[no-untyped-def]
        view = self.workloads.get(request.workload_id)
        if view is None:
            return control_pb2.DeleteWorkloadResponse(error_message="workload not found")
        self._change(view)
        view.status = "Deleting"
        return control_pb2.DeleteWorkloadResponse(success=True)

    def RetryWorkload(self, request, context):  # type: ignore[no-untyped-def]
        view = self.workloads.get(request.workload_id)
        if view is None:
            return control_pb2.RetryWorkloadResponse(reason="workload not found")
        self._change(view)
        return control_pb2.RetryWorkloadResponse(accepted=True)

    def RedeployWorkload(self, request, context):  # type: ignore[no-untyped-def]
        view = self.workloads.get(request.workload_id)
        if view is None:
            return control_pb2.RedeployWorkloadResponse(reason="workload not found")
        view.revision_id += "+2"
        view.desired_state = "Running"
        self._change(view)
        return control_pb2.RedeployWorkloadResponse(accepted=True, revision_id=view.revision_id)

    def ExplainWorkload(self, request, context):  # type: ignore[no-untyped-def]
        self._maybe_abort(context)
        if request.workload_id in self.unknown_to_explain:
            context.abort(grpc.StatusCode.NOT_FOUND, f"workload not found: {request.workload_id}")
        self.explain_limit = request.limit
        return self.explanation

    def PlanWorkloads(self, request, context):  # type: ignore[no-untyped-def]
        self._maybe_abort(context)
        self.planned = [workload.workload_id for workload in request.workloads]
        self.planned_sets = list(request.sets)
        return control_pb2.PlanWorkloadsResponse(plans=self.plans)

    def GetCapacity(self, request, context):  # type: ignore[no-untyped-def]
        return self.capacity

    def Exec(self, request_iterator, context):  # type: ignore[no-untyped-def]
        start = next(request_iterator).start
        if start.workload_id in self.unknown_to_exec:
            context.abort(grpc.StatusCode.NOT_FOUND, f"workload not found: {start.workload_id}")
        yield control_pb2.ExecOutput()
        next(request_iterator)
        yield control_pb2.ExecOutput(stdout=f"[{' '.join(start.command)}]".encode())
        yield control_pb2.ExecOutput(exit=control_pb2.ExecExit(code=7))

    def PortForward(self, request_iterator, context):  # type: ignore[no-untyped-def]
        next(request_iterator)
        yield control_pb2.ForwardOutput()
        for one in request_iterator:
            yield control_pb2.ForwardOutput(data=one.data.upper(), closed=one.closed)

    def CopyFiles(self, request_iterator, context):  # type: ignore[no-untyped-def]
        start = next(request_iterator).start
        yield control_pb2.CopyOutput(directory=start.path.endswith("/"))
        if not start.upload:
            yield control_pb2.CopyOutput(data=self.archive)
        else:
            self.archive = b"".join(one.data for one in request_iterator)
        yield control_pb2.CopyOutput(closed=True)

    def SubmitAutomationSuggestion(self, request, context):  # type: ignore[no-untyped-def]
        self.suggestions.append(request.suggestion)
        return self.decision_response

    def ListDrifts(self, request, context):  # type: ignore[no-untyped-def]
        self._maybe_abort(context)
        found = [drift for drift in self.drifts if request.type in ("", drift.type)]
        return control_pb2.ListDriftsResponse(
            drifts=found, orphans_unrecorded=self.orphans_unrecorded
        )

    def AdoptOrphan(self, request, context):  # type: ignore[no-untyped-def]
        self.allowed_secrets = list(request.allow_secrets)
        named = (request.node_id, request.workload_id)
        known = named in [(drift.node_id, drift.workload_id) for drift in self.drifts]
        reason = "" if known else f"orphan not found: {named[1]} on {named[0]}"
        return control_pb2.OrphanAnswer(accepted=known, reason=reason)

    DeleteOrphan = AdoptOrphan

    def GetOrphan(self, request, context):  # type: ignore[no-untyped-def]
        spec = control_pb2.WorkloadSpec(
            type="container", container=control_pb2.ContainerSpec(image="nginx")
        )
        drift = control_pb2.DriftView(node_id=request.node_id, workload_id=request.workload_id)
        return control_pb2.OrphanView(drift=drift, spec=spec, secrets=["db-password"])

    def ListSuggestions(self, request, context):  # type: ignore[no-untyped-def]
        found = [one for one in self.decisions if request.decision in ("", one.decision)]
        return control_pb2.ListSuggestionsResponse(suggestions=found)

    def ApproveSuggestion(self, request, context):  # type: ignore[no-untyped-def]
        known = [one.suggestion.suggestion_id for one in self.decisions]
        if request.suggestion_id not in known:
            reason = f"suggestion not found: {request.suggestion_id}"
            return control_pb2.SuggestionAnswer(reason=reason)
        view = control_pb2.SuggestionView(applied_action="delete_workload")
        return control_pb2.SuggestionAnswer(accepted=True, suggestion=view)

    RejectSuggestion = ApproveSuggestion

    def ListEvents(self, request, context):  # type: ignore[no-untyped-def]
        self._maybe_abort(context)
        self.event_requests.append(request)
        found = [e for e in self.events if request.workload_id in ("", e.workload_id)]
        return control_pb2.ListEventsResponse(
            events=found[-request.limit :], last_sequence=len(self.events), first_sequence=1
        )

    def WatchEvents(self, request, context):  # type: ignore[no-untyped-def]
        self.watches.append(request)
        events, end = self.turns.pop(0)
        yield from events
        context.abort(end, "the oldest is 9")

    def HealthCheck(self, request, context):  # type: ignore[no-untyped-def]
        return self.health

    def ListActions(self, request, context):  # type: ignore[no-untyped-def]
        found = [a for a in self.actions if request.workload_id in ("", a.workload_id)]
        return agent_pb2.ListActionsResponse(actions=found[: request.limit or None])

    def _change(self, view: control_pb2.WorkloadView) -> None:
        view.last_updated.FromSeconds(view.last_updated.seconds + 1)
        view.status = "Pending"
        self.after_change(view)

    def _maybe_abort(self, context: grpc.ServicerContext) -> None:
        if self.abort is not None:
            context.abort(*self.abort)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with a_cluster_server() as cluster:
        yield cluster


@contextmanager
def a_cluster_server() -> Iterator[Cluster]:
    server = grpc.server(ThreadPoolExecutor(4))
    cluster = Cluster()
    control_pb2_grpc.add_AgentControlServicer_to_server(cluster, server)
    agent_pb2_grpc.add_AgentServiceServicer_to_server(cluster, server)
    cluster.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield cluster
    server.stop(None).wait()


@dataclass
class CliResult:
    code: int
    out: str
    err: str


Run = Callable[..., CliResult]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A separate home directory, so that no file of the real user is read."""
    return tmp_path / "home"


@pytest.fixture
def environ(home: Path, unused_address: str) -> dict[str, str]:
    """No agent at the default port: another cluster may run on this machine."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PERSYS_")}
    return {
        **clean,
        "HOME": str(home),
        "COLUMNS": "100",
        "PERSYS_INSECURE": "true",
        "PERSYS_AGENT_ADDR": unused_address,
    }


@pytest.fixture
def run(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """persysctl in this process; only the given words and variables name a cluster.

    It uses plain text unless PERSYS_INSECURE is set otherwise.
    """

    def run(*words: str, stdin: str = "", **variables: str) -> CliResult:
        for name in [name for name in os.environ if name.startswith("PERSYS_")]:
            monkeypatch.delenv(name)
        for name, value in {**environ, **variables}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = persysctl.run(words)
        captured = capsys.readouterr()
        return CliResult(code, captured.out, captured.err)

    return run


@pytest.fixture
def ctl(run: Run, cluster: Cluster) -> Run:
    """persysctl connected to the stub cluster."""

    def ctl(*words: str, stdin: str = "", **variables: str) -> CliResult:
        return run(*words, stdin=stdin, PERSYS_GRPC_ENDPOINT=cluster.address, **variables)

    return ctl


@pytest.fixture
def unused_address() -> str:
    """An address that refuses connections."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
