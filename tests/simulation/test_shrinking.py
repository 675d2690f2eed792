"""A planted fault is found, shrunk to the needed events, and replayed from a file."""

from persys.core.agent.progress import Artefact
from persys.errors import RuntimeUnavailableError
from persys.model.workload import Order
from persys.sim.fakes.node import SimNode
from persys.sim.fakes.runtime import SimRuntime
from persys.sim.run import Outcome, run, shrink
from persys.sim.scenario.plan import Plan, PlannedEvent, Shape, plan_from
from persys.sim.world import World


class FaultyRuntime(SimRuntime):
    """Treats a missing response as an absent container."""

    async def inspect(self, order: Order) -> Artefact | None:
        try:
            return await super().inspect(order)
        except RuntimeUnavailableError:
            return None


class FaultyNode(SimNode):
    runtime_type = FaultyRuntime


class FaultyWorld(World):
    node_type = FaultyNode


SHAPE = Shape(nodes=2, workloads=4, minutes=3)
NOISE = [PlannedEvent(5.0 + number, "apply", f"w{number:02d}", amount=1) for number in range(1, 6)]
NOISE += [PlannedEvent(60.0 + number, "clock", "n1", amount=2) for number in range(6)]
NEEDED = [
    PlannedEvent(2.0, "apply", "w00", amount=1),
    PlannedEvent(30.0, "docker-out", "n1", seconds=60),
    PlannedEvent(30.0, "docker-out", "n2", seconds=60),
    PlannedEvent(40.0, "delete", "w00"),
]
PLAN = Plan(11, SHAPE, tuple(sorted([*NOISE, *NEEDED], key=lambda each: each.at)))


def run_with_fault(plan: Plan) -> Outcome:
    return run(plan, FaultyWorld)


def test_the_plan_passes_without_the_planted_fault() -> None:
    assert run(PLAN).violation is None


def test_a_planted_fault_is_found_and_shrunk_to_the_needed_events() -> None:
    found = run_with_fault(PLAN)
    assert found.violation is not None

    short = shrink(found, run=run_with_fault)

    assert short.violation is not None
    assert short.violation.promise == found.violation.promise
    assert {"apply", "docker-out", "delete"} == {each.kind for each in short.plan.happenings}
    assert len(short.plan.happenings) == 3  # only one of the two nodes has it


def test_a_saved_plan_violates_the_same_promise_at_the_same_time() -> None:
    found = run_with_fault(PLAN)

    again = run_with_fault(plan_from(found.plan.to_json()))

    assert (again.violation, again.fingerprint) == (found.violation, found.fingerprint)
