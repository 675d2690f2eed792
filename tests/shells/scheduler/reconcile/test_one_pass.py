"""One decision per change: the reply of a node that works on an order needs no decision of its own."""

from datetime import timedelta

import pytest

from persys.model.ids import WorkloadId
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.third_party_agent import Node

NEVER = timedelta(hours=1)
WEB = WorkloadId("web")


async def a_slow_node(cluster: Cluster) -> Node:
    """It reports epochs and changes, and never ends its work."""
    node = await cluster.prepare("n1")
    node.features = ["push-status"]
    node.agent.behaviour.is_ours = True
    node.agent.behaviour.work_seconds = NEVER.total_seconds()
    await node.join()
    return node


async def until_accepted(cluster: Cluster) -> None:
    async def accepted() -> bool:
        dispatch = cluster.app.cluster.workloads[WEB].dispatch
        return dispatch is not None and dispatch.answered_at is not None

    await eventually(accepted, lambda: "the node to accept the order")


QUIET = {"reconcile_interval": NEVER, "drift_detect_interval": NEVER}


@pytest.mark.parametrize("cluster", [QUIET], indirect=True)
async def test_an_accepted_order_costs_no_second_decision(cluster: Cluster) -> None:
    await a_slow_node(cluster)
    before = cluster.app.reconciler.steps

    await cluster.control.apply("web")
    await until_accepted(cluster)
    await cluster.control.apply("next")  # steps that were due have begun

    assert cluster.app.reconciler.steps == before


@pytest.mark.parametrize(
    "cluster", [{**QUIET, "agent_apply_timeout": timedelta(seconds=1)}], indirect=True
)
async def test_an_accepted_order_without_a_result_times_out(cluster: Cluster) -> None:
    await a_slow_node(cluster)
    await cluster.control.apply("web")

    async def timed_out() -> bool:
        return cluster.app.cluster.workloads[WEB].retry is not None

    await eventually(timed_out, lambda: "the order to time out")
