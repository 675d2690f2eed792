"""The next step for a workload that another cluster manages."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from persys.core.agent.next_step import after_settling, after_step, next_step
from persys.core.agent.progress import Artefact, Condition, Perform, Progress, Settled, Step
from persys.model.ids import Revision, WorkloadId
from persys.model.spec import ContainerSpec, WorkloadType
from persys.model.status import Actual, Failure, FailureReason
from persys.model.workload import Desired, Order

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def an_order(desired: Desired = Desired.RUNNING) -> Order:
    return Order(
        workload_id=WorkloadId("web"),
        type=WorkloadType.CONTAINER,
        revision=Revision("r2"),
        epoch=1,
        desired=desired,
        spec=ContainerSpec("nginx"),
    )


def a_remote(
    condition: Condition = Condition.RUNNING,
    *,
    revision: str = "r2",
    reported: Settled | None = None,
) -> Artefact:
    return Artefact(
        "home--web",
        "home--web",
        condition,
        Revision(revision),
        managed=True,
        reported=reported,
    )


def steps_of(order: Order, artefact: Artefact) -> list[Step]:
    """The steps until the workload is created or removed, if each succeeds."""
    progress, steps = Progress(), list[Step]()
    while not steps or steps[-1] in (Step.PULL, Step.PREPARE_VOLUMES):
        outcome = next_step(order, artefact, progress, now=NOW)
        assert isinstance(outcome, Perform), outcome
        steps.append(outcome.step)
        progress = after_step(progress, outcome.step, None, now=NOW)
    return steps


def test_another_revision_is_updated_in_place() -> None:
    assert steps_of(an_order(), a_remote(revision="r1")) == [Step.PULL, Step.CREATE]


def test_another_revision_of_a_stopped_workload_is_updated_in_place() -> None:
    old = a_remote(Condition.EXITED, revision="r1")

    assert steps_of(an_order(Desired.STOPPED), old) == [Step.CREATE]


def test_a_running_workload_is_removed_without_a_stop_before() -> None:
    assert steps_of(an_order(Desired.DELETED), a_remote()) == [Step.REMOVE]


@pytest.mark.parametrize("actual", [Actual.RUNNING, Actual.PENDING, Actual.FAILED])
@pytest.mark.parametrize("condition", [Condition.RUNNING, Condition.CREATED, Condition.EXITED])
def test_the_reported_state_is_the_result(actual: Actual, condition: Condition) -> None:
    reported = Settled(actual, code="A", message="as reported")

    outcome = next_step(an_order(), a_remote(condition, reported=reported), Progress(), now=NOW)

    assert outcome == reported


def test_a_stop_is_performed_although_it_is_reported_as_running() -> None:
    running = a_remote(reported=Settled(Actual.RUNNING))

    outcome = next_step(an_order(Desired.STOPPED), running, Progress(), now=NOW)

    assert outcome == Perform(Step.STOP)


def test_it_is_stopped_when_the_scheduler_is_lost() -> None:
    running = a_remote(reported=Settled(Actual.RUNNING))

    outcome = next_step(an_order(), running, Progress(), now=NOW, scheduler_lost=True)

    assert outcome == Perform(Step.STOP, halts=True)


def test_a_failed_update_waits_for_a_new_order() -> None:
    failure = Failure(FailureReason.INSUFFICIENT_RESOURCES, "full")
    progress = Progress(done=frozenset({Step.PULL}), failure=failure)

    outcome = next_step(an_order(), a_remote(revision="r1"), progress, now=NOW)

    assert isinstance(outcome, Settled)
    assert outcome.failure == failure


FAILED = Settled(Actual.FAILED, failure=Failure(FailureReason.IMAGE_PULL_FAILED, "no image"))


def test_a_new_order_for_a_failed_workload_is_a_retry() -> None:
    failed = a_remote(Condition.CREATED, reported=FAILED)

    assert next_step(an_order(), failed, Progress(), now=NOW) == Perform(Step.START)


@pytest.mark.parametrize(
    "progress",
    [
        Progress(launching=True),
        Progress(done=frozenset({Step.CREATE})),
        after_settling(Progress(), Settled(Actual.PENDING)),
    ],
    ids=["retried", "created", "seen pending"],
)
def test_a_failure_during_an_order_is_its_result(progress: Progress) -> None:
    failed = a_remote(Condition.CREATED, reported=FAILED)

    assert next_step(an_order(), failed, progress, now=NOW) == FAILED


def test_a_pending_workload_is_inspected_again() -> None:
    pending = a_remote(Condition.CREATED, reported=Settled(Actual.PENDING))

    outcome = next_step(
        an_order(), replace(pending, look_again_after=timedelta(seconds=2)), Progress(), now=NOW
    )

    assert outcome == Settled(Actual.PENDING, look_again_at=NOW + timedelta(seconds=2))
