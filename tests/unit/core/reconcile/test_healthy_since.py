"""Since when a workload is healthy: it runs as intended without a restart, and its check passes."""

import dataclasses
from datetime import datetime

import pytest
from msgspec.structs import replace

from builders import (
    NOON,
    a_situation,
    a_status,
    a_workload,
    after,
    an_assignment,
    an_observation,
    rooms_of,
)
from persys.core.agent.health import HEALTH, Health
from persys.core.agent.report import RESTART_COUNT, STARTED_AT
from persys.core.nodes import Phase
from persys.core.placement.index.node_index import NodeIndex
from persys.core.reconcile.decide import decide
from persys.core.reconcile.situation import Policy
from persys.core.recovery.rollback import RENEWED_AFTER
from persys.model.status import Actual, Status, WorkloadStatus

LATER = after(60)


def status_after(
    old: WorkloadStatus | None,
    metadata: dict[str, str] | None = None,
    *,
    actual: Actual = Actual.RUNNING,
    phase: Phase = Phase.ALIVE,
    now: datetime = LATER,
    revision: str = "r1",
    epoch: int = 1,
) -> WorkloadStatus:
    situation = a_situation(
        a_workload(revision=revision),
        assignment=an_assignment(epoch=epoch),
        workload_status=old,
        observation=an_observation(
            actual, metadata=metadata, revision=revision, epoch=epoch, seen_at=now
        ),
        phase=phase,
    )
    decision = decide(situation, rooms_of(NodeIndex()), Policy(), now=now, roll=0.5)
    assert decision.workload_status is not None
    return decision.workload_status


def a_healthy_status(metadata: dict[str, str] | None = None) -> WorkloadStatus:
    return replace(a_status(), healthy_since=NOON, metadata=metadata or {})


def test_a_running_workload_without_a_check_is_healthy_from_its_first_report() -> None:
    status = status_after(a_status(Status.PENDING))

    assert status.healthy_since == LATER


def test_an_unchanged_healthy_status_is_not_written_again() -> None:
    stored = a_healthy_status()

    assert status_after(stored) is stored


@pytest.mark.parametrize("health", [Health.STARTING, Health.UNHEALTHY])
def test_a_workload_whose_check_does_not_pass_is_not_healthy(health: Health) -> None:
    assert status_after(a_healthy_status(), {HEALTH: health.value}).healthy_since is None


def test_a_workload_is_healthy_since_its_check_passes() -> None:
    starting = status_after(a_status(Status.PENDING), {HEALTH: Health.STARTING.value})

    passed = status_after(starting, {HEALTH: Health.HEALTHY.value}, now=after(90))

    assert passed.healthy_since == after(90)


@pytest.mark.parametrize("key", [RESTART_COUNT, STARTED_AT])
def test_a_restart_begins_again_and_is_written(key: str) -> None:
    stored = a_healthy_status({key: "0"})

    restarted = status_after(stored, {key: "1"})

    assert restarted.healthy_since == LATER
    assert restarted.metadata == {key: "1"}
    assert status_after(restarted, {key: "1"}, now=after(90)) is restarted


def test_a_restart_of_an_unhealthy_workload_is_written() -> None:
    starting = {HEALTH: Health.STARTING.value}
    stored = replace(a_status(), metadata=starting | {RESTART_COUNT: "0"})

    restarted = status_after(stored, starting | {RESTART_COUNT: "1"})

    assert restarted.metadata[RESTART_COUNT] == "1"


def test_a_report_without_a_restart_count_is_not_a_restart() -> None:
    stored = a_healthy_status({RESTART_COUNT: "0"})

    assert status_after(stored, {}) is stored


def test_another_revision_begins_again() -> None:
    assert status_after(a_healthy_status(), revision="r2").healthy_since == LATER


def test_another_assignment_begins_again() -> None:
    assert status_after(a_healthy_status(), epoch=2).healthy_since == LATER


@pytest.mark.parametrize("actual", [Actual.STOPPED, Actual.FAILED, Actual.PENDING, Actual.ABSENT])
def test_a_workload_that_does_not_run_is_not_healthy(actual: Actual) -> None:
    assert status_after(a_healthy_status(), actual=actual).healthy_since is None


def test_a_workload_whose_node_is_silent_is_not_healthy() -> None:
    assert status_after(a_healthy_status(), phase=Phase.SUSPECT).healthy_since is None


def test_a_renewed_epoch_begins_again() -> None:
    renewed_at = NOON + 2 * RENEWED_AFTER
    situation = a_situation(
        a_workload(),
        assignment=an_assignment(epoch=1),
        workload_status=a_healthy_status(),
        observation=an_observation(epoch=5, seen_at=renewed_at),
    )
    situation = dataclasses.replace(situation, next_epoch=9)

    renewed = decide(
        situation, rooms_of(NodeIndex()), Policy(), now=renewed_at, roll=0.5
    ).workload_status

    assert renewed is not None
    assert (renewed.epoch, renewed.healthy_since) == (9, None)
