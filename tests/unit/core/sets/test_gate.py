"""Whether an updated member has proven itself."""

import pytest

from persys.core.sets.gate import Gate, GateState, gate_of, why_failed, why_waiting
from persys.core.sets.situation import MemberHealth, MemberState
from persys.model.ids import NodeId
from persys.model.sets import Phase, Rollout, UpdatePolicy, WorkloadSet
from set_builders import NOW, a_member, a_set, at

ROLLING = a_set(phase=Phase.ROLLING, target=2, stable=1)  # since 60 seconds
BACK = a_set(phase=Phase.ROLLING_BACK, target=1, stable=1)
RESUMED = a_set(
    target=2,
    stable=1,
    rollout=Rollout(Phase.ROLLING, started_at=at(-600), resumed_at=at(-20)),
)


def new(health: MemberHealth = MemberHealth.HEALTHY, **changes: object) -> MemberState:
    """A member that was updated 30 seconds ago."""
    since = changes.pop("since", -30)
    assert isinstance(since, int)
    return a_member(7, health, index=0, revision=2, since=since, changed=-30, **changes)


def state(member: MemberState, record: WorkloadSet = ROLLING) -> GateState:
    return gate_of(member, record, NOW).state


def test_a_member_passes_after_it_was_healthy_for_long_enough() -> None:
    assert gate_of(new(since=-10), ROLLING, NOW) == Gate(GateState.PASSED)
    assert gate_of(new(since=-4), ROLLING, NOW) == Gate(GateState.WAITING, at(6))


def test_without_a_minimum_a_healthy_member_passes_at_once() -> None:
    record = a_set(phase=Phase.ROLLING, target=2, update=UpdatePolicy(min_healthy_seconds=0))

    assert state(new(since=0), record) is GateState.PASSED


@pytest.mark.parametrize(
    "health", [MemberHealth.STARTING, MemberHealth.FAILED, MemberHealth.STOPPED]
)
def test_a_member_that_is_not_healthy_fails_at_its_deadline(health: MemberHealth) -> None:
    record = a_set(target=2, stable=1, rollout=Rollout(Phase.ROLLING, started_at=at(-900)))

    assert gate_of(new(health, since=-299), record, NOW) == Gate(GateState.WAITING, at(1))
    assert state(new(health, since=-300), record) is GateState.FAILED


@pytest.mark.parametrize(
    "member",
    [
        new(MemberHealth.UNHEALTHY),
        new(MemberHealth.FAILED, final=True),
        new(MemberHealth.STARTING, restarts=3),
        new(MemberHealth.HEALTHY, restarts=3),
    ],
)
def test_a_member_that_fails_in_the_rollout_fails_at_once(member: MemberState) -> None:
    assert state(member) is GateState.FAILED


def test_a_member_that_had_the_revision_before_the_rollout_can_fail_it() -> None:
    earlier = a_member(7, MemberHealth.UNHEALTHY, revision=2, since=-10, changed=-9999)

    assert state(earlier) is GateState.FAILED


def test_two_restarts_are_not_a_failure() -> None:
    assert state(new(restarts=2)) is GateState.PASSED


def test_a_member_on_a_lost_node_has_neither_passed_nor_failed() -> None:
    lost = new(MemberHealth.LOST, since=-9999, restarts=5)

    assert state(lost) is GateState.EXEMPT


@pytest.mark.parametrize(
    "old",
    [
        new(MemberHealth.UNHEALTHY, since=-100),
        new(MemberHealth.FAILED, final=True, since=-100),
        new(MemberHealth.STARTING, restarts=3, since=-100),
    ],
)
def test_a_failure_before_the_resume_gets_the_full_deadline(old: MemberState) -> None:
    assert gate_of(old, RESUMED, NOW) == Gate(GateState.WAITING, at(-20 + 300))


def test_a_failure_after_the_resume_counts() -> None:
    assert state(new(MemberHealth.UNHEALTHY, since=-10), RESUMED) is GateState.FAILED


def test_restarts_before_the_resume_do_not_count() -> None:
    assert state(new(restarts=3, since=-100), RESUMED) is GateState.PASSED
    assert state(new(restarts=3, since=-10), RESUMED) is GateState.FAILED


@pytest.mark.parametrize("health", [MemberHealth.UNHEALTHY, MemberHealth.STARTING])
def test_a_member_with_the_stable_revision_does_not_fail_a_rollback(health: MemberHealth) -> None:
    unchanged = a_member(0, health, since=-10, changed=-9999, restarts=9)

    assert state(unchanged, BACK) is GateState.EXEMPT


def test_a_member_that_the_rollback_has_changed_can_fail_it() -> None:
    changed = a_member(0, MemberHealth.UNHEALTHY, since=-10, changed=-30)

    assert state(changed, BACK) is GateState.FAILED


@pytest.mark.parametrize(
    ("member", "text"),
    [
        (new(MemberHealth.UNHEALTHY, reason="HTTP 500"), "web-7: unhealthy: HTTP 500"),
        (new(MemberHealth.UNHEALTHY, reason="unhealthy: HTTP 500"), "web-7: unhealthy: HTTP 500"),
        (new(MemberHealth.UNHEALTHY, reason="unhealthy"), "web-7: unhealthy"),
        (new(MemberHealth.FAILED, final=True, reason="no image"), "web-7: failed: no image"),
        (new(MemberHealth.STARTING, restarts=4), "web-7: restarted 4 times"),
        (new(MemberHealth.FAILED), "web-7: not healthy within 5m"),
    ],
)
def test_a_failure_says_why(member: MemberState, text: str) -> None:
    assert why_failed(member, ROLLING) == text


@pytest.mark.parametrize(
    ("member", "text"),
    [
        (new(since=-4), "web-7: healthy for 4s of 10s"),
        (
            new(MemberHealth.STARTING, reason="no capacity"),
            "web-7: starting for 30s of 5m: no capacity",
        ),
        (
            new(MemberHealth.LOST, node_id=NodeId("n4")),
            "web-7: its node n4 does not send heartbeats",
        ),
    ],
)
def test_a_waiting_member_says_what_it_waits_for(member: MemberState, text: str) -> None:
    assert why_waiting(member, ROLLING, NOW) == text
