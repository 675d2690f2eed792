"""The certificates of removed nodes are revoked at persys-ca; the record of the removal expires."""

import asyncio
from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry

from persys.core.nodes import REMEMBERED
from persys.errors import PersysError, UnavailableError
from persys.infra.aio.supervisor import KeyedWork, Supervisor
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId
from persys.model.node import RemovedNode
from persys.scheduler.membership.removed_nodes import RemovedNodes
from persys.scheduler.state.cluster import ClusterState as Memory
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually

NOW = datetime(2026, 1, 2, tzinfo=UTC)


async def test_revocation_is_retried_until_the_ca_has_revoked_the_certificates() -> None:
    requests: list[tuple[str, datetime]] = []

    async def revoke(node_id: NodeId, until: datetime) -> None:
        requests.append((node_id, until))
        if len(requests) < 3:
            raise UnavailableError("the authority does not respond")

    memory = Memory()
    memory.removed.put(RemovedNode(NodeId("n1"), NOW))  # before this scheduler came to lead
    supervisor = Supervisor("scheduler", SystemClock(), CollectorRegistry())
    revoking = KeyedWork[NodeId](supervisor, "revocation", SystemClock(), expects=PersysError)
    removed = RemovedNodes(memory, revoke, revoking=revoking, again=timedelta(seconds=0.01))

    async def count(number: int) -> None:
        async def holds_now() -> bool:
            return len(requests) == number

        await eventually(holds_now, lambda: f"{number} questions: {requests}")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(removed.run())
        await count(3)
        removed.note(RemovedNode(NodeId("n2"), NOW))
        await count(4)
        task.cancel()
    assert requests == [("n1", NOW)] * 3 + [("n2", NOW)]


async def test_a_removal_leaves_the_store_with_a_later_change_when_it_is_old(
    cluster: Cluster,
) -> None:
    async def remove(name: str) -> None:
        await cluster.join(name)
        response = await cluster.control.stub.RemoveNode(pb.NodeRequest(node_id=name), timeout=10)
        assert response.accepted

    async def kept() -> list[str]:
        found = await cluster.store.read("/removed/")
        return [record.key for record in found.records]

    await remove("n1")
    assert await kept() == ["/removed/n1"]
    cluster.clock.ahead = REMEMBERED + timedelta(hours=1)
    await remove("n2")
    assert await kept() == ["/removed/n2"]
