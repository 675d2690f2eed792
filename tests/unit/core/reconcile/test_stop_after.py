"""stop_after in the scheduler: when a workload of a lost node may run on another node."""

from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec import structs

from builders import (
    a_situation,
    a_status,
    a_workload,
    add_node,
    after,
    an_assignment,
    an_observation,
    rooms_of,
)
from persys.core.nodes import Phase
from persys.core.placement.index.node_index import NodeIndex
from persys.core.reconcile.decide import decide
from persys.core.reconcile.evacuate import MARGIN, stopped_after
from persys.core.reconcile.situation import Decision, Policy, Situation
from persys.model.spec import ContainerSpec, VolumeMount

DATA = structs.replace(
    a_workload(spec=ContainerSpec("db", volumes=(VolumeMount("/srv", "/data"),))),
    stop_after_seconds=60,
    updated_at=after(-timedelta(days=30).total_seconds()),  # before any silence
)
SPAN = timedelta(seconds=70) * 1.05 + MARGIN  # 60 s, and 10 s to end
NOW = after(3600)


def lost(*, silent: timedelta, **changes: object) -> Situation:
    known = replace(
        a_situation(
            DATA,
            assignment=an_assignment("n1"),
            workload_status=a_status(),
            observation=an_observation(),
            phase=Phase.LOST,
        ),
        supports_stop_after=True,
        silent=silent,
        node_workload_count=1,
    )
    return replace(known, **changes)  # type: ignore[arg-type]  # fields of a situation


def decided(situation: Situation) -> Decision:
    node_index = NodeIndex()
    add_node(node_index, "n2", traits={"type:container", "feature:stop-after"})
    return decide(situation, rooms_of(node_index), Policy(), now=NOW, roll=0.5)


def node_of(decision: Decision) -> str:
    assert decision.assignment is not None
    return decision.assignment.node_id


def test_before_stop_after_has_elapsed_nothing_moves_and_the_time_is_known() -> None:
    decision = decided(lost(silent=SPAN - timedelta(seconds=5)))

    assert node_of(decision) == "n1"
    assert decision.wake_at == NOW + timedelta(seconds=5)
    assert decision.workload_status is not None
    assert "its agent stops the workload after 60s" in decision.workload_status.message


def test_after_stop_after_it_is_rescheduled_and_its_data_is_kept() -> None:
    decision = decided(lost(silent=SPAN))

    assert node_of(decision) == "n2"
    assert decision.tombstone is not None
    assert decision.tombstone.keeps_data


def test_a_workload_without_data_also_waits_for_stop_after() -> None:
    stateless = structs.replace(a_workload(), stop_after_seconds=60)

    assert node_of(decided(lost(silent=timedelta(seconds=60), workload=stateless))) == "n1"
    assert node_of(decided(lost(silent=SPAN, workload=stateless))) == "n2"


@pytest.mark.parametrize(
    "changes",
    [
        {"supports_stop_after": False},
        {"observation": an_observation(revision="r0")},
        {"observation": an_observation(epoch=7)},
        {"observation": None, "workload_status": a_status(revision="r0")},
        {"observation": None, "workload_status": a_status(epoch=7)},
        {"observation": None, "workload_status": None},
        {"workload": structs.replace(DATA, updated_at=NOW - timedelta(seconds=1))},
        {"workload": structs.replace(DATA, stop_after_seconds=0)},
    ],
    ids=[
        "its agent cannot",
        "its agent has another revision",
        "its agent has another assignment",
        "last known with another revision",
        "last known with another assignment",
        "never seen",
        "wanted after the last word",
        "not chosen",
    ],
)
def test_it_stays_assigned_if_its_agent_may_not_know_stop_after(changes: dict[str, object]) -> None:
    silent = timedelta(days=1)
    decision = decided(lost(silent=silent, **changes))

    assert node_of(decided(lost(silent=silent))) == "n2"
    assert node_of(decision) == "n1"
    assert decision.wake_at is None
    assert decision.workload_status is not None
    assert "confirmed dead" in decision.workload_status.message


def test_a_workload_never_leaves_a_suspect_node() -> None:
    assert node_of(decided(lost(silent=timedelta(days=1), phase=Phase.SUSPECT))) == "n1"


def test_a_crowd_takes_longer_to_stop() -> None:
    alone, crowd = (stopped_after(DATA, node_workload_count=count) for count in (16, 17))

    assert crowd - alone == timedelta(seconds=10) * 1.05


def test_the_grace_period_of_the_workload_is_used() -> None:
    slow = structs.replace(DATA, spec=ContainerSpec("db", stop_grace_seconds=100))

    assert stopped_after(slow, node_workload_count=1) - stopped_after(
        DATA, node_workload_count=1
    ) == timedelta(seconds=94.5)
