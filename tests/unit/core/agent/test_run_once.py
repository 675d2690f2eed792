"""Workloads that run once: they are started at most once, and stopped at their deadline."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from persys.core.agent.deviations import Deviation, DeviationKind
from persys.core.agent.health import UNHEALTHY, Health
from persys.core.agent.next_step import (
    COMPLETED,
    EXITED,
    after_inspection,
    after_settling,
    after_step,
    before_start,
    next_step,
    of_repeated_run,
)
from persys.core.agent.progress import Artefact, Condition, Perform, Progress, Settled, Step
from persys.core.agent.run_limits import (
    DEADLINE_EXCEEDED,
    INTERRUPTED,
    UNKNOWN_EXIT_CODE,
    within_run_limits,
)
from persys.model.ids import Revision, WorkloadId
from persys.model.spec import ContainerSpec, HealthCheck, RestartPolicy, WorkloadType
from persys.model.status import Actual, Failure, FailureReason
from persys.model.workload import Desired, Order

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
STARTED = NOW - timedelta(seconds=5)
ORDER = Order(
    WorkloadId("job-1"),
    WorkloadType.CONTAINER,
    Revision("r1"),
    1,
    Desired.RUNNING,
    ContainerSpec("busybox", restart=RestartPolicy("always")),
    run_once=True,
)
RUNNING = Artefact("c1", "persys-job", Condition.RUNNING, Revision("r1"), started_at=STARTED)
ENDED = replace(RUNNING, condition=Condition.EXITED, finished_at=NOW)
NEW = Artefact("c1", "persys-job", Condition.CREATED, Revision("r1"))
BEGUN = Progress(launching=True, run_started_at=STARTED)


def decide(
    artefact: Artefact | None,
    progress: Progress = BEGUN,
    *,
    order: Order = ORDER,
    now: datetime = NOW,
    scheduler_lost: bool = False,
) -> Perform | Settled:
    outcome = next_step(order, artefact, progress, now=now, scheduler_lost=scheduler_lost)
    return within_run_limits(outcome, order, artefact, progress, now=now)


def settled(artefact: Artefact | None, progress: Progress = BEGUN, **more: object) -> Settled:
    outcome = decide(artefact, progress, **more)  # type: ignore[arg-type]
    assert isinstance(outcome, Settled)
    return outcome


def test_it_is_created_and_started_like_any_workload() -> None:
    assert decide(None, Progress()) == Perform(Step.PULL)
    assert decide(NEW, Progress()) == Perform(Step.START)
    assert settled(RUNNING).actual is Actual.RUNNING


def test_exit_code_0_is_completed_whatever_the_restart_policy_says() -> None:
    result = settled(ENDED)

    assert (result.actual, result.code, result.final) == (Actual.STOPPED, COMPLETED, True)


@pytest.mark.parametrize("policy", ["no", "always", "on-failure", "unless-stopped"])
def test_another_exit_code_is_a_failure_that_is_not_retried(policy: str) -> None:
    spec = ContainerSpec("busybox", restart=RestartPolicy(policy))

    result = settled(replace(ENDED, exit_code=3), order=replace(ORDER, spec=spec))

    assert (result.actual, result.code, result.final) == (Actual.FAILED, EXITED, True)
    assert result.failure is not None
    assert not result.failure.retryable


@pytest.mark.parametrize(
    "found",
    [
        None,
        NEW,
        replace(ENDED, condition=Condition.DEAD),
        replace(ENDED, condition=Condition.REMOVING),
        replace(ENDED, revision=Revision("r0")),
    ],
    ids=["removed", "not started", "dead", "being removed", "of another revision"],
)
def test_an_unknown_result_is_interrupted_and_nothing_is_started(found: Artefact | None) -> None:
    result = settled(found)

    assert (result.actual, result.code, result.final) == (Actual.FAILED, INTERRUPTED, True)


def test_a_vm_that_stopped_while_the_agent_was_not_running_is_interrupted() -> None:
    machine = replace(ENDED, boots=True, error="stopped while the agent was not running")

    assert settled(replace(machine, exit_code=UNKNOWN_EXIT_CODE)).code == INTERRUPTED
    assert settled(replace(machine, error="the guest shut down")).code == COMPLETED


def test_a_known_result_is_kept_when_its_container_is_removed() -> None:
    progress = after_settling(BEGUN, settled(replace(ENDED, exit_code=3)))

    assert settled(None, progress).code == EXITED


def test_an_ended_container_that_is_started_manually_is_stopped() -> None:
    progress = after_settling(BEGUN, settled(ENDED))

    assert decide(RUNNING, progress) == Perform(Step.STOP, by_policy=True)
    assert settled(ENDED, progress).code == COMPLETED


def test_a_container_that_has_run_counts_as_started_without_a_journal() -> None:
    for found in (RUNNING, ENDED):
        progress = after_inspection(Progress(), ORDER, found)

        assert progress.run_started_at == STARTED
        assert decide(None, progress) != Perform(Step.PULL)
    assert settled(ENDED, after_inspection(Progress(), ORDER, ENDED)).code == COMPLETED


def test_a_failed_start_is_final() -> None:
    failure = Failure(FailureReason.RUNTIME_ERROR, "port 80 is in use")

    result = settled(NEW, replace(BEGUN, failure=failure))

    assert result.failure == replace(failure, retryable=False)
    assert result.final


def test_a_failed_pull_is_retried_by_a_repeated_order() -> None:
    failure = Failure(FailureReason.IMAGE_PULL_FAILED, "no route to host")
    failed = Progress(failure=failure)

    assert settled(None, failed).failure == failure
    assert decide(None, of_repeated_run(failed)) == Perform(Step.PULL)


def test_a_repeated_order_does_not_start_it_again() -> None:
    for found in (None, ENDED, NEW):
        progress = after_settling(BEGUN, settled(found))

        assert settled(found, of_repeated_run(progress)) == settled(found, progress)


def test_it_is_neither_replaced_nor_restarted_while_it_runs() -> None:
    cut_off = Deviation(DeviationKind.NETWORK, "network a is not attached")
    deviating = replace(RUNNING, deviations=(cut_off,))
    shown = replace(BEGUN, repairs=replace(BEGUN.repairs, shown=True, count=1))
    check = HealthCheck(restart_unhealthy=True)
    order = replace(ORDER, spec=ContainerSpec("busybox", health=check))
    sick = replace(RUNNING, health=Health.UNHEALTHY, health_error="status 500")

    assert settled(deviating, shown).actual is Actual.RUNNING
    unhealthy = settled(sick, replace(BEGUN, unhealthy_shown=True), order=order)
    assert (unhealthy.actual, unhealthy.code) == (Actual.RUNNING, UNHEALTHY)


def test_a_paused_container_is_resumed() -> None:
    assert decide(replace(RUNNING, condition=Condition.PAUSED)) == Perform(Step.START)


def test_a_stack_runs_until_all_its_services_have_exited() -> None:
    failed = replace(ENDED, exit_code=1, parts=("a=exited(1)", "b=running"), others_active=True)

    assert settled(failed).actual is Actual.RUNNING
    assert settled(replace(failed, others_active=False)).code == EXITED


def test_it_is_stopped_at_its_deadline_and_has_failed() -> None:
    order = replace(ORDER, run_deadline_seconds=10)
    ends_at = STARTED + timedelta(seconds=10)

    assert settled(RUNNING, order=order).look_again_at == ends_at
    stop = Perform(Step.STOP, by_policy=True, expires=True)
    assert decide(RUNNING, order=order, now=ends_at) == stop
    expired = replace(BEGUN, expired=True)
    # Whatever its clock says now, and also if it traps the signal and exits with 0.
    assert decide(RUNNING, expired, order=order) == stop
    for found in (ENDED, replace(ENDED, exit_code=143), None):
        result = settled(found, expired, order=order, now=ends_at)
        assert (result.actual, result.code, result.final) == (
            Actual.FAILED,
            DEADLINE_EXCEEDED,
            True,
        )


def test_a_stop_at_the_deadline_is_repeated_after_a_failure() -> None:
    order = replace(ORDER, run_deadline_seconds=10)
    failure = Failure(FailureReason.RUNTIME_ERROR, "cannot stop")
    progress = after_step(replace(BEGUN, expired=True), Step.STOP, failure, now=NOW)

    assert decide(RUNNING, progress, order=order) == Perform(
        Step.STOP, by_policy=True, expires=True
    )


def test_a_workload_with_a_deadline_only_is_not_started_again_after_it() -> None:
    order = replace(ORDER, run_once=False, run_deadline_seconds=10)

    assert decide(ENDED, replace(BEGUN, run_started_at=NOW), order=order) == Perform(Step.START)
    assert settled(ENDED, replace(BEGUN, expired=True), order=order).code == DEADLINE_EXCEEDED


def test_it_is_interrupted_when_it_was_stopped_without_a_scheduler() -> None:
    order = replace(ORDER, stop_after_seconds=30)
    halted = replace(BEGUN, halted=True)

    assert decide(RUNNING, order=order, scheduler_lost=True) == Perform(Step.STOP, halts=True)
    result = settled(replace(ENDED, exit_code=143), halted, order=order, scheduler_lost=True)

    assert result.code == INTERRUPTED
    after = after_settling(halted, result)
    assert settled(replace(ENDED, exit_code=143), after, order=order).code == INTERRUPTED


def test_a_stop_and_a_delete_are_performed() -> None:
    for desired in (Desired.STOPPED, Desired.DELETED):
        order = replace(ORDER, desired=desired)

        assert decide(RUNNING, order=order) == Perform(Step.STOP)


class Machine:
    """A node with one container: the agent, Docker and the host fail at arbitrary times."""

    def __init__(self) -> None:
        self.artefact: Artefact | None = None
        self.stored = Progress()
        self.starts = 0
        self.seconds = 0
        self.result: Settled | None = None

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def advance(self, *, crash_before: bool = False, crash_after: bool = False) -> None:
        """One step of the agent. A crash loses what was not stored."""
        progress = after_inspection(self.stored, ORDER, self.artefact)
        outcome = decide(self.artefact, progress, now=self.now())
        if isinstance(outcome, Settled):
            self.stored = after_settling(progress, outcome)
            if outcome.final:
                assert self.result is None or self.result == outcome
                self.result = outcome
            return
        if outcome.step is Step.START:
            self.stored = before_start(progress, self.artefact, now=self.now())
        if crash_before:
            return
        self._perform(outcome.step)
        if not crash_after:
            self.stored = after_step(self.stored, outcome.step, None, now=self.now())

    def _perform(self, step: Step) -> None:
        if step is Step.CREATE:
            self.artefact = Artefact("c", "persys-job", Condition.CREATED, Revision("r1"))
        elif step is Step.START:
            assert self.artefact is not None
            self.starts += 1
            self.artefact = replace(
                self.artefact, condition=Condition.RUNNING, started_at=self.now()
            )
        elif step is Step.REMOVE:
            self.artefact = None

    def fail(self, event: str) -> None:
        if event == "removed":
            self.artefact = None
        elif event == "journal lost" and self.artefact is not None:
            self.stored, self.result = Progress(), None
        elif event in ("exits", "reboot") and self.artefact is not None:
            if self.artefact.condition is Condition.RUNNING:
                code = 0 if event == "exits" else 137
                self.artefact = replace(
                    self.artefact,
                    condition=Condition.EXITED,
                    exit_code=code,
                    finished_at=self.now(),
                )
        elif event == "repeated":
            self.stored = of_repeated_run(self.stored)


EVENTS = ("advance", "crash before", "crash after", "exits", "reboot", "removed", "repeated")


@given(st.lists(st.sampled_from(EVENTS), max_size=40))
def test_it_is_never_started_twice(events: list[str]) -> None:
    machine = Machine()
    for event in events:
        machine.seconds += 1
        if event in EVENTS[:3]:
            machine.advance(
                crash_before=event == "crash before", crash_after=event == "crash after"
            )
        else:
            machine.fail(event)
        assert machine.starts <= 1


@given(st.lists(st.sampled_from((*EVENTS[:5], "repeated", "journal lost")), max_size=40))
def test_it_is_never_started_twice_without_a_journal_if_its_container_stays(
    events: list[str],
) -> None:
    machine = Machine()
    for event in events:
        machine.seconds += 1
        if event in EVENTS[:3]:
            machine.advance(
                crash_before=event == "crash before", crash_after=event == "crash after"
            )
        else:
            machine.fail(event)
        assert machine.starts <= 1
