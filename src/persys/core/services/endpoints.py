"""The endpoints of a service: the healthy members, and where clients reach them.

A container and a stack are reached at the address of their node and a published port, a VM at its own
address. A member that starts, is unhealthy, stops or is deleted is not an endpoint, and neither is one on a
node without heartbeats. A member that has to leave a draining node stops soon: it is an endpoint only while
no other member is one.

`judge` needs only one member and its node: after a change, the other members are not judged again.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from persys.core.agent.report import PORTS, PRIMARY_IP, is_healthy
from persys.core.dns_names import PORT_MAX, usable_host
from persys.core.placement.requirements import holds_data
from persys.core.services.selection import selector_of
from persys.core.sets.situation import MemberHealth, current_status, health_of
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.node import Node
from persys.model.placement import Assignment
from persys.model.service import Service, ServicePort
from persys.model.spec import ComposeSpec, ContainerSpec, VMSpec
from persys.model.status import Status, WorkloadStatus
from persys.model.workload import Desired, Workload

_PUBLISHED = re.compile(
    r"(?P<six>\[::\]:)?(?P<host>[0-9]{1,5})->(?P<inside>[0-9]{1,5})/(?P<transport>[a-z]+)"
)


class Member(NamedTuple):
    """A workload that a service selects."""

    workload: Workload
    assignment: Assignment | None = None
    workload_status: WorkloadStatus | None = None


class Endpoint(NamedTuple):
    """Where clients reach one member at one port of the service."""

    workload_id: WorkloadId
    node_id: NodeId
    service_port: ServicePort
    host: str
    port: int
    weight: int
    revision: Revision
    healthy_since: datetime | None


class Excluded(NamedTuple):
    """Why a member is not an endpoint, or not at all ports."""

    workload_id: WorkloadId
    node_id: NodeId | None
    health: MemberHealth
    reason: str


class Judged(NamedTuple):
    """One member: its endpoints, if it may be used, and otherwise why not.

    `excluded` with endpoints: it does not publish all ports. `leaving`: it stops soon.
    """

    endpoints: tuple[Endpoint, ...] = ()
    excluded: Excluded | None = None
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Both are ordered by workload and port."""

    endpoints: tuple[Endpoint, ...] = ()
    excluded: tuple[Excluded, ...] = ()

    @property
    def healthy_count(self) -> int:
        """The number of members that are endpoints."""
        return len({one.workload_id for one in self.endpoints})


def endpoints(
    service: Service, members: Iterable[Member], nodes: Mapping[NodeId, Node]
) -> Endpoints:
    """The endpoints of a service. Workloads that it does not select are ignored."""
    judged = []
    for member in members:
        assignment = member.assignment
        node = nodes.get(assignment.node_id) if assignment is not None else None
        if (found := judge(service, member, node)) is not None:
            judged.append(found)
    return combine(judged)


def judge(service: Service, member: Member, node: Node | None) -> Judged | None:
    """`node`: of its assignment, if that and its record exist. None: the service does not select it."""
    workload, assignment = member.workload, member.assignment
    selector = selector_of(service, workload)
    if selector is None:
        return None
    health = _health(member, node)
    if health is not MemberHealth.HEALTHY or assignment is None or node is None:
        return _excluded(member, health, _why_not_healthy(member, health))
    found, problems = [], []
    for service_port in service.ports:
        place = _place(member, node, service_port)
        if isinstance(place, str):
            problems.append(place)
            continue
        status = member.workload_status
        found.append(
            Endpoint(
                workload.id,
                node.id,
                service_port,
                *place,
                weight=selector.weight,
                revision=workload.revision,
                healthy_since=status.healthy_since if status is not None else None,
            )
        )
    not_all = _excluded(member, health, "; ".join(problems)).excluded if problems else None
    leaving = node.drain is not None and not holds_data(workload)
    return Judged(tuple(found), not_all, leaving)


def combine(judged: Iterable[Judged]) -> Endpoints:
    """Members that leave their node count only if no other member is an endpoint."""
    members = list(judged)
    has_others = any(one.endpoints and not one.leaving for one in members)
    found: list[Endpoint] = []
    excluded: list[Excluded] = []
    for one in members:
        if one.excluded is not None:
            excluded.append(one.excluded)
        if one.leaving and has_others and one.endpoints:
            first = one.endpoints[0]
            reason = f"its node {first.node_id} is being drained"
            excluded.append(
                Excluded(first.workload_id, first.node_id, MemberHealth.HEALTHY, reason)
            )
        else:
            found += one.endpoints
    found.sort(key=lambda one: (one.workload_id, one.service_port.name))
    excluded.sort(key=lambda one: one.workload_id)
    return Endpoints(tuple(found), tuple(excluded))


def _excluded(member: Member, health: MemberHealth, reason: str) -> Judged:
    assignment = member.assignment
    node_id = assignment.node_id if assignment is not None else None
    return Judged(excluded=Excluded(member.workload.id, node_id, health, reason))


def _health(member: Member, node: Node | None) -> MemberHealth:
    workload, assignment, status = member
    health = health_of(workload, assignment, status, node)
    # A status that was stored before health was recorded says only that it runs.
    is_old = status is not None and status.healthy_since is None
    if is_old and health is MemberHealth.STARTING and workload.desired is Desired.RUNNING:
        current = current_status(workload, assignment, status)
        if (
            current is not None
            and current.status is Status.RUNNING
            and is_healthy(current.metadata)
        ):
            return MemberHealth.HEALTHY
    return health


def _why_not_healthy(member: Member, health: MemberHealth) -> str:
    workload, assignment, status = member
    said = f": {status.message}" if status is not None and status.message else ""
    match health:
        case MemberHealth.DELETING:
            return "it is being deleted"
        case MemberHealth.STOPPED:
            return "it is stopped"
        case MemberHealth.LOST:
            assert assignment is not None, "only an assigned workload has a node"
            return f"its node {assignment.node_id} does not send heartbeats"
        case MemberHealth.UNHEALTHY:
            return f"its health check fails{said}"
        case MemberHealth.FAILED:
            return f"it has failed{said}"
        case MemberHealth.UNKNOWN:
            return f"its state is unknown{said}"
        case MemberHealth.STARTING | MemberHealth.HEALTHY:
            return _why_starting(workload, assignment, status, said)


def _why_starting(
    workload: Workload, assignment: Assignment | None, status: WorkloadStatus | None, said: str
) -> str:
    if workload.desired is Desired.STOPPED:
        return "it is being stopped"
    if assignment is None:
        return f"it is not assigned to a node{said}"
    current = current_status(workload, assignment, status)
    if current is None:
        return f"node {assignment.node_id} has not reported revision {workload.revision} yet"
    if current.status is Status.RUNNING:
        return f"its health check has not passed yet{said}"
    return f"it is {current.status.value.lower()}{said}"


def _place(member: Member, node: Node, port: ServicePort) -> tuple[str, int] | str:
    """Host and port for clients, or why there is none."""
    assert member.workload_status is not None, "a healthy member has a status"
    metadata = member.workload_status.metadata
    spec = member.workload.spec
    if node.capabilities.remote:
        return f"it runs in the remote cluster of node {node.id}, which publishes no ports here"
    if isinstance(spec, VMSpec):
        address = usable_host(metadata.get(PRIMARY_IP, ""))
        return (address, port.port) if address else "it has no known address yet"
    host = _host_of(node)
    if not host:
        return f"its node {node.id} has no usable address: {node.endpoint!r}"
    published = _published(spec, metadata.get(PORTS, ""), port, six=":" in host)
    name = f"port {port.port}/{port.protocol.transport}"
    if not published:
        return f"{name} is not published: add it to the ports of the workload"
    if isinstance(spec, ComposeSpec) and len(published) > 1:
        shown = " and ".join(map(str, published))
        return f"{name} is published more than once, as {shown}: expected one port of the stack"
    return host, published[0]


def _host_of(node: Node) -> str:
    host, _, _ = node.endpoint.rpartition(":")
    return usable_host(host.removeprefix("[").removesuffix("]"))


def _published(
    spec: ContainerSpec | ComposeSpec, reported: str, port: ServicePort, *, six: bool
) -> list[int]:
    """The host ports, in ascending order. A node that does not report ports uses those of the spec.

    `six`: for an IPv6 address, for which Docker may have chosen other ports.
    """
    transport = port.protocol.transport
    every: dict[bool, set[int]] = {False: set(), True: set()}  # by whether it is only for IPv6
    for one in map(_PUBLISHED.fullmatch, reported.split(",")):
        if (
            one is not None
            and (int(one["inside"]), one["transport"]) == (port.port, transport)
            and 0 < int(one["host"]) <= PORT_MAX
        ):
            every[one["six"] is not None].add(int(one["host"]))
    found = every[True] or every[False] if six else every[False]
    if not reported:
        given = spec.ports if isinstance(spec, ContainerSpec) else spec.needs.ports
        found = {
            one.host_port
            for one in given
            if one.host_port and (one.container_port, one.protocol) == (port.port, transport)
        }
    return sorted(found)
