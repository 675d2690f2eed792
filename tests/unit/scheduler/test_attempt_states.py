"""How the records and reports about a member become the state of an attempt."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from builders import N1, NOON
from job_builders import a_run
from persys.core.jobs.members import member_workload
from persys.core.jobs.situation import Attempt, AttemptKey, AttemptState
from persys.model.ids import WorkloadId
from persys.model.job import RunMember
from persys.model.node import Capabilities, Node
from persys.model.placement import Assignment
from persys.model.status import Failure, FailureReason, Retry, Status, WorkloadStatus
from persys.model.workload import Desired, Membership, Workload
from persys.scheduler.jobs.attempt_states import AttemptStates
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.quarantine import Quarantined
from persys.store import keys

GRACE = 30.0
RUN = replace(a_run(), next_index=1, members=(RunMember(0),))
NAME = WorkloadId("backup-1-0")
FAILURE = Failure(FailureReason.RUNTIME_ERROR, "exited with code 3")


class FixedClock:
    at = 100.0

    def now(self) -> datetime:
        return NOON

    def monotonic(self) -> float:
        return self.at


def a_member(**changes: object) -> Workload:
    return replace(member_workload(RUN, AttemptKey(0, 1), NOON), **changes)


def a_status(
    status: Status, *, code: str = "", epoch: int = 1, **changes: object
) -> WorkloadStatus:
    found = WorkloadStatus(NAME, status, NOON, code=code, revision=a_member().revision, epoch=epoch)
    return replace(found, **changes)


def observed(
    workload: Workload | None,
    status: WorkloadStatus | None = None,
    *,
    retry: Retry | None = None,
    lease_left: float = 10.0,
    assigned: bool = True,
) -> tuple[Attempt, float | None]:
    cluster, clock = ClusterState(), FixedClock()
    cluster.put_node(
        Node(N1, Capabilities(4000, 8192), "n1:1", NOON), lease_until=clock.at + lease_left
    )
    if workload is not None:
        entry = cluster.put_workload(workload)
        entry.workload_status, entry.retry = status, retry
        if assigned:
            cluster.put_assignment(workload.id, Assignment(workload.id, N1, 1, NOON))
    found = AttemptStates(cluster, clock, node_grace=GRACE).observed(RUN)
    return found.situation.attempts[0], found.look_again_after


def state(*args: object, **named: object) -> AttemptState:
    return observed(*args, **named)[0].state  # type: ignore[arg-type]


def test_a_missing_workload_is_absent() -> None:
    assert state(None) is AttemptState.ABSENT


def test_an_unreadable_workload_is_in_progress() -> None:
    cluster = ClusterState()
    cluster.quarantine.put(
        Quarantined(keys.workload_key(NAME), "workload", "damaged", replaceable=False)
    )

    found = AttemptStates(cluster, FixedClock(), node_grace=GRACE).observed(RUN)

    assert found.situation.attempts[0].state is AttemptState.RUNNING


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        (None, AttemptState.WAITING),
        (a_status(Status.PENDING), AttemptState.WAITING),
        (a_status(Status.RUNNING), AttemptState.RUNNING),
        (a_status(Status.UNKNOWN), AttemptState.RUNNING),
        (a_status(Status.RUNNING, epoch=7), AttemptState.WAITING),
        (a_status(Status.STOPPED, code="Completed"), AttemptState.SUCCEEDED),
        (a_status(Status.FAILED, failure=FAILURE), AttemptState.WAITING),
    ],
    ids=["none", "pending", "running", "unknown", "another epoch", "completed", "tried again"],
)
def test_the_status_of_a_member_on_a_living_node(
    status: WorkloadStatus | None, wanted: AttemptState
) -> None:
    assert state(a_member(), status) is wanted


def test_a_failure_that_is_not_tried_again_has_its_exit_code() -> None:
    status = a_status(
        Status.FAILED,
        failure=FAILURE,
        message=FAILURE.message,
        metadata={"container.exit_code": "3"},
    )

    attempt, _ = observed(a_member(), status, retry=Retry(NAME, a_member().revision, 0, None))

    assert attempt == Attempt(AttemptState.FAILED, exit_code=3, reason="exited with code 3")


def test_a_start_that_cannot_succeed_is_a_failure_without_an_exit_code() -> None:
    failure = replace(FAILURE, retryable=False)

    attempt, _ = observed(a_member(), a_status(Status.FAILED, failure=failure))

    assert (attempt.state, attempt.exit_code) == (AttemptState.FAILED, None)


def test_a_workload_of_others_with_its_id_is_a_failure() -> None:
    foreign = a_member(membership=Membership("web", 0, 0))

    attempt, _ = observed(foreign)

    assert attempt.state is AttemptState.FAILED
    assert attempt.reason == "workload backup-1-0 exists and is not a member of this run"


def test_a_member_that_is_stopped_or_deleted_is_not_in_progress() -> None:
    assert state(a_member(desired=Desired.DELETED)) is AttemptState.DELETING
    attempt, _ = observed(a_member(desired=Desired.STOPPED, stopped_because="the run has ended"))
    assert attempt == Attempt(AttemptState.STOPPED, reason="the run has ended")


def test_a_node_is_lost_after_its_lease_and_the_grace() -> None:
    running = a_status(Status.RUNNING)

    assert observed(a_member(), running, lease_left=1.0) == (Attempt(AttemptState.RUNNING), None)
    suspect, again = observed(a_member(), running, lease_left=-10.0)
    assert suspect.state is AttemptState.RUNNING
    assert again == pytest.approx(GRACE - 10.0)
    lost, again = observed(a_member(), running, lease_left=-GRACE)
    assert lost == Attempt(AttemptState.LOST, reason="node n1 is lost")
    assert again is None


def test_a_result_counts_although_the_node_is_lost_afterwards() -> None:
    completed = a_status(Status.STOPPED, code="Completed")

    assert state(a_member(), completed, lease_left=-1000.0) is AttemptState.SUCCEEDED


def test_a_member_without_a_node_waits() -> None:
    assert state(a_member(), a_status(Status.PENDING), assigned=False) is AttemptState.WAITING


def test_the_deadline_of_a_member_is_what_is_left_of_that_of_its_run() -> None:
    run = replace(RUN, deadline_seconds=60)

    member = member_workload(run, AttemptKey(0, 1), run.started_at + timedelta(seconds=20))

    assert member.run_deadline_seconds == 40
    assert member.runs_once
    assert member.membership == Membership("backup-1", 0, 0, 1, job_id="backup")
