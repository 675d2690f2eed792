"""An order whose journal entry is delayed by a slow disk, in fixed plans.

The reservation of the order was stored before it was sent. It may be executed after its record is gone.
"""

from persys.sim.run import Outcome, run
from persys.sim.scenario.plan import Plan, PlannedEvent, Shape

SEED = 2  # the disk delays the entry until after the loss, and until after the removal
REQUEST = PlannedEvent(55.0, "apply", "w00", amount=1)


def run_with_slow_disk(*events: PlannedEvent, nodes: int) -> Outcome:
    """w00 is assigned to n1, which journals it late."""
    elsewhere = [PlannedEvent(40.0, "cordon", f"n{number}") for number in range(2, nodes + 1)]
    slow_disk = PlannedEvent(50.0, "slow-disk", "n1", seconds=9.0, amount=200.0)
    shape = Shape(nodes=nodes, workloads=1, minutes=5, schedulers=1, streams=0.0)
    return run(Plan(SEED, shape, (*elsewhere, slow_disk, REQUEST, *events)))


def started_at(outcome: Outcome, node: str) -> float:
    return next(
        line.at
        for line in outcome.lines
        if line.who == node and line.what.startswith("starts") and "w00" in line.what
    )


def test_an_order_may_be_executed_after_the_loss_of_its_record() -> None:
    loss = PlannedEvent(60.0, "wipe-store", seconds=20.0, amount=1.0, word="rebuild")

    outcome = run_with_slow_disk(loss, nodes=1)

    assert outcome.violation is None
    assert started_at(outcome, "n1") > loss.at


def test_an_order_may_be_executed_after_the_removal_of_its_node() -> None:
    removal = PlannedEvent(110.0, "remove", "n1")
    cut = PlannedEvent(60.0, "cut", "n1", seconds=100.0, word="both")
    uncordon = PlannedEvent(61.0, "uncordon", "n2")

    outcome = run_with_slow_disk(cut, uncordon, removal, nodes=2)

    assert outcome.violation is None
    assert any(line.what == "accepted: RemoveNode n1" for line in outcome.lines)
    assert started_at(outcome, "n1") > removal.at
