"""An offloaded workload returns to tier 0: the new copy runs before the old one is removed."""

from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec import structs

from builders import NOON, a_situation, a_workload, add_node, an_assignment
from persys.core.agent.admission import NODE_FULL
from persys.core.agent.health import HEALTH
from persys.core.nodes import Phase
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.pending_queue import PendingQueue, pending_entry
from persys.core.placement.placer import placer_over
from persys.core.reconcile.decide import decide
from persys.core.reconcile.evacuate import START_DEADLINE
from persys.core.reconcile.situation import Copy, Decision, Policy, Situation
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.placement import Offload, Resources, Rules, Tombstone
from persys.model.spec import ContainerSpec, HealthCheck, HealthType, Spec, VolumeMount
from persys.model.status import (
    Actual,
    Failure,
    FailureReason,
    Observation,
    Retry,
    Status,
    WorkloadStatus,
)
from persys.model.workload import Desired

WEB = WorkloadId("web")
RETURNS = Rules(offload=Offload.WHEN_FULL, return_when_free=True)
DATA = ContainerSpec("db", volumes=(VolumeMount("/srv/data", "/data"),))
CHECKED = ContainerSpec("nginx", health=HealthCheck(type=HealthType.TCP, port=80))
FAR = an_assignment("far", rules=RETURNS)
HOME = structs.replace(an_assignment("n1", epoch=2, rules=RETURNS), assigned_at=NOON)
KEPT = Tombstone(FAR, NOON, keeps_data=True, after_running=True)


@pytest.fixture
def node_index() -> NodeIndex:
    """A free node of this cluster, and a federated one that runs the workload."""
    node_index = NodeIndex()
    add_node(node_index, "n1")
    add_node(node_index, "far", tier=1)
    node_index.reserve(FAR)
    return node_index


def offloaded(rules: Rules = RETURNS, spec: Spec | None = None) -> Situation:
    running = WorkloadStatus(WEB, Status.RUNNING, NOON, revision=Revision("r1"), epoch=1)
    situation = a_situation(
        a_workload(rules=rules, spec=spec),
        assignment=structs.replace(FAR, rules=rules),
        workload_status=running,
    )
    return replace(situation, tier=1, may_return=True)


def returning(spec: Spec | None = None, *, observation: Observation | None = None) -> Situation:
    """It is starting in tier 0, and its offloaded copy runs."""
    starting = WorkloadStatus(WEB, Status.PENDING, NOON, revision=Revision("r1"), epoch=2)
    situation = a_situation(
        a_workload(rules=RETURNS, spec=spec),
        assignment=HOME,
        workload_status=starting,
        observation=observation,
        reports=True,
    )
    copy = Copy(NodeId("far"), 1, being_removed=True, kept=KEPT)
    return replace(situation, copies=(copy,), next_epoch=3)


def seen(actual: Actual, **fields: object) -> Observation:
    found = Observation(WEB, NodeId("n1"), actual, NOON, revision=Revision("r1"), epoch=2)
    return structs.replace(found, **fields)


def decided(
    situation: Situation, node_index: NodeIndex, *, waiting: PendingQueue | None = None
) -> Decision:
    placer = placer_over(node_index, (waiting or PendingQueue()).wants)
    return decide(situation, placer, Policy(), now=NOON, roll=0.5)


def test_it_starts_in_tier_0_and_its_offloaded_copy_is_kept(node_index: NodeIndex) -> None:
    decision = decided(offloaded(), node_index)

    assert decision.rule == "return-started"
    assert decision.assignment is not None
    assert decision.assignment.node_id == "n1"
    assert decision.assignment.epoch == 2
    assert "returned from far in tier 1" in decision.assignment.why
    assert decision.tombstone == structs.replace(KEPT, assignment=FAR)


@pytest.mark.parametrize(
    "situation",
    [
        pytest.param(offloaded(Rules(offload=Offload.WHEN_FULL)), id="stays by default"),
        pytest.param(offloaded(structs.replace(RETURNS, offload_data=True), DATA), id="has data"),
        pytest.param(replace(offloaded(), may_return=False), id="not selected"),
        pytest.param(replace(offloaded(), tier=0), id="in tier 0"),
        pytest.param(
            replace(offloaded(), retry=Retry(WEB, Revision("r1"), 1, NOON)), id="failed before"
        ),
        pytest.param(replace(offloaded(), phase=Phase.SUSPECT), id="suspect"),
    ],
)
def test_it_stays_in_its_tier(node_index: NodeIndex, situation: Situation) -> None:
    decision = decided(situation, node_index)

    assert decision.assignment is not None
    assert decision.assignment.node_id == "far"
    assert decision.tombstone is None


def test_it_stays_while_another_workload_waits_for_the_node(node_index: NodeIndex) -> None:
    """Also if the other one needs more than is free now: otherwise it would never get it."""
    node_index.hold(WorkloadId("some"), NodeId("n1"), Resources(1000), frozenset())
    waiting = PendingQueue()
    large = a_situation(a_workload("large", resources=Resources(4000)))
    waiting.add(WorkloadId("large"), pending_entry(large, NOON))

    assert decided(offloaded(), node_index, waiting=waiting).rule != "return-started"

    waiting.discard(WorkloadId("large"))
    too_large = a_situation(a_workload("large", resources=Resources(9000)))
    waiting.add(WorkloadId("large"), pending_entry(too_large, NOON))
    assert decided(offloaded(), node_index, waiting=waiting).rule == "return-started"


def test_the_offloaded_copy_is_kept_until_the_new_one_runs(node_index: NodeIndex) -> None:
    starting = decided(returning(observation=seen(Actual.PENDING)), node_index)
    running = decided(returning(observation=seen(Actual.RUNNING)), node_index)

    assert starting.released is None
    assert starting.wake_at is not None
    assert starting.wake_at <= NOON + START_DEADLINE
    assert running.released == structs.replace(KEPT, after_running=False)


@pytest.mark.parametrize(
    ("health", "released"),
    [({}, False), ({HEALTH: "starting"}, False), ({HEALTH: "healthy"}, True)],
    ids=["unknown", "starting", "healthy"],
)
def test_with_a_health_check_the_new_copy_must_be_healthy(
    node_index: NodeIndex, health: dict[str, str], released: bool
) -> None:
    situation = returning(CHECKED, observation=seen(Actual.RUNNING, metadata=health))

    assert (decided(situation, node_index).released is not None) is released


@pytest.mark.parametrize("desired", [Desired.STOPPED, Desired.DELETED])
def test_the_offloaded_copy_is_removed_when_the_workload_is_stopped_or_deleted(
    node_index: NodeIndex, desired: Desired
) -> None:
    situation = returning()
    stopped = replace(situation, workload=structs.replace(situation.workload, desired=desired))

    assert decided(stopped, node_index).released is not None


FULL = Failure(FailureReason.INSUFFICIENT_RESOURCES, "no memory", code=NODE_FULL)
CRASHED = Failure(FailureReason.RUNTIME_ERROR, "exit code 1")


@pytest.mark.parametrize(
    "situation",
    [
        pytest.param(returning(observation=seen(Actual.FAILED, failure=CRASHED)), id="failed"),
        pytest.param(returning(observation=seen(Actual.FAILED, failure=FULL)), id="full"),
        pytest.param(
            returning(CHECKED, observation=seen(Actual.RUNNING, metadata={HEALTH: "unhealthy"})),
            id="unhealthy",
        ),
        pytest.param(replace(returning(), phase=Phase.LOST), id="lost"),
        pytest.param(
            replace(
                returning(),
                assignment=structs.replace(HOME, assigned_at=NOON - START_DEADLINE),
            ),
            id="deadline",
        ),
        pytest.param(replace(returning(), retry=Retry(WEB, Revision("r1"), 1, NOON)), id="counted"),
    ],
)
def test_a_failed_start_in_tier_0_keeps_the_offloaded_copy(
    node_index: NodeIndex, situation: Situation
) -> None:
    decision = decided(situation, node_index)

    assert decision.rule == "return-failed"
    assert decision.assignment is not None
    assert (decision.assignment.node_id, decision.assignment.epoch) == ("far", 3)
    assert decision.restored == KEPT
    assert decision.tombstone is not None
    assert decision.tombstone.assignment.node_id == "n1"
    assert not decision.tombstone.after_running
    assert decision.retry is not None


def test_it_does_not_return_again_until_it_was_stable(node_index: NodeIndex) -> None:
    failed = decided(returning(observation=seen(Actual.FAILED, failure=CRASHED)), node_index)
    assert failed.assignment is not None
    back = Observation(WEB, NodeId("far"), Actual.RUNNING, NOON, revision=Revision("r1"), epoch=3)
    situation = replace(
        offloaded(),
        assignment=failed.assignment,
        workload_status=failed.workload_status,
        retry=failed.retry,
        observation=back,
    )

    runs = decided(situation, node_index)

    assert runs.rule == "converged"
    assert runs.wake_at == NOON + Policy().retry.stable_after


def test_a_lost_offloaded_copy_is_not_returned_to(node_index: NodeIndex) -> None:
    situation = returning(observation=seen(Actual.FAILED, failure=CRASHED))
    lost = replace(situation, copies=(replace(situation.copies[0], lost=True),))

    decision = decided(lost, node_index)

    assert decision.rule == "failure"
    assert decision.assignment == HOME
    assert decision.released is None


def test_a_new_leader_releases_the_copy_of_a_workload_that_runs(node_index: NodeIndex) -> None:
    """The leader that noted it running stopped before it released the copy."""
    status = WorkloadStatus(
        WEB, Status.RUNNING, NOON - timedelta(seconds=1), revision=Revision("r1"), epoch=2
    )

    decision = decided(replace(returning(), workload_status=status), node_index)

    assert decision.released is not None
