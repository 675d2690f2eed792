"""The next step on a node, case by case and for every state a container can be in."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from persys.core.agent.next_step import (
    after_settling,
    after_step,
    before_start,
    next_step,
    of_repeated_order,
)
from persys.core.agent.progress import Artefact, Condition, Perform, Progress, Settled, Step
from persys.model.ids import Revision, WorkloadId
from persys.model.spec import ContainerSpec, RestartPolicy, WorkloadType
from persys.model.status import Actual, Failure, FailureReason
from persys.model.workload import Desired, Order

NOW = datetime(2030, 1, 1, tzinfo=UTC)
EARLIER = NOW - timedelta(minutes=1)
STEPS_MAX = 12
UNLESS_STOPPED = RestartPolicy("unless-stopped")

restart_policies = st.one_of(
    st.sampled_from(["no", "always", "unless-stopped"]).map(RestartPolicy),
    st.integers(0, 5).map(lambda count: RestartPolicy("on-failure", count)),
)
artefacts = st.builds(
    Artefact,
    id=st.just("c1"),
    name=st.just("persys-web"),
    condition=st.sampled_from(Condition),
    revision=st.sampled_from([Revision("r1"), Revision("r2")]),
    exit_code=st.sampled_from([0, 1, 137]),
    oom_killed=st.booleans(),
    restart_count=st.integers(0, 6),
    started_at=st.sampled_from([None, EARLIER, NOW]),
    finished_at=st.sampled_from([None, EARLIER, NOW]),
)
progresses = st.builds(
    Progress,
    done=st.frozensets(st.sampled_from(Step)),
    launching=st.booleans(),
    launched_from=st.sampled_from([None, EARLIER]),
    looping=st.booleans(),
)
orders = st.builds(
    lambda desired, restart: an_order(desired, restart=restart),
    st.sampled_from(Desired),
    restart_policies,
)


def an_order(
    desired: Desired = Desired.RUNNING, *, restart: RestartPolicy = UNLESS_STOPPED
) -> Order:
    return Order(
        workload_id=WorkloadId("web"),
        type=WorkloadType.CONTAINER,
        revision=Revision("r2"),
        epoch=1,
        desired=desired,
        spec=ContainerSpec("nginx", restart=restart),
    )


def an_artefact(condition: Condition = Condition.RUNNING, **fields: object) -> Artefact:
    complete = Artefact("c1", "persys-web", condition, Revision("r2"), started_at=EARLIER)
    return replace(complete, **fields)


LAUNCHED = Progress(launching=True)


def step(order: Order, artefact: Artefact | None, progress: Progress = LAUNCHED) -> Step:
    outcome = next_step(order, artefact, progress, now=NOW)
    assert isinstance(outcome, Perform), outcome
    return outcome.step


def settled(order: Order, artefact: Artefact | None, progress: Progress = LAUNCHED) -> Settled:
    outcome = next_step(order, artefact, progress, now=NOW)
    assert isinstance(outcome, Settled), outcome
    return outcome


def test_a_missing_container_is_pulled_prepared_and_created_in_this_order() -> None:
    progress, steps = Progress(), []
    for _ in range(3):
        steps.append(step(an_order(), None, progress))
        progress = after_step(progress, steps[-1], None, now=NOW)

    assert steps == [Step.PULL, Step.PREPARE_VOLUMES, Step.CREATE]


def test_another_revision_is_stopped_and_removed_only_after_its_successor_is_pulled() -> None:
    old = an_artefact(revision=Revision("r1"))
    pulled = Progress(done=frozenset({Step.PULL}))

    assert step(an_order(), old, Progress()) is Step.PULL
    assert step(an_order(), old, pulled) is Step.STOP
    assert step(an_order(), replace(old, condition=Condition.EXITED), pulled) is Step.REMOVE


def test_a_running_container_of_the_right_revision_is_left_alone() -> None:
    assert settled(an_order(), an_artefact(), Progress()).actual is Actual.RUNNING


@pytest.mark.parametrize("restart", ["no", "on-failure"])
def test_exit_code_0_ends_work_that_runs_to_completion(restart: str) -> None:
    outcome = settled(an_order(restart=RestartPolicy(restart)), an_artefact(Condition.EXITED))

    assert (outcome.actual, outcome.code, outcome.final) == (Actual.STOPPED, "Completed", True)


def test_completed_work_stays_completed_without_its_container() -> None:
    order = an_order(restart=RestartPolicy("no"))
    outcome = settled(order, an_artefact(Condition.EXITED))

    assert settled(order, None, after_settling(LAUNCHED, outcome)) == outcome


@pytest.mark.parametrize("artefact", [None, "exited"])
def test_completed_work_does_not_run_again_for_a_repeated_order(artefact: str | None) -> None:
    order = an_order(restart=RestartPolicy("no"))
    exited = an_artefact(Condition.EXITED)
    completed = after_settling(LAUNCHED, settled(order, exited))

    outcome = settled(order, exited if artefact else None, of_repeated_order(completed))

    assert outcome.code == "Completed"


def test_work_that_exited_with_an_error_runs_again_for_a_repeated_order() -> None:
    order = an_order(restart=RestartPolicy("no"))
    exited = an_artefact(Condition.EXITED, exit_code=1)
    failed = after_settling(LAUNCHED, settled(order, exited))

    assert step(order, exited, of_repeated_order(failed)) is Step.START


def test_work_that_an_order_found_running_is_not_run_again_when_it_ends() -> None:
    order = an_order(restart=RestartPolicy("no"))
    found = settled(order, an_artefact(), Progress())

    outcome = settled(order, an_artefact(Condition.EXITED), after_settling(Progress(), found))

    assert (outcome.actual, outcome.code) == (Actual.STOPPED, "Completed")


def test_an_exited_container_that_this_order_has_not_started_is_started() -> None:
    finished = an_artefact(Condition.EXITED)

    assert step(an_order(restart=RestartPolicy("no")), finished, Progress()) is Step.START


def test_a_crash_between_keeping_and_starting_starts_and_one_after_it_does_not() -> None:
    order = an_order(restart=RestartPolicy("no"))
    before = an_artefact(Condition.EXITED)
    kept = before_start(Progress(), before, now=NOW)
    after = an_artefact(Condition.EXITED, started_at=NOW)

    assert step(order, before, kept) is Step.START
    assert settled(order, after, kept).code == "Completed"


def test_a_failed_exit_without_restarts_is_not_retryable() -> None:
    outcome = settled(
        an_order(restart=RestartPolicy("no")), an_artefact(Condition.EXITED, exit_code=3)
    )

    assert outcome.failure == Failure(
        FailureReason.RUNTIME_ERROR, "exited with code 3", retryable=False, code="Exited"
    )


def test_an_oom_kill_is_reported_as_out_of_memory() -> None:
    killed = an_artefact(Condition.EXITED, exit_code=137, oom_killed=True)

    outcome = settled(an_order(restart=RestartPolicy("no")), killed)

    assert outcome.code == "OOMKilled"
    assert "out of memory" in outcome.message


def test_on_failure_fails_when_its_retries_are_used_up_and_is_started_before() -> None:
    order = an_order(restart=RestartPolicy("on-failure", 2))

    spent = an_artefact(Condition.EXITED, exit_code=1, restart_count=2)
    assert settled(order, spent).actual is Actual.FAILED
    assert step(order, replace(spent, restart_count=1)) is Step.START


@pytest.mark.parametrize("restart", ["always", "unless-stopped"])
def test_a_container_stopped_manually_is_started_again(restart: str) -> None:
    stopped = an_artefact(Condition.EXITED, exit_code=143)

    assert step(an_order(restart=RestartPolicy(restart)), stopped) is Step.START


def test_three_quick_restarts_are_a_crash_loop() -> None:
    crashing = an_artefact(
        Condition.RESTARTING,
        restart_count=3,
        exit_code=1,
        finished_at=EARLIER + timedelta(seconds=1),
    )

    assert settled(an_order(), crashing).code == "CrashLoop"
    assert settled(an_order(), replace(crashing, restart_count=2)).actual is Actual.PENDING
    long_lived = replace(crashing, finished_at=EARLIER + timedelta(seconds=10))
    assert settled(an_order(), long_lived).actual is Actual.PENDING


def test_a_crash_loop_is_over_after_ten_seconds_of_running() -> None:
    looping = Progress(looping=True)
    just_up = an_artefact(restart_count=4, started_at=NOW - timedelta(seconds=4))

    outcome = settled(an_order(), just_up, looping)

    assert outcome.code == "CrashLoop"
    assert outcome.look_again_at == NOW + timedelta(seconds=6)
    up = replace(just_up, started_at=NOW - timedelta(seconds=10))
    assert settled(an_order(), up, looping).actual is Actual.RUNNING


def test_a_failed_step_is_not_repeated_without_a_new_order() -> None:
    failure = Failure(FailureReason.IMAGE_PULL_FAILED, "no answer")
    progress = after_step(Progress(), Step.PULL, failure, now=NOW)

    outcome = settled(an_order(), None, progress)

    assert outcome.failure == failure
    assert settled(an_order(), None, after_settling(progress, outcome)) == outcome


def test_a_failure_is_over_when_the_container_runs_after_all() -> None:
    progress = Progress(failure=Failure(FailureReason.NETWORK_ERROR, "port taken"))
    running = settled(an_order(), an_artefact(), progress)

    assert running.actual is Actual.RUNNING
    assert after_settling(progress, running).failure is None


def test_a_delete_stops_removes_and_cleans_up() -> None:
    order = an_order(Desired.DELETED)

    assert step(order, an_artefact()) is Step.STOP
    assert step(order, an_artefact(Condition.EXITED)) is Step.REMOVE
    assert step(order, None) is Step.REMOVE_VOLUMES
    done = Progress(done=frozenset({Step.REMOVE_VOLUMES}))
    assert settled(order, None, done).actual is Actual.ABSENT


def test_stopping_needs_neither_an_image_nor_a_container() -> None:
    order = an_order(Desired.STOPPED)

    assert settled(order, None).actual is Actual.STOPPED
    assert step(order, an_artefact()) is Step.STOP
    assert settled(order, an_artefact(Condition.EXITED)).actual is Actual.STOPPED


@given(orders, st.none() | artefacts, progresses)
def test_from_any_state_the_steps_converge_and_keep_a_correct_artefact(
    order: Order, artefact: Artefact | None, progress: Progress
) -> None:
    for _ in range(STEPS_MAX):
        outcome = next_step(order, artefact, progress, now=NOW)
        if isinstance(outcome, Settled):
            assert_at_rest(order, artefact, outcome)
            return
        assert_keeps_correct_artefact(order, artefact, outcome.step)
        if outcome.step is Step.START:
            progress = before_start(progress, artefact, now=NOW)
        artefact = performed(outcome.step, artefact)
        progress = after_step(progress, outcome.step, None, now=NOW)
    pytest.fail(f"not at rest: {order.desired} {artefact} {progress}")


def performed(step: Step, artefact: Artefact | None) -> Artefact | None:
    """The state after a working runtime has performed the step."""
    match step:
        case Step.CREATE:
            assert artefact is None
            return an_artefact(Condition.CREATED, started_at=None)
        case Step.REMOVE:
            return None
        case Step.START:
            assert artefact is not None
            return replace(artefact, condition=Condition.RUNNING, started_at=NOW)
        case Step.STOP:
            assert artefact is not None
            return replace(artefact, condition=Condition.EXITED, exit_code=143)
        case _:
            return artefact


def assert_keeps_correct_artefact(order: Order, artefact: Artefact | None, step: Step) -> None:
    if artefact is None or order.desired is not Desired.RUNNING:
        return
    if artefact.revision == order.revision and artefact.condition not in (
        Condition.DEAD,
        Condition.REMOVING,
    ):
        assert step not in (Step.STOP, Step.REMOVE)


def assert_at_rest(order: Order, artefact: Artefact | None, outcome: Settled) -> None:
    match order.desired:
        case Desired.DELETED:
            assert artefact is None
            assert outcome.actual is Actual.ABSENT
        case Desired.STOPPED:
            assert artefact is None or not artefact.condition.active
            assert outcome.actual is Actual.STOPPED
        case Desired.RUNNING:
            assert artefact is not None
            assert artefact.revision == order.revision
            assert outcome.actual is not Actual.ABSENT
