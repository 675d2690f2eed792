"""No slice is ever held by two nodes, and the version of a configuration depends on its content only."""

from hypothesis import given
from hypothesis import strategies as st

from builders import NOON
from persys.core.networks.configuration import NetworkView, PeerNode, configuration_of
from persys.core.networks.members import NetworkMember
from persys.core.networks.subnets import NoSlice, reserve, room_of
from persys.model.ids import NodeId, WorkloadId
from persys.model.network import Network, NetworkId, Slices

NODES = tuple(NodeId(f"n{number}") for number in range(6))
NETWORK = Network(NetworkId("backend"), 1, "10.128.0.0/24", NOON, NOON)

steps = st.lists(
    st.tuples(st.sampled_from(NODES), st.one_of(st.just(0), st.integers(1, 140))), max_size=30
)


@given(steps)
def test_no_slice_is_held_by_two_nodes(steps: list[tuple[NodeId, int]]) -> None:
    """A count of 0 releases the slices of the node."""
    held: dict[NodeId, Slices] = {}
    for node_id, count in steps:
        if not count:
            held.pop(node_id, None)
            continue
        before = held.get(node_id)
        found = reserve(NETWORK, node_id, held, address_count=count)
        if isinstance(found, NoSlice):
            continue
        held[node_id] = found
        assert room_of(NETWORK, found.slices) >= count
        assert before is None or found.slices[: len(before.slices)] == before.slices
        every = [text for one in held.values() for text in one.slices]
        assert len(every) == len(set(every))


@given(st.permutations(range(4)), st.booleans())
def test_the_version_does_not_depend_on_the_order_of_inputs(
    order: list[int], healthy: bool
) -> None:
    members = [
        NetworkMember(
            WorkloadId(f"w{number}"),
            ("backend",),
            {},
            NODES[number],
            healthy=True,
            metadata={"network.backend": f"10.128.0.{64 * number + 5}"},
        )
        for number in range(4)
    ]
    held = {
        NODES[number]: Slices(NETWORK.network_id, NODES[number], (f"10.128.0.{64 * number}/26",))
        for number in range(4)
    }
    nodes = {node_id: PeerNode(node_id, "10.0.0.1") for node_id in held}

    def version(indexes: list[int]) -> str:
        view = NetworkView(
            NETWORK,
            {NODES[number]: held[NODES[number]] for number in indexes},
            [members[number] for number in indexes if healthy or number],
        )
        return configuration_of(NODES[0], [view], nodes, domain="persys.local").version

    assert version(order) == version([0, 1, 2, 3])
