"""What each role may do at a scheduler, and that an agent acts only for its own node."""

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from persys.infra.clock import SystemClock
from persys.infra.rpc.authorizer import FORWARDED_IDENTITY
from persys.model.identity import Role
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1 import control_pb2_grpc
from root_ca import Root
from shells.scheduler.harness import Cluster, a_cluster, fast_settings
from shells.scheduler.stores import FaultyStore


@pytest.fixture
async def cluster(root: Root) -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    tls, user = root.tls(Role.SCHEDULER, "s1"), root.tls(Role.ADMIN, "me")
    async with a_cluster(store, fast_settings(), tls=tls, user=user) as running:
        yield running
    await store.store.close()


class Caller:
    def __init__(self, cluster: Cluster, root: Root) -> None:
        self._cluster = cluster
        self._root = root

    @asynccontextmanager
    async def of(self, role: Role, name: str) -> AsyncIterator[control_pb2_grpc.AgentControlStub]:
        tls = self._root.tls(role, name)
        channel = tls.channel(f"127.0.0.1:{self._cluster.settings.grpc_port}", Role.SCHEDULER)
        yield control_pb2_grpc.AgentControlStub(channel)
        await channel.close()


@pytest.fixture
def caller(cluster: Cluster, root: Root) -> Caller:
    return Caller(cluster, root)


def an_apply() -> pb.ApplyWorkloadRequest:
    container = pb.ContainerSpec(image="busybox")
    return pb.ApplyWorkloadRequest(workload_id="w", spec=pb.WorkloadSpec(container=container))


def a_registration(name: str) -> pb.RegisterNodeRequest:
    return pb.RegisterNodeRequest(
        node_id=name,
        grpc_endpoint="127.0.0.1:1",
        capabilities=pb.NodeCapabilities(
            cpu_total_millicores=1000,
            memory_total_mb=1000,
            supported_workload_types=["container"],
        ),
    )


async def is_denied(call: grpc.aio.UnaryUnaryCall[object, object]) -> bool:
    try:
        await call
    except grpc.aio.AioRpcError as err:
        return err.code() is grpc.StatusCode.PERMISSION_DENIED
    return False


async def test_a_viewer_reads_and_changes_nothing(caller: Caller) -> None:
    async with caller.of(Role.VIEWER, "eve") as stub:
        await stub.ListWorkloads(pb.ListWorkloadsRequest(), timeout=10)
        assert await is_denied(stub.ApplyWorkload(an_apply(), timeout=10))
        assert await is_denied(stub.DrainNode(pb.DrainNodeRequest(node_id="n"), timeout=10))


async def test_an_operator_runs_workloads_and_takes_no_snapshot(caller: Caller) -> None:
    async with caller.of(Role.OPERATOR, "ops") as stub:
        response = await stub.ApplyWorkload(an_apply(), timeout=10)
        assert response.success
        snapshot = stub.SaveSnapshot(pb.SaveSnapshotRequest(), timeout=10)
        with pytest.raises(grpc.aio.AioRpcError) as err:
            await snapshot.read()
        assert err.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_an_agent_registers_as_its_own_node_and_no_other(caller: Caller) -> None:
    async with caller.of(Role.AGENT, "n1") as stub:
        response = await stub.RegisterNode(a_registration("n1"), timeout=10)
        assert response.accepted
        assert await is_denied(stub.RegisterNode(a_registration("n2"), timeout=10))
        assert await is_denied(stub.Heartbeat(pb.HeartbeatRequest(node_id="n2"), timeout=10))
        assert await is_denied(stub.ListWorkloads(pb.ListWorkloadsRequest(), timeout=10))
        assert await is_denied(stub.ApplyWorkload(an_apply(), timeout=10))


@pytest.mark.parametrize("honest_first", [True, False], ids=["at first honest", "at once"])
async def test_a_stream_of_an_agent_acts_for_no_other_node(
    caller: Caller, honest_first: bool
) -> None:
    async with caller.of(Role.AGENT, "n1") as stub:
        stream = stub.ControlStream(timeout=10)
        if honest_first:
            await stream.write(pb.ControlMessage(register=a_registration("n1")))
            assert (await stream.read()).registered.accepted
            foreign = pb.HeartbeatRequest(node_id="n2")
            await stream.write(pb.ControlMessage(heartbeat=foreign, number=1))
        else:
            await stream.write(pb.ControlMessage(register=a_registration("n2")))
        with pytest.raises(grpc.aio.AioRpcError) as err:
            assert await stream.read() is not grpc.aio.EOF
        assert err.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_only_a_scheduler_may_forward_for_another_identity(caller: Caller) -> None:
    metadata = ((FORWARDED_IDENTITY, "admin/me"),)
    async with caller.of(Role.VIEWER, "eve") as stub:
        assert await is_denied(stub.ApplyWorkload(an_apply(), timeout=10, metadata=metadata))
    async with caller.of(Role.SCHEDULER, "s2") as stub:
        response = await stub.ApplyWorkload(an_apply(), timeout=10, metadata=metadata)
        assert response.success
        assert await is_denied(stub.DeleteWorkload(pb.DeleteWorkloadRequest(workload_id="w")))


async def test_every_caller_may_read_its_identity(caller: Caller) -> None:
    async with caller.of(Role.OPERATOR, "ops") as stub:
        found = await stub.GetIdentity(pb.GetIdentityRequest(), timeout=10)
    assert (found.role, found.name) == ("operator", "ops")
    assert "workloads" in found.deeds
    assert found.serial
    assert found.HasField("expires_at")


async def test_a_certificate_of_another_trust_domain_has_no_identity(
    cluster: Cluster, root: Root
) -> None:
    tls = root.tls(Role.ADMIN, "me", trust_domain="elsewhere")
    channel = tls.channel(f"127.0.0.1:{cluster.settings.grpc_port}", Role.SCHEDULER)
    stub = control_pb2_grpc.AgentControlStub(channel)
    assert await is_denied(stub.ListNodes(pb.ListNodesRequest(), timeout=10))
    await channel.close()


async def test_denials_are_counted(cluster: Cluster, caller: Caller) -> None:
    async with caller.of(Role.VIEWER, "eve") as stub:
        assert await is_denied(stub.ApplyWorkload(an_apply(), timeout=10))
    sample = 'persys_scheduler_denied_total{method="ApplyWorkload",role="viewer"} 1.0'
    url = f"http://127.0.0.1:{cluster.settings.metrics_port}/metrics"
    assert sample in await asyncio.to_thread(fetched, url)


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        text: str = response.read().decode()
        return text
