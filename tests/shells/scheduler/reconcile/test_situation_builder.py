"""Stale copies in the situation of a decision."""

from datetime import timedelta

import pytest

from builders import NOON, a_situation, an_assignment
from persys.core.reconcile.situation import Copy
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId
from persys.model.node import Capabilities, Node, NodeStatus
from persys.model.placement import Tombstone
from persys.scheduler.reconcile.situation_builder import SituationBuilder
from persys.scheduler.state.cluster import ClusterState

N1 = NodeId("n1")


def the_old_copy(status: NodeStatus | None, *, confirmed_dead: bool = False) -> Copy:
    """On a node of this status, or on a removed one. Its `stop_after` has passed."""
    cluster = ClusterState()
    if status is not None:
        node = Node(
            N1,
            Capabilities(4000, 8192),
            "n1:1",
            NOON,
            status=status,
            confirmed_dead=confirmed_dead,
        )
        cluster.put_node(node, lease_until=0.0)
    cluster.put_tombstone(Tombstone(an_assignment("n1"), NOON, stops_at=NOON))
    situating = SituationBuilder(
        cluster,
        SystemClock(),
        node_lease=timedelta(30),
        node_grace=5.0,
        offload_after=timedelta(seconds=30),
    )
    (copy,) = situating.complete_situation(a_situation()).copies
    return copy


def test_a_copy_on_a_live_node_may_run_until_the_node_reports_otherwise() -> None:
    copy = the_old_copy(NodeStatus.READY)

    assert (copy.may_run, copy.lost, copy.stops_at) == (True, False, None)


@pytest.mark.parametrize("status", [NodeStatus.NOT_READY, None], ids=["lost", "removed"])
def test_a_copy_with_stop_after_does_not_run_on_an_unreachable_node(
    status: NodeStatus | None,
) -> None:
    copy = the_old_copy(status)

    assert (copy.may_run, copy.lost, copy.stops_at) == (False, True, NOON)


def test_nothing_runs_on_a_node_that_is_confirmed_dead() -> None:
    assert not the_old_copy(NodeStatus.READY, confirmed_dead=True).may_run
