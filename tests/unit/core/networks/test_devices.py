"""The devices of a network: what is changed, and what is left alone."""

from msgspec.structs import replace

from persys.core.networks.devices import (
    MTU,
    Changes,
    Forward,
    Link,
    changes,
    foreign,
    removals,
    unusable,
    wanted_forwards,
)
from persys.model.ids import NodeId
from persys.model.network import NetworkId, NetworkRule, NodeNetwork, Peer

OWNER = "persys:abc123"
NETWORK = NodeNetwork(
    NetworkId("backend"),
    7,
    "10.128.0.0/22",
    ("10.128.0.0/26",),
    peers=(Peer(NodeId("n2"), "192.0.2.2", ("10.128.0.64/30",)),),
)
BRIDGE = Link(
    "pnb7",
    3,
    "bridge",
    "02:42:0a:80:00:01",
    MTU,
    alias="persys:abc123:backend",
    is_up=True,
    addresses=("10.128.0.1/22",),
)
VXLAN = Link(
    "pnx7",
    4,
    "vxlan",
    mtu=MTU,
    master="pnb7",
    alias="persys:abc123:backend",
    is_up=True,
    number=7,
    port=8472,
)
LINKS = {link.name: link for link in (BRIDGE, VXLAN)}


def test_devices_that_are_right_are_not_changed() -> None:
    assert changes(NETWORK, LINKS, wanted_forwards(NETWORK), (), OWNER) == Changes()


def test_missing_devices_are_created() -> None:
    found = changes(NETWORK, {}, (), (), OWNER)

    assert found.links[0] == "link add pnb7 mtu 1450 address 02:42:0a:80:00:01 type bridge"
    assert "link add pnx7 mtu 1450 type vxlan id 7 dstport 8472 nolearning" in found.links
    assert "link set pnx7 master pnb7" in found.links
    assert "fdb append 00:00:00:00:00:00 dev pnx7 dst 192.0.2.2 self permanent" in found.forwards
    assert "fdb append 02:42:0a:80:00:41 dev pnx7 dst 192.0.2.2 self permanent" in found.forwards


def test_a_vxlan_device_with_another_number_is_replaced_with_all_its_entries() -> None:
    links = {**LINKS, "pnx7": replace(VXLAN, number=8)}

    found = changes(NETWORK, links, wanted_forwards(NETWORK), (), OWNER)

    assert found.links[0] == "link delete pnx7"
    assert len(found.forwards) == len(wanted_forwards(NETWORK))


def test_entries_of_a_peer_that_left_are_deleted() -> None:
    known = wanted_forwards(NETWORK) | {Forward("00:00:00:00:00:00", "192.0.2.9")}

    found = changes(NETWORK, LINKS, known, (), OWNER)

    assert found.forwards == ("fdb delete 00:00:00:00:00:00 dev pnx7 dst 192.0.2.9 self",)


def test_a_port_that_lost_its_bridge_is_attached() -> None:
    links = {**LINKS, "veth1": Link("veth1", 9, "veth")}

    assert changes(NETWORK, links, wanted_forwards(NETWORK), ["veth1"], OWNER).links == (
        "link set veth1 master pnb7",
    )


def test_devices_of_other_programs_are_not_changed() -> None:
    other = replace(BRIDGE, alias="")

    assert foreign(NETWORK, {"pnb7": other}, OWNER) == "pnb7"
    assert foreign(NETWORK, LINKS, OWNER) == ""
    assert removals([], [other, replace(BRIDGE, name="eth0")], OWNER) == Changes()


def test_devices_of_removed_networks_are_deleted() -> None:
    assert removals([], LINKS.values(), OWNER).links == ("link delete pnb7", "link delete pnx7")
    assert removals([NETWORK], LINKS.values(), OWNER) == Changes()


def test_a_number_that_another_network_has_now_is_cleaned_first() -> None:
    renamed = replace(NETWORK, network_id=NetworkId("other"))

    assert len(removals([renamed], LINKS.values(), OWNER).links) == 2


def test_a_configuration_that_cannot_be_applied_names_its_problem() -> None:
    assert unusable(NETWORK) == ""
    assert "number 0" in unusable(replace(NETWORK, number=0))
    assert "encrypted" in unusable(replace(NETWORK, encrypted=True))
    assert "too large" in unusable(replace(NETWORK, subnet="10.0.0.0/8", peers=()))
    assert "not part of" in unusable(replace(NETWORK, slices=("10.99.0.0/26",)))
    assert "no slice" in unusable(replace(NETWORK, slices=()))
    host = (Peer(NodeId("n2"), "a.example; flush ruleset", ()),)
    assert "invalid configuration" in unusable(replace(NETWORK, peers=host))
    rules = (NetworkRule(("10.128.0.5 }",), ()),)
    assert "invalid configuration" in unusable(replace(NETWORK, rules=rules))
