"""One working call of every RPC of the scheduler that changes something or is audited.

A row has the precondition, the request, and the event that names the caller. The precondition is written into
the store and the memory of the scheduler, so that it needs no calls. Tests of cancellation, of the audit and
of large clusters are derived from this table; a test compares it with METHODS.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from builders import a_workload
from persys.core.drift import UnassignedCopy
from persys.core.nodes import DEPENDENTS_PER_STEP_MAX
from persys.infra.tls.tls import Tls
from persys.model.identity import Role, Token
from persys.model.ids import NodeId, WorkloadId
from persys.model.job import Job, JobId, Run, RunId
from persys.model.node import Capabilities, Node, NodeStatus
from persys.model.placement import Assignment, Resources, Tombstone
from persys.model.secret import Secret
from persys.model.sets import (
    Phase,
    Rollout,
    SetId,
    SetRevision,
    Template,
    UpdatePolicy,
    WorkloadSet,
)
from persys.model.spec import ContainerSpec, RestartPolicy, WorkloadType
from persys.model.status import Actual, Observation, WorkloadStatus
from persys.model.workload import SuggestedAction, Suggestion, SuggestionDecision, Workload
from persys.scheduler.app import Scheduler
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.state.memory import Memory
from persys.scheduler.state.records import type_of
from persys.store import keys
from persys.store.port import Unit
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.methods import METHODS, Audit
from persys.wire.stored import records, snapshot
from shells.scheduler.harness import Cluster, eventually, fast_settings
from shells.scheduler.third_party_agent import Agent, Context, Copy

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
N1 = NodeId("n1")
COPIES = 3 * DEPENDENTS_PER_STEP_MAX
TOO_LARGE = 1_000_000  # millicores: it fits on no node, so that no order follows from its intent
CHANGING = frozenset(
    row.name
    for row in METHODS.values()
    if row.mutating or row.audit is not Audit.NONE or row.stream.of_requests
)


class Host(Agent):
    """An agent with images, volumes and sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.images: set[str] = set()
        self.volumes: set[str] = set()

    async def ListImages(  # noqa: N802
        self, request: agent_pb2.ListImagesRequest, context: Context
    ) -> agent_pb2.ListImagesResponse:
        views = [agent_pb2.ImageView(name=name, used_by=["web"]) for name in self.images]
        return agent_pb2.ListImagesResponse(images=views)

    async def AddImage(  # noqa: N802
        self, requests: AsyncIterator[agent_pb2.AddImageRequest], context: Context
    ) -> None:
        start = (await anext(requests)).start
        await context.write(agent_pb2.ImageProgress())
        async for _ in requests:
            pass
        self.images.add(start.name)
        view = agent_pb2.ImageView(name=start.name, sha256="abc")
        await context.write(agent_pb2.ImageProgress(image=view))

    async def RemoveImage(  # noqa: N802
        self, request: agent_pb2.RemoveImageRequest, context: Context
    ) -> agent_pb2.RemoveImageResponse:
        self.images.discard(request.name)
        return agent_pb2.RemoveImageResponse(success=True)

    async def ListVolumes(  # noqa: N802
        self, request: agent_pb2.ListVolumesRequest, context: Context
    ) -> agent_pb2.ListVolumesResponse:
        views = [agent_pb2.VolumeView(workload_id=name, name="data") for name in self.volumes]
        return agent_pb2.ListVolumesResponse(volumes=views)

    async def DeleteVolume(  # noqa: N802
        self, request: agent_pb2.DeleteVolumeRequest, context: Context
    ) -> agent_pb2.DeleteVolumeResponse:
        self.volumes.discard(request.workload_id)
        return agent_pb2.DeleteVolumeResponse(success=True)

    async def Exec(  # noqa: N802
        self, requests: AsyncIterator[agent_pb2.ExecInput], context: Context
    ) -> None:
        await anext(requests)
        await context.write(agent_pb2.ExecOutput(exit=agent_pb2.ExecExit()))

    async def PortForward(  # noqa: N802
        self, requests: AsyncIterator[agent_pb2.ForwardInput], context: Context
    ) -> None:
        await anext(requests)
        await context.write(agent_pb2.ForwardOutput(closed=True))

    async def CopyFiles(  # noqa: N802
        self, requests: AsyncIterator[agent_pb2.CopyInput], context: Context
    ) -> None:
        await anext(requests)
        await context.write(agent_pb2.CopyOutput(closed=True))


@dataclass(frozen=True)
class World:
    """A cluster with one node, whose agent is a Host."""

    cluster: Cluster
    host: Host

    @property
    def app(self) -> Scheduler:
        return self.cluster.app

    async def add_records(self, *planted: Struct) -> None:
        """Write records and apply them to memory as a leader does."""
        app, memory = self.app, Memory(self.app.cluster, float("inf"), datetime.now(UTC))
        found = {_key_of(record): record for record in planted}

        def done() -> None:
            for key, record in found.items():
                kind = type_of(key)
                assert kind is not None
                kind.put(memory, key, record)

        await app.committer.commit(Transaction(done=done, puts=found))


async def a_world(cluster: Cluster, tls: Tls | None = None) -> World:
    """`tls` is used by the agent."""
    node = await cluster.prepare(N1, types=("container", "vm"), tls=tls)
    await node.agent.stop()
    host = Host()
    node.agent = host
    if tls is not None:
        host.credentials = tls.certificates.server_credentials()
    await host.start()
    await node.join()
    return World(cluster, host)


def quiet(**changes: Any) -> Any:
    """Settings with which a scheduler writes nothing on its own and no lease expires."""
    never = timedelta(hours=1)
    return fast_settings(
        node_lease=never, reconcile_interval=never, drift_detect_interval=never, **changes
    )


def _key_of(record: Struct) -> str:
    match record:
        case Node(id=node_id):
            return keys.node_key(node_id)
        case Workload(id=workload_id):
            return keys.workload_key(workload_id)
        case WorkloadStatus(workload_id=workload_id):
            return keys.status_key(workload_id)
        case Tombstone(assignment=Assignment(node_id=node_id, workload_id=workload_id)):
            return keys.tombstone_key(node_id, workload_id)
        case Token(id=token_id):
            return keys.token_key(token_id)
        case Secret(name=name):
            return keys.secret_key(name)
        case SuggestionDecision(suggestion=Suggestion(id=suggestion_id)):
            return keys.suggestion_key(suggestion_id)
        case WorkloadSet(set_id=set_id):
            return keys.set_key(set_id)
        case SetRevision(set_id=set_id, number=number):
            return keys.set_revision_key(set_id, number)
        case Job(job_id=job_id):
            return keys.job_key(job_id)
        case Run(job_id=job_id, run_id=run_id):
            return keys.run_key(job_id, run_id)
    raise AssertionError(f"no key for {record}")


def a_node(name: str, **changes: Any) -> Node:
    capabilities = Capabilities(4000, 8192, types=frozenset({WorkloadType.COMPOSE}))
    return Node(NodeId(name), capabilities, "127.0.0.1:9", LONG_AGO, **changes)


def a_large_workload(name: str) -> Workload:
    return a_workload(name, resources=Resources(TOO_LARGE, 64))


def a_suggestion(name: str, target: str) -> Suggestion:
    return Suggestion(
        name,
        target_workload=target,
        action=SuggestedAction.SET_DESIRED_STATE,
        desired_state="stop",
    )


async def nothing(_world: World, _name: str) -> None:
    """The call has no precondition."""


async def a_ready_node(world: World, name: str) -> None:
    await world.add_records(a_node(name))


async def a_cordoned_node(world: World, name: str) -> None:
    await world.add_records(a_node(name, cordoned=True))


async def a_lost_node(world: World, name: str) -> None:
    await world.add_records(a_node(name, status=NodeStatus.NOT_READY))


async def a_lost_node_with_copies(world: World, name: str) -> None:
    """More copies than one transaction removes."""
    await a_lost_node(world, name)
    for first in range(0, COPIES, COPIES // 2):
        copies = [
            Assignment(WorkloadId(f"copy{number}"), NodeId(name), 1, LONG_AGO)
            for number in range(first, first + COPIES // 2)
        ]
        await world.add_records(*(Tombstone(copy, LONG_AGO) for copy in copies))


async def a_waiting_workload(world: World, name: str) -> None:
    """It has been decided on and waits for a node."""
    workload = a_large_workload(name)
    await world.add_records(workload)
    world.app.reconciler.wake(workload.id)

    async def waits() -> bool:
        return world.app.cluster.workloads[workload.id].workload_status is not None

    await eventually(waits, lambda: f"{name} to wait")


async def a_running_workload(world: World, name: str) -> None:
    await world.cluster.control.apply(name)
    await world.cluster.control.until(name, "Running")


async def a_pending_suggestion(world: World, name: str) -> None:
    await a_waiting_workload(world, name)
    suggestion = a_suggestion(name, target=name)
    until = datetime.now(UTC) + timedelta(days=1)
    await world.add_records(SuggestionDecision(suggestion, False, LONG_AGO, pending_until=until))


async def a_token(world: World, name: str) -> None:
    until = datetime.now(UTC) + timedelta(days=1)
    await world.add_records(
        Token(name, "ann", Role.VIEWER, frozenset(), "hash", LONG_AGO, "admin/ann", until)
    )


async def a_secret(world: World, name: str) -> None:
    request = pb.PutSecretRequest(name=name, value=b"x")
    await world.cluster.control.stub.PutSecret(request, timeout=10)


def a_pool_spec(name: str) -> pb.NodePoolSpec:
    """It creates nothing: its maximum is 0."""
    size = pb.MachineSize(name="small", cpu_millicores=1000, memory_mb=1024)
    return pb.NodePoolSpec(
        pool_id=name, provider="exec", sizes=[size], options={"programs": "absent"}
    )


async def a_node_pool(world: World, name: str) -> None:
    request = pb.CreateNodePoolRequest(pool=a_pool_spec(name))
    response = await world.cluster.control.stub.CreateNodePool(request, timeout=10)
    assert response.accepted, response.reason


def a_service_spec(name: str) -> pb.ServiceSpec:
    return pb.ServiceSpec(service_id=name, ports=[{"port": 80}], members=[{"set": "web"}])


async def a_service(world: World, name: str) -> None:
    request = pb.ApplyServiceRequest(service=a_service_spec(name))
    response = await world.cluster.control.stub.ApplyService(request, timeout=10)
    assert response.accepted, response.reason


async def a_set(
    world: World, name: str, rollout: Rollout | None = None, *, replicas: int = 0
) -> None:
    """It has two revisions and no members. Those that it gets fit on no node."""
    workload = a_large_workload(name)
    template = Template(workload.spec, workload.revision, workload.resources)
    record = WorkloadSet(
        SetId(name),
        replicas,
        target=2,
        created_at=LONG_AGO,
        updated_at=LONG_AGO,
        stable=1 if rollout is not None else 2,
        update=UpdatePolicy(canary=1 if replicas else 0),
        revisions=(1, 2),
        rollout=rollout or Rollout(),
    )
    revisions = [SetRevision(SetId(name), number, template, LONG_AGO) for number in (1, 2)]
    await world.add_records(record, *revisions)


async def a_rolling_set(world: World, name: str) -> None:
    now = datetime.now(UTC)
    rollout = Rollout(Phase.ROLLING, started_at=now, progressed_at=now)
    await a_set(world, name, rollout, replicas=1)


async def a_paused_set(world: World, name: str) -> None:
    await a_set(world, name, Rollout(Phase.PAUSED, resumes_as=Phase.ROLLING), replicas=1)


async def a_canary_set(world: World, name: str) -> None:
    now = datetime.now(UTC)
    rollout = Rollout(Phase.CANARY, started_at=now, progressed_at=now, canary_since=now)
    await a_set(world, name, rollout, replicas=1)


def a_set_spec(name: str) -> pb.SetSpec:
    return pb.SetSpec(set_id=name, replicas=0, template=an_apply(name).spec)


async def a_job(world: World, name: str) -> None:
    """Its members fit on no node."""
    await world.add_records(_job(name))


async def a_run(world: World, name: str) -> None:
    job = _job(name)
    run = Run(RunId(f"{name}-1"), job.job_id, job.template, LONG_AGO)
    await world.add_records(job, run)


def _job(name: str) -> Job:
    workload = a_large_workload(name)
    spec = ContainerSpec("busybox", restart=RestartPolicy("no"))
    template = Template(spec, workload.revision, workload.resources)
    return Job(JobId(name), template, LONG_AGO, LONG_AGO)


def a_job_spec(name: str) -> pb.JobSpec:
    spec = an_apply(name).spec
    spec.container.restart_policy = "no"
    return pb.JobSpec(job_id=name, template=spec)


async def a_damaged_record(world: World, name: str) -> None:
    key = keys.secret_key(name)
    await world.cluster.store.store.commit([Unit(puts={key: b"damaged"})])
    world.app.store_watch.mark_stale()

    async def is_quarantined() -> bool:
        return key in world.app.cluster.quarantine

    await eventually(is_quarantined, lambda: f"{key} to be quarantined")


async def an_orphan(world: World, name: str) -> None:
    """The node has it and stores its spec; the scheduler has recorded it."""
    workload = a_workload(name, resources=Resources(1, 1))
    status = agent_pb2.WorkloadStatus(
        id=name, actual_state=agent_pb2.ACTUAL_STATE_RUNNING, revision_id="r1"
    )
    world.host.copies[name] = Copy(status)
    intent = agent_pb2.IntentView(id=name, epoch=4, intent=records.encode(workload))
    world.host.intents = [*(world.host.intents or ()), intent]
    seen = Observation(WorkloadId(name), N1, Actual.RUNNING, datetime.now(UTC), epoch=4)
    world.app.cluster.unassigned_copies.put(UnassignedCopy(seen, LONG_AGO, adoptable=True))


async def an_image(world: World, name: str) -> None:
    world.host.images.add(name)


async def a_volume(world: World, name: str) -> None:
    world.host.volumes.add(name)


async def a_lost_store(world: World, name: str) -> None:
    """Memory has a workload; the store has lost everything, and the scheduler is in recovery mode."""
    app = world.app
    if app.modes.in_recovery:
        return
    await a_waiting_workload(world, name)
    await world.cluster.store.wipe()
    app.store_watch.mark_stale()

    async def noticed() -> bool:
        return app.modes.in_recovery

    await eventually(noticed, lambda: "the loss of the store to be noticed")


def a_registration(name: str) -> pb.RegisterNodeRequest:
    return pb.RegisterNodeRequest(
        node_id=name,
        grpc_endpoint="127.0.0.1:9",
        capabilities=pb.NodeCapabilities(
            cpu_total_millicores=4000, memory_total_mb=8192, supported_workload_types=["compose"]
        ),
    )


def an_apply(name: str) -> pb.ApplyWorkloadRequest:
    resources = pb.ResourceRequirements(cpu_millicores=TOO_LARGE, memory_mb=64)
    container = pb.ContainerSpec(image="nginx")
    spec = pb.WorkloadSpec(type="container", resources=resources, container=container)
    return pb.ApplyWorkloadRequest(workload_id=name, spec=spec)


def suggested(name: str) -> pb.SubmitAutomationSuggestionRequest:
    suggestion = pb.AutomationSuggestion(
        suggestion_id=f"{name}-new",
        target_workload=name,
        action_type=pb.AUTOMATION_ACTION_SET_DESIRED_STATE,
        desired_state="stop",
    )
    return pb.SubmitAutomationSuggestionRequest(suggestion=suggestion)


def a_snapshot(name: str) -> list[bytes]:
    """A snapshot of a cluster with one workload."""
    kept = {keys.workload_key(WorkloadId(name)): a_large_workload(name)}
    header = snapshot.Header(snapshot.FORMAT, "u2", LONG_AGO, 1, "store", snapshot.count(kept))
    return list(snapshot.write(header, ((key, records.encode(one)) for key, one in kept.items())))


async def snapshot_messages(name: str) -> AsyncIterator[pb.SnapshotChunk]:
    for chunk in a_snapshot(name):
        await asyncio.sleep(0)  # like messages from a network
        yield pb.SnapshotChunk(data=chunk)


async def image_messages(name: str) -> AsyncIterator[pb.AddImageRequest]:
    yield pb.AddImageRequest(start=pb.AddImageStart(name=name))
    await asyncio.sleep(0)
    yield pb.AddImageRequest(data=b"x")


async def forward_messages(name: str) -> AsyncIterator[pb.ForwardInput]:
    yield pb.ForwardInput(start=pb.ForwardStart(workload_id=name, port=80))


async def copy_messages(name: str) -> AsyncIterator[pb.CopyInput]:
    yield pb.CopyInput(start=pb.CopyStart(workload_id=name, path="/etc/hosts"))


async def exec_messages(name: str) -> AsyncIterator[pb.ExecInput]:
    yield pb.ExecInput(start=pb.ExecStart(workload_id=name, command=["sh"]))


async def control_messages(name: str) -> AsyncIterator[pb.ControlMessage]:
    yield pb.ControlMessage(register=a_registration(f"{name}-new"))
    await asyncio.sleep(0)
    heartbeat = pb.HeartbeatRequest(node_id=f"{name}-new")
    yield pb.ControlMessage(heartbeat=heartbeat, number=1)


@dataclass(frozen=True)
class Call:
    """`request` builds the message, or the stream of messages, for a unique name."""

    request: Callable[[str], Any]
    event: str = ""  # the kind of the event that names the caller
    event_count: int = 1
    before: Callable[[World, str], Awaitable[None]] = field(default=nothing)


CALLS: dict[str, Call] = {
    "RegisterNode": Call(lambda name: a_registration(f"{name}-new"), "NodeRegistered"),
    "Heartbeat": Call(
        lambda name: pb.HeartbeatRequest(node_id=name), "NodeReady", before=a_lost_node
    ),
    "ControlStream": Call(control_messages, "NodeRegistered"),
    "ApplyWorkload": Call(lambda name: an_apply(f"{name}-new"), "WorkloadCreated"),
    "ApplyWorkloads": Call(
        lambda name: pb.ApplyWorkloadsRequest(
            workloads=[an_apply(f"{name}-new"), an_apply(f"{name}-other")]
        ),
        "WorkloadCreated",
        event_count=2,
    ),
    "DeleteWorkload": Call(
        lambda name: pb.DeleteWorkloadRequest(workload_id=name),
        "WorkloadDeleteAsked",
        before=a_waiting_workload,
    ),
    "RetryWorkload": Call(
        lambda name: pb.RetryWorkloadRequest(workload_id=name),
        "WorkloadRetryAsked",
        before=a_waiting_workload,
    ),
    "RedeployWorkload": Call(
        lambda name: pb.RedeployWorkloadRequest(workload_id=name),
        "WorkloadRedeployAsked",
        before=a_waiting_workload,
    ),
    "SubmitAutomationSuggestion": Call(suggested, "SuggestionAccepted", before=a_waiting_workload),
    "ApproveSuggestion": Call(
        lambda name: pb.SuggestionRequest(suggestion_id=name),
        "SuggestionAccepted",
        before=a_pending_suggestion,
    ),
    "RejectSuggestion": Call(
        lambda name: pb.SuggestionRequest(suggestion_id=name),
        "SuggestionRejected",
        before=a_pending_suggestion,
    ),
    "Exec": Call(exec_messages, "ExecStarted", before=a_running_workload),
    "PortForward": Call(forward_messages, "PortForwarded", before=a_running_workload),
    "CopyFiles": Call(copy_messages, "FilesCopied", before=a_running_workload),
    "CordonNode": Call(
        lambda name: pb.NodeRequest(node_id=name), "NodeCordoned", before=a_ready_node
    ),
    "UncordonNode": Call(
        lambda name: pb.NodeRequest(node_id=name), "NodeUncordoned", before=a_cordoned_node
    ),
    "DrainNode": Call(
        lambda name: pb.DrainNodeRequest(node_id=name), "NodeDrainAsked", before=a_ready_node
    ),
    "ConfirmNodeDead": Call(
        lambda name: pb.NodeRequest(node_id=name), "NodeConfirmedDead", before=a_lost_node
    ),
    "RemoveNode": Call(
        lambda name: pb.NodeRequest(node_id=name),
        "NodeRemovalAsked",
        before=a_lost_node_with_copies,
    ),
    "TaintNode": Call(
        lambda name: pb.TaintNodeRequest(node_id=name, taints=["gpu"]),
        "NodeTainted",
        before=a_ready_node,
    ),
    "AdoptOrphan": Call(
        lambda name: pb.OrphanRequest(node_id=N1, workload_id=name),
        "OrphanAdopted",
        before=an_orphan,
    ),
    "DeleteOrphan": Call(
        lambda name: pb.OrphanRequest(node_id=N1, workload_id=name),
        "OrphanDeleteAsked",
        before=an_orphan,
    ),
    "GetRecord": Call(
        lambda name: pb.GetRecordRequest(key=keys.secret_key(name)),
        "RecordRead",
        before=a_damaged_record,
    ),
    "DeleteRecord": Call(
        lambda name: pb.DeleteRecordRequest(key=keys.secret_key(name)),
        "RecordDeleted",
        before=a_damaged_record,
    ),
    "SaveSnapshot": Call(lambda _name: pb.SaveSnapshotRequest(), "SnapshotSaved"),
    "RestoreSnapshot": Call(snapshot_messages, "SnapshotRestored", before=a_lost_store),
    "RebuildFromAgents": Call(
        lambda _name: pb.RebuildFromAgentsRequest(), "ClusterRebuilt", before=a_lost_store
    ),
    "AcceptEmpty": Call(
        lambda _name: pb.AcceptEmptyRequest(), "StoreAccepted", before=a_lost_store
    ),
    "AddImage": Call(image_messages, "ImageAdded"),
    "RemoveImage": Call(
        lambda name: pb.RemoveImageRequest(name=name), "ImageRemoved", before=an_image
    ),
    "DeleteVolume": Call(
        lambda name: pb.DeleteVolumeRequest(node_id=N1, workload_id=name, name="data"),
        "VolumeDeleted",
        before=a_volume,
    ),
    "CreateToken": Call(
        lambda name: pb.CreateTokenRequest(name=name, role="viewer"), "TokenCreated"
    ),
    "RevokeToken": Call(
        lambda name: pb.RevokeTokenRequest(token_id=name), "TokenRevoked", before=a_token
    ),
    "PutSecret": Call(lambda name: pb.PutSecretRequest(name=name, value=b"x"), "SecretStored"),
    "DeleteSecret": Call(
        lambda name: pb.DeleteSecretRequest(name=name), "SecretDeleted", before=a_secret
    ),
    "CreateNodePool": Call(
        lambda name: pb.CreateNodePoolRequest(pool=a_pool_spec(name)), "NodePoolCreated"
    ),
    "PauseNodePool": Call(
        lambda name: pb.PauseNodePoolRequest(pool_id=name, paused=True),
        "NodePoolPaused",
        before=a_node_pool,
    ),
    "DeleteNodePool": Call(
        lambda name: pb.DeleteNodePoolRequest(pool_id=name),
        "NodePoolDeleteAsked",
        before=a_node_pool,
    ),
    "ApplyService": Call(
        lambda name: pb.ApplyServiceRequest(service=a_service_spec(name)), "ServiceCreated"
    ),
    "DeleteService": Call(
        lambda name: pb.ServiceRequest(service_id=name), "ServiceDeleted", before=a_service
    ),
    "ApplySet": Call(lambda name: pb.ApplySetRequest(set=a_set_spec(f"{name}-new")), "SetCreated"),
    "DeleteSet": Call(lambda name: pb.SetRequest(set_id=name), "SetDeleteAsked", before=a_set),
    "ScaleSet": Call(
        lambda name: pb.ScaleSetRequest(set_id=name, replicas=1), "SetScaled", before=a_set
    ),
    "PauseRollout": Call(
        lambda name: pb.SetRequest(set_id=name), "RolloutPaused", before=a_rolling_set
    ),
    "ResumeRollout": Call(
        lambda name: pb.SetRequest(set_id=name), "RolloutResumed", before=a_paused_set
    ),
    "PromoteRollout": Call(
        lambda name: pb.SetRequest(set_id=name), "RolloutPromoted", before=a_canary_set
    ),
    "UndoRollout": Call(
        lambda name: pb.UndoRolloutRequest(set_id=name), "RolloutUndone", before=a_set
    ),
    "ApplyJob": Call(lambda name: pb.ApplyJobRequest(job=a_job_spec(f"{name}-new")), "JobCreated"),
    "DeleteJob": Call(lambda name: pb.JobRequest(job_id=name), "JobDeleteAsked", before=a_job),
    "RunJob": Call(lambda name: pb.JobRequest(job_id=name), "RunStarted", before=a_job),
    "SuspendJob": Call(
        lambda name: pb.SuspendJobRequest(job_id=name, suspended=True),
        "JobSuspended",
        before=a_job,
    ),
    "CancelRun": Call(
        lambda name: pb.CancelRunRequest(job_id=name, run_id=f"{name}-1"),
        "RunCancelled",
        before=a_run,
    ),
}
