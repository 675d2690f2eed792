"""stop_after in the agent: what it stops without the scheduler, and what starts it again."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persys.core.agent.next_step import (
    CRASH_LOOP,
    RESTARTING,
    STOPPED_ALONE,
    after_settling,
    before_start,
    next_step,
)
from persys.core.agent.progress import Artefact, Condition, Perform, Progress, Settled, Step
from persys.model.ids import Revision, WorkloadId
from persys.model.spec import ContainerSpec, RestartPolicy, WorkloadType
from persys.model.status import Actual, Failure, FailureReason
from persys.model.workload import Desired, Order

NOW = datetime(2030, 1, 1, tzinfo=UTC)
JOB, SERVICE = RestartPolicy("no"), RestartPolicy("always")
LAUNCHED = Progress(launching=True)
HALTED = Progress(launching=True, halted=True)


def an_order(restart: RestartPolicy = SERVICE, *, desired: Desired = Desired.RUNNING) -> Order:
    return Order(
        WorkloadId("db"),
        WorkloadType.CONTAINER,
        Revision("r1"),
        1,
        desired,
        ContainerSpec("db", restart=restart),
        stop_after_seconds=60,
    )


def a_container(
    condition: Condition = Condition.EXITED, *, exit_code: int = 137, ran_seconds: float = 60
) -> Artefact:
    return Artefact(
        "c1",
        "db",
        condition,
        Revision("r1"),
        exit_code=exit_code,
        started_at=NOW - timedelta(seconds=ran_seconds),
        finished_at=NOW,
    )


def next_alone(
    artefact: Artefact | None, progress: Progress = LAUNCHED, restart: RestartPolicy = SERVICE
) -> Perform | Settled:
    return next_step(an_order(restart), artefact, progress, now=NOW, scheduler_lost=True)


def test_a_running_workload_is_stopped_after_too_long_without_a_scheduler() -> None:
    assert next_alone(a_container(Condition.RUNNING)) == Perform(Step.STOP, halts=True)


def test_a_failure_before_does_not_keep_it_running() -> None:
    failed = Progress(failure=Failure(FailureReason.RUNTIME_ERROR, "no"))

    assert next_alone(a_container(Condition.RUNNING), failed) == Perform(Step.STOP, halts=True)


@pytest.mark.parametrize("restart", [JOB, SERVICE], ids=["job", "service"])
@pytest.mark.parametrize("exit_code", [0, 137])
def test_a_workload_stopped_without_a_scheduler_is_neither_completed_nor_failed(
    restart: RestartPolicy, exit_code: int
) -> None:
    settled = next_alone(a_container(exit_code=exit_code), HALTED, restart)

    assert isinstance(settled, Settled)
    assert (settled.actual, settled.code) == (Actual.STOPPED, STOPPED_ALONE)
    assert settled.message == "no scheduler for 60s"
    assert not settled.final


def test_earlier_completed_work_stays_completed() -> None:
    settled = next_alone(a_container(exit_code=0), LAUNCHED, JOB)

    assert isinstance(settled, Settled)
    assert settled.code == "Completed"


def test_nothing_is_started_without_a_scheduler() -> None:
    for artefact in (None, a_container(Condition.CREATED), a_container()):
        settled = next_alone(artefact)

        assert isinstance(settled, Settled)
        assert settled.code == STOPPED_ALONE


def test_a_stopped_workload_stays_stopped_until_a_new_order() -> None:
    progress = after_settling(HALTED, Settled(Actual.STOPPED, code=STOPPED_ALONE))
    kept = next_step(an_order(), a_container(), progress, now=NOW)
    again = next_step(an_order(), a_container(), Progress(), now=NOW)  # a new order's progress

    assert isinstance(kept, Settled)
    assert kept.code == STOPPED_ALONE
    assert again == Perform(Step.START)


def test_a_container_started_manually_is_stopped_again() -> None:
    step = next_step(an_order(), a_container(Condition.RUNNING), HALTED, now=NOW)

    assert step == Perform(Step.STOP, halts=True)


def test_a_stop_or_a_delete_continues_without_a_scheduler() -> None:
    stop = an_order(desired=Desired.STOPPED)
    delete = an_order(desired=Desired.DELETED)
    running = a_container(Condition.RUNNING)

    assert next_step(stop, running, LAUNCHED, now=NOW, scheduler_lost=True) == Perform(Step.STOP)
    assert next_step(delete, running, LAUNCHED, now=NOW, scheduler_lost=True) == Perform(Step.STOP)


def test_the_agent_restarts_it_with_growing_pauses_because_docker_must_not() -> None:
    short_lived = a_container(ran_seconds=1, exit_code=1)
    waits, codes = [], []
    progress = LAUNCHED
    for _ in range(5):
        settled = next_step(an_order(), short_lived, progress, now=NOW)
        assert isinstance(settled, Settled)
        assert settled.look_again_at is not None
        waits.append((settled.look_again_at - NOW).total_seconds())
        codes.append(settled.code)
        later = next_step(an_order(), short_lived, progress, now=settled.look_again_at)
        assert later == Perform(Step.START, by_policy=True)
        progress = before_start(progress, short_lived, now=NOW)
        progress = Progress(launching=True, restarts=progress.restarts)

    assert waits == sorted(set(waits))
    assert codes == [RESTARTING] * 3 + [CRASH_LOOP] * 2


def test_a_first_exit_is_a_restart_and_no_loop() -> None:
    settled = next_step(an_order(), a_container(), LAUNCHED, now=NOW)

    assert isinstance(settled, Settled)
    assert settled.code == RESTARTING
    assert before_start(Progress(launching=True, restarts=9), a_container(), now=NOW).restarts == 0


@given(
    st.sampled_from(Condition),
    st.sampled_from([JOB, SERVICE, RestartPolicy("on-failure", 3)]),
    st.booleans(),
    st.booleans(),
)
def test_alone_no_step_ever_starts_or_makes_anything(
    condition: Condition, restart: RestartPolicy, launched: bool, halted: bool
) -> None:
    progress = Progress(launching=launched, halted=halted)
    outcome = next_alone(a_container(condition), progress, restart)

    assert isinstance(outcome, Settled) or outcome == Perform(Step.STOP, halts=True)
