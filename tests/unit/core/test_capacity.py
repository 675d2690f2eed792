"""How many more workloads fit, and which do not fit after a node loss."""

from builders import add_node, needs
from persys.core.placement.capacity import Loss, Room, lose, room_on, total_of
from persys.core.placement.node_index import Columns
from persys.core.placement.requirements import Needs
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import HostPort, Rules
from persys.model.resources import Resources

N1, N2 = NodeId("n1"), NodeId("n2")


def a_cluster(*cpus: int) -> Columns:
    columns = Columns()
    for number, cpu in enumerate(cpus, start=1):
        add_node(columns, f"n{number}", cpu=cpu)
    return columns


def test_the_scarcest_resource_ends_the_room() -> None:
    row = a_cluster(1000).rows[N1]

    assert room_on(row, needs(300, 100)) == Room(N1, 3, "short of cpu")
    assert room_on(row, needs(100, 4000)) == Room(N1, 2, "short of memory")


def test_a_host_port_or_a_group_kept_apart_goes_once_per_node() -> None:
    row = a_cluster(1000).rows[N1]
    apart = Needs(Resources(10), rules=Rules(group="shop", apart=True))

    assert room_on(row, needs(10, host_ports=[HostPort(80)])).fits == 1
    assert room_on(row, apart) == Room(N1, 1, "with another of group shop")


def test_what_needs_nothing_fits_without_limit() -> None:
    columns = a_cluster(1000, 1000)
    rooms = [room_on(row, needs()) for row in columns.rows.values()]

    assert rooms[0] == Room(N1, None, "")
    assert total_of(rooms) is None


def test_the_largest_finds_its_place_first() -> None:
    columns = a_cluster(4000, 1000)
    movable = {
        WorkloadId("small"): needs(300),
        WorkloadId("large"): needs(900),
        WorkloadId("tiny"): needs(100),
    }

    assert lose(N1, movable, columns) == Loss(N1, moved=2, stranded=(WorkloadId("small"),))


def test_nobody_moves_to_the_node_that_is_lost_or_to_a_closed_one() -> None:
    columns = a_cluster(4000, 4000)
    columns.close(N2, "cordoned")

    loss = lose(N1, {WorkloadId("web"): needs(100)}, columns)

    assert loss.stranded == (WorkloadId("web"),)
    assert columns.rows[N1].closed == ""


def test_an_old_copy_of_the_same_workload_keeps_its_room() -> None:
    columns, web = a_cluster(4000, 1000), WorkloadId("web")
    columns.hold(web, N2, Resources(400), frozenset())

    assert lose(N1, {web: needs(500)}, columns).moved == 1
    assert columns.rows[N2].free.cpu_millicores == 600
