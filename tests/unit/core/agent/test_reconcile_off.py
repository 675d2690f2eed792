"""A node whose reconciliation is off executes orders, and only reports other changes."""

from datetime import timedelta

import pytest
from hypothesis import given

from persys.core.agent.next_step import NOT_RECONCILED, next_step, without_reconciliation
from persys.core.agent.progress import Artefact, Condition, Perform, Progress, Settled, Step
from persys.model.status import Actual
from persys.model.workload import Desired, Order
from unit.core.agent.test_next_step import EARLIER, NOW, an_artefact, an_order, artefacts, orders

LAUNCHED = Progress(launching=True)


def decide(
    order: Order, artefact: Artefact | None, progress: Progress = LAUNCHED, *, under_way: bool
) -> Perform | Settled:
    outcome = next_step(order, artefact, progress, now=NOW)
    return without_reconciliation(outcome, order, artefact, under_way=under_way)


def test_a_missing_container_is_reported_and_not_recreated() -> None:
    settled = decide(an_order(), None, under_way=False)

    assert isinstance(settled, Settled)
    assert (settled.actual, settled.code) == (Actual.FAILED, NOT_RECONCILED)
    assert "is missing" in settled.message
    assert settled.failure is not None
    assert not settled.failure.retryable


def test_an_order_under_way_is_carried_out() -> None:
    assert decide(an_order(), None, under_way=True) == Perform(Step.PULL)


def test_a_manually_stopped_workload_stays_stopped() -> None:
    stopped = an_artefact(Condition.EXITED, started_at=EARLIER, exit_code=137)

    settled = decide(an_order(), stopped, under_way=False)

    assert isinstance(settled, Settled)
    assert settled.code == NOT_RECONCILED
    assert "is exited" in settled.message


def test_a_manually_started_workload_stays_running() -> None:
    settled = decide(an_order(Desired.STOPPED), an_artefact(), under_way=False)

    assert isinstance(settled, Settled)
    assert "desired state is stopped, but it is running" in settled.message


def test_a_delete_is_executed_in_any_state() -> None:
    assert decide(an_order(Desired.DELETED), an_artefact(), under_way=False) == Perform(Step.STOP)


def test_a_vm_is_restarted_according_to_its_restart_policy() -> None:
    ended = an_artefact(
        Condition.EXITED, boots=True, started_at=EARLIER, finished_at=NOW - timedelta(seconds=50)
    )

    assert decide(an_order(), ended, under_way=False) == Perform(Step.START, by_policy=True)


@pytest.mark.parametrize("under_way", [True, False])
@given(order=orders, artefact=artefacts)
def test_a_converged_workload_is_reported_as_usual(
    under_way: bool, order: Order, artefact: Artefact
) -> None:
    outcome = next_step(order, artefact, LAUNCHED, now=NOW)

    decided = without_reconciliation(outcome, order, artefact, under_way=under_way)

    if isinstance(outcome, Settled) or under_way:
        assert decided == outcome
