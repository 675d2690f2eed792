"""Keys have the expected form, and events sort by time."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from persys.model.ids import NodeId, WorkloadId
from persys.store import keys

moments = st.datetimes(
    min_value=datetime(1000, 1, 2),  # noqa: DTZ001 the strategy adds the zone
    max_value=datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=9)), timezone(timedelta(hours=-8))]),
)
sequences = st.integers(min_value=0, max_value=10**12 - 1)


def test_each_record_has_its_place() -> None:
    node, workload = NodeId("n1"), WorkloadId("web")

    assert keys.node_key(node) == "/nodes/n1"
    assert keys.node_lease_key(node) == "/nodes/n1/lease"
    assert keys.workload_key(workload) == "/workloads/web"
    assert keys.assignment_key(workload) == "/assignments/web"
    assert keys.retry_key(workload) == "/retries/web"
    assert keys.status_key(workload) == "/beliefs/web"
    assert keys.tombstone_key(node, workload) == "/tombstones/n1/web"
    assert keys.drift_key(node, workload, "orphan") == "/drifts/n1/web/orphan"
    assert (keys.CLUSTER, keys.LEADER) == ("/cluster", "/leader")


def test_the_drifts_of_a_node_are_not_those_of_one_with_a_longer_name() -> None:
    drift = keys.drift_key(NodeId("n10"), WorkloadId("web"), "orphan")

    assert not drift.startswith(keys.node_drifts(NodeId("n1")))
    assert drift.startswith(keys.node_drifts(NodeId("n10")))


def test_a_node_named_lease_is_not_a_lease() -> None:
    assert keys.is_node_lease(keys.node_lease_key(NodeId("lease")))
    assert not keys.is_node_lease(keys.node_key(NodeId("lease")))


def test_an_event_key_reads_as_a_time() -> None:
    at = datetime(2024, 2, 29, 13, 5, 9, 42, UTC)

    key = keys.event_key(at, 7)

    assert key == "/events/20240229T130509.000042Z-000000000007"
    assert keys.event_sequence(key) == 7


@given(moments, sequences, moments, sequences)
def test_event_keys_sort_by_time_and_then_by_sequence(
    one_at: datetime, one: int, other_at: datetime, other: int
) -> None:
    in_key_order = keys.event_key(one_at, one) < keys.event_key(other_at, other)

    assert in_key_order == ((one_at, one) < (other_at, other))


def test_a_dns_name_has_the_key_that_coredns_reads_and_is_not_a_record() -> None:
    key = keys.name_key("n1.default.agents.persys.cloud")

    assert key == "/skydns/cloud/persys/agents/default/n1"
    assert keys.name_of(key) == "n1.default.agents.persys.cloud"
    assert keys.is_name(key)
    assert not keys.is_name(keys.node_key(NodeId("skydns")))
