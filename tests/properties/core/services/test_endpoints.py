"""For every cluster: no endpoint is deleted, stopped, unhealthy or lost, and no healthy member is missing."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from persys.core.agent.health import UNHEALTHY
from persys.core.services.endpoints import Member, endpoints
from persys.model.ids import NodeId
from persys.model.node import Node
from persys.model.status import Status
from persys.model.workload import Desired
from service_builders import a_draining_node, a_lost_node, a_member, a_node, a_service

NODES = ("n1", "n2", "n3")


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Member], dict[NodeId, Node]]:
    kinds = st.sampled_from([a_node, a_node, a_lost_node, a_draining_node, None])
    nodes = [make(name) for name in NODES if (make := draw(kinds)) is not None]
    members = [
        a_member(
            number,
            node=draw(st.sampled_from([*NODES, *NODES, None])),
            desired=draw(st.sampled_from([Desired.RUNNING] * 5 + list(Desired))),
            status=draw(st.sampled_from([Status.RUNNING] * 5 + list(Status))),
            code=draw(st.sampled_from(["", "", "", UNHEALTHY])),
            reported=draw(st.sampled_from(["r1", "r1", "r0"])),
            owner=draw(st.sampled_from(["web", "web", "shop"])),
        )
        for number in range(draw(st.integers(0, 6)))
    ]
    return members, {node.id: node for node in nodes}


def is_healthy(member: Member, nodes: dict[NodeId, Node]) -> bool:
    """By the words of the documentation, not by the code."""
    workload, assignment, status = member
    node = nodes.get(assignment.node_id) if assignment is not None else None
    return (
        workload.membership is not None
        and workload.membership.owner == "web"
        and workload.desired is Desired.RUNNING
        and status is not None
        and (status.status, status.code, status.revision) == (Status.RUNNING, "", "r1")
        and node is not None
        and node.status != "NotReady"
    )


@given(clusters())
def test_the_endpoints_are_the_healthy_members(
    cluster: tuple[list[Member], dict[NodeId, Node]],
) -> None:
    members, nodes = cluster
    healthy = {one.workload.id: one for one in members if is_healthy(one, nodes)}
    leaving = {
        name
        for name, one in healthy.items()
        if one.assignment is not None and nodes[one.assignment.node_id].drain is not None
    }

    found = endpoints(a_service(), members, nodes)

    listed = {one.workload_id for one in found.endpoints}
    assert listed == (healthy.keys() - leaving or healthy.keys())
    selected = {
        one.workload.id
        for one in members
        if one.workload.membership is not None and one.workload.membership.owner == "web"
    }
    assert {one.workload_id for one in found.excluded} == selected - listed
    assert all(one.reason for one in found.excluded)
    assert found.healthy_count == len(listed)


@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_matter(
    cluster: tuple[list[Member], dict[NodeId, Node]], random: Random
) -> None:
    members, nodes = cluster
    shuffled = list(members)
    random.shuffle(shuffled)

    assert endpoints(a_service(), members, nodes) == endpoints(a_service(), shuffled, nodes)
