"""Why a node is rejected, and the smallest change that would help."""

import pytest

from builders import add_node, needs
from persys.core.placement.explain import explain, remedy
from persys.core.placement.filters import Filter
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.placer import without_workload
from persys.core.placement.requirements import Requirements
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Constraint, HostPort, Operator, Resources, Rules

N1 = NodeId("n1")
WEB = WorkloadId("web")


def a_change(node_index: NodeIndex, wanted: Requirements) -> str:
    return remedy(node_index.slots[N1], wanted, node_index).change


@pytest.mark.parametrize(
    ("closed", "change"),
    [
        ("cordoned", "uncordon n1"),
        ("draining", "end the drain of n1 with uncordon"),
        ("not ready", "repair n1"),
        ("asleep", "open n1, which is asleep"),
    ],
)
def test_a_closed_node_would_have_to_open(closed: str, change: str) -> None:
    node_index = NodeIndex()
    add_node(node_index, "n1", closed=closed)

    assert a_change(node_index, needs()) == change


def test_an_explanation_lists_every_obstacle() -> None:
    node_index = NodeIndex()
    add_node(node_index, "n1", cpu=1000, memory=512, closed="cordoned")

    assert a_change(node_index, needs(900, 500)) == "uncordon n1"
    node_index.hold(WEB, N1, Resources(400, 100), frozenset())
    assert a_change(node_index, needs(900, 500)) == (
        "uncordon n1 and free 300m cpu on n1 and free 88 MB memory on n1"
    )


def test_the_holder_of_a_host_port_or_a_group_member_is_named() -> None:
    node_index = NodeIndex()
    add_node(node_index, "n1")
    node_index.hold(WEB, N1, Resources(), frozenset({HostPort(80)}), group="shop")

    port = needs(host_ports=[HostPort(80)])
    apart = Requirements(Resources(), rules=Rules(group="shop", apart=True))
    assert a_change(node_index, port) == "free host port 80/tcp on n1, used by workload web"
    assert a_change(node_index, apart) == "move web of group shop off n1"


def test_the_holder_of_a_project_name_is_named() -> None:
    node_index, shop = NodeIndex(), HostPort.of_project("shop")
    add_node(node_index, "n1")
    node_index.hold(WEB, N1, Resources(), frozenset({shop}))

    change = a_change(node_index, needs(host_ports=[shop]))

    assert change == "free Compose project shop on n1, used by workload web"


def test_a_requirement_that_a_node_cannot_meet_suggests_another_node() -> None:
    node_index = NodeIndex()
    add_node(node_index, "n1", cpu=1000, closed="cordoned")

    with_driver = needs(traits=("type:container", "driver:nfs"))
    assert a_change(node_index, with_driver) == "a node with storage driver nfs"
    assert a_change(node_index, needs(2000)) == "a node with 2000m cpu"


def test_taints_and_constraints_are_for_the_workload_to_change() -> None:
    node_index = NodeIndex()
    node_index.put_node(
        N1,
        allocatable=Resources(1000, 1000),
        traits=frozenset(),
        labels={"zone": "us"},
        taints=frozenset({"gpu"}),
    )
    zone = Constraint("zone", Operator.EQUALS, ("eu",))

    change = a_change(node_index, Requirements(Resources(), rules=Rules(constraints=(zone,))))

    assert change == "tolerate taint gpu and relax constraint zone = eu"


def test_suggested_changes_are_sorted_by_size_and_unique() -> None:
    node_index = NodeIndex()
    add_node(node_index, "n1", cpu=1000)
    add_node(node_index, "n2", cpu=1000, closed="cordoned")
    add_node(node_index, "n3", traits=())
    add_node(node_index, "n4", traits=())
    node_index.hold(WEB, N1, Resources(500), frozenset())

    found = explain(needs(600), node_index, limit=20)

    assert found.changes() == (
        "uncordon n2",
        "free 100m cpu on n1",
        "a node with a runtime for container",
    )
    assert found.refusals() == (
        "2 nodes without a runtime for container; 1 node cordoned; 1 node short of cpu"
    )


def test_the_closest_rejections_are_listed_first_and_all_are_counted() -> None:
    node_index = NodeIndex()
    for number in range(100):
        add_node(node_index, f"n{number:03}", cpu=1000 + number)

    found = explain(needs(2000), node_index, limit=3)

    assert [verdict.node_id for verdict in found.verdicts] == ["n099", "n098", "n097"]
    assert found.counts == {(Filter.CPU, "short of cpu"): 100}
    assert (found.node_count, found.fit_count) == (100, 0)


def test_without_any_node_there_is_nothing_to_say() -> None:
    found = explain(needs(), NodeIndex(), limit=20)

    assert (found.verdicts, found.changes(), found.refusals()) == (
        (),
        (),
        "the cluster has no nodes",
    )


def test_a_simulated_removal_releases_and_restores_the_reservation() -> None:
    node_index = NodeIndex()
    add_node(node_index, "n1", cpu=1000)
    node_index.hold(WEB, N1, Resources(600), frozenset({HostPort(80)}), group="shop", apart=True)
    before = node_index.slots[N1].copy()

    with without_workload(WEB, N1, node_index):
        assert node_index.slots[N1].free.cpu_millicores == 1000
        assert node_index.slots[N1].members == {}

    assert node_index.slots[N1] == before
