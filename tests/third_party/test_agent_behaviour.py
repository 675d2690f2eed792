"""Our scheduler with third-party agents, one behaviour of existing agents per test."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.waiting import eventually
from third_party.pairings import OurScheduler
from third_party.programs import DRIFT_SECONDS, POLL_SECONDS, Agent
from third_party.user import KINDS, a_spec

PULL_ERROR = "failed to pull image: toomanyrequests: rate limit exceeded"
# The time a call and its check may take on a busy host, in addition to the interval.
SLACK_SECONDS = 4.0


@pytest.fixture
def pairing(plain_pairing: OurScheduler) -> Iterator[OurScheduler]:
    yield plain_pairing
    plain_pairing.agent.set_behaviour(
        errors={}, cpu_percent=5.0, stop_seconds=0.1, work_seconds=0.1, workers=8
    )


@pytest.fixture
def names(unique_id: str) -> Callable[[int], list[str]]:
    return lambda count: [f"{unique_id}-{number}" for number in range(count)]


def polls_between(pairing: OurScheduler, workload_id: str, since: float, until: float) -> int:
    """Requests in quick succession are one poll: a heartbeat at the time of a poll causes another one."""
    count, last = 0, 0.0
    for at in pairing.agent.events("status-request", workload_id):
        if since < at <= until and at - last > POLL_SECONDS / 2:
            count, last = count + 1, at
    return count


def recorded_at(view: Any) -> float:
    """When the scheduler recorded the status: the test may read it later on a busy host."""
    return float(view.last_updated.ToNanoseconds() / 1e9)


def until_moved(pairing: OurScheduler, workload_id: str, agent: Agent) -> None:
    def is_there() -> bool:
        view = pairing.user.workload(workload_id)
        return bool((view.status, view.assigned_node_id) == ("Running", agent.node_id))

    eventually(is_there, lambda: f"it moves: {pairing.user.workload(workload_id)}")


def until_removed(agent: Agent, workload_id: str) -> None:
    eventually(lambda: agent.copy(workload_id) == {}, f"{workload_id} is removed")


@pytest.mark.parametrize("kind", KINDS)
def test_a_running_workload_is_reported_within_one_poll(
    pairing: OurScheduler, kind: str, unique_id: str
) -> None:
    pairing.user.apply(unique_id, a_spec(kind))
    shown_at = recorded_at(pairing.user.until(unique_id, "Running"))

    (had_at,) = pairing.agent.events("apply_workload completed", unique_id)
    assert polls_between(pairing, unique_id, had_at, shown_at) <= 1
    assert shown_at - had_at <= POLL_SECONDS + SLACK_SECONDS


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_is_reported_within_one_poll(
    pairing: OurScheduler, kind: str, unique_id: str
) -> None:
    pairing.agent.set_behaviour(errors={unique_id: PULL_ERROR})
    pairing.user.apply(unique_id, a_spec(kind))
    view = pairing.user.until(unique_id, "Failed")

    known_at = pairing.agent.events("apply_workload failed", unique_id)[0]
    assert (view.failure_reason, view.reason.message) == ("IMAGE_PULL_FAILED", PULL_ERROR)
    assert polls_between(pairing, unique_id, known_at, recorded_at(view)) <= 1
    assert recorded_at(view) - known_at <= POLL_SECONDS + SLACK_SECONDS


@pytest.mark.parametrize("kind", KINDS)
def test_a_manual_removal_is_detected_within_the_drift_interval(
    pairing: OurScheduler, kind: str, unique_id: str
) -> None:
    pairing.user.apply(unique_id, a_spec(kind))
    pairing.user.until(unique_id, "Running")
    pairing.agent.file(unique_id).unlink()
    removed_at = time.time()
    applies = "apply_workload begun"
    eventually(lambda: len(pairing.agent.events(applies, unique_id)) == 2, "it is applied again")

    grace = 1.0  # in which the node may repair it automatically
    took = pairing.agent.events(applies, unique_id)[1] - removed_at
    assert took <= DRIFT_SECONDS + grace + SLACK_SECONDS
    pairing.user.until(unique_id, "Running")
    assert pairing.agent.copy(unique_id)["state"] == "Running"


@pytest.mark.parametrize("kind", KINDS)
def test_heartbeats_without_revisions_do_not_end_an_update(
    pairing: OurScheduler, kind: str, unique_id: str
) -> None:
    pairing.user.apply(unique_id, a_spec(kind))
    pairing.user.until(unique_id, "Running")
    pairing.agent.set_behaviour(
        work_seconds=2.5
    )  # meanwhile heartbeats report the old revision as running
    pairing.user.apply(unique_id, a_spec(kind, version=2))
    revision = pairing.user.until(unique_id, "Running").revision_id

    assert pairing.agent.copy(unique_id) == {"state": "Running", "revision": revision}


def test_a_manually_stopped_container_is_started_again(
    pairing: OurScheduler, unique_id: str
) -> None:
    pairing.user.apply(unique_id, a_spec("container"))
    revision = pairing.user.until(unique_id, "Running").revision_id
    stopped = {"state": "Stopped", "revision": revision}
    pairing.agent.file(unique_id).write_text(json.dumps(stopped))
    pairing.user.until(unique_id, "Stopped")

    pairing.user.until(unique_id, "Running")
    assert pairing.agent.copy(unique_id)["state"] == "Running"


@pytest.mark.parametrize("kind", ["container", "compose"])
def test_deleted_workloads_are_removed_although_the_agent_keeps_reporting_them(
    pairing: OurScheduler, kind: str, names: Callable[[int], list[str]]
) -> None:
    pairing.agent.set_behaviour(stop_seconds=1.5)
    for name in names(8):
        pairing.user.apply(name, a_spec(kind))
    for name in names(8):
        pairing.user.until(name, "Running")
    for name in names(8):
        pairing.user.delete(name)
    for name in names(8):
        pairing.user.until_gone(name)

    assert [pairing.agent.copy(name) for name in names(8)] == [{}] * 8
    started = [len(pairing.agent.events("delete_workload begun", name)) for name in names(8)]
    assert started == [1] * 8  # each was sent once


def test_a_deleted_workload_that_the_agent_keeps_reporting_can_be_applied_again(
    pairing: OurScheduler, unique_id: str
) -> None:
    pairing.agent.set_behaviour(stop_seconds=1.5)
    for _ in range(2):
        pairing.user.apply(unique_id, a_spec("compose"))
        pairing.user.until(unique_id, "Running")
        assert pairing.agent.copy(unique_id)["state"] == "Running"
        pairing.user.delete(unique_id)
        pairing.user.until_gone(unique_id)


def test_an_agent_above_its_cpu_threshold_refuses_with_that_reason(
    pairing: OurScheduler, unique_id: str
) -> None:
    pairing.agent.set_behaviour(cpu_percent=91.0)
    pairing.user.apply(unique_id, a_spec("container"))
    view = pairing.user.until(unique_id, "Failed")
    assert view.failure_reason == "INSUFFICIENT_RESOURCES"
    assert "cpu utilization 91% exceeds 80%" in view.reason.message

    pairing.agent.set_behaviour(cpu_percent=20.0)
    pairing.user.until(unique_id, "Running")


def test_a_slow_stop_does_not_fail(pairing: OurScheduler, unique_id: str) -> None:
    pairing.agent.set_behaviour(stop_seconds=5.0)  # of 45 for an order; 30 in existing agents
    names = {kind: f"{unique_id}-{kind}" for kind in KINDS}
    for kind, name in names.items():
        pairing.user.apply(name, a_spec(kind))
    for name in names.values():
        pairing.user.until(name, "Running")
        pairing.user.want(name, "Stopped")
    seen: set[tuple[str, str]] = set()

    def are_stopped() -> bool:
        views = [pairing.user.workload(name) for name in names.values()]
        seen.update((view.status, view.reason.code) for view in views)
        return all(view.status == "Stopped" for view in views)

    eventually(are_stopped, "they are stopped")
    assert seen <= {("Pending", "Stopping"), ("Stopped", "")}, seen
    assert pairing.orders(names.values()) == 2 * len(names)


def test_the_cause_of_a_failure_is_shown_without_list_actions(
    new_pairing: Callable[..., OurScheduler], unique_id: str
) -> None:
    pairing = new_pairing()
    pairing.agent.set_behaviour(errors={unique_id: PULL_ERROR}, lists_actions=False)
    pairing.user.apply(unique_id, a_spec("container"))
    view = pairing.user.until(unique_id, "Failed")

    assert (view.failure_reason, view.reason.message) == ("IMAGE_PULL_FAILED", PULL_ERROR)


def test_a_node_that_sends_heartbeats_rarely_stays_ready(
    new_pairing: Callable[..., OurScheduler], unique_id: str
) -> None:
    """Like a heartbeat interval of 60 s and a lease of 30 s: here 4 s and 2 s."""
    pairing = new_pairing(
        settings={"SCHEDULER_NODE_LEASE": "2s", "SCHEDULER_NODE_UNAVAILABLE_GRACE": "20s"},
        behaviour={"heartbeat_seconds": 4.0},
    )
    agent = pairing.agent
    eventually(lambda: len(agent.events("heartbeat", "")) == 3, "three heartbeats")
    until = time.time() + 9.0
    while time.time() < until:
        assert pairing.user.node_status(agent.node_id) == "Ready"
        time.sleep(0.2)
    pairing.user.apply(unique_id, a_spec("container"))
    pairing.user.until(unique_id, "Running")


def test_containers_of_a_lost_node_move_and_vms_do_not(
    new_pairing: Callable[..., OurScheduler], unique_id: str
) -> None:
    pairing = new_pairing(settings={"SCHEDULER_NODE_LEASE": "6s"})
    names = {kind: f"{unique_id}-{kind}" for kind in KINDS}
    for kind, name in names.items():
        pairing.user.apply(name, a_spec(kind))
        pairing.user.until(name, "Running")
    lost = pairing.agent
    other = pairing.add_agent()
    lost.kill()

    for kind in ("container", "compose"):
        until_moved(pairing, names[kind], other)
    vm = pairing.user.until(names["vm"], "Unknown")
    assert f"node {lost.node_id}" in vm.reason.message

    lost.start()
    pairing.user.until(names["vm"], "Running")
    for kind in ("container", "compose"):
        until_removed(lost, names[kind])
        assert other.copy(names[kind])["state"] == "Running"


@pytest.mark.full
def test_a_workload_deleted_while_its_node_is_lost_is_removed_when_the_node_returns(
    new_pairing: Callable[..., OurScheduler], unique_id: str
) -> None:
    pairing = new_pairing(settings={"SCHEDULER_NODE_LEASE": "6s"})
    names = {kind: f"{unique_id}-{kind}" for kind in KINDS}
    for kind, name in names.items():
        pairing.user.apply(name, a_spec(kind))
        pairing.user.until(name, "Running")
    pairing.agent.kill()
    pairing.user.until_node(pairing.agent.node_id, "NotReady")
    for name in names.values():
        pairing.user.delete(name)
    for name in names.values():
        pairing.user.until_gone(name)

    pairing.agent.start()
    for name in names.values():
        until_removed(pairing.agent, name)
