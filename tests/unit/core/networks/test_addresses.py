"""Addresses of members from the slices of a node."""

from persys.core.networks.addresses import (
    MemberAddress,
    addresses_metadata,
    bridge_address,
    mac_of,
    next_address,
)
from persys.model.ids import WorkloadId

SUBNET = "10.128.0.0/22"


def test_the_bridge_has_the_first_usable_address_of_the_first_slice() -> None:
    assert bridge_address(SUBNET, ["10.128.0.64/26", "10.128.0.0/26"]) == "10.128.0.64"
    assert bridge_address(SUBNET, ["10.128.0.0/26"]) == "10.128.0.1"
    assert bridge_address(SUBNET, []) is None


def test_the_lowest_free_address_is_assigned() -> None:
    assert next_address(SUBNET, ["10.128.0.64/26"], {"10.128.0.65", "10.128.0.67"}) == "10.128.0.66"


def test_the_second_slice_is_used_after_the_first() -> None:
    slices = ["10.128.0.4/30", "10.128.0.64/30"]
    assert next_address(SUBNET, slices, {f"10.128.0.{one}" for one in range(8)}) == "10.128.0.64"


def test_the_last_address_of_the_subnet_is_not_assigned() -> None:
    assert next_address(SUBNET, ["10.128.3.254/31"], ()) is None


def test_the_mac_address_follows_from_the_address() -> None:
    assert mac_of("10.128.0.65") == "02:42:0a:80:00:41"


def test_addresses_of_services_are_named_in_the_metadata() -> None:
    members = [
        MemberAddress("backend", WorkloadId("shop"), "10.128.0.6", "web"),
        MemberAddress("backend", WorkloadId("shop"), "10.128.0.5", "db"),
        MemberAddress("front", WorkloadId("shop"), "10.129.0.5"),
    ]

    assert addresses_metadata(members) == {
        "network.backend": "db=10.128.0.5,web=10.128.0.6",
        "network.front": "10.129.0.5",
    }
