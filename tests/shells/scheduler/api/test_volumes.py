"""Volumes through the scheduler: all nodes are called concurrently, and one that does not reply is named."""

import pytest

from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.api.test_control_stream import a_stream_agent
from shells.scheduler.harness import Cluster
from shells.scheduler.third_party_agent import Agent, Context


class VolumeAgent(Agent):
    """An agent with one volume of the workload `old`."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []
        self.refuses = ""

    async def ListVolumes(  # noqa: N802
        self, request: agent_pb2.ListVolumesRequest, context: Context
    ) -> agent_pb2.ListVolumesResponse:
        kept = agent_pb2.VolumeView(
            workload_id="old",
            name="data",
            driver="local",
            state="retained",
            retain_policy="Retain",
            size_bytes=1 << 30,
            created_at=1_700_000_000,
        )
        return agent_pb2.ListVolumesResponse(volumes=[] if self.deleted else [kept])

    async def DeleteVolume(  # noqa: N802
        self, request: agent_pb2.DeleteVolumeRequest, context: Context
    ) -> agent_pb2.DeleteVolumeResponse:
        if self.refuses:
            return agent_pb2.DeleteVolumeResponse(message=self.refuses)
        self.deleted.append(f"{request.workload_id}/{request.name}")
        return agent_pb2.DeleteVolumeResponse(success=True)


async def a_volume_agent(cluster: Cluster, name: str = "n1") -> tuple[str, VolumeAgent]:
    volume_agent = VolumeAgent()
    await volume_agent.start()
    node = await cluster.join(name)
    await node.agent.stop()
    node.agent = volume_agent
    await node.register()
    return node.id, volume_agent


async def listed(cluster: Cluster, **only: str) -> pb.ListVolumesResponse:
    response: pb.ListVolumesResponse = await cluster.control.stub.ListVolumes(
        pb.ListVolumesRequest(**only), timeout=10
    )
    return response


async def delete(cluster: Cluster, node_id: str = "") -> pb.DeleteVolumeResponse:
    request = pb.DeleteVolumeRequest(node_id=node_id, workload_id="old", name="data")
    response: pb.DeleteVolumeResponse = await cluster.control.stub.DeleteVolume(request, timeout=10)
    return response


async def test_all_nodes_are_called_and_those_that_do_not_reply_are_named(
    cluster: Cluster,
) -> None:
    with_one, _ = await a_volume_agent(cluster)
    third_party = await cluster.join("n2")
    gone = await cluster.join("n3")
    await gone.agent.stop()

    found = await listed(cluster)

    (volume,) = found.volumes
    assert (volume.node_id, volume.workload_id, volume.name) == (with_one, "old", "data")
    assert (volume.state, volume.created_at.seconds) == ("retained", 1_700_000_000)
    problems = {each.node_id: each.problem for each in found.problems}
    assert problems.keys() == {third_party.id, gone.id}
    assert "does not support ListVolumes" in problems[third_party.id]
    assert not (await listed(cluster, node_id=with_one, workload_id="web")).volumes


async def test_a_volume_is_deleted_on_the_only_node_that_has_it(cluster: Cluster) -> None:
    _, volume_agent = await a_volume_agent(cluster)

    assert (await delete(cluster)).success

    assert volume_agent.deleted == ["old/data"]
    assert "volume not found" in (await delete(cluster)).error_message


async def test_with_several_holders_a_node_must_be_named(cluster: Cluster) -> None:
    first, one = await a_volume_agent(cluster)
    await a_volume_agent(cluster, "n2")

    assert "set node_id" in (await delete(cluster)).error_message
    assert (await delete(cluster, first)).success
    assert one.deleted == ["old/data"]


async def test_the_volume_of_a_workload_stays(cluster: Cluster) -> None:
    _, volume_agent = await a_volume_agent(cluster)
    volume_agent.refuses = "the volume is in use"
    assert "the volume is in use" in (await delete(cluster)).error_message

    volume_agent.refuses = ""
    await cluster.control.apply("old")
    await cluster.control.until("old", "Running")
    assert "delete the workload first" in (await delete(cluster)).error_message
    assert volume_agent.deleted == []


@pytest.mark.parametrize("name", ["ListVolumes", "DeleteVolume"])
async def test_a_node_on_a_control_stream_is_called_too(cluster: Cluster, name: str) -> None:
    async with a_stream_agent(cluster, agent=VolumeAgent()):
        found = await listed(cluster)
        assert len(found.volumes) == 1
        if name == "DeleteVolume":
            assert (await delete(cluster)).success
            assert not (await listed(cluster)).volumes
