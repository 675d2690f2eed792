"""Which agent may act as a node when several claim to be it."""

from dataclasses import replace as changed
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from builders import N1, NOON
from persys.core.registration import (
    SESSIONS_MAX,
    Refusals,
    RegisteredAgent,
    Registration,
    cluster_refusal,
    is_registered_agent,
    is_superseded,
    registered_node,
    registration_refusal,
)
from persys.model.node import Capabilities, Node

NODE = Node(N1, Capabilities(4000, 8192), "10.0.0.1:50051", NOON)
HELD = replace(NODE, instance_id="i2", instance_before="i1", session_id="s1")
JOINED = datetime(2020, 1, 1, tzinfo=UTC)


def a_registration(
    instance_id: str = "i2",
    session_id: str = "s2",
    *,
    endpoint: str = NODE.endpoint,
    enrolled_at: datetime | None = JOINED,
) -> Registration:
    return Registration(replace(NODE, endpoint=endpoint), instance_id, session_id, enrolled_at)


def held(
    node: Node = HELD, *, lease: bool = True, connected: bool = True, confirmed: bool = True
) -> RegisteredAgent:
    return RegisteredAgent(node, has_lease=lease, is_connected=connected, is_confirmed=confirmed)


def of_cluster(cluster_id: str) -> Node:
    return replace(NODE, cluster_id=cluster_id)


def test_a_node_of_another_cluster_is_refused_with_both_names_and_the_setting() -> None:
    why = cluster_refusal(of_cluster("east"), None, "west")

    assert why.startswith(
        "node n1 is configured for cluster 'east', and this scheduler serves cluster 'west': "
        "set PERSYS_CLUSTER_ID=west on the node"
    )


@pytest.mark.parametrize("cluster_id", ["", "west"])
def test_a_node_that_names_this_cluster_or_none_joins(cluster_id: str) -> None:
    assert cluster_refusal(of_cluster(cluster_id), None, "west") == ""


def test_a_member_is_accepted_under_its_recorded_cluster_id() -> None:
    assert cluster_refusal(of_cluster("east"), of_cluster("east"), "west") == ""
    assert cluster_refusal(of_cluster("east"), of_cluster("west"), "west") != ""
    assert cluster_refusal(of_cluster("east"), of_cluster(""), "west") != ""


def test_the_first_agent_of_a_node_is_admitted() -> None:
    assert registration_refusal(a_registration("", "s1"), None) == ""


def test_the_same_process_may_register_again() -> None:
    assert registration_refusal(a_registration("i2", "s1"), held()) == ""


@pytest.mark.parametrize("instance_id", ["i2", "i1", "i0", ""])
def test_a_clone_is_refused_while_the_holder_is_connected(instance_id: str) -> None:
    why = registration_refusal(a_registration(instance_id), held())

    assert "another agent is registered as node n1" in why


def test_a_new_process_of_the_holder_is_admitted_when_its_stream_has_ended() -> None:
    assert registration_refusal(a_registration("i2"), held(connected=False)) == ""


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_clone_at_another_address_is_refused_while_the_lease_lasts(*, confirmed: bool) -> None:
    silent = held(connected=False, confirmed=confirmed)  # also a holder that never used a stream

    assert registration_refusal(a_registration("i2", endpoint="10.0.0.2:50051"), silent) != ""
    assert registration_refusal(a_registration("i2", endpoint="10.0.0.1:40000"), silent) == ""


def test_after_a_change_of_the_leader_another_address_waits_for_the_lease() -> None:
    unreported = held(connected=False, confirmed=False)

    assert registration_refusal(a_registration("i2"), unreported) == ""
    assert registration_refusal(a_registration("i2", endpoint="10.0.0.2:50051"), unreported) != ""


def test_an_agent_with_a_lost_response_is_admitted_with_its_previous_id() -> None:
    assert registration_refusal(a_registration("i1"), held(connected=False, confirmed=False)) == ""
    assert registration_refusal(a_registration("i1"), held(connected=False)) != ""


def test_an_old_copy_of_the_disk_stays_refused_after_the_lease_with_certificates() -> None:
    gone = held(lease=False, connected=False)

    assert "outdated copy" in registration_refusal(a_registration("i0"), gone)
    assert registration_refusal(a_registration("i0", enrolled_at=None), gone) == "", (
        "without certificates nothing proves more"
    )
    assert registration_refusal(a_registration("i2"), gone) == ""


def test_a_host_that_joined_again_replaces_the_registered_agent_immediately() -> None:
    assert (
        registration_refusal(a_registration("", enrolled_at=NOON + timedelta(seconds=1)), held())
        == ""
    )


def test_agents_of_another_make_work_as_before() -> None:
    outdated = held(NODE, connected=False)

    assert registration_refusal(a_registration("", "", endpoint="10.0.0.9:1"), outdated) == ""
    assert registration_refusal(a_registration("", ""), held(connected=False)) == ""
    assert (
        registration_refusal(a_registration("", "", endpoint="10.0.0.9:1"), held(connected=False))
        != ""
    )
    assert (
        registration_refusal(
            a_registration("", "", endpoint="10.0.0.9:1"), held(lease=False, connected=False)
        )
        == ""
    )


def test_each_new_process_gets_a_new_instance_id_and_the_same_one_keeps_its_own() -> None:
    new = registered_node(a_registration("i2", "s2"), held(), "i3")
    same = registered_node(a_registration("i2", "s1"), held(), "i3")

    assert (new.instance_id, new.instance_before, new.session_id) == ("i3", "i2", "s2")
    assert (same.instance_id, same.instance_before, same.session_id) == ("i2", "i1", "s1")
    assert registered_node(a_registration("", ""), None, "i3").instance_id == ""


def test_only_the_registered_instance_acts_for_a_node() -> None:
    assert is_registered_agent(HELD, "i2")
    assert not is_registered_agent(HELD, "i1")
    assert not is_registered_agent(HELD, "")
    assert is_registered_agent(NODE, "")


CLONE = changed(a_registration(), boot_id="b2")
ALIVE = changed(held(), boot_id="b1", reported_at=130.0)


def superseded(
    registration: Registration = CLONE, holder: RegisteredAgent = ALIVE, *, since: float = 100.0
) -> bool:
    return is_superseded(registration, holder, refused_since=since, lease_seconds=30.0)


def test_a_clone_is_superseded_when_the_first_agent_reports_a_lease_later() -> None:
    assert superseded()


@pytest.mark.parametrize(
    ("registration", "holder"),
    [
        (CLONE, changed(ALIVE, reported_at=129.9)),
        (CLONE, changed(ALIVE, reported_at=None)),
        (CLONE, changed(ALIVE, has_lease=False)),
        (CLONE, changed(ALIVE, boot_id="")),
        (CLONE, changed(ALIVE, boot_id="b2")),
        (changed(CLONE, boot_id=""), ALIVE),
        (changed(CLONE, session_id=""), ALIVE),
        (changed(CLONE, session_id="s1"), ALIVE),
    ],
    ids=[
        "it may be the last process of the same machine",
        "it has not reported to this scheduler",
        "its lease is over",
        "its machine is not known",
        "it is on the same machine",
        "the machine of the clone is not known",
        "the clone is of another make",
        "it is the same process",
    ],
)
def test_an_agent_is_not_superseded_while_it_may_be_the_only_one(
    registration: Registration, holder: RegisteredAgent
) -> None:
    assert not superseded(registration, holder)


def test_a_process_is_refused_since_its_first_refusal() -> None:
    refusals = Refusals()

    assert refusals.note(N1, "s2", 5.0) == 5.0
    assert refusals.note(N1, "s3", 6.0) == 6.0
    assert refusals.note(N1, "s2", 9.0) == 5.0


def test_only_the_last_refused_processes_of_a_node_are_kept() -> None:
    refusals = Refusals()
    refusals.note(N1, "s0", 0.0)
    for number in range(1, SESSIONS_MAX + 1):
        refusals.note(N1, f"s{number}", float(number))

    assert refusals.note(N1, "s0", 99.0) == 99.0


def test_an_accepted_registration_forgets_the_refusals() -> None:
    refusals = Refusals()
    refusals.note(N1, "s2", 5.0)
    refusals.forget(N1)

    assert refusals.note(N1, "s2", 9.0) == 9.0
