"""persysctl events: listed in every format, and streamed across restarts of the scheduler."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import grpc
import pytest

from persys.wire.gen.control.v1.control_pb2 import EventView
from shells.cli.gateway import gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shells.cli.conftest import Cluster, Run

BREAK, END = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OUT_OF_RANGE


def an_event(sequence: int, kind: str = "WorkloadRunning", *, workload: str = "web") -> EventView:
    event = EventView(sequence=sequence, kind=kind, workload_id=workload, node_id="n1", epoch=3)
    event.at.FromSeconds(1_700_000_000)
    return event


@pytest.fixture(params=["straight", "through a gateway"])
def ctl(request: pytest.FixtureRequest, run: Run, cluster: Cluster) -> Iterator[Run]:
    """persysctl connected to the stub cluster, directly and through a gateway."""
    if request.param == "straight":
        yield partial(run, PERSYS_GRPC_ENDPOINT=cluster.address)
        return
    with gateway(scheduler_addr=(cluster.address,)) as url:
        yield partial(run, PERSYS_API_ENDPOINT=url)


@pytest.fixture
def cluster_with_events(cluster: Cluster) -> Cluster:
    cluster.events = [
        an_event(1, "WorkloadPlaced"),
        an_event(2, "WorkloadFailed", workload="db"),
        an_event(3),
    ]
    cluster.events[1].message = "image\nnot found"
    return cluster


def test_events_are_listed_oldest_first_with_their_time(
    cluster_with_events: Cluster, ctl: Run
) -> None:
    header, *lines = ctl("events").out.splitlines()

    assert header.split() == ["TIME", "KIND", "WORKLOAD", "NODE", "MESSAGE"]
    assert [line.split()[1] for line in lines] == [
        "WorkloadPlaced",
        "WorkloadFailed",
        "WorkloadRunning",
    ]
    assert lines[0].startswith("2023-11-14T22:13:20Z")
    assert lines[1].endswith("image not found")


def test_wide_shows_the_sequence_and_the_epoch(cluster_with_events: Cluster, ctl: Run) -> None:
    header, first, *_ = ctl("events", "-o", "wide").out.splitlines()

    assert "SEQUENCE" in header
    assert first.split()[4:7] == ["1", "-", "3"]


def test_a_list_as_json_is_one_array(cluster_with_events: Cluster, ctl: Run) -> None:
    found = json.loads(ctl("events", "-o", "json").out)

    assert [event["sequence"] for event in found] == ["1", "2", "3"]


def test_every_filter_reaches_the_scheduler(cluster_with_events: Cluster, ctl: Run) -> None:
    result = ctl(
        *("events", "--workload", "web", "--node", "n1", "--kind", "WorkloadFailed"),
        *("--kind", "NodeReady", "--since", "10m", "--limit", "5", "--after", "1"),
    )

    (request,) = cluster_with_events.event_requests
    assert result.code == 0
    assert (request.workload_id, request.node_id) == ("web", "n1")
    assert list(request.kinds) == ["WorkloadFailed", "NodeReady"]
    assert request.after_sequence == 1
    assert request.limit in (5, 0)  # a gateway counts on its own
    assert request.since.seconds > 1_700_000_000


def test_an_empty_list_of_events_is_reported(cluster: Cluster, ctl: Run) -> None:
    assert ctl("events").out == "no events\n"


def test_a_watch_shows_only_new_events(cluster_with_events: Cluster, ctl: Run) -> None:
    cluster_with_events.turns = [([an_event(4)], END)]

    result = ctl("events", "--watch", "-o", "name")

    assert result.out == "4\n"
    assert cluster_with_events.watches[0].after_sequence == 3


def test_a_watch_resumes_after_a_lost_connection(cluster_with_events: Cluster, ctl: Run) -> None:
    cluster_with_events.turns = [
        ([an_event(4), an_event(5)], BREAK),
        ([], BREAK),
        ([an_event(6)], END),
    ]

    result = ctl("events", "--watch", "-o", "json")

    assert [json.loads(line)["sequence"] for line in result.out.splitlines()] == ["4", "5", "6"]
    assert [watch.after_sequence for watch in cluster_with_events.watches] == [3, 5, 5]
    assert result.err.count("no response, retrying") == 1


def test_a_bookmark_is_not_shown_and_advances_the_position(
    cluster_with_events: Cluster, ctl: Run
) -> None:
    cluster_with_events.turns = [([EventView(sequence=700)], BREAK), ([], END)]

    result = ctl("events", "--watch", "--workload", "web")

    assert result.out == ""
    assert [watch.after_sequence for watch in cluster_with_events.watches] == [3, 700]


def test_a_watch_can_start_with_past_events(cluster_with_events: Cluster, ctl: Run) -> None:
    cluster_with_events.turns = [([an_event(4)], END)]

    assert ctl("events", "--watch", "--limit", "2", "-o", "name").out == "2\n3\n4\n"


def test_a_watch_can_start_after_a_sequence_number(cluster_with_events: Cluster, ctl: Run) -> None:
    cluster_with_events.turns = [([an_event(2)], END)]

    result = ctl("events", "--watch", "--after", "1")

    assert cluster_with_events.watches[0].after_sequence == 1
    assert "WorkloadRunning" in result.out


def test_a_watch_after_discarded_events_ends_with_the_reason(
    cluster_with_events: Cluster, ctl: Run
) -> None:
    cluster_with_events.turns = [([], END)]

    result = ctl("events", "--watch", "--after", "0")

    assert result.code == 1
    assert "the oldest is 9" in result.err


def test_two_start_positions_are_refused(cluster_with_events: Cluster, ctl: Run) -> None:
    assert ctl("events", "--watch", "--after", "1", "--since", "5m").code == 2


def test_a_scheduler_without_event_support_is_reported(
    cluster_with_events: Cluster, ctl: Run
) -> None:
    cluster_with_events.abort = (grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    result = ctl("events")

    assert result.code == 1
    assert "error:" in result.err


def test_a_workload_shows_the_tasks_of_its_node(cluster: Cluster, ctl: Run) -> None:
    view = cluster.add_workload("web", "Failed")
    action = view.history.add(
        task_id="apply-web-1",
        node_id="n1",
        action_type="apply_workload",
        status="running",
        error="pull is stuck",
    )
    action.created_at.FromSeconds(1_700_000_000)

    out = ctl("workload", "get", "web").out

    assert "Tasks:" in out
    row = next(line for line in out.splitlines() if "apply-web-1" in line)
    assert row.split()[:4] == ["apply-web-1", "n1", "apply_workload", "Running"]
    assert row.endswith("pull is stuck")
