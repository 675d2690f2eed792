"""Decoding heartbeats: repeated bytes are not decoded again and have the same meaning."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from builders import a_status, a_workload, an_assignment
from persys.model.ids import NodeId, WorkloadId
from persys.model.status import Actual, Observation, Status
from persys.scheduler.dispatch.observations import Observations
from persys.scheduler.membership.heartbeat import ReportedStatuses, ReportLimits, read
from persys.scheduler.metrics.counters import Metrics
from persys.scheduler.state.cluster import ClusterState
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.times import timestamp

NODE = NodeId("n1")
NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
LIMITED = ReportLimits(Metrics())
LATER = NOW + timedelta(seconds=10)


def a_heartbeat(*states: str, memory_mb: int = 0) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(
        node_id=NODE,
        usage=pb.NodeUsage(memory_used_mb=memory_mb),
        timestamp=timestamp(NOW),
        workload_statuses=[
            pb.WorkloadStatus(
                workload_id=f"w{number}",
                state=state,
                epoch=1,
                metadata={"container.id": "c1", "health": state},
            )
            for number, state in enumerate(states)
        ],
        workload_usage=[pb.WorkloadUsageSnapshot(workload_id="w0", memory_bytes=memory_mb)],
        complete=True,
    )


def test_a_repeated_status_has_a_new_time() -> None:
    statuses = ReportedStatuses()
    first = statuses.read(a_heartbeat("Running", "Stopped"), NODE, NOW, LIMITED)
    again = statuses.read(a_heartbeat("Running", "Stopped"), NODE, LATER, LIMITED)

    assert [seen.seen_at for seen in first] == [NOW, NOW]
    assert again == ReportedStatuses().read(a_heartbeat("Running", "Stopped"), NODE, LATER, LIMITED)


def test_usage_and_clock_are_decoded_each_time() -> None:
    statuses = ReportedStatuses()
    read(a_heartbeat("Running", memory_mb=1), NODE, statuses, NOW, LIMITED)
    report = read(a_heartbeat("Running", memory_mb=2), NODE, statuses, LATER, LIMITED)

    assert report.usage.memory_used_mb == 2
    assert [used.memory_bytes for used in report.workload_usage] == [2]
    assert report.clock_skew == timedelta(seconds=-10)


@given(st.lists(st.lists(st.sampled_from(["Running", "Stopped", "Failed"]), max_size=3)))
def test_the_meaning_of_a_heartbeat_does_not_depend_on_earlier_ones(
    reports: list[list[str]],
) -> None:
    statuses = ReportedStatuses()
    for number, states in enumerate(reports):
        at = NOW + timedelta(seconds=number)
        seen = statuses.read(a_heartbeat(*states), NODE, at, LIMITED)

        assert seen == ReportedStatuses().read(a_heartbeat(*states), NODE, at, LIMITED)


def test_a_repeated_status_is_decoded_again_after_a_different_one() -> None:
    cluster, woken = ClusterState(), list[WorkloadId]()
    entry = cluster.put_workload(a_workload("w0"))
    cluster.put_assignment(entry.workload.id, an_assignment(NODE, name="w0"))
    entry.workload_status = a_status(Status.RUNNING)
    observations = Observations(
        cluster,
        wake=woken.append,
        removed=lambda _node, _workload: None,
        replaced=lambda _node, _workload: None,
        listed=lambda _node, _listed: None,
    )
    statuses = ReportedStatuses()
    observations.take_all(NODE, statuses.read(a_heartbeat("Running"), NODE, NOW, LIMITED), NOW)
    failed = Observation(entry.workload.id, NODE, Actual.FAILED, NOW, epoch=1)
    observations.take(failed)
    woken.clear()
    observations.take_all(NODE, statuses.read(a_heartbeat("Running"), NODE, LATER, LIMITED), LATER)

    assert woken == ["w0"]
    assert entry.observation is not None
    assert (entry.observation.actual, entry.observation.seen_at) == (Actual.RUNNING, LATER)


def test_a_list_from_which_an_entry_was_dropped_is_not_complete() -> None:
    statuses = ReportedStatuses()
    for at in (NOW, LATER):  # repeated bytes have the same meaning
        heartbeat = a_heartbeat("Running", "Running")
        heartbeat.workload_statuses[0].epoch = 2**63 - 1

        report = read(heartbeat, NODE, statuses, at, LIMITED)

        assert [seen.workload_id for seen in report.observations] == ["w1"]
        assert not report.complete


def test_an_exceeded_limit_is_logged_once_per_node_and_field() -> None:
    limited, statuses = ReportLimits(Metrics()), ReportedStatuses()
    with capture_logs() as lines:
        for number in range(3):
            heartbeat = a_heartbeat("Running")
            heartbeat.workload_statuses[0].message = str(number) * 10_000
            read(heartbeat, NODE, statuses, NOW, limited)

    reported = [
        (line["node_id"], line["field"]) for line in lines if line["event"] == "report.limited"
    ]
    assert reported == [(NODE, "WorkloadStatus.message")]
