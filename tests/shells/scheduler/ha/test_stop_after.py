"""stop_after in the scheduler: which nodes get such workloads, and which replies count as leader contact."""

from collections.abc import Sequence

from persys.errors import FencedError
from persys.store import keys
from persys.store.port import Unit
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.third_party_agent import Node

STOP_AFTER = "stop-after"


async def apply(cluster: Cluster, seconds: int) -> pb.ApplyWorkloadResponse:
    spec = pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=100),
        container=pb.ContainerSpec(image="db"),
        stop_after_seconds=seconds,
    )
    return await cluster.control.send(pb.ApplyWorkloadRequest(workload_id="db", spec=spec))


async def join(cluster: Cluster, features: Sequence[str]) -> Node:
    node = await cluster.prepare()
    node.features = list(features)
    await node.join()
    return node


async def test_only_a_node_that_supports_stop_after_gets_such_a_workload(cluster: Cluster) -> None:
    node = await join(cluster, [])
    assert (await apply(cluster, 60)).success
    assert STOP_AFTER in (await cluster.control.workload("db")).reason.message

    node.features = [STOP_AFTER]
    await node.register()
    await cluster.control.until("db", "Running")
    (order,) = node.agent.applies
    assert order.stop_after_seconds == 60


async def test_a_stop_after_shorter_than_the_lease_is_refused(cluster: Cluster) -> None:
    await join(cluster, [STOP_AFTER])
    refused = await apply(cluster, 7)

    assert not refused.success
    assert "at least 8" in refused.error_message


async def test_a_scheduler_claims_leadership_only_while_it_is_confirmed(cluster: Cluster) -> None:
    node = await cluster.join()
    assert (await node.heartbeat()).leads
    cluster.store.down = True

    async def is_not_confirmed() -> bool:
        response = await node.heartbeat()
        return response.acknowledged and not response.leads

    await eventually(is_not_confirmed, lambda: "the scheduler to be uncertain")
    cluster.store.down = False

    async def certain() -> bool:
        return (await node.heartbeat()).leads

    await eventually(certain, lambda: "the scheduler to be certain again")


async def test_a_replaced_scheduler_ends_without_a_write(
    cluster: Cluster,
) -> None:
    leader = await cluster.store.store.get(keys.LEADER)
    assert leader is not None
    await cluster.store.store.commit(
        [Unit(guards={keys.LEADER: leader.version}, puts={keys.LEADER: b"another"})]
    )

    ended = await cluster.ended()
    assert isinstance(ended, ExceptionGroup)
    assert ended.subgroup(FencedError) is not None
