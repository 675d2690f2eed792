"""How many more workloads fit, and which do not fit after a node loss."""

from builders import add_node, needs
from persys.core.placement.capacity import (
    NodeCapacity,
    NodeLoss,
    capacity_of,
    simulate_loss,
    total_of,
)
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.requirements import Requirements
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import HostPort, Resources, Rules

N1, N2 = NodeId("n1"), NodeId("n2")


def a_cluster(*cpus: int) -> NodeIndex:
    node_index = NodeIndex()
    for number, cpu in enumerate(cpus, start=1):
        add_node(node_index, f"n{number}", cpu=cpu)
    return node_index


def test_the_scarcest_resource_limits_the_capacity() -> None:
    slot = a_cluster(1000).slots[N1]

    assert capacity_of(slot, needs(300, 100)) == NodeCapacity(N1, 3, "short of cpu")
    assert capacity_of(slot, needs(100, 4000)) == NodeCapacity(N1, 2, "short of memory")


def test_a_host_port_or_required_anti_affinity_fits_once_per_node() -> None:
    slot = a_cluster(1000).slots[N1]
    apart = Requirements(Resources(10), rules=Rules(group="shop", apart=True))

    assert capacity_of(slot, needs(10, host_ports=[HostPort(80)])).fits == 1
    assert capacity_of(slot, apart) == NodeCapacity(N1, 1, "with another of group shop")


def test_a_workload_without_requests_fits_without_limit() -> None:
    node_index = a_cluster(1000, 1000)
    capacities = [capacity_of(slot, needs()) for slot in node_index.slots.values()]

    assert capacities[0] == NodeCapacity(N1, None, "")
    assert total_of(capacities) is None


def test_the_largest_finds_its_place_first() -> None:
    node_index = a_cluster(4000, 1000)
    movable = {
        WorkloadId("small"): needs(300),
        WorkloadId("large"): needs(900),
        WorkloadId("tiny"): needs(100),
    }

    assert simulate_loss(N1, movable, node_index) == NodeLoss(
        N1, moved=2, stranded=(WorkloadId("small"),)
    )


def test_no_workload_moves_to_a_lost_or_closed_node() -> None:
    node_index = a_cluster(4000, 4000)
    node_index.close(N2, "cordoned")

    loss = simulate_loss(N1, {WorkloadId("web"): needs(100)}, node_index)

    assert loss.stranded == (WorkloadId("web"),)
    assert node_index.slots[N1].closed == ""


def test_an_old_copy_of_the_same_workload_keeps_its_reservation() -> None:
    node_index, web = a_cluster(4000, 1000), WorkloadId("web")
    node_index.hold(web, N2, Resources(400), frozenset())

    assert simulate_loss(N1, {web: needs(500)}, node_index).moved == 1
    assert node_index.slots[N2].free.cpu_millicores == 600
