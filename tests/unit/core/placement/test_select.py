"""Which node is chosen, and the message if none fits."""

import pytest

from builders import CONTAINER, N1, N2, add_node, needs
from persys.core.placement.filters import Filter, described
from persys.core.placement.index.node_index import SCANNED_MOST, NodeIndex
from persys.core.placement.select import Placed, Unplaceable, place
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import HostPort, Resources

SSH = HostPort(22)


@pytest.fixture
def node_index() -> NodeIndex:
    return NodeIndex()


def hold(
    node_index: NodeIndex, name: str, node_id: str, cpu: int = 0, memory: int = 0, *ports: HostPort
) -> None:
    node_index.hold(WorkloadId(name), NodeId(node_id), Resources(cpu, memory), frozenset(ports))


def chosen(node_index: NodeIndex, cpu: int = 0, memory: int = 0, disk: int = 0) -> str | None:
    match place(needs(cpu, memory, disk), node_index):
        case Placed(node_id=node_id):
            return node_id
        case Unplaceable():
            return None


def explanation(node_index: NodeIndex, cpu: int = 0, memory: int = 0, disk: int = 0) -> str:
    unplaceable = place(needs(cpu, memory, disk), node_index)
    assert isinstance(unplaceable, Unplaceable)
    return unplaceable.explain()


def test_the_emptiest_node_wins(node_index: NodeIndex) -> None:
    add_node(node_index, "n1")
    add_node(node_index, "n2")
    hold(node_index, "a", "n1", cpu=1000)

    assert chosen(node_index, 100) == "n2"


def test_emptiness_is_judged_by_the_scarcest_resource(node_index: NodeIndex) -> None:
    add_node(node_index, "n1", cpu=4000, memory=1000)
    add_node(node_index, "n2", cpu=4000, memory=1000)
    hold(node_index, "a", "n1", cpu=400, memory=900)
    hold(node_index, "b", "n2", cpu=2000, memory=100)

    assert chosen(node_index, 100) == "n2"


def test_of_equally_used_nodes_the_one_with_fewer_workloads_is_selected(
    node_index: NodeIndex,
) -> None:
    add_node(node_index, "n1")
    add_node(node_index, "n2")
    hold(node_index, "a", "n1", cpu=500)
    hold(node_index, "b", "n1", cpu=500)
    hold(node_index, "c", "n2", cpu=1000)

    assert chosen(node_index, 100) == "n2"


def test_equal_nodes_fall_to_the_lower_id(node_index: NodeIndex) -> None:
    for node_id in ("n3", "n1", "n2"):
        add_node(node_index, node_id)

    assert chosen(node_index, 100) == "n1"


def test_a_closed_node_takes_nothing_until_it_is_open_again(node_index: NodeIndex) -> None:
    add_node(node_index, "n1", closed="draining")
    assert chosen(node_index) is None

    node_index.close(N1, "")
    assert chosen(node_index) == "n1"

    node_index.close(N1, "not ready")
    assert explanation(node_index) == "1 node not ready"


def test_a_node_without_a_needed_trait_is_refused_by_its_name(node_index: NodeIndex) -> None:
    add_node(node_index, "n1")
    unplaceable = place(needs(traits=CONTAINER | {"driver:nfs"}), node_index)

    assert isinstance(unplaceable, Unplaceable)
    assert unplaceable.explain() == "1 node without storage driver nfs"


@pytest.mark.parametrize(
    ("trait", "words"),
    [
        ("type:vm", "a runtime for vm"),
        ("driver:ceph-rbd", "storage driver ceph-rbd"),
        ("feature:privileged", "feature privileged"),
    ],
)
def test_a_trait_is_described_in_plain_terms(trait: str, words: str) -> None:
    assert described(trait) == words


def test_a_host_port_is_given_once_per_protocol(node_index: NodeIndex) -> None:
    add_node(node_index, "n1")
    hold(node_index, "a", "n1", 0, 0, SSH)

    over_udp = place(needs(host_ports=[HostPort(22, "udp")]), node_index)
    over_tcp = place(needs(host_ports=[SSH, HostPort(80)]), node_index)

    assert isinstance(over_udp, Placed)
    assert isinstance(over_tcp, Unplaceable)
    assert over_tcp.explain() == "1 node with host port 22/tcp taken"


def test_a_project_name_is_given_once_per_node(node_index: NodeIndex) -> None:
    shop = HostPort.of_project("shop")
    add_node(node_index, "n1")
    hold(node_index, "a", "n1", 0, 0, shop)

    same = place(needs(host_ports=[shop]), node_index)

    assert isinstance(same, Unplaceable)
    assert same.explain() == "1 node with Compose project shop taken"
    assert isinstance(place(needs(host_ports=[HostPort.of_project("b")]), node_index), Placed)


def test_a_host_port_is_free_again_when_it_was_given_back(node_index: NodeIndex) -> None:
    add_node(node_index, "n1")
    hold(node_index, "a", "n1", 0, 0, SSH)
    node_index.give_back(WorkloadId("a"), N1)

    assert isinstance(place(needs(host_ports=[SSH]), node_index), Placed)


@pytest.mark.parametrize(
    ("cpu", "memory", "disk", "fits"),
    [
        (4000, 8192, 100, True),
        (4001, 0, 0, False),
        (0, 8193, 0, False),
        (0, 0, 101, False),
    ],
)
def test_a_node_can_be_filled_exactly(
    node_index: NodeIndex, cpu: int, memory: int, disk: int, fits: bool
) -> None:
    add_node(node_index, "n1")

    assert (chosen(node_index, cpu, memory, disk) == "n1") is fits


def test_no_node_is_an_explanation_too(node_index: NodeIndex) -> None:
    assert explanation(node_index) == "the cluster has no nodes"


def test_refusals_are_counted_the_most_frequent_first(node_index: NodeIndex) -> None:
    add_node(node_index, "n1", closed="not ready")
    add_node(node_index, "n2", closed="not ready")
    add_node(node_index, "n3", traits=())

    assert explanation(node_index) == "2 nodes not ready; 1 node without a runtime for container"


@pytest.mark.parametrize(
    ("amounts", "text"),
    [
        ((5000, 0, 0), "2 nodes short of cpu (needs 5000m, n2 lacks 500m)"),
        ((0, 9000, 0), "2 nodes short of memory (needs 9000 MB, n2 lacks 500 MB)"),
        ((0, 0, 101), "2 nodes short of disk (needs 101 GB, n2 lacks 1 GB)"),
    ],
)
def test_the_closest_rejection_is_named_with_the_missing_amount(
    node_index: NodeIndex, amounts: tuple[int, int, int], text: str
) -> None:
    add_node(node_index, "n1", cpu=100, memory=100, disk=10)
    add_node(node_index, "n2", cpu=4500, memory=8500, disk=100)

    assert explanation(node_index, *amounts) == text


def test_every_node_has_its_rejection(node_index: NodeIndex) -> None:
    add_node(node_index, "n1", closed="draining")
    add_node(node_index, "n2", cpu=10)
    unplaceable = place(needs(100), node_index)

    assert isinstance(unplaceable, Unplaceable)
    assert {node: refused.filter for node, refused in unplaceable.rejections.items()} == {
        N1: Filter.CLOSED,
        N2: Filter.CPU,
    }


def test_a_placement_shows_the_utilisation_of_the_node(node_index: NodeIndex) -> None:
    add_node(node_index, "n1")
    hold(node_index, "a", "n1", cpu=1000)
    placed = place(needs(), node_index)

    assert isinstance(placed, Placed)
    assert placed.why == "the only node: 25% reserved, workloads: 1"


def test_a_reservation_taken_twice_counts_once(node_index: NodeIndex) -> None:
    add_node(node_index, "n1")
    hold(node_index, "a", "n1", 1000, 0, SSH)
    hold(node_index, "a", "n1", 1500, 0, SSH)

    assert node_index.slots[N1].free == Resources(2500, 8192, 100)
    assert node_index.slots[N1].count == 1


def test_a_reservation_given_back_twice_is_given_back_once(node_index: NodeIndex) -> None:
    add_node(node_index, "n1")
    hold(node_index, "a", "n1", cpu=1000)
    hold(node_index, "b", "n1", cpu=1000)
    node_index.give_back(WorkloadId("a"), N1)
    node_index.give_back(WorkloadId("a"), N1)

    assert node_index.slots[N1].free == Resources(3000, 8192, 100)
    assert node_index.slots[N1].count == 1


def test_a_node_that_registers_again_keeps_its_reservations(node_index: NodeIndex) -> None:
    add_node(node_index, "n1")
    hold(node_index, "a", "n1", 1000, 0, SSH)
    add_node(node_index, "n1", cpu=8000, closed="draining")

    slot = node_index.slots[N1]
    assert slot.free == Resources(7000, 8192, 100)
    assert (slot.count, slot.closed) == (1, "draining")
    assert set(slot.ports) == {SSH}


def test_a_returning_node_has_its_reservations_again(node_index: NodeIndex) -> None:
    add_node(node_index, "n1")
    hold(node_index, "a", "n1", 1000, 0, SSH)
    node_index.remove_node(N1)
    assert chosen(node_index) is None

    add_node(node_index, "n1")
    assert node_index.slots[N1].free == Resources(3000, 8192, 100)
    assert node_index.slots[N1].count == 1


def test_reservations_changed_while_a_node_is_removed_are_correct_when_it_returns(
    node_index: NodeIndex,
) -> None:
    add_node(node_index, "n1")
    hold(node_index, "a", "n1", cpu=1000)
    node_index.remove_node(N1)
    node_index.give_back(WorkloadId("a"), N1)
    hold(node_index, "b", "n1", cpu=500)
    add_node(node_index, "n1")

    assert node_index.slots[N1].free == Resources(3500, 8192, 100)


def test_removing_an_unknown_node_does_nothing(node_index: NodeIndex) -> None:
    add_node(node_index, "n1")
    node_index.remove_node(N2)

    assert chosen(node_index) == "n1"


def test_the_place_of_a_removed_node_is_used_again(node_index: NodeIndex) -> None:
    add_node(node_index, "n1")
    node_index.remove_node(N1)
    add_node(node_index, "n2", traits=())

    assert chosen(node_index) is None
    assert node_index.slots[N2].position == 0


def test_a_node_behind_many_full_ones_is_found(node_index: NodeIndex) -> None:
    for number in range(3 * SCANNED_MOST):
        add_node(node_index, f"small-{number:02}", cpu=100)
    add_node(node_index, "big", cpu=10_000)
    hold(node_index, "a", "big", cpu=9000)

    assert chosen(node_index, 1000) == "big"


def test_a_trait_beyond_the_bit_mask_is_still_distinguished(node_index: NodeIndex) -> None:
    """The arrays distinguish 63 traits; the filter checks the others."""
    for number in range(80):
        add_node(node_index, f"n{number:02}", traits={f"driver:d{number:02}"})

    match place(needs(traits={"driver:d79"}), node_index):
        case Placed(node_id=node_id):
            assert node_id == "n79"
        case Unplaceable() as nowhere:
            pytest.fail(nowhere.explain())
    assert isinstance(place(needs(traits={"driver:d80"}), node_index), Unplaceable)


def test_all_reservations_of_a_node_can_be_released_at_once(node_index: NodeIndex) -> None:
    add_node(node_index, "n1")
    hold(node_index, "a", "n1", cpu=1000)
    hold(node_index, "b", "n1", cpu=1000)
    node_index.give_back_all(N1)

    assert node_index.slots[N1].free == node_index.slots[N1].allocatable
    assert node_index.held(WorkloadId("a"), N1) is None


def test_a_node_that_shrank_below_its_reservations_takes_nothing_more(
    node_index: NodeIndex,
) -> None:
    add_node(node_index, "n1", cpu=4000)
    hold(node_index, "a", "n1", cpu=3000)
    add_node(node_index, "n1", cpu=2000)

    assert explanation(node_index, 1) == "1 node short of cpu (needs 1m, n1 lacks 1001m)"
    assert chosen(node_index, 0) is None
