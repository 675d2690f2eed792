"""Read-only calls on a large cluster do not block other tasks."""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TypeVar

from builders import a_workload
from persys.core.reconcile.situation import Policy
from persys.infra.aio.offload import SLICE_SECONDS, TimeSlice
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId
from persys.model.node import Capabilities, Node
from persys.model.placement import Resources
from persys.model.spec import WorkloadType
from persys.scheduler.queries.explain import EXPLAINED_AT_ONCE, NODES_SHOWN, Explainer
from persys.scheduler.queries.plan import PlanBuilder
from persys.scheduler.state.cluster import ClusterState
from persys.wire.gen.control.v1 import control_pb2 as pb

AnswerT = TypeVar("AnswerT")

NODES = 50
NOW = datetime(2025, 6, 1, tzinfo=UTC)
SPEC = pb.WorkloadSpec(
    container=pb.ContainerSpec(image="nginx"),
    resources=pb.ResourceRequirements(cpu_millicores=100),
)


def a_cluster() -> ClusterState:
    cluster = ClusterState()
    has = Capabilities(1000, 1000, types=frozenset({WorkloadType.CONTAINER}))
    for number in range(NODES):
        node = Node(NodeId(f"n{number}"), has, "127.0.0.1:1", NOW)
        cluster.put_node(node, lease_until=0.0)
    return cluster


def a_slow_machine() -> SystemClock:
    """Every operation takes longer than a slice."""
    return SystemClock(monotonic=count(step=2 * SLICE_SECONDS).__next__)


async def count_interruptions(answering: Awaitable[AnswerT]) -> tuple[AnswerT, int]:
    """The response, and how often other tasks ran meanwhile."""
    interruptions = 0

    async def others() -> None:
        nonlocal interruptions
        while True:
            await asyncio.sleep(0)
            interruptions += 1

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(others())
        response = await answering
        waiting.cancel()
    return response, interruptions


async def test_other_tasks_run_while_capacity_is_counted() -> None:
    outlook = Explainer(
        a_cluster(),
        lambda situation: situation,
        a_slow_machine(),
        growth=lambda _id: "",
        explain_set=lambda _id: None,
    )

    response, interruptions = await count_interruptions(outlook.capacity(SPEC))

    assert response.fits == 10 * NODES
    assert interruptions >= NODES - 1


async def test_other_tasks_run_while_a_plan_is_computed() -> None:
    planning = PlanBuilder(
        a_cluster(),
        lambda situation: situation,
        Policy(),
        now=NOW,
        lease=timedelta(seconds=30),
        prefix="",
    )
    requests = [pb.ApplyWorkloadRequest(workload_id=f"w{n}", spec=SPEC) for n in range(50)]

    plans, interruptions = await count_interruptions(
        planning.plan_all(requests, TimeSlice(a_slow_machine()))
    )

    assert {plan.action for plan in plans} == {"create"}
    assert interruptions >= len(plans) - 1


async def test_a_long_explanation_has_the_same_summary_as_a_limited_one() -> None:
    cluster = ClusterState()
    has = Capabilities(1000, 1000, types=frozenset({WorkloadType.CONTAINER}))
    for number in range(2 * EXPLAINED_AT_ONCE):
        cluster.put_node(Node(NodeId(f"n{number:03}"), has, "127.0.0.1:1", NOW), lease_until=0.0)
    cluster.put_workload(a_workload("web", resources=Resources(5000)))
    outlook = Explainer(
        cluster,
        lambda situation: situation,
        SystemClock(),
        growth=lambda _id: "",
        explain_set=lambda _id: None,
    )

    short = await outlook.explain("web", limit=0)
    long = await outlook.explain("web", limit=2**31 - 1)

    assert (len(short.nodes), len(long.nodes)) == (NODES_SHOWN, 2 * EXPLAINED_AT_ONCE)
    assert (short.counts, short.summary) == (long.counts, long.summary)
    assert all(node.change == "a node with 5000m cpu" for node in long.nodes)
