"""Questions about a large cluster hold nobody up."""

import asyncio
from datetime import UTC, datetime
from itertools import count

from builders import a_workload
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId
from persys.model.node import Capabilities, Node
from persys.model.resources import Resources
from persys.model.spec import WorkloadType
from persys.scheduler.cluster import Cluster
from persys.scheduler.outlook import NODES_TOLD, SLICE_SECONDS, TOLD_AT_ONCE, Outlook
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


async def test_an_answer_about_very_many_nodes_says_the_same_as_a_short_one() -> None:
    cluster, now = Cluster(), datetime(2025, 6, 1, tzinfo=UTC)
    has = Capabilities(1000, 1000, types=frozenset({WorkloadType.CONTAINER}))
    for number in range(2 * TOLD_AT_ONCE):
        cluster.put_node(Node(NodeId(f"n{number:03}"), has, "127.0.0.1:1", now), lease_until=0.0)
    cluster.put_workload(a_workload("web", resources=Resources(5000)))
    outlook = Outlook(cluster, lambda situation: situation, SystemClock())

    short = await outlook.explain("web", limit=0)
    long = await outlook.explain("web", limit=2**31 - 1)

    assert (len(short.nodes), len(long.nodes)) == (NODES_TOLD, 2 * TOLD_AT_ONCE)
    assert (short.counts, short.summary) == (long.counts, long.summary)
    assert all(node.change == "a node with 5000m cpu" for node in long.nodes)
