"""A revision with other requirements: on the same node if it fits, on another if it may move."""

import pytest

from builders import (
    N1,
    N2,
    NOON,
    a_situation,
    a_status,
    a_workload,
    add_node,
    an_assignment,
    an_observation,
    rooms_of,
)
from persys.core.nodes import Phase
from persys.core.placement.index.node_index import NodeIndex
from persys.core.reconcile.decide import decide
from persys.core.reconcile.effects import Apply
from persys.core.reconcile.situation import Decision, Policy, Situation
from persys.model.placement import HostPort, Resources, Tombstone
from persys.model.spec import ContainerSpec, ManagedVolume, Port, Spec, VMSpec
from persys.model.status import Status
from persys.model.workload import Workload

ON_N1 = an_assignment()


def bigger(spec: Spec | None = None, *, cpu: int = 2000) -> Workload:
    return a_workload(revision="r2", spec=spec, resources=Resources(cpu, 128))


def decided(situation: Situation, *, cpu_n1: int, cpu_n2: int = 0) -> Decision:
    node_index = NodeIndex()
    add_node(node_index, "n1", cpu=cpu_n1, traits={"type:container", "type:vm", "driver:local"})
    if cpu_n2:
        add_node(node_index, "n2", cpu=cpu_n2, traits={"type:container", "type:vm", "driver:local"})
    return decide(situation, rooms_of(node_index), Policy(), now=NOON, roll=0.5)


def test_a_larger_revision_that_fits_its_node_stays_there() -> None:
    workload = bigger()
    decision = decided(
        a_situation(workload, assignment=ON_N1, observation=an_observation()), cpu_n1=4000
    )

    assert decision.assignment == an_assignment(reserved=Resources(2000, 128))
    assert decision.effects == (Apply(N1, workload, 1),)
    assert decision.tombstone is None


def test_a_workload_that_fits_only_on_another_node_moves_with_a_tombstone() -> None:
    workload = bigger()
    decision = decided(a_situation(workload, assignment=ON_N1), cpu_n1=1000, cpu_n2=4000)

    assert decision.assignment is not None
    assert (decision.assignment.node_id, decision.assignment.epoch) == (N2, 2)
    assert decision.effects == (Apply(N2, workload, 2),)
    assert decision.tombstone == Tombstone(ON_N1, NOON, keeps_data=True)


@pytest.mark.parametrize(
    "spec",
    [VMSpec(1, 512), ContainerSpec("db", managed_volumes=(ManagedVolume("data", "/data"),))],
    ids=["a machine", "a container with a volume"],
)
def test_a_larger_revision_with_data_stays_on_its_node_and_waits(spec: Spec) -> None:
    decision = decided(a_situation(bigger(spec), assignment=ON_N1), cpu_n1=1000, cpu_n2=4000)

    assert decision.assignment == ON_N1
    assert (decision.effects, decision.tombstone) == ((), None)
    assert decision.waits_for_capacity
    assert decision.workload_status is not None
    assert (decision.workload_status.status, decision.workload_status.code) == (
        Status.PENDING,
        "Unplaceable",
    )
    assert decision.workload_status.message == "node n1 short of cpu for this revision"


def test_a_larger_revision_that_fits_nowhere_stays_on_its_node_and_waits() -> None:
    decision = decided(a_situation(bigger(), assignment=ON_N1), cpu_n1=1000, cpu_n2=1000)

    assert decision.assignment == ON_N1
    assert decision.waits_for_capacity


def test_a_new_host_port_is_reserved_too() -> None:
    workload = a_workload(revision="r2", spec=ContainerSpec("x", ports=(Port(80, 8080),)))
    decision = decided(a_situation(workload, assignment=ON_N1), cpu_n1=4000)

    assert decision.assignment == an_assignment(host_ports=[HostPort(8080)])


def test_nothing_is_resized_without_heartbeats_of_the_node() -> None:
    decision = decided(
        a_situation(bigger(), assignment=ON_N1, workload_status=a_status(), phase=Phase.SUSPECT),
        cpu_n1=4000,
    )

    assert decision.assignment == ON_N1
    assert decision.effects == ()
    assert decision.workload_status is not None
    assert decision.workload_status.status is Status.UNKNOWN


@pytest.mark.parametrize("draining", [False, True])
def test_a_larger_revision_that_fits_nowhere_is_not_sent_to_its_node(*, draining: bool) -> None:
    """Found by seed 235, on a draining node: an order was sent with a smaller reservation."""
    situation = a_situation(
        bigger(), assignment=ON_N1, observation=an_observation(), draining=draining
    )

    decision = decided(situation, cpu_n1=1000)

    assert (decision.assignment, decision.effects) == (ON_N1, ())
    assert decision.waits_for_capacity
