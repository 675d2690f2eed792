"""The hostile node of the simulation is a registered node: otherwise all of its reports are refused."""

from persys.sim.run import run
from persys.sim.scenario.plan import Plan, PlannedEvent, Shape


def test_a_hostile_node_registers_and_its_orphans_are_stored() -> None:
    shape = Shape(nodes=1, workloads=1, minutes=2.0, schedulers=1, streams=0.0)
    outcome = run(Plan(3, shape, (PlannedEvent(5.0, "hostile-node", seconds=110.0),)))

    assert outcome.violation is None
    commits = "\n".join(str(line) for line in outcome.lines)
    assert "+/nodes/x1" in commits
    assert "/x1/made-up-" in commits
