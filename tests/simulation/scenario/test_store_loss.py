"""Loss of all data in the store, in fixed plans: workloads keep running, and an operator recovers."""

import pytest

from persys.sim.run import Outcome, run
from persys.sim.scenario.plan import Plan, PlannedEvent, Shape

LOST_AT = 60.0
SEED = 55  # none of its workloads has stop_after


def run_with(recovery: str, *, forgets: bool = False, schedulers: int = 1) -> Outcome:
    requests = [
        PlannedEvent(2.0 + number, "apply", f"w{number:02d}", amount=1) for number in range(4)
    ]
    saved = PlannedEvent(40.0, "snapshot")
    loss = PlannedEvent(LOST_AT, "wipe-store", seconds=20.0, amount=float(forgets), word=recovery)
    shape = Shape(nodes=3, workloads=4, minutes=4, schedulers=schedulers, streams=0.0)
    return run(Plan(SEED, shape, (*requests, saved, loss)))


def actions_after_loss(outcome: Outcome, verb: str) -> list[str]:
    return [
        line.what
        for line in outcome.lines
        if line.at > LOST_AT and line.who.startswith("n") and line.what.startswith(verb)
    ]


@pytest.mark.parametrize("recovery", ["rebuild", "restore", "accept"])
@pytest.mark.parametrize("forgets", [False, True])
def test_nothing_is_stopped_or_started_for_a_lost_store(recovery: str, *, forgets: bool) -> None:
    outcome = run_with(recovery, forgets=forgets)

    assert outcome.violation is None
    assert any(line.what == f"recovers: {recovery}" for line in outcome.lines)
    assert actions_after_loss(outcome, "stops") == []
    assert actions_after_loss(outcome, "receives delete") == []


def test_several_schedulers_stay_in_recovery_until_the_operator_decides() -> None:
    outcome = run_with("rebuild", schedulers=3)

    assert outcome.violation is None
    assert any(line.what == "recovers: rebuild" for line in outcome.lines)


def test_accepting_an_empty_store_records_orphans() -> None:
    outcome = run_with("accept")

    recorded = [line.what for line in outcome.lines if "orphan_on_agent" in line.what]
    assert recorded
