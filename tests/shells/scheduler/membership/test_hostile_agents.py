"""False reports with the key of a node: they affect neither workloads of other nodes nor the scheduler."""

import asyncio

import grpc
import pytest

from persys.core.drift import ORPHANS_MAX
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually

CAPABILITIES = pb.NodeCapabilities(
    cpu_total_millicores=4000, memory_total_mb=8192, supported_workload_types=["container"]
)


async def register(cluster: Cluster, node_id: str, **fields: object) -> pb.RegisterNodeResponse:
    request = pb.RegisterNodeRequest(
        node_id=node_id,
        capabilities=CAPABILITIES,
        grpc_endpoint="127.0.0.1:9",
        **fields,  # type: ignore[arg-type]  # fields of the message, by name
    )
    response: pb.RegisterNodeResponse = await cluster.control.stub.RegisterNode(request, timeout=10)
    return response


async def beat(cluster: Cluster, node_id: str, *statuses: pb.WorkloadStatus) -> None:
    heartbeat = pb.HeartbeatRequest(node_id=node_id, workload_statuses=statuses, complete=True)
    await cluster.control.stub.Heartbeat(heartbeat, timeout=10)


@pytest.mark.parametrize("epoch", [-(2**63), -1, 2**53, 2**53 + 1, 2**63 - 1])
async def test_an_epoch_that_a_node_lists_does_not_stop_the_workload(
    cluster: Cluster, epoch: int
) -> None:
    await cluster.join("good")
    await register(cluster, "liar", labels={})
    for _ in range(3):
        await beat(cluster, "liar", pb.WorkloadStatus(workload_id="web", epoch=epoch))
        await asyncio.sleep(0.15)  # longer than the grace of an orphan

    await cluster.control.stub.CordonNode(pb.NodeRequest(node_id="liar"), timeout=10)
    await cluster.control.apply("web")

    view = await cluster.control.until("web", "Running")
    assert 0 < view.epoch < 2**40


async def test_a_report_with_huge_texts_is_cut_and_the_scheduler_continues(
    cluster: Cluster,
) -> None:
    node = await cluster.join("n1")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    status = pb.WorkloadStatus(
        workload_id="web",
        state="Failed",
        failure_reason=pb.RUNTIME_ERROR,
        revision_id="r" * 2_000_000,
        message="m" * 2_000_000,
        metadata={f"k{number}": "v" * 10_000 for number in range(100)},
    )
    status.reason.code = "c" * 2_000_000
    status.last_transition.seconds = 2**62
    node.agent.copies.clear()

    for _ in range(3):
        await beat(cluster, "n1", status)

    await cluster.control.until("web", "Running")
    view = await cluster.control.workload("web")
    assert view.ByteSize() < 400_000


async def test_reports_about_workloads_of_another_node_are_ignored(cluster: Cluster) -> None:
    await cluster.join("good")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    before = await cluster.control.workload("web")
    await register(cluster, "liar")

    for state in ("Failed", "Stopped", "Running"):
        await beat(
            cluster,
            "liar",
            pb.WorkloadStatus(workload_id="web", state=state, epoch=before.epoch + 7),
        )
        await asyncio.sleep(0.15)

    after = await cluster.control.workload("web")
    assert (after.status, after.epoch, after.assigned_node_id, after.revision_id) == (
        before.status,
        before.epoch,
        before.assigned_node_id,
        before.revision_id,
    )


async def test_made_up_workloads_become_a_bounded_number_of_orphans(cluster: Cluster) -> None:
    await cluster.join("good")
    await register(cluster, "liar")
    names = [f"made-up-{number}" for number in range(5_000)]
    statuses = [pb.WorkloadStatus(workload_id=name, state="Running") for name in names]

    async def listed() -> bool:
        await beat(cluster, "liar", *statuses)
        found = await cluster.control.stub.ListDrifts(
            pb.ListDriftsRequest(node_id="liar"), timeout=10
        )
        assert len(found.drifts) <= ORPHANS_MAX
        return len(found.drifts) == ORPHANS_MAX

    await eventually(listed, lambda: "orphans to be recorded", within=60)
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running", within=60)


async def test_one_node_of_several_does_not_put_an_empty_cluster_into_recovery(
    cluster: Cluster,
) -> None:
    for name in ("n1", "n2"):
        await cluster.join(name)

    await register(cluster, "liar", cluster_uid="another", workload_count=5)

    assert (await cluster.control.apply("web")).success


async def test_a_first_node_that_knows_another_cluster_puts_an_empty_store_into_recovery(
    cluster: Cluster,
) -> None:
    response = await register(cluster, "n1", cluster_uid="another", workload_count=5)

    assert not response.accepted
    assert "recovery" in response.reason


async def test_a_request_over_a_limit_is_refused_by_the_path_of_its_field(cluster: Cluster) -> None:
    spec = pb.WorkloadSpec(
        container=pb.ContainerSpec(image="nginx", env={f"V{number}": "" for number in range(5000)})
    )

    response = await cluster.control.send(pb.ApplyWorkloadRequest(workload_id="web", spec=spec))

    assert not response.success
    assert response.error_message == "spec.container.env: has 5000 entries; expected at most 1000"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await cluster.control.stub.GetNode(pb.GetNodeRequest(node_id="x" * 5000), timeout=10)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
