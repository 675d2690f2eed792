"""The reservation of a pending commit is kept while other records of the node change."""

from datetime import UTC, datetime

from builders import N1, NOON, an_assignment
from persys.model.node import Capabilities, Node
from persys.model.placement import Resources, Tombstone
from persys.scheduler.state.cluster import ClusterState


def a_cluster() -> ClusterState:
    cluster = ClusterState()
    node = Node(N1, Capabilities(4000, 8192), "n1:1", datetime(2030, 1, 1, tzinfo=UTC))
    cluster.put_node(node, lease_until=0.0)
    return cluster


def test_removing_a_stale_copy_keeps_the_reservation_of_its_successor() -> None:
    cluster = a_cluster()
    old = an_assignment(N1)
    cluster.put_tombstone(Tombstone(old, NOON))
    cluster.update_reservations(old.workload_id, (N1,))
    cluster.reserve_pending(an_assignment(N1, epoch=2))

    cluster.drop_tombstone(N1, old.workload_id)
    cluster.update_reservations(old.workload_id, (N1,))

    assert cluster.node_index.held(old.workload_id, N1) is not None


def test_a_failed_commit_frees_its_reservation() -> None:
    cluster = a_cluster()
    wanted = an_assignment(N1)
    cluster.reserve_pending(wanted)

    cluster.end_pending(wanted.workload_id)
    cluster.update_reservations(wanted.workload_id, (N1,))

    assert cluster.node_index.held(wanted.workload_id, N1) is None
    assert cluster.node_index.slots[N1].free == Resources(4000, 8192)


def test_a_node_that_was_removed_and_registers_again_has_no_reservations() -> None:
    """Found by seed 27: the reservations of its tombstones were kept."""
    cluster = a_cluster()
    old = an_assignment(N1)
    cluster.put_tombstone(Tombstone(old, NOON))
    cluster.update_reservations(old.workload_id, (N1,))
    node = cluster.nodes[N1].node

    cluster.drop_node(N1)
    cluster.put_node(node, lease_until=0.0)

    assert cluster.node_index.slots[N1].free == Resources(4000, 8192)
