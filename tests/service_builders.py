"""Builders of services, their members and nodes."""

from datetime import datetime
from typing import Any

from builders import NOON
from persys.core.services.endpoints import Member
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.node import Capabilities, Drain, Node, NodeStatus
from persys.model.placement import Assignment
from persys.model.service import Selector, Service, ServiceId, ServicePort, ServiceProtocol
from persys.model.spec import ContainerSpec, Port, Spec
from persys.model.status import Status, WorkloadStatus
from persys.model.workload import Desired, Membership, Workload

HTTP = ServicePort("http", 80, ServiceProtocol.HTTP)


def a_service(
    *selectors: Selector, ports: tuple[ServicePort, ...] = (HTTP,), hosts: tuple[str, ...] = ()
) -> Service:
    chosen = selectors or (Selector(set_id="web"),)
    return Service(ServiceId("web"), ports, chosen, NOON, NOON, hosts)


def a_node(name: str = "n1", *, endpoint: str = "", **changes: Any) -> Node:
    at = endpoint or f"10.0.0.{int(name[1:])}:50051"
    return Node(NodeId(name), Capabilities(4000, 8000), at, NOON, **changes)


def a_lost_node(name: str = "n1") -> Node:
    return a_node(name, status=NodeStatus.NOT_READY)


def a_draining_node(name: str = "n1") -> Node:
    return a_node(name, drain=Drain(NOON), status=NodeStatus.DRAINING)


def a_member(
    number: int = 0,
    *,
    node: str | None = "n1",
    spec: Spec | None = None,
    desired: Desired = Desired.RUNNING,
    status: Status = Status.RUNNING,
    code: str = "",
    message: str = "",
    reported: str = "r1",
    metadata: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    healthy_since: datetime | None = NOON,
    membership: Membership | None = None,
    owner: str = "web",
) -> Member:
    """A healthy member of the set web, with its port 80 published as 20000 + its number."""
    workload_id = WorkloadId(f"web-{number}")
    workload = Workload(
        workload_id,
        spec or ContainerSpec("nginx", ports=(Port(80),)),
        Revision("r1"),
        NOON,
        NOON,
        desired=desired,
        metadata=labels or {},
        membership=membership or (Membership(owner, number, number) if owner else None),
    )
    found = {"container.ports": f"{20_000 + number}->80/tcp"} if metadata is None else metadata
    return Member(
        workload,
        Assignment(workload_id, NodeId(node), 1, NOON) if node is not None else None,
        WorkloadStatus(
            workload_id,
            status,
            NOON,
            code=code,
            message=message,
            revision=Revision(reported),
            epoch=1,
            metadata=found,
            healthy_since=healthy_since,
        ),
    )
