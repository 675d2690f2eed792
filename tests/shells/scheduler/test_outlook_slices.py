"""Counting room on a large cluster holds nobody up."""

import asyncio
from datetime import UTC, datetime
from itertools import count

from persys.infra.clock import SystemClock
from persys.model.ids import NodeId
from persys.model.node import Capabilities, Node
from persys.model.spec import WorkloadType
from persys.scheduler.cluster import Cluster
from persys.scheduler.outlook import SLICE_SECONDS, Outlook
from persys.wire.gen.control.v1 import control_pb2 as pb

NODES = 50
SPEC = pb.WorkloadSpec(
    container=pb.ContainerSpec(image="nginx"),
    resources=pb.ResourceRequirements(cpu_millicores=100),
)


async def test_others_get_their_turn_while_room_is_counted() -> None:
    cluster, turns = Cluster(), 0
    has = Capabilities(1000, 1000, types=frozenset({WorkloadType.CONTAINER}))
    for number in range(NODES):
        node = Node(NodeId(f"n{number}"), has, "127.0.0.1:1", datetime(2025, 6, 1, tzinfo=UTC))
        cluster.put_node(node, lease_until=0.0)
    # Whatever is done takes longer than a slice may last.
    slow_machine = SystemClock(monotonic=count(step=2 * SLICE_SECONDS).__next__)
    outlook = Outlook(cluster, lambda situation: situation, slow_machine)

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(others())
        answer = await outlook.capacity(SPEC)
        waiting.cancel()

    assert answer.fits == 10 * NODES
    assert turns >= NODES - 1
