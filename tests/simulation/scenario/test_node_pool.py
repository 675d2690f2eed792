"""A node pool in fixed plans: it grows, shrinks and grows again, with each fault of its provider."""

import pytest

from builders import N1, NOON, a_status, a_workload, an_assignment
from persys.model.node import Capabilities, Node
from persys.model.placement import HostPort
from persys.model.spec import ContainerSpec, ManagedVolume, Port
from persys.model.status import Status
from persys.model.workload import Desired, Workload
from persys.sim.checks.node_pools import waits_for_machine
from persys.sim.checks.store_mirror import StoreMirror
from persys.sim.engine.trace import rng
from persys.sim.run import Outcome, run
from persys.sim.scenario.faults import FAULTS, Group, kinds_of
from persys.sim.scenario.plan import Plan, PlannedEvent, Shape
from persys.sim.scenario.specs import spec_of
from persys.store import keys

SEED = 1
SHAPE = Shape(nodes=1, workloads=0, minutes=7, schedulers=1, streams=0.0, pool_machines=3)
WORKLOADS = 9
RISES_AT, FALLS_AT, RISES_AGAIN_AT = 5.0, 120.0, 280.0


def steady_names() -> list[str]:
    """Containers that need neither a port nor a volume, and more than half a core."""
    found = []
    for name in (f"w{number:02d}" for number in range(99)):
        spec = spec_of(SEED, name, 1)
        container = spec.container
        if (
            "steady/" in container.image
            and not (container.ports or container.volumes or container.managed_volumes)
            and spec.resources.cpu_millicores > 500
        ):
            found.append(name)
    return found[:WORKLOADS]


def run_with(*events: PlannedEvent) -> Outcome:
    """The demand rises, falls and rises again."""
    names = steady_names()
    requests = [
        *(PlannedEvent(RISES_AT, "apply", name, amount=1) for name in names),
        *(PlannedEvent(FALLS_AT, "delete", name) for name in names),
        *(PlannedEvent(RISES_AGAIN_AT, "apply", name, amount=1) for name in names),
    ]
    return run(Plan(SEED, SHAPE, tuple(sorted((*requests, *events), key=lambda each: each.at))))


def lines_of(outcome: Outcome, verb: str) -> list[str]:
    return [
        line.what for line in outcome.lines if line.who == "provider" and line.what.startswith(verb)
    ]


def test_a_pool_grows_for_waiting_workloads_and_shrinks_when_its_machines_are_idle() -> None:
    outcome = run_with()

    assert outcome.violation is None
    assert len(lines_of(outcome, "creates")) > len(lines_of(outcome, "destroys")) > 0


@pytest.mark.parametrize("kind", kinds_of(Group.NODE_POOL))
def test_a_pool_has_the_machines_that_it_needs_after_a_fault_of_its_provider(kind: str) -> None:
    fault = FAULTS[kind].draw(rng(SEED, kind), SHAPE)
    share = fault.amount and 0.7

    outcome = run_with(
        *(PlannedEvent(at, kind, seconds=100.0, amount=share) for at in (RISES_AT, RISES_AGAIN_AT))
    )

    assert outcome.violation is None
    assert len(lines_of(outcome, "creates")) > 1


def a_mirror(workload: Workload, *, is_assigned: bool = False) -> StoreMirror:
    """The workload waits. On the only node another one uses port 80."""
    mirror = StoreMirror()
    mirror.workloads[keys.workload_key(workload.id)] = workload
    status = a_status(Status.PENDING, code="Unplaceable")
    mirror.workload_statuses[keys.status_key(workload.id)] = status
    mirror.nodes[keys.node_key(N1)] = Node(N1, Capabilities(4000, 8192), "10.0.0.1:50051", NOON)
    other = an_assignment(N1, name="other", host_ports=[HostPort(80)])
    mirror.assignments[keys.assignment_key(other.workload_id)] = other
    if is_assigned:
        mirror.assignments[keys.assignment_key(workload.id)] = an_assignment(N1)
    return mirror


def test_a_workload_that_waits_while_the_pool_can_grow_is_reported() -> None:
    mirror = a_mirror(a_workload())

    assert list(waits_for_machine(mirror, 2, maximum=3)) == [
        "web waits, and the pool has 2 of 3 machines"
    ]
    assert list(waits_for_machine(mirror, 3, maximum=3)) == []


@pytest.mark.parametrize(
    ("workload", "is_assigned"),
    [
        (a_workload(spec=ContainerSpec("web", ports=(Port(80, 80),))), False),
        (a_workload(spec=ContainerSpec("db", managed_volumes=(ManagedVolume("a", "/a"),))), True),
        (a_workload(desired=Desired.STOPPED), True),
    ],
    ids=["for a port", "for the node of its data", "until it is started"],
)
def test_a_workload_that_a_new_machine_does_not_help_is_not_reported(
    workload: Workload, is_assigned: bool
) -> None:
    assert list(waits_for_machine(a_mirror(workload, is_assigned=is_assigned), 2, maximum=3)) == []
