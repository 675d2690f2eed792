"""One case for each RPC that changes something: the request to a large cluster, and the expected result."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from builders import a_workload
from persys.model.identity import Role
from persys.model.ids import NodeId
from persys.model.sets import Phase
from persys.store import keys
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub
from persys.wire.stored import records
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.scale.fleet import Fleet
from shells.scheduler.scale.many_records import DEAD, FULL, HOLDER, LOST, ORPHAN, SPARE, stored

SECONDS = 280.0  # for a call, and for what follows from it
_STATUSES_MAX = 10_000  # of one node; more is over the limit of a report


@dataclass
class LargeScheduler:
    """A scheduler on a store with `size` records of every type."""

    cluster: Cluster
    fleet: Fleet
    size: int
    stub: AgentControlStub
    stub_as: Callable[[Role, str], AgentControlStub]

    async def has(self, prefix: str) -> int:
        return len(await stored(self.cluster.store, prefix))

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        async def holds_now() -> bool:
            return holds()

        await eventually(holds_now, lambda: what, within=SECONDS)


Case = Callable[[LargeScheduler], Awaitable[None]]


def workload(name: str) -> pb.ApplyWorkloadRequest:
    spec = pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=1, memory_mb=1),
        container=pb.ContainerSpec(image="nginx"),
    )
    return pb.ApplyWorkloadRequest(workload_id=name, spec=spec)


async def apply_workload(large: LargeScheduler) -> None:
    response = await large.stub.ApplyWorkload(workload("fresh"), timeout=SECONDS)

    assert response.success, response.error_message
    assert await large.has(keys.WORKLOADS + "fresh")


async def apply_workloads(large: LargeScheduler) -> None:
    names = [f"batch{number}" for number in range(500)]
    request = pb.ApplyWorkloadsRequest(workloads=[workload(name) for name in names])
    response = await large.stub.ApplyWorkloads(request, timeout=SECONDS)

    assert all(result.success for result in response.results), response
    assert [result.workload_id for result in response.results] == names
    assert await large.has(keys.WORKLOADS + names[-1])


async def delete_workload(large: LargeScheduler) -> None:
    request = pb.DeleteWorkloadRequest(workload_id="run0")
    response = await large.stub.DeleteWorkload(request, timeout=SECONDS)

    assert response.success, response.error_message
    await large.until(lambda: "run0" not in large.cluster.app.cluster.workloads, "run0 to be gone")


async def retry_workload(large: LargeScheduler) -> None:
    request = pb.RetryWorkloadRequest(workload_id="data0")
    response = await large.stub.RetryWorkload(request, timeout=SECONDS)

    assert response.accepted, response.reason


async def redeploy_workload(large: LargeScheduler) -> None:
    request = pb.RedeployWorkloadRequest(workload_id="run1")
    response = await large.stub.RedeployWorkload(request, timeout=SECONDS)

    assert response.accepted, response.reason


async def submit_suggestion(large: LargeScheduler) -> None:
    request = pb.SubmitAutomationSuggestionRequest()
    request.suggestion.suggestion_id = "fresh"
    request.suggestion.target_workload = "data1"
    request.suggestion.action_type = pb.AUTOMATION_ACTION_RETRY_WORKLOAD
    response = await large.stub.SubmitAutomationSuggestion(request, timeout=SECONDS)

    assert response.accepted, response.reason
    assert await large.has(keys.SUGGESTIONS) <= large.size + 3


async def approve_suggestion(large: LargeScheduler) -> None:
    request = pb.SuggestionRequest(suggestion_id="to-approve")
    response = await large.stub.ApproveSuggestion(request, timeout=SECONDS)

    assert response.accepted, response.reason


async def reject_suggestion(large: LargeScheduler) -> None:
    request = pb.SuggestionRequest(suggestion_id="to-reject")
    response = await large.stub.RejectSuggestion(request, timeout=SECONDS)

    assert response.accepted, response.reason


def registration(name: str) -> pb.RegisterNodeRequest:
    return pb.RegisterNodeRequest(
        node_id=name,
        grpc_endpoint=f"{name}:1",
        capabilities=pb.NodeCapabilities(
            cpu_total_millicores=4000, memory_total_mb=8000, supported_workload_types=["container"]
        ),
    )


async def register_node(large: LargeScheduler) -> None:
    """A new node, and one that returns with all its stale copies."""
    removals = await large.has(keys.REMOVED)
    for name in ("fresh", LOST):
        stub = large.stub_as(Role.AGENT, name)
        response = await stub.RegisterNode(registration(name), timeout=SECONDS)
        assert response.accepted, response.reason

    assert await large.has(keys.REMOVED) < removals
    await large.until(
        lambda: LOST not in large.cluster.app.cluster.tombstones, "the old copies to be removed"
    )


async def heartbeat(large: LargeScheduler) -> None:
    """A node reports all its workloads, and as many unassigned copies."""
    count = min(large.size, _STATUSES_MAX // 2)
    names = [f"run{number}" for number in range(count)] + [f"x{number}" for number in range(count)]
    request = pb.HeartbeatRequest(node_id=FULL)
    for name in names:
        request.workload_statuses.add(workload_id=name, state="Running")
    response = await large.stub_as(Role.AGENT, FULL).Heartbeat(request, timeout=SECONDS)

    assert response.acknowledged


async def _node(large: LargeScheduler, method: str, node_id: NodeId) -> None:
    response = await _call_node(large, method, node_id)

    assert response.accepted, response.reason


async def _call_node(large: LargeScheduler, method: str, node_id: NodeId) -> pb.NodeAnswer:
    call = getattr(large.stub, method)
    response: pb.NodeAnswer = await call(pb.NodeRequest(node_id=node_id), timeout=SECONDS)
    return response


async def cordon_node(large: LargeScheduler) -> None:
    await _node(large, "CordonNode", FULL)


async def uncordon_node(large: LargeScheduler) -> None:
    await _node(large, "UncordonNode", FULL)


async def taint_node(large: LargeScheduler) -> None:
    request = pb.TaintNodeRequest(node_id=FULL, taints=["disk=slow"])
    response = await large.stub.TaintNode(request, timeout=SECONDS)

    assert response.accepted, response.reason


async def drain_node(large: LargeScheduler) -> None:
    """Every workload of the node moves, and every stale copy is removed."""
    response = await large.stub.DrainNode(pb.DrainNodeRequest(node_id=FULL), timeout=SECONDS)

    assert response.accepted, response.reason
    memory = large.cluster.app.cluster
    await large.until(
        lambda: not memory.on_node[FULL] and FULL not in memory.tombstones, "the node to be empty"
    )


async def confirm_node_dead(large: LargeScheduler) -> None:
    """Every workload with data on the node moves."""
    await _call_node(large, "ConfirmNodeDead", DEAD)
    memory = large.cluster.app.cluster
    await large.until(lambda: not memory.on_node[DEAD], "the workloads to move")


async def remove_node(large: LargeScheduler) -> None:
    """Together with all recorded stale copies and orphans."""
    await _call_node(large, "RemoveNode", DEAD)
    # With a slow store it takes longer than the caller waits; the removal continues.
    await large.until(lambda: DEAD not in large.cluster.app.cluster.nodes, "its removal")

    assert not await large.has(keys.node_key(DEAD))
    assert not await large.has(f"{keys.TOMBSTONES}{DEAD}/")


async def adopt_orphan(large: LargeScheduler) -> None:
    kept = records.encode(a_workload(ORPHAN))
    large.fleet.agent(HOLDER).intents = [agent_pb2.IntentView(id=ORPHAN, epoch=1, intent=kept)]
    request = pb.OrphanRequest(node_id=HOLDER, workload_id=ORPHAN)
    response = await large.stub.AdoptOrphan(request, timeout=SECONDS)

    assert response.accepted, response.reason


async def delete_orphan(large: LargeScheduler) -> None:
    request = pb.OrphanRequest(node_id=HOLDER, workload_id="p0")
    response = await large.stub.DeleteOrphan(request, timeout=SECONDS)

    assert response.accepted, response.reason


async def remove_image(large: LargeScheduler) -> None:
    for name in (FULL, SPARE, HOLDER):
        large.fleet.agent(name).images.add("debian")
    response = await large.stub.RemoveImage(pb.RemoveImageRequest(name="debian"), timeout=SECONDS)

    assert list(response.node_ids) == sorted((FULL, SPARE, HOLDER))


async def delete_volume(large: LargeScheduler) -> None:
    request = pb.DeleteVolumeRequest(node_id=SPARE, workload_id="former", name="data")
    response = await large.stub.DeleteVolume(request, timeout=SECONDS)

    assert response.success, response.error_message


async def create_token(large: LargeScheduler) -> None:
    before = await large.has(keys.TOKENS)
    request = pb.CreateTokenRequest(name="ops", role="viewer")
    response = await large.stub.CreateToken(request, timeout=SECONDS)

    assert response.accepted, response.reason
    assert await large.has(keys.TOKENS) < before


async def revoke_token(large: LargeScheduler) -> None:
    last = (await stored(large.cluster.store, keys.TOKENS))[-1]
    request = pb.RevokeTokenRequest(token_id=last.removeprefix(keys.TOKENS))
    response = await large.stub.RevokeToken(request, timeout=SECONDS)

    assert response.accepted, response.reason


async def put_secret(large: LargeScheduler) -> None:
    request = pb.PutSecretRequest(name="fresh", value=b"x")
    response = await large.stub.PutSecret(request, timeout=SECONDS)

    assert response.accepted, response.reason


async def delete_secret(large: LargeScheduler) -> None:
    response = await large.stub.DeleteSecret(pb.DeleteSecretRequest(name="s0"), timeout=SECONDS)

    assert response.accepted, response.reason


async def create_node_pool(large: LargeScheduler) -> None:
    size = pb.MachineSize(name="small", cpu_millicores=1000, memory_mb=1024)
    spec = pb.NodePoolSpec(
        pool_id="fresh", provider="exec", sizes=[size], options={"programs": "absent"}
    )
    request = pb.CreateNodePoolRequest(pool=spec)
    response = await large.stub.CreateNodePool(request, timeout=SECONDS)

    assert response.accepted, response.reason


async def pause_node_pool(large: LargeScheduler) -> None:
    request = pb.PauseNodePoolRequest(pool_id="p0", paused=False)
    response = await large.stub.PauseNodePool(request, timeout=SECONDS)

    assert response.accepted, response.reason


async def delete_node_pool(large: LargeScheduler) -> None:
    request = pb.DeleteNodePoolRequest(pool_id="p1")
    response = await large.stub.DeleteNodePool(request, timeout=SECONDS)

    assert response.accepted, response.reason


async def apply_service(large: LargeScheduler) -> None:
    spec = pb.ServiceSpec(
        service_id="fresh", ports=[{"port": 80}], members=[{"labels": {"app": "none"}}]
    )
    response = await large.stub.ApplyService(pb.ApplyServiceRequest(service=spec), timeout=SECONDS)

    assert response.accepted, response.reason


async def delete_service(large: LargeScheduler) -> None:
    request = pb.ServiceRequest(service_id="service1")
    response = await large.stub.DeleteService(request, timeout=SECONDS)

    assert response.accepted, response.reason


def a_set(large: LargeScheduler, name: str, image: str = "nginx", **update: Any) -> pb.SetSpec:
    spec = workload(name).spec
    spec.container.image = image
    policy = pb.UpdatePolicy(min_healthy_seconds=0, order="in-place", max_parallel=100, **update)
    return pb.SetSpec(set_id=name, replicas=_replicas(large), template=spec, update=policy)


def _replicas(large: LargeScheduler) -> int:
    """At least two, so that a canary member is not the whole set."""
    return max(2, large.size // 10)


async def _applied(large: LargeScheduler, spec: pb.SetSpec) -> None:
    response = await large.stub.ApplySet(pb.ApplySetRequest(set=spec), timeout=SECONDS)
    assert response.accepted, response.reason


async def _until_phase(large: LargeScheduler, name: str, phase: Phase) -> None:
    sets = large.cluster.app.cluster.sets
    await large.until(lambda: sets[name].rollout.phase is phase, f"{name} to be {phase}")


async def _order(large: LargeScheduler, method: str, name: str) -> None:
    request = pb.SetRequest(set_id=name)
    response: pb.SetAnswer = await getattr(large.stub, method)(request, timeout=SECONDS)
    assert response.accepted, response.reason


async def apply_set(large: LargeScheduler) -> None:
    await _applied(large, a_set(large, "fresh-set"))

    await _until_phase(large, "fresh-set", Phase.STEADY)
    assert len(large.cluster.app.cluster.members.of("fresh-set")) == _replicas(large)


async def scale_set(large: LargeScheduler) -> None:
    count = min(large.size, 5_000)
    request = pb.ScaleSetRequest(set_id="fresh-set", replicas=count)
    response = await large.stub.ScaleSet(request, timeout=SECONDS)

    assert response.accepted, response.reason
    members = large.cluster.app.cluster.members
    await large.until(lambda: len(members.of("fresh-set")) == count, "all members to be created")


async def undo_rollout(large: LargeScheduler) -> None:
    await _applied(large, a_set(large, "fresh-set", "nginx:2"))
    await _until_phase(large, "fresh-set", Phase.STEADY)
    response = await large.stub.UndoRollout(
        pb.UndoRolloutRequest(set_id="fresh-set"), timeout=SECONDS
    )

    assert response.accepted, response.reason
    await _until_phase(large, "fresh-set", Phase.STEADY)


async def promote_rollout(large: LargeScheduler) -> None:
    await _applied(large, a_set(large, "fresh-set", "nginx:3", canary=1))
    await _until_phase(large, "fresh-set", Phase.CANARY)
    await _order(large, "PromoteRollout", "fresh-set")

    await _until_phase(large, "fresh-set", Phase.STEADY)


async def pause_rollout(large: LargeScheduler) -> None:
    """It waits for a promotion, so that it does not end before the call."""
    await _applied(large, a_set(large, "fresh-set", "nginx:4", canary=1))
    await _until_phase(large, "fresh-set", Phase.CANARY)
    await _order(large, "PauseRollout", "fresh-set")

    await _until_phase(large, "fresh-set", Phase.PAUSED)


async def resume_rollout(large: LargeScheduler) -> None:
    await _order(large, "ResumeRollout", "fresh-set")

    await _until_phase(large, "fresh-set", Phase.CANARY)


async def apply_job(large: LargeScheduler) -> None:
    spec = workload("fresh-job").spec
    spec.container.restart_policy = "no"
    count = min(large.size, 10_000)
    job = pb.JobSpec(
        job_id="fresh-job", template=spec, completions=count, parallelism=min(count, 1_000)
    )
    response = await large.stub.ApplyJob(pb.ApplyJobRequest(job=job), timeout=SECONDS)

    assert response.accepted, response.reason


async def run_job(large: LargeScheduler) -> None:
    """All members that may run at the same time are created."""
    request = pb.JobRequest(job_id="fresh-job")
    response = await large.stub.RunJob(request, timeout=SECONDS)

    assert response.accepted, response.reason
    members, name = large.cluster.app.cluster.members, f"fresh-job/{response.run_id}"
    count = min(large.size, 1_000)
    await large.until(lambda: len(members.of(name)) >= count, "the members to be created")


async def suspend_job(large: LargeScheduler) -> None:
    request = pb.SuspendJobRequest(job_id="job0", suspended=False)
    response = await large.stub.SuspendJob(request, timeout=SECONDS)

    assert response.accepted, response.reason


async def cancel_run(large: LargeScheduler) -> None:
    found = large.cluster.app.cluster
    (run,) = found.runs.of("fresh-job")
    request = pb.CancelRunRequest(job_id="fresh-job", run_id=run.run_id)
    response = await large.stub.CancelRun(request, timeout=SECONDS)

    assert response.accepted, response.reason
    await large.until(
        lambda: all(not run.members for run in found.runs.of("fresh-job")), "all to be stopped"
    )


async def delete_job(large: LargeScheduler) -> None:
    request = pb.JobRequest(job_id="fresh-job")
    response = await large.stub.DeleteJob(request, timeout=SECONDS)

    assert response.accepted, response.reason
    found = large.cluster.app.cluster
    await large.until(lambda: "fresh-job" not in found.jobs, "the job to be deleted")
    assert not found.runs.of("fresh-job")


async def delete_set(large: LargeScheduler) -> None:
    await _order(large, "DeleteSet", "fresh-set")

    found = large.cluster.app.cluster
    await large.until(lambda: "fresh-set" not in found.sets, "the set to be deleted")
    assert not found.members.of("fresh-set")


async def delete_record(large: LargeScheduler) -> None:
    """One of many unreadable records; all records are read again after that."""
    key = keys.secret_key("broken0")
    request = pb.DeleteRecordRequest(key=key)
    response = await large.stub.DeleteRecord(request, timeout=SECONDS)

    assert response.accepted, response.reason
    assert key not in await stored(large.cluster.store, keys.SECRETS)
    quarantine = large.cluster.app.cluster.quarantine
    await large.until(lambda: len(quarantine) == large.size - 1, "the records to be read again")


# In this order on one cluster. RestoreSnapshot, RebuildFromAgents and AcceptEmpty start with another store.
CASES: dict[str, Case] = {
    "ApplyWorkload": apply_workload,
    "ApplyWorkloads": apply_workloads,
    "DeleteWorkload": delete_workload,
    "RetryWorkload": retry_workload,
    "RedeployWorkload": redeploy_workload,
    "SubmitAutomationSuggestion": submit_suggestion,
    "ApproveSuggestion": approve_suggestion,
    "RejectSuggestion": reject_suggestion,
    "RegisterNode": register_node,
    "Heartbeat": heartbeat,
    "CordonNode": cordon_node,
    "UncordonNode": uncordon_node,
    "TaintNode": taint_node,
    "AdoptOrphan": adopt_orphan,
    "DeleteOrphan": delete_orphan,
    "RemoveImage": remove_image,
    "DeleteVolume": delete_volume,
    "CreateToken": create_token,
    "RevokeToken": revoke_token,
    "PutSecret": put_secret,
    "DeleteSecret": delete_secret,
    "CreateNodePool": create_node_pool,
    "PauseNodePool": pause_node_pool,
    "DeleteNodePool": delete_node_pool,
    "ApplyService": apply_service,
    "DeleteService": delete_service,
    "ApplySet": apply_set,
    "ScaleSet": scale_set,
    "UndoRollout": undo_rollout,
    "PromoteRollout": promote_rollout,
    "PauseRollout": pause_rollout,
    "ResumeRollout": resume_rollout,
    "DeleteSet": delete_set,
    "ApplyJob": apply_job,
    "RunJob": run_job,
    "SuspendJob": suspend_job,
    "CancelRun": cancel_run,
    "DeleteJob": delete_job,
    "DeleteRecord": delete_record,
    "ConfirmNodeDead": confirm_node_dead,
    "RemoveNode": remove_node,
    "DrainNode": drain_node,
}
