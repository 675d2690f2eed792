"""A refused clone of a node's disk stops its workloads with data; the node itself keeps running."""

import pytest

from persys.agent.uplink.contact import SchedulerContact
from persys.sim.run import Outcome, run
from persys.sim.scenario.faults import TOLD_SECONDS
from persys.sim.scenario.plan import Plan, PlannedEvent, Shape

CLONE = "n1-clone-1"


def run_with_clone(streams: float) -> Outcome:
    requests = [
        PlannedEvent(2.0 + number, "apply", f"w{number:02d}", amount=1) for number in range(10)
    ]
    clone = PlannedEvent(40.0, "clone-node", "n1", seconds=TOLD_SECONDS + 10)
    shape = Shape(nodes=1, workloads=10, minutes=4, schedulers=1, streams=streams)
    return run(Plan(5, shape, (*requests, clone)))


@pytest.mark.parametrize("streams", [0.0, 1.0])
def test_a_refused_clone_stops_workloads_with_data(streams: float) -> None:
    outcome = run_with_clone(streams)

    assert outcome.violation is None
    assert any(line.who == CLONE and "starts" in line.what for line in outcome.lines)


def test_a_clone_that_ignores_the_refusal_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SchedulerContact, "set_superseded", lambda _contact, _superseded: None)

    outcome = run_with_clone(0.0)

    assert outcome.violation is not None
    assert "a clone that was refused" in outcome.violation.text
