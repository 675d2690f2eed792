"""Observations of one workload: which wake it, and which are only repeated or too old."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from builders import (
    NOON,
    WEB,
    a_dispatch,
    a_status,
    a_workload,
    after,
    an_assignment,
    an_observation,
)
from persys.core.agent.health import HEALTH, Health
from persys.core.reconcile.task_history import remember
from persys.model.action import Action, ActionKind, ActionState
from persys.model.ids import ActionId, NodeId, Revision, WorkloadId
from persys.model.placement import Tombstone
from persys.model.status import Actual, Failure, FailureReason
from persys.scheduler.dispatch.observations import Observations
from persys.scheduler.state.cluster import ClusterState

N1, N2 = NodeId("n1"), NodeId("n2")
SEEN = an_observation()
ENDED = Action(ActionId("apply-1"), WEB, ActionKind.APPLY, ActionState.COMPLETED, NOON)


@dataclass
class World:
    """One workload on n1 that was observed there once."""

    cluster: ClusterState = field(default_factory=ClusterState)
    woken: list[WorkloadId] = field(default_factory=list)
    removed: list[tuple[NodeId, WorkloadId]] = field(default_factory=list)
    replaced: list[tuple[NodeId, WorkloadId]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.observations = Observations(
            self.cluster,
            wake=self.woken.append,
            removed=lambda node_id, workload_id: self.removed.append((node_id, workload_id)),
            replaced=lambda node_id, workload_id: self.replaced.append((node_id, workload_id)),
            listed=lambda _node_id, _seen: None,
        )
        self.entry = self.cluster.put_workload(a_workload())
        self.cluster.put_assignment(WEB, an_assignment("n1"))
        self.observations.take(SEEN)
        self.woken.clear()


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    "changes",
    [
        {"actual": Actual.STOPPED},
        {"revision": Revision("r2")},
        {"epoch": 2},
        {"failure": Failure(FailureReason.RUNTIME_ERROR, "it broke")},
        {"metadata": {HEALTH: Health.UNHEALTHY.value}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_changed_observation_wakes_the_workload(world: World, changes: dict[str, Any]) -> None:
    later = replace(SEEN, seen_at=after(5), **changes)

    world.observations.take(later)

    assert world.woken == [WEB]
    assert (world.entry.observation, world.entry.observed_since) == (later, after(5))


def test_a_repeated_observation_wakes_nothing_and_keeps_its_start_time(world: World) -> None:
    later = replace(SEEN, seen_at=after(5), message="as before", metadata={"note": "more"})

    world.observations.take(later)

    assert world.woken == []
    assert (world.entry.observation, world.entry.observed_since) == (later, SEEN.seen_at)


@pytest.mark.parametrize("is_stored", [True, False])
def test_an_ended_action_that_is_not_stored_wakes_the_workload_of_a_new_leader(
    world: World, is_stored: bool
) -> None:
    world.entry.observation = None
    world.entry.workload_status = a_status()
    if is_stored:
        world.entry.history = remember(None, WEB, N1, [ENDED], now=NOON)

    world.observations.take(replace(SEEN, action=ENDED))

    assert world.woken == ([] if is_stored else [WEB])


def test_a_list_without_actions_wakes_nothing_and_keeps_the_known_action(world: World) -> None:
    world.observations.take(replace(SEEN, action=ENDED))
    world.woken.clear()

    world.observations.take_all(N1, [replace(SEEN, seen_at=after(5))], after(5))

    assert world.woken == []
    assert world.entry.observation == replace(SEEN, seen_at=after(5), action=ENDED)


def test_a_changed_copy_does_not_keep_the_known_action(world: World) -> None:
    world.observations.take(replace(SEEN, action=ENDED))

    world.observations.take(replace(SEEN, seen_at=after(5), actual=Actual.STOPPED))

    assert world.entry.observation is not None
    assert world.entry.observation.action is None


def test_an_older_observation_is_ignored(world: World) -> None:
    world.observations.take(replace(SEEN, seen_at=after(-1), actual=Actual.STOPPED))

    assert (world.woken, world.entry.observation) == ([], SEEN)


def test_a_poll_from_before_the_last_order_is_ignored(world: World) -> None:
    world.entry.observation = None
    world.entry.dispatch = a_dispatch(sent_at=after(10))

    world.observations.take(replace(SEEN, seen_at=after(11)), polled_at=after(9))
    assert world.entry.observation is None

    world.observations.take(replace(SEEN, seen_at=after(11)), polled_at=after(10))
    assert world.entry.observation is not None


def test_of_two_observations_at_the_same_time_the_second_counts(world: World) -> None:
    world.observations.take(replace(SEEN, actual=Actual.STOPPED))

    assert world.entry.observation is not None
    assert world.entry.observation.actual is Actual.STOPPED


def test_an_observation_of_another_node_changes_nothing(world: World) -> None:
    world.observations.take(replace(SEEN, node_id=N2, seen_at=after(5), actual=Actual.STOPPED))

    assert (world.woken, world.entry.observation) == ([], SEEN)


@pytest.mark.parametrize(
    ("stale", "seen", "is_gone"),
    [(3, 4, True), (3, 3, False), (3, 2, False), (3, 0, False), (0, 4, False)],
    ids=["newer", "the same", "older", "not said", "of a store without epochs"],
)
def test_a_stale_copy_is_gone_when_its_node_has_a_newer_epoch(
    world: World, stale: int, seen: int, is_gone: bool
) -> None:
    world.cluster.put_tombstone(Tombstone(an_assignment("n2", epoch=stale), after(0)))

    world.observations.take(an_observation(node_id="n2", epoch=seen))

    assert world.replaced == ([(N2, WEB)] if is_gone else [])


def test_a_stale_copy_is_gone_when_its_node_reports_it_absent(world: World) -> None:
    world.observations.take(an_observation(Actual.ABSENT, node_id="n2"))

    assert world.removed == [(N2, WEB)]


def test_a_workload_missing_from_a_complete_list_is_absent(world: World) -> None:
    old = an_assignment("n1", name="old")
    world.cluster.put_tombstone(Tombstone(old, after(0)))

    world.observations.take_all(N1, [], after(5))

    assert world.entry.observation is not None
    assert world.entry.observation.actual is Actual.ABSENT
    assert world.removed == [(N1, "old")]


@pytest.mark.parametrize("tells", [True, False])
def test_a_heartbeat_without_a_revision_is_ignored_during_an_order_if_the_node_can_be_polled_for_it(
    world: World, tells: bool
) -> None:
    world.entry.dispatch = a_dispatch()
    world.entry.revision_from = N1 if tells else None
    heartbeat = replace(SEEN, revision=Revision(""), actual=Actual.STOPPED, seen_at=after(5))
    world.observations.take(heartbeat, from_heartbeat=True)
    assert world.entry.observation is not None
    assert (world.entry.observation.actual is Actual.STOPPED) is not tells

    world.entry.dispatch = None
    world.observations.take(heartbeat, from_heartbeat=True)
    assert world.entry.observation == replace(heartbeat, revision=SEEN.revision)
