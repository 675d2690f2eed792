"""A change of the leader while a node is drained and no other node has capacity, in fixed plans."""

import pytest

from persys.sim.run import Outcome, run
from persys.sim.scenario.plan import Plan, PlannedEvent, Shape

WORKLOADS = 6
LOST_CONTACT_AT = 70.0
RESTARTED_AT = 84.0  # before the lease of the node has expired
CAPACITY_AT = 106.0  # within the lease that the new leader gives to all nodes


def run_with_drain(seed: int, *events: PlannedEvent) -> Outcome:
    """All workloads are on n1, which is drained. n2 is closed until it is uncordoned."""
    begin = [PlannedEvent(1.0, "cordon", "n2"), PlannedEvent(60.0, "drain", "n1")]
    begin += [
        PlannedEvent(10.0 + number, "apply", f"w{number:02d}", amount=1)
        for number in range(WORKLOADS)
    ]
    shape = Shape(nodes=2, workloads=WORKLOADS, minutes=5, schedulers=1, streams=0.0)
    planned = sorted((*begin, *events), key=lambda event: event.at)
    return run(Plan(seed, shape, tuple(planned)))


@pytest.mark.parametrize("seed", [1, 7, 8])  # some of their workloads have stop_after
def test_no_workload_with_stop_after_leaves_a_node_that_the_new_leader_never_heard(
    seed: int,
) -> None:
    outcome = run_with_drain(
        seed,
        PlannedEvent(LOST_CONTACT_AT, "cut", "n1", seconds=160.0, word="both"),
        PlannedEvent(RESTARTED_AT, "crash-scheduler", "scheduler", seconds=1.0),
        PlannedEvent(CAPACITY_AT, "uncordon", "n2"),
    )

    assert outcome.violation is None


def test_workloads_with_stop_after_leave_when_the_new_leader_has_heard_the_node() -> None:
    outcome = run_with_drain(
        1,
        PlannedEvent(RESTARTED_AT, "crash-scheduler", "scheduler", seconds=1.0),
        PlannedEvent(RESTARTED_AT + 1.3, "uncordon", "n2"),  # before the first heartbeat of n1
    )

    moved = {line.what.split()[2] for line in outcome.lines if line.what.startswith("starts n2-")}
    assert outcome.violation is None
    assert moved >= {"w00", "w02"}  # they have stop_after
