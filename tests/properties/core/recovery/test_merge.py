"""A merge of any records and reports reserves no more than a node has."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from builders import NOON, a_workload, an_assignment
from persys.core.recovery.merge import Merged, NodeReport, Recorded, merge
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.node import Capabilities, Node
from persys.model.placement import Assignment, HostPort, Resources, Tombstone
from persys.model.spec import ContainerSpec, Port
from persys.model.status import Actual, Observation
from persys.model.workload import StoredIntent, Workload

CPU = 4000
NODES = (NodeId("n1"), NodeId("n2"))
NAMES = tuple(WorkloadId(name) for name in ("db", "shop", "web", "work"))
PORTS = (0, 8080, 8081)

cpus = st.integers(0, CPU)


@dataclass(frozen=True)
class Loss:
    recorded: Recorded
    reports: list[NodeReport]


@st.composite
def losses(draw: st.DrawFn) -> Loss:
    """Records that fit on their nodes, and other copies on the same nodes."""
    nodes = {name: Node(name, Capabilities(CPU, 8192), f"{name}:1", NOON) for name in NODES}
    workloads: dict[WorkloadId, Workload] = {}
    assignments: dict[WorkloadId, Assignment] = {}
    tombstones: list[Tombstone] = []
    free = dict.fromkeys(NODES, CPU)
    for name in draw(st.sets(st.sampled_from(NAMES))):
        node_id = draw(st.sampled_from(NODES))
        cpu = draw(st.integers(0, free[node_id]))
        free[node_id] -= cpu
        one = an_assignment(node_id, name=name, reserved=Resources(cpu, 256))
        if draw(st.booleans()):
            workloads[name], assignments[name] = a_workload(name), one
        else:
            tombstones.append(Tombstone(one, NOON))
    reports = [draw(reports_of(node)) for node in nodes.values()]
    return Loss(Recorded(nodes, workloads, assignments, tuple(tombstones)), reports)


@st.composite
def reports_of(draw: st.DrawFn, node: Node) -> NodeReport:
    if draw(st.integers(0, 4)) == 0:
        return NodeReport(node, problem="no response")
    seen, intents = [], []
    for name in draw(st.sets(st.sampled_from(NAMES))):
        port, epoch = draw(st.sampled_from(PORTS)), draw(st.integers(1, 9))
        spec = ContainerSpec("nginx", ports=(Port(80, port),) if port else ())
        workload = a_workload(name, spec=spec, resources=Resources(draw(cpus), 256))
        seen.append(Observation(name, node.id, Actual.RUNNING, NOON, Revision("r1"), epoch))
        intents.append(StoredIntent(node.id, workload, epoch))
    return NodeReport(node, seen, intents)


def reserved_on(merged: Merged, node_id: NodeId) -> dict[WorkloadId, Assignment]:
    stale = [one.assignment for one in merged.tombstones]
    held = (one for one in (*stale, *merged.assignments.values()) if one.node_id == node_id)
    return {one.workload_id: one for one in held}


@given(losses())
def test_no_node_gets_more_than_it_has(loss: Loss) -> None:
    merged = merge(loss.recorded, loss.reports, epochs_used=100, now=NOON)

    for node_id in NODES:
        held = reserved_on(merged, node_id).values()
        total = sum((one.reserved for one in held), Resources())
        ports: list[HostPort] = [port for one in held for port in one.host_ports]
        assert total.fits_in(merged.nodes[node_id].capabilities.allocatable)
        assert len(ports) == len(set(ports))


@given(losses())
def test_every_copy_is_restored_or_listed_as_left_out(loss: Loss) -> None:
    merged = merge(loss.recorded, loss.reports, epochs_used=100, now=NOON)

    listed = " ".join(merged.left_out)
    for report in loss.reports:
        for intent in report.intents:
            assert intent.workload.id in merged.workloads or intent.workload.id in listed
