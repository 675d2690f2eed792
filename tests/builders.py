"""Builders of model objects with default values."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry

from persys.core.nodes import Phase
from persys.core.placement.filters import Rejection, reject
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.requirements import Requirements
from persys.core.placement.select import place
from persys.core.reconcile.dispatch import Dispatch, Goal
from persys.core.reconcile.situation import Placer, Situation
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.placement import NO_RULES, Assignment, HostPort, Resources, Rules
from persys.model.spec import ContainerSpec, Spec
from persys.model.status import (
    Actual,
    Failure,
    FailureReason,
    Observation,
    Retry,
    Status,
    WorkloadStatus,
)
from persys.model.workload import Desired, Workload

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)
WEB = WorkloadId("web")
N1, N2 = NodeId("n1"), NodeId("n2")
CONTAINER = frozenset({"type:container"})


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def a_workload(
    name: str = "web",
    *,
    spec: Spec | None = None,
    revision: str = "r1",
    desired: Desired = Desired.RUNNING,
    resources: Resources | None = None,
    metadata: dict[str, str] | None = None,
    rules: Rules = NO_RULES,
) -> Workload:
    return Workload(
        id=WorkloadId(name),
        spec=spec or ContainerSpec("nginx"),
        revision=Revision(revision),
        created_at=NOON,
        updated_at=NOON,
        desired=desired,
        resources=resources or Resources(100, 128),
        metadata=metadata or {},
        rules=rules,
    )


def an_assignment(
    node_id: str = "n1",
    *,
    name: str = "web",
    epoch: int = 1,
    reserved: Resources | None = None,
    host_ports: Iterable[HostPort] = (),
    rules: Rules = NO_RULES,
) -> Assignment:
    return Assignment(
        WorkloadId(name),
        NodeId(node_id),
        epoch,
        NOON,
        reserved=reserved or Resources(100, 128),
        host_ports=frozenset(host_ports),
        rules=rules,
    )


def a_status(
    status: Status = Status.RUNNING,
    *,
    code: str = "",
    message: str = "",
    changed_at: datetime = NOON,
    revision: str = "r1",
    epoch: int = 1,
    failure: Failure | None = None,
) -> WorkloadStatus:
    return WorkloadStatus(
        WEB,
        status,
        changed_at,
        code=code,
        message=message,
        failure=failure,
        revision=Revision(revision),
        epoch=epoch,
    )


def an_observation(
    actual: Actual = Actual.RUNNING,
    *,
    seen_at: datetime = NOON,
    node_id: str = "n1",
    revision: str = "r1",
    epoch: int = 1,
    failure: Failure | None = None,
    message: str = "",
    metadata: dict[str, str] | None = None,
    name: str = WEB,
) -> Observation:
    return Observation(
        WorkloadId(name),
        NodeId(node_id),
        actual,
        seen_at,
        revision=Revision(revision),
        epoch=epoch,
        failure=failure,
        message=message,
        metadata=metadata or {},
    )


def a_failure(
    reason: FailureReason = FailureReason.RUNTIME_ERROR,
    message: str = "it broke",
    *,
    retryable: bool | None = None,
    code: str = "",
) -> Failure:
    can_help = reason.retryable if retryable is None else retryable
    return Failure(reason, message, retryable=can_help, code=code)


def a_retry(attempts: int = 1, next_at: datetime | None = NOON, *, revision: str = "r1") -> Retry:
    return Retry(WEB, Revision(revision), attempts, next_at)


def a_dispatch(
    *,
    sent_at: datetime = NOON,
    answered: bool = True,
    desired: Desired = Desired.RUNNING,
    revision: str = "r1",
    epoch: int = 1,
    resend_at: datetime | None = None,
    problem: str = "",
) -> Dispatch:
    return Dispatch(
        Goal(Revision(revision), desired, epoch),
        sent_at,
        answered_at=sent_at if answered and resend_at is None else None,
        resend_at=resend_at,
        problem=problem,
    )


def needs(
    cpu: int = 0,
    memory: int = 0,
    disk: int = 0,
    *,
    traits: Iterable[str] = CONTAINER,
    host_ports: Iterable[HostPort] = (),
) -> Requirements:
    return Requirements(Resources(cpu, memory, disk), frozenset(traits), frozenset(host_ports))


def add_node(
    node_index: NodeIndex,
    node_id: str,
    *,
    cpu: int = 4000,
    memory: int = 8192,
    disk: int = 100,
    traits: Iterable[str] = CONTAINER,
    closed: str = "",
    labels: dict[str, str] | None = None,
    taints: Iterable[str] = (),
    tier: int = 0,
    price: float = 0.0,
    largest: Resources | None = None,
) -> NodeId:
    node_index.put_node(
        NodeId(node_id),
        allocatable=Resources(cpu, memory, disk),
        traits=frozenset(traits),
        closed=closed,
        labels=labels,
        taints=frozenset(taints),
        tier=tier,
        price=price,
        largest=largest or Resources(),
    )
    return NodeId(node_id)


def rooms_of(node_index: NodeIndex) -> Placer:
    """Whether requirements fit on a node, as if the tested workload had no reservation yet."""

    def fits_on(_workload_id: WorkloadId, node_id: NodeId, needs: Requirements) -> Rejection | None:
        return reject(node_index.slots[node_id], needs)

    return Placer(lambda needs, _leaving: place(needs, node_index), fits_on)


def a_situation(
    workload: Workload | None = None,
    *,
    assignment: Assignment | None = None,
    workload_status: WorkloadStatus | None = None,
    retry: Retry | None = None,
    observation: Observation | None = None,
    observed_since: datetime | None = None,
    dispatch: Dispatch | None = None,
    phase: Phase = Phase.ALIVE,
    reports: bool = False,
    draining: bool = False,
    confirmed_dead: bool = False,
) -> Situation:
    """A workload on a node that is alive, unless other values are given."""
    return Situation(
        workload or a_workload(),
        assignment,
        workload_status,
        retry,
        observation,
        observed_since or (observation.seen_at if observation else None),
        dispatch,
        phase,
        reports,
        draining,
        confirmed_dead,
    )


def a_supervisor(component: str = "agent") -> Supervisor:
    return Supervisor(component, SystemClock(), CollectorRegistry())


@asynccontextmanager
async def owned_work(*, limit: int = 100) -> AsyncIterator[OwnedWork]:
    """OwnedWork with a running loop."""
    owned = OwnedWork(a_supervisor(), limit=limit)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(owned.run())
        await asyncio.sleep(0)
        yield owned
        running.cancel()
