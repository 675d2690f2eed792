"""What heartbeats tell: what is repeated word for word is not read again, and means the same."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from builders import a_belief, a_workload, an_assignment
from persys.model.belief import Status
from persys.model.ids import NodeId, WorkloadId
from persys.model.observation import Actual, Observation
from persys.scheduler.cluster import Cluster
from persys.scheduler.observations import Observations
from persys.scheduler.reports import Statuses, read
from persys.wire.control import timestamp
from persys.wire.gen.control.v1 import control_pb2 as pb

NODE = NodeId("n1")
NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
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


def test_what_is_repeated_is_seen_anew() -> None:
    statuses = Statuses()
    first = statuses.read(a_heartbeat("Running", "Stopped"), NODE, NOW)
    again = statuses.read(a_heartbeat("Running", "Stopped"), NODE, LATER)

    assert [seen.seen_at for seen in first] == [NOW, NOW]
    assert again == Statuses().read(a_heartbeat("Running", "Stopped"), NODE, LATER)


def test_usage_and_clock_are_read_each_time() -> None:
    statuses = Statuses()
    read(a_heartbeat("Running", memory_mb=1), NODE, statuses, NOW)
    report = read(a_heartbeat("Running", memory_mb=2), NODE, statuses, LATER)

    assert report.usage.memory_used_mb == 2
    assert [used.memory_bytes for used in report.workload_usage] == [2]
    assert report.clock_skew == timedelta(seconds=-10)


@given(st.lists(st.lists(st.sampled_from(["Running", "Stopped", "Failed"]), max_size=3)))
def test_whatever_was_told_before_a_heartbeat_means_what_it_says(told: list[list[str]]) -> None:
    statuses = Statuses()
    for number, states in enumerate(told):
        at = NOW + timedelta(seconds=number)
        seen = statuses.read(a_heartbeat(*states), NODE, at)

        assert seen == Statuses().read(a_heartbeat(*states), NODE, at)


def test_a_repetition_is_news_when_something_else_was_heard_between() -> None:
    cluster, woken = Cluster(), list[WorkloadId]()
    entry = cluster.put_workload(a_workload("w0"))
    cluster.put_assignment(entry.workload.id, an_assignment(NODE, name="w0"))
    entry.belief = a_belief(Status.RUNNING)
    observations = Observations(
        cluster,
        wake=woken.append,
        removed=lambda _node, _workload: None,
        listed=lambda _node, _listed: None,
    )
    statuses = Statuses()
    observations.take_all(NODE, statuses.read(a_heartbeat("Running"), NODE, NOW), NOW)
    failed = Observation(entry.workload.id, NODE, Actual.FAILED, NOW, epoch=1)
    observations.take(failed)
    woken.clear()
    observations.take_all(NODE, statuses.read(a_heartbeat("Running"), NODE, LATER), LATER)

    assert woken == ["w0"]
    assert entry.observation is not None
    assert (entry.observation.actual, entry.observation.seen_at) == (Actual.RUNNING, LATER)
