"""Which node is chosen, and the message if none fits."""

import pytest

from builders import CONTAINER, N1, N2, add_node, needs
from persys.core.placement.filters import Filter, described
from persys.core.placement.node_index import Columns
from persys.core.placement.select import SCANNED_MOST, Placed, Unplaceable, place
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import HostPort
from persys.model.resources import Resources

SSH = HostPort(22)


@pytest.fixture
def columns() -> Columns:
    return Columns()


def hold(
    columns: Columns, name: str, node_id: str, cpu: int = 0, memory: int = 0, *ports: HostPort
) -> None:
    columns.hold(WorkloadId(name), NodeId(node_id), Resources(cpu, memory), frozenset(ports))


def chosen(columns: Columns, cpu: int = 0, memory: int = 0, disk: int = 0) -> str | None:
    match place(needs(cpu, memory, disk), columns):
        case Placed(node_id=node_id):
            return node_id
        case Unplaceable():
            return None


def explanation(columns: Columns, cpu: int = 0, memory: int = 0, disk: int = 0) -> str:
    nowhere = place(needs(cpu, memory, disk), columns)
    assert isinstance(nowhere, Unplaceable)
    return nowhere.explain()


def test_the_emptiest_node_wins(columns: Columns) -> None:
    add_node(columns, "n1")
    add_node(columns, "n2")
    hold(columns, "a", "n1", cpu=1000)

    assert chosen(columns, 100) == "n2"


def test_emptiness_is_judged_by_the_scarcest_resource(columns: Columns) -> None:
    add_node(columns, "n1", cpu=4000, memory=1000)
    add_node(columns, "n2", cpu=4000, memory=1000)
    hold(columns, "a", "n1", cpu=400, memory=900)
    hold(columns, "b", "n2", cpu=2000, memory=100)

    assert chosen(columns, 100) == "n2"


def test_equally_empty_nodes_fall_to_the_one_with_fewer_workloads(columns: Columns) -> None:
    add_node(columns, "n1")
    add_node(columns, "n2")
    hold(columns, "a", "n1", cpu=500)
    hold(columns, "b", "n1", cpu=500)
    hold(columns, "c", "n2", cpu=1000)

    assert chosen(columns, 100) == "n2"


def test_equal_nodes_fall_to_the_lower_id(columns: Columns) -> None:
    for node_id in ("n3", "n1", "n2"):
        add_node(columns, node_id)

    assert chosen(columns, 100) == "n1"


def test_a_closed_node_takes_nothing_until_it_is_open_again(columns: Columns) -> None:
    add_node(columns, "n1", closed="draining")
    assert chosen(columns) is None

    columns.close(N1, "")
    assert chosen(columns) == "n1"

    columns.close(N1, "not ready")
    assert explanation(columns) == "1 node not ready"


def test_a_node_without_a_needed_trait_is_refused_by_its_name(columns: Columns) -> None:
    add_node(columns, "n1")
    nowhere = place(needs(traits=CONTAINER | {"driver:nfs"}), columns)

    assert isinstance(nowhere, Unplaceable)
    assert nowhere.explain() == "1 node without storage driver nfs"


@pytest.mark.parametrize(
    ("trait", "words"),
    [
        ("type:vm", "a runtime for vm"),
        ("driver:ceph-rbd", "storage driver ceph-rbd"),
        ("feature:privileged", "feature privileged"),
    ],
)
def test_a_trait_is_said_as_people_say_it(trait: str, words: str) -> None:
    assert described(trait) == words


def test_a_host_port_is_given_once_per_protocol(columns: Columns) -> None:
    add_node(columns, "n1")
    hold(columns, "a", "n1", 0, 0, SSH)

    over_udp = place(needs(host_ports=[HostPort(22, "udp")]), columns)
    over_tcp = place(needs(host_ports=[SSH, HostPort(80)]), columns)

    assert isinstance(over_udp, Placed)
    assert isinstance(over_tcp, Unplaceable)
    assert over_tcp.explain() == "1 node with host port 22/tcp taken"


def test_a_project_name_is_given_once_per_node(columns: Columns) -> None:
    shop = HostPort.of_project("shop")
    add_node(columns, "n1")
    hold(columns, "a", "n1", 0, 0, shop)

    same = place(needs(host_ports=[shop]), columns)

    assert isinstance(same, Unplaceable)
    assert same.explain() == "1 node with Compose project shop taken"
    assert isinstance(place(needs(host_ports=[HostPort.of_project("b")]), columns), Placed)


def test_a_host_port_is_free_again_when_it_was_given_back(columns: Columns) -> None:
    add_node(columns, "n1")
    hold(columns, "a", "n1", 0, 0, SSH)
    columns.give_back(WorkloadId("a"), N1)

    assert isinstance(place(needs(host_ports=[SSH]), columns), Placed)


@pytest.mark.parametrize(
    ("cpu", "memory", "disk", "fits"),
    [
        (4000, 8192, 100, True),
        (4001, 0, 0, False),
        (0, 8193, 0, False),
        (0, 0, 101, False),
    ],
)
def test_a_node_takes_exactly_what_it_has(
    columns: Columns, cpu: int, memory: int, disk: int, fits: bool
) -> None:
    add_node(columns, "n1")

    assert (chosen(columns, cpu, memory, disk) == "n1") is fits


def test_no_node_is_an_explanation_too(columns: Columns) -> None:
    assert explanation(columns) == "the cluster has no nodes"


def test_refusals_are_counted_the_most_frequent_first(columns: Columns) -> None:
    add_node(columns, "n1", closed="not ready")
    add_node(columns, "n2", closed="not ready")
    add_node(columns, "n3", traits=())

    assert explanation(columns) == "2 nodes not ready; 1 node without a runtime for container"


@pytest.mark.parametrize(
    ("amounts", "text"),
    [
        ((5000, 0, 0), "2 nodes short of cpu (needs 5000m, n2 lacks 500m)"),
        ((0, 9000, 0), "2 nodes short of memory (needs 9000 MB, n2 lacks 500 MB)"),
        ((0, 0, 101), "2 nodes short of disk (needs 101 GB, n2 lacks 1 GB)"),
    ],
)
def test_the_nearest_miss_is_named_with_what_it_lacks(
    columns: Columns, amounts: tuple[int, int, int], text: str
) -> None:
    add_node(columns, "n1", cpu=100, memory=100, disk=10)
    add_node(columns, "n2", cpu=4500, memory=8500, disk=100)

    assert explanation(columns, *amounts) == text


def test_every_node_has_its_rejection(columns: Columns) -> None:
    add_node(columns, "n1", closed="draining")
    add_node(columns, "n2", cpu=10)
    nowhere = place(needs(100), columns)

    assert isinstance(nowhere, Unplaceable)
    assert {node: refused.filter for node, refused in nowhere.rejections.items()} == {
        N1: Filter.CLOSED,
        N2: Filter.CPU,
    }


def test_a_choice_says_how_empty_the_node_was(columns: Columns) -> None:
    add_node(columns, "n1")
    hold(columns, "a", "n1", cpu=1000)
    placed = place(needs(), columns)

    assert isinstance(placed, Placed)
    assert placed.why == "the only node: 25% reserved, workloads: 1"


def test_a_reservation_taken_twice_counts_once(columns: Columns) -> None:
    add_node(columns, "n1")
    hold(columns, "a", "n1", 1000, 0, SSH)
    hold(columns, "a", "n1", 1500, 0, SSH)

    assert columns.rows[N1].free == Resources(2500, 8192, 100)
    assert columns.rows[N1].count == 1


def test_a_reservation_given_back_twice_is_given_back_once(columns: Columns) -> None:
    add_node(columns, "n1")
    hold(columns, "a", "n1", cpu=1000)
    hold(columns, "b", "n1", cpu=1000)
    columns.give_back(WorkloadId("a"), N1)
    columns.give_back(WorkloadId("a"), N1)

    assert columns.rows[N1].free == Resources(3000, 8192, 100)
    assert columns.rows[N1].count == 1


def test_a_node_that_registers_again_keeps_its_reservations(columns: Columns) -> None:
    add_node(columns, "n1")
    hold(columns, "a", "n1", 1000, 0, SSH)
    add_node(columns, "n1", cpu=8000, closed="draining")

    row = columns.rows[N1]
    assert row.free == Resources(7000, 8192, 100)
    assert (row.count, row.closed) == (1, "draining")
    assert set(row.ports) == {SSH}


def test_a_node_that_goes_and_returns_has_its_reservations_again(columns: Columns) -> None:
    add_node(columns, "n1")
    hold(columns, "a", "n1", 1000, 0, SSH)
    columns.remove_node(N1)
    assert chosen(columns) is None

    add_node(columns, "n1")
    assert columns.rows[N1].free == Resources(3000, 8192, 100)
    assert columns.rows[N1].count == 1


def test_room_taken_and_given_back_while_the_node_is_away_is_right_when_it_returns(
    columns: Columns,
) -> None:
    add_node(columns, "n1")
    hold(columns, "a", "n1", cpu=1000)
    columns.remove_node(N1)
    columns.give_back(WorkloadId("a"), N1)
    hold(columns, "b", "n1", cpu=500)
    add_node(columns, "n1")

    assert columns.rows[N1].free == Resources(3500, 8192, 100)


def test_removing_an_unknown_node_does_nothing(columns: Columns) -> None:
    add_node(columns, "n1")
    columns.remove_node(N2)

    assert chosen(columns) == "n1"


def test_the_place_of_a_removed_node_is_used_again(columns: Columns) -> None:
    add_node(columns, "n1")
    columns.remove_node(N1)
    add_node(columns, "n2", traits=())

    assert chosen(columns) is None
    assert columns.rows[N2].position == 0


def test_a_node_behind_many_full_ones_is_found(columns: Columns) -> None:
    for number in range(3 * SCANNED_MOST):
        add_node(columns, f"small-{number:02}", cpu=100)
    add_node(columns, "big", cpu=10_000)
    hold(columns, "a", "big", cpu=9000)

    assert chosen(columns, 1000) == "big"


def test_a_trait_beyond_the_number_of_bits_is_still_told_apart(columns: Columns) -> None:
    """The arrays distinguish 63 traits; the filter checks the others."""
    for number in range(80):
        add_node(columns, f"n{number:02}", traits={f"driver:d{number:02}"})

    match place(needs(traits={"driver:d79"}), columns):
        case Placed(node_id=node_id):
            assert node_id == "n79"
        case Unplaceable() as nowhere:
            pytest.fail(nowhere.explain())
    assert isinstance(place(needs(traits={"driver:d80"}), columns), Unplaceable)


def test_all_that_a_node_holds_can_be_given_back_at_once(columns: Columns) -> None:
    add_node(columns, "n1")
    hold(columns, "a", "n1", cpu=1000)
    hold(columns, "b", "n1", cpu=1000)
    columns.give_back_all(N1)

    assert columns.rows[N1].free == columns.rows[N1].allocatable
    assert columns.held(WorkloadId("a"), N1) is None


def test_a_node_that_shrank_below_its_reservations_takes_nothing_more(columns: Columns) -> None:
    add_node(columns, "n1", cpu=4000)
    hold(columns, "a", "n1", cpu=3000)
    add_node(columns, "n1", cpu=2000)

    assert explanation(columns, 1) == "1 node short of cpu (needs 1m, n1 lacks 1001m)"
    assert chosen(columns, 0) is None
