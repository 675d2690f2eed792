"""Subnets and slices, who may join, the configuration of nodes, and who reaches whom."""

import pytest

from builders import NOON
from persys.core.networks.configuration import (
    NetworkView,
    PeerNode,
    configuration_of,
    names_of,
    rules_of,
)
from persys.core.networks.members import NetworkMember, addresses_of, refuses
from persys.core.networks.reach import reach
from persys.core.networks.subnets import (
    POOL_DEFAULT,
    NoSlice,
    check_pool,
    check_subnet,
    check_subnet6,
    next_number,
    next_subnet,
    overlapping,
    reserve,
    room_of,
)
from persys.errors import InvalidError
from persys.model.ids import NodeId, WorkloadId
from persys.model.network import Network, NetworkId, NetworkName, NetworkSelector, Slices

N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")
FIRST, SECOND = "10.128.0.0/26", "10.128.0.64/26"


def a_network(
    subnet: str = "10.128.0.0/22",
    *,
    encrypted: bool = False,
    join: tuple[NetworkSelector, ...] = (),
    sources: tuple[NetworkSelector, ...] = (),
) -> Network:
    return Network(
        NetworkId("backend"),
        1,
        subnet,
        NOON,
        NOON,
        encrypted=encrypted,
        join=join,
        sources=sources,
    )


def slices(node_id: NodeId, *found: str) -> Slices:
    return Slices(NetworkId("backend"), node_id, found)


def a_member(
    name: str,
    address: str = "",
    node_id: NodeId | None = N1,
    *,
    labels: dict[str, str] | None = None,
    networks: tuple[str, ...] = ("backend",),
    healthy: bool = True,
    set_id: str = "",
    services: tuple[str, ...] = (),
) -> NetworkMember:
    return NetworkMember(
        WorkloadId(name),
        networks,
        labels or {},
        node_id,
        set_id,
        services,
        healthy,
        {"network.backend": address} if address else None,
    )


def a_view(*members: NetworkMember, network: Network | None = None) -> NetworkView:
    held = {N1: slices(N1, FIRST), N2: slices(N2, SECOND)}
    return NetworkView(network or a_network(), held, members)


@pytest.mark.parametrize(
    "text", ["", "10.128.0.1/22", "8.8.8.0/24", "10.0.0.0/8", "10.128.0.0/27", "fd00::/64", "x"]
)
def test_an_invalid_subnet_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="expected a private IPv4 subnet"):
        check_subnet(text)


@pytest.mark.parametrize("text", ["10.128.0.0/22", "fd00::/120", "2001:4860::/64", "x"])
def test_an_invalid_ipv6_subnet_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="expected a private IPv6 subnet"):
        check_subnet6(text, "10.128.0.0/22")


def test_the_default_pool_has_256_networks() -> None:
    taken: list[str] = []
    while found := next_subnet(check_pool(POOL_DEFAULT, "pool"), taken):
        taken.append(found)

    assert len(set(taken)) == 256
    assert (taken[0], taken[1]) == ("10.128.0.0/22", "10.128.4.0/22")


def test_a_given_subnet_in_the_pool_is_not_selected_again() -> None:
    assert next_subnet(POOL_DEFAULT, ["10.128.1.0/24"]) == "10.128.4.0/22"


def test_the_lowest_free_number_is_used() -> None:
    assert next_number([1, 2, 4]) == 3


def test_an_overlapping_route_is_named_and_the_default_route_is_ignored() -> None:
    routes = ["0.0.0.0/0", "nonsense", "10.64.0.0/10", "10.128.2.0/24"]

    assert overlapping("10.128.0.0/22", routes) == "10.128.2.0/24"
    assert overlapping("10.129.0.0/22", routes) == ""


def test_bridge_and_ends_of_the_subnet_are_not_for_members() -> None:
    network = a_network("10.128.0.0/25")

    assert room_of(network, []) == 0
    assert room_of(network, [FIRST]) == 62
    assert room_of(network, [FIRST, SECOND]) == 125


def test_a_node_keeps_its_slices_and_gets_more_when_they_are_full() -> None:
    held = {N1: slices(N1, FIRST)}

    assert reserve(a_network(), N1, held, address_count=62) is held[N1]
    assert reserve(a_network(), N1, held, address_count=63) == slices(N1, FIRST, SECOND)
    assert reserve(a_network(), N2, held, address_count=1) == slices(N2, SECOND)


def test_a_network_without_a_free_slice_is_full() -> None:
    found = reserve(
        a_network("10.128.0.0/25"),
        N3,
        {N1: slices(N1, FIRST), N2: slices(N2, SECOND)},
        address_count=1,
    )

    assert found == NoSlice("backend")
    assert str(found) == "no slice left in network backend"


def test_only_workloads_with_the_labels_of_the_network_may_join() -> None:
    network = a_network(join=(NetworkSelector({"tier": "db"}), NetworkSelector({"app": "web"})))

    assert refuses(network, {"app": "web", "x": "y"}) == ""
    assert refuses(network, {"app": "shop"}) == (
        "network backend accepts only workloads with tier=db or app=web"
    )


def test_a_node_cannot_claim_addresses_outside_of_its_slices() -> None:
    member = a_member("web", "web=10.128.0.5,db=10.128.0.70,x=nonsense,y=10.128.0.4")

    assert addresses_of(member, a_network(), [FIRST]) == ("10.128.0.4", "10.128.0.5")


def test_names_have_the_healthy_members_of_workloads_sets_and_services() -> None:
    view = a_view(
        a_member("web-1", "10.128.0.5", set_id="web", services=("shop",)),
        a_member("web-2", "10.128.0.70", N2, set_id="web", services=("shop",)),
        a_member("web-3", "10.128.0.6", set_id="web", healthy=False),
        a_member("shop", "10.128.0.7"),
    )

    assert names_of(view) == (
        NetworkName("shop", ("10.128.0.7",)),
        NetworkName("web", ("10.128.0.5", "10.128.0.70")),
        NetworkName("web-1", ("10.128.0.5",)),
        NetworkName("web-2", ("10.128.0.70",)),
    )


def test_a_rule_lists_the_members_that_may_connect() -> None:
    view = a_view(
        a_member("web", "10.128.0.5", labels={"app": "web"}),
        a_member("db", "10.128.0.70", N2),
        network=a_network(sources=(NetworkSelector({"app": "web"}),)),
    )

    (rule,) = rules_of(view)
    assert (rule.targets, rule.sources) == (("10.128.0.5", "10.128.0.70"), ("10.128.0.5",))
    assert rules_of(a_view(*view.members)) == ()


def test_a_configuration_has_the_peers_that_are_not_lost() -> None:
    nodes = {
        N1: PeerNode(N1, "10.0.0.1"),
        N2: PeerNode(N2, "10.0.0.2", wireguard_key="key"),
    }

    (network,) = configuration_of(N1, [a_view()], nodes, domain="persys.local").networks
    assert network.slices == (FIRST,)
    assert [(peer.address, peer.slices, peer.wireguard_key) for peer in network.peers] == [
        ("10.0.0.2", (SECOND,), "")
    ]
    lost = {**nodes, N2: PeerNode(N2, "10.0.0.2", lost=True)}
    (alone,) = configuration_of(N1, [a_view()], lost, domain="persys.local").networks
    assert alone.peers == ()
    assert configuration_of(N3, [a_view()], nodes, domain="persys.local").networks == ()


def test_peers_of_an_encrypted_network_have_keys() -> None:
    view = a_view(network=a_network(encrypted=True))
    nodes = {N1: PeerNode(N1, "10.0.0.1", "one"), N2: PeerNode(N2, "10.0.0.2")}

    assert configuration_of(N1, [view], nodes, domain="d").networks[0].peers == ()
    (peer,) = configuration_of(N2, [view], nodes, domain="d").networks[0].peers
    assert peer.wireguard_key == "one"


def test_members_of_one_network_reach_each_other() -> None:
    web, db = a_member("web", "10.128.0.5"), a_member("db", "10.128.0.70", N2)

    found = reach(web, db, [a_view(web, db)])
    assert (found.reachable, found.addresses) == (True, ("10.128.0.70",))


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (a_member("web", networks=()), a_member("db"), "web joins no network"),
        (
            a_member("web", networks=("front",)),
            a_member("db"),
            "no common network: web joins front, db joins backend",
        ),
        (
            a_member("web"),
            a_member("db", "10.128.0.70", N2),
            "network backend: web has no address yet on node n1",
        ),
        (
            a_member("web", "10.128.0.5"),
            a_member("db", node_id=None),
            "network backend: db is not assigned to a node",
        ),
    ],
)
def test_what_blocks_a_connection_is_named(
    source: NetworkMember, target: NetworkMember, reason: str
) -> None:
    found = reach(source, target, [a_view(source, target)])

    assert (found.reachable, found.reason) == (False, reason)


def test_a_rule_that_blocks_a_connection_is_named() -> None:
    web, db = a_member("web", "10.128.0.5"), a_member("db", "10.128.0.70", N2)
    network = a_network(sources=(NetworkSelector({"app": "shop"}),))

    found = reach(web, db, [a_view(web, db, network=network)])
    assert found.reason == "network backend: its rule `from` does not include web"
