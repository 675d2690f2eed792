"""Refused requests: the response names the field, and nothing is stored."""

from collections.abc import Callable

import grpc
import pytest

from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster

Change = Callable[[pb.ApplyWorkloadRequest], None]


def a_request() -> pb.ApplyWorkloadRequest:
    return pb.ApplyWorkloadRequest(
        workload_id="web",
        spec=pb.WorkloadSpec(type="container", container=pb.ContainerSpec(image="nginx")),
    )


def name(text: str) -> Change:
    def change(request: pb.ApplyWorkloadRequest) -> None:
        request.workload_id = text

    return change


def unknown_type(request: pb.ApplyWorkloadRequest) -> None:
    request.spec.type = "unikernel"


def another_type(request: pb.ApplyWorkloadRequest) -> None:
    request.spec.type = "vm"


def no_spec_of_the_type(request: pb.ApplyWorkloadRequest) -> None:
    request.spec.ClearField("container")


def empty_spec(request: pb.ApplyWorkloadRequest) -> None:
    request.spec.Clear()
    request.spec.SetInParent()


def empty_image(request: pb.ApplyWorkloadRequest) -> None:
    request.spec.container.image = ""


def negative_cpu(request: pb.ApplyWorkloadRequest) -> None:
    request.spec.resources.cpu_millicores = -1


def absurd_memory(request: pb.ApplyWorkloadRequest) -> None:
    request.spec.resources.memory_mb = 2**62


def port_70000(request: pb.ApplyWorkloadRequest) -> None:
    request.spec.container.ports.add(host_port=70_000, container_port=80)


def port_twice(request: pb.ApplyWorkloadRequest) -> None:
    for container_port in (80, 81):
        request.spec.container.ports.add(host_port=8080, container_port=container_port)


def relative_path(request: pb.ApplyWorkloadRequest) -> None:
    request.spec.container.volumes.add(host_path="data", container_path="/data")


def two_mebibytes(request: pb.ApplyWorkloadRequest) -> None:
    request.spec.container.env["BIG"] = "x" * (2 << 20)


def unknown_desired_state(request: pb.ApplyWorkloadRequest) -> None:
    request.desired_state = "Sleeping"


def unknown_desired_state_alone(request: pb.ApplyWorkloadRequest) -> None:
    request.ClearField("spec")
    request.desired_state = "Sleeping"


def empty_spec_field(request: pb.ApplyWorkloadRequest) -> None:
    request.ClearField("spec")


def endless_revision(request: pb.ApplyWorkloadRequest) -> None:
    request.revision_id = "r" * 1000


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (name("a/b"), "workload_id"),
        (name("x" * 300), "workload_id"),
        (name("Web"), "workload_id"),
        (name("-web"), "workload_id"),
        (name("web\n"), "workload_id"),
        (unknown_type, "spec.type"),
        (another_type, "spec.type"),
        (no_spec_of_the_type, "spec.container"),
        (empty_spec, "spec"),
        (empty_image, "spec.container.image"),
        (negative_cpu, "spec.resources.cpu_millicores"),
        (absurd_memory, "spec.resources.memory_mb"),
        (port_70000, "spec.container.ports[0].host_port"),
        (port_twice, "spec.container.ports[1]"),
        (relative_path, "spec.container.volumes[0].host_path"),
        (two_mebibytes, "spec"),
        (unknown_desired_state, "desired_state"),
        (unknown_desired_state_alone, "desired_state"),
        (empty_spec_field, "spec"),
        (endless_revision, "revision_id"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
async def test_an_invalid_apply_is_refused_with_its_field(
    cluster: Cluster, change: Change, field: str
) -> None:
    request = a_request()
    change(request)
    written = cluster.store.transactions
    response = await cluster.control.send(request)

    assert not response.success
    assert response.failure_reason == pb.INVALID_SPEC
    assert response.error_message.startswith(field), response.error_message
    assert cluster.store.transactions == written
    assert (await cluster.control.send(a_request())).success


async def test_a_revision_cannot_name_two_specs(cluster: Cluster) -> None:
    await cluster.control.apply("web", image="nginx:1", revision="v1")
    response = await cluster.control.apply("web", image="nginx:2", revision="v1")

    assert not response.success
    assert response.error_message.startswith("revision_id")
    assert (await cluster.control.workload("web")).spec.container.image == "nginx:1"


async def test_a_workload_cannot_change_its_type(cluster: Cluster) -> None:
    await cluster.control.apply("web")
    request = pb.ApplyWorkloadRequest(workload_id="web")
    request.spec.type = "compose"
    request.spec.compose.source_type = "inline"
    request.spec.compose.inline_yaml = "services: {a: {image: nginx}}"
    response = await cluster.control.send(request)

    assert not response.success
    assert response.error_message.startswith("spec.type")


async def test_the_desired_state_of_a_missing_workload_cannot_be_changed(cluster: Cluster) -> None:
    response = await cluster.control.want("nothing", "Running")

    assert not response.success
    assert "workload not found: nothing" in response.error_message


async def test_deleting_a_missing_workload_is_refused(cluster: Cluster) -> None:
    response = await cluster.control.delete("nothing")

    assert not response.success
    assert "workload not found: nothing" in response.error_message
    assert (await cluster.control.summary()).total_workloads == 0


async def test_retrying_a_missing_workload_is_refused(cluster: Cluster) -> None:
    response = await cluster.control.retry("nothing")

    assert not response.accepted
    assert "workload not found: nothing" in response.reason


async def test_redeploying_a_missing_workload_is_refused(cluster: Cluster) -> None:
    response = await cluster.control.redeploy("nothing")

    assert not response.accepted
    assert "workload not found: nothing" in response.reason


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("RegisterNode", pb.RegisterNodeRequest()),
        ("Heartbeat", pb.HeartbeatRequest()),
        ("ApplyWorkload", pb.ApplyWorkloadRequest()),
        ("DeleteWorkload", pb.DeleteWorkloadRequest()),
        ("RetryWorkload", pb.RetryWorkloadRequest()),
        ("RedeployWorkload", pb.RedeployWorkloadRequest()),
        ("GetNode", pb.GetNodeRequest()),
        ("GetWorkload", pb.GetWorkloadRequest()),
        ("ListNodes", pb.ListNodesRequest(status="Sleepy")),
        ("ListWorkloads", pb.ListWorkloadsRequest(status="Sleepy")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_empty_id_and_an_unknown_filter_are_invalid_arguments(
    cluster: Cluster, method: str, request_: object
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await getattr(cluster.control.stub, method)(request_, timeout=10)

    assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("method", "request_", "text"),
    [
        ("GetNode", pb.GetNodeRequest(node_id="n9"), "node not found: n9"),
        ("GetWorkload", pb.GetWorkloadRequest(workload_id="w9"), "workload not found: w9"),
        ("Heartbeat", pb.HeartbeatRequest(node_id="n9"), "node not found: n9"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_unknown_object_is_not_found(
    cluster: Cluster, method: str, request_: object, text: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await getattr(cluster.control.stub, method)(request_, timeout=10)

    assert refusal.value.code() is grpc.StatusCode.NOT_FOUND
    assert refusal.value.details() == text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cpu_total_millicores", 0),
        ("cpu_total_millicores", -1),
        ("memory_total_mb", 0),
        ("memory_total_mb", -5),
    ],
)
async def test_a_node_without_capacity_is_refused_with_the_field(
    cluster: Cluster, field: str, value: int
) -> None:
    node = await cluster.prepare("n1")
    setattr(node.capabilities, field, value)
    response = await node.register()

    assert not response.accepted
    assert response.reason.startswith(f"capabilities.{field}")
    assert (await cluster.control.summary()).total_nodes == 0


@pytest.mark.parametrize("field", ["reserved_cpu_millicores", "reserved_memory_mb"])
async def test_a_node_that_reserves_everything_is_refused(cluster: Cluster, field: str) -> None:
    node = await cluster.prepare("n1", cpu=4000, memory=4000)
    setattr(node.capabilities, field, 4000)
    response = await node.register()

    assert not response.accepted
    assert response.reason.startswith(f"capabilities.{field}")


async def test_a_node_without_an_endpoint_is_refused(cluster: Cluster) -> None:
    node = await cluster.prepare("n1")
    node.agent.endpoint, endpoint = "", node.agent.endpoint
    response = await node.register()
    node.agent.endpoint = endpoint

    assert not response.accepted
    assert response.reason.startswith("grpc_endpoint")


async def test_a_refused_order_in_a_status_means_no_copy(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    node.agent.behaviour.keeps_copies = True
    status = node.agent.copies["web"].status
    status.actual_state = agent_pb2.ACTUAL_STATE_FAILED
    status.metadata["refused"] = "true"

    await cluster.control.delete("web")

    await cluster.control.until_gone("web")
