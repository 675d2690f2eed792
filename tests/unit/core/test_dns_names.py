"""DNS names, and the records that publish them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persys.core.dns_names import (
    LABEL_LENGTH_MAX,
    Announcement,
    Zone,
    agent_name,
    announce_agent,
    announce_agents,
    announce_scheduler,
    checked_name,
    compare,
    label_of,
)
from persys.core.nodes import cordon, drain
from persys.errors import SettingsError
from persys.model.ids import NodeId, node_id
from persys.model.node import Capabilities, Node, NodeStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ZONE = Zone("persys.local", "agents.persys.cloud", "default", "uid")

ids = st.from_regex(r"[A-Za-z0-9][-A-Za-z0-9._]{0,252}", fullmatch=True).map(node_id)
said = st.builds(
    Announcement, st.sampled_from(["10.0.0.1", "a.b"]), st.integers(1, 3), st.just("uid")
)
names = st.sampled_from(["a", "b", "c", "d"])


def a_node(
    name: str = "n1", *, endpoint: str = "10.0.0.1:50051", status: NodeStatus = NodeStatus.READY
) -> Node:
    return Node(NodeId(name), Capabilities(1000, 1024), endpoint, NOW, status=status)


def test_a_ready_node_has_a_name_in_its_shard() -> None:
    announced = announce_agents([a_node()], ZONE)

    assert announced == {
        "n1.default.agents.persys.cloud": Announcement("10.0.0.1", 50051, "uid", "n1")
    }


def test_a_node_without_heartbeats_has_no_dns_name() -> None:
    assert announce_agents([a_node(status=NodeStatus.NOT_READY)], ZONE) == {}


def test_an_unschedulable_node_keeps_its_dns_name() -> None:
    cordoned = cordon(a_node("a"), now=NOW)
    draining = drain(a_node("b"), deadline=None, now=NOW)

    assert len(announce_agents([cordoned, draining], ZONE)) == 2


@pytest.mark.parametrize(
    ("endpoint", "host"),
    [
        ("10.0.0.1:50051", "10.0.0.1"),
        ("[2001:DB8::1]:50051", "2001:db8::1"),
        ("Node4.example.com:50051", "node4.example.com"),
        ("node_4:50051", "node_4"),
    ],
)
def test_an_endpoint_may_be_an_address_or_a_name(endpoint: str, host: str) -> None:
    assert announce_agent(a_node(endpoint=endpoint), ZONE) == Announcement(host, 50051, "uid", "n1")


@pytest.mark.parametrize(
    "endpoint",
    ["", "n1", "n1:", ":50051", "10.0.0.1:0", "10.0.0.1:65536", "0.0.0.0:1", "[::]:1", "a b:1"],
)
def test_a_node_that_others_cannot_reach_has_no_name(endpoint: str) -> None:
    assert announce_agent(a_node(endpoint=endpoint), ZONE) is None


def test_a_link_local_address_is_not_announced() -> None:
    assert announce_agent(a_node(endpoint="[fe80::1%eth0]:50051"), ZONE) is None


@pytest.mark.parametrize("name", ["n1", "host-0123456789ab", "node_7", "1"])
def test_an_id_that_is_a_valid_label_is_used_as_the_name(name: str) -> None:
    assert label_of(NodeId(name)) == name


def test_an_id_that_is_not_a_label_is_converted_with_a_hash() -> None:
    assert label_of(NodeId("Rack_3.example")) == "rack_3-example-156c1292"


@given(ids, ids)
def test_every_name_is_a_label_and_no_two_nodes_share_one(one: NodeId, other: NodeId) -> None:
    assert checked_name(agent_name(one, ZONE), field="name") == agent_name(one, ZONE)
    assert len(label_of(one)) <= LABEL_LENGTH_MAX
    assert "." not in label_of(one)
    assert (label_of(one) == label_of(other)) == (one == other)


def test_a_scheduler_has_two_services_and_an_address() -> None:
    announced = announce_scheduler("10.0.0.9", 8085, ZONE)

    own_name = "10-0-0-9-8085.persys-scheduler.persys.local"
    assert announced == {
        own_name: Announcement("10.0.0.9", 8085, "uid"),
        "10-0-0-9-8085._persys-scheduler.persys.local": Announcement(own_name, 8085, "uid"),
        "10-0-0-9-8085._persys-scheduler._tcp.persys.local": Announcement(own_name, 8085, "uid"),
    }


@pytest.mark.parametrize("address", ["2001:db8::1", "::1", "2001:db8::"])
def test_the_names_of_a_scheduler_are_names_for_any_address(address: str) -> None:
    for name in announce_scheduler(address, 1, ZONE):
        assert checked_name(name, field="name") == name


def test_a_domain_is_taken_in_lower_case_and_without_the_last_dot() -> None:
    assert checked_name("Persys.Local.", field="DOMAIN") == "persys.local"


@pytest.mark.parametrize("text", ["", ".", "a..b", "-a", "a/b", "a b", "x" * 64, "x." * 100 + "y"])
def test_an_invalid_domain_is_refused_by_name(text: str) -> None:
    with pytest.raises(SettingsError, match="DOMAIN"):
        checked_name(text, field="DOMAIN")


def test_foreign_records_are_kept_unless_their_name_is_needed() -> None:
    own, theirs = Announcement("10.0.0.1", 1, "uid"), Announcement("10.0.0.1", 1, "other")
    found = {"n1": None, "n2": theirs, "by-hand": None, "theirs": theirs}

    puts, withdrawn = compare({"n1": own, "n2": own}, found, cluster_uid="uid")

    assert puts == {"n1": own, "n2": own}
    assert withdrawn == []


@given(st.dictionaries(names, said), st.dictionaries(names, said))
def test_after_writing_the_difference_there_is_none(
    wanted: dict[str, Announcement], found: dict[str, Announcement]
) -> None:
    puts, withdrawn = compare(wanted, found, cluster_uid="uid")

    written = {name: one for name, one in found.items() if name not in withdrawn} | puts
    assert written == wanted
    assert compare(wanted, written, cluster_uid="uid") == ({}, [])
