"""The rules of a node, loaded into the kernel in a network namespace of their own."""

import shutil
import subprocess

import pytest

from persys.core.networks.firewall import Port, ruleset
from persys.model.ids import NodeId
from persys.model.network import NetworkId, NetworkRule, NodeNetwork, Peer

NETWORK = NodeNetwork(
    NetworkId("backend"),
    7,
    "10.128.0.0/22",
    ("10.128.0.0/26",),
    peers=(Peer(NodeId("n2"), "192.0.2.2", ("10.128.0.64/26",)),),
    rules=(
        NetworkRule(("10.128.0.5",), ("10.128.0.6",), (80,), "tcp"),
        NetworkRule(("10.128.0.5",), ()),
    ),
)
PORTS = {"backend": [Port("veth1", "10.128.0.5")]}


def test_a_member_may_use_its_own_address_from_its_own_port_only() -> None:
    text = ruleset([NETWORK], PORTS, "persys_test")

    assert '"veth1" . 02:42:0a:80:00:05 . 10.128.0.5' in text
    assert "iifname @member_ports drop" in text


def test_a_source_of_a_rule_is_accepted_before_others_are_dropped() -> None:
    lines = ruleset([NETWORK], PORTS, "persys_test").splitlines()
    accepted = [n for n, line in enumerate(lines) if "ip saddr { 10.128.0.6 } accept" in line]
    dropped = [
        n for n, line in enumerate(lines) if "ip daddr { 10.128.0.5 }" in line and "drop" in line
    ]

    assert accepted
    assert max(accepted) < min(dropped)


def test_without_networks_only_the_tables_are_deleted() -> None:
    assert ruleset([], {}, "persys_test").count("delete table") == 2
    assert "chain" not in ruleset([], {}, "persys_test")


@pytest.mark.parametrize("networks", [[NETWORK], []])
def test_the_kernel_accepts_the_rules(networks: list[NodeNetwork]) -> None:
    if shutil.which("nft") is None:
        pytest.skip("the test needs nft")
    done = subprocess.run(
        ["unshare", "--net", "nft", "-f", "-"],
        input=ruleset(networks, PORTS, "persys_test"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
