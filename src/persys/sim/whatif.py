"""What-if analysis: the real scheduler on the records of a real cluster, with nodes that obey immediately."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import grpc

from persys.errors import NotFoundError, PersysError
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.node import NodeStatus
from persys.model.status import Actual, Observation, Status
from persys.model.workload import Desired
from persys.scheduler.app import Scheduler
from persys.scheduler.dispatch.agent_client import Close
from persys.scheduler.dispatch.agent_client import Stub as AgentStub
from persys.scheduler.state.cluster import WorkloadState
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import Trace, captured_logs, rng
from persys.sim.engine.virtual_loop import VirtualLoop
from persys.sim.fakes.node import METHODS
from persys.sim.fakes.scheduler import SimScheduler
from persys.sim.network.network import Context, Network
from persys.sim.scenario.plan import SCHEDULER, USER
from persys.store import keys
from persys.store.port import Unit
from persys.wire.agent import messages as wire
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2

STARTING_SECONDS = 1.0
BEAT_SECONDS = 10.0
SETTLING_SECONDS = 40.0
DEADLINE_SECONDS = 60.0

T = TypeVar("T")
Places = dict[WorkloadId, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class WorkloadMove:
    """The change of one workload. An empty node: it is pending."""

    workload_id: WorkloadId
    before: str
    after: str
    why: str


class InstantNode:
    """A node that executes every order immediately and reports success."""

    def __init__(self, node_id: NodeId, now: Callable[[], datetime]) -> None:
        self.node_id = node_id
        self._now = now

    async def ApplyWorkload(  # noqa: N802 - gRPC names the methods
        self, request: agent_pb2.ApplyWorkloadRequest, _context: Context
    ) -> agent_pb2.ApplyWorkloadResponse:
        stopped = request.desired_state == agent_pb2.DESIRED_STATE_STOPPED
        kind = wire.workload_type(request.type)
        assert kind is not None
        seen = Observation(
            WorkloadId(request.id),
            self.node_id,
            Actual.STOPPED if stopped else Actual.RUNNING,
            self._now(),
            revision=Revision(request.revision_id),
            epoch=request.epoch,
        )
        desired = Desired.STOPPED if stopped else Desired.RUNNING
        status = wire.status_message(seen, type=kind, desired=desired)
        return agent_pb2.ApplyWorkloadResponse(applied=True, status=status)

    async def DeleteWorkload(  # noqa: N802
        self, _request: agent_pb2.DeleteWorkloadRequest, _context: Context
    ) -> agent_pb2.DeleteWorkloadResponse:
        return agent_pb2.DeleteWorkloadResponse(success=True)

    async def GetWorkloadStatus(  # noqa: N802
        self, request: agent_pb2.GetWorkloadStatusRequest, context: Context
    ) -> None:
        await context.abort(grpc.StatusCode.NOT_FOUND, f"workload not found: {request.id}")


async def _unimplemented(_request: object, context: Context) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not supported by this node")


class _SchedulerByNodeId(SimScheduler):
    """Connects to nodes by id: the addresses in the records are those of the real machines."""

    def _connect(
        self, process: SimProcess, node_id: NodeId, endpoint: str
    ) -> tuple[AgentStub, Close]:
        return super()._connect(process, node_id, node_id)


class WhatIf:
    """A cluster built from records. Nodes that were not ready stay unreachable."""

    def __init__(self, contents: Sequence[tuple[str, bytes]]) -> None:
        self._trace = Trace(asyncio.get_running_loop().time)
        self._network = Network(rng(0, "network"), resolve=self._resolve)
        self._host = _SchedulerByNodeId(0, self._network, committed=lambda *_: None)
        self._contents = contents
        self._user = self._process(USER)
        self._nodes: dict[NodeId, SimProcess] = {}

    @property
    def scheduler(self) -> Scheduler:
        assert self._host.scheduler is not None
        return self._host.scheduler

    async def open(self, group: asyncio.TaskGroup) -> None:
        units = [Unit(puts={key: value}) for key, value in self._contents if key != keys.LEADER]
        await self._host.store.commit(units)
        process = self._process(SCHEDULER)
        self._host.processes.append(process)
        group.create_task(_ended(process.run(self._host.run)))
        await asyncio.sleep(STARTING_SECONDS)
        for node_id, member in sorted(self.scheduler.cluster.nodes.items()):
            if member.node.status is not NodeStatus.NOT_READY:
                node = self._nodes[node_id] = self._process(node_id)
                instant_node = InstantNode(node_id, self._host.wall.now)
                node.serves = {
                    name: getattr(instant_node, name, _unimplemented) for name in METHODS
                }
                group.create_task(_ended(node.run(self._beat)))
        await asyncio.sleep(SETTLING_SECONDS)

    def close(self) -> None:
        for process in (*self._nodes.values(), *self._host.processes):
            process.crash()

    def places(self) -> Places:
        """The node and the status text of each workload."""
        return {name: _place(entry) for name, entry in self.scheduler.cluster.workloads.items()}

    async def lose(self, node_id: NodeId) -> None:
        """Crash a node, and wait until the scheduler has made all decisions."""
        if node_id in self._nodes:
            self._nodes.pop(node_id).crash()
        settings = self._host.settings
        unreachable_after = settings.node_lease + settings.node_unavailable_grace
        await asyncio.sleep(unreachable_after.total_seconds() + SETTLING_SECONDS)

    async def add(self, requests: Sequence[control_pb2.ApplyWorkloadRequest]) -> list[str]:
        """Apply requests. Returns the refusals."""
        refused = []
        for request in requests:
            answer = (
                await self._network.call(
                    self._user, SCHEDULER, "ApplyWorkload", request, timeout=DEADLINE_SECONDS
                )
            )[0]
            if not answer.success:
                refused.append(f"{request.workload_id}: {answer.error_message}")
        await asyncio.sleep(SETTLING_SECONDS)
        return refused

    async def _beat(self, process: SimProcess) -> None:
        while True:
            beat = control_pb2.HeartbeatRequest(node_id=process.name)
            with suppress(grpc.aio.AioRpcError):
                await self._network.call(
                    process, SCHEDULER, "Heartbeat", beat, timeout=BEAT_SECONDS
                )
            await asyncio.sleep(BEAT_SECONDS)

    def _process(self, name: str) -> SimProcess:
        return SimProcess(name, self._trace, died=lambda _: None)

    def _resolve(self, _source: str, target: str) -> SimProcess | None:
        if target == SCHEDULER:
            return self._host.newest
        return self._nodes.get(NodeId(target))


def lose(contents: Sequence[tuple[str, bytes]], node_id: NodeId) -> list[WorkloadMove]:
    """The effect of losing a node. Raises NotFoundError for an unknown node."""

    async def scenario(cluster: WhatIf) -> list[WorkloadMove]:
        if node_id not in cluster.scheduler.cluster.nodes:
            raise NotFoundError("node", node_id)
        before = cluster.places()
        await cluster.lose(node_id)
        return _moves(before, cluster.places())

    return _run(contents, scenario)


def add(
    contents: Sequence[tuple[str, bytes]], requests: Sequence[control_pb2.ApplyWorkloadRequest]
) -> tuple[list[WorkloadMove], list[str]]:
    """The effect of adding workloads: all changes, and the refusals."""

    async def scenario(cluster: WhatIf) -> tuple[list[WorkloadMove], list[str]]:
        before = cluster.places()
        refused = await cluster.add(requests)
        return _moves(before, cluster.places()), refused

    return _run(contents, scenario)


def _run(
    contents: Sequence[tuple[str, bytes]], scenario: Callable[[WhatIf], Coroutine[None, None, T]]
) -> T:
    async def run_scenario() -> T:
        cluster = WhatIf(contents)
        async with asyncio.TaskGroup() as group:
            try:
                await cluster.open(group)
                return await scenario(cluster)
            finally:
                cluster.close()

    loop = VirtualLoop()
    try:
        with captured_logs():
            return loop.run_until_complete(run_scenario())
    except ExceptionGroup as group:
        expected = group.subgroup(PersysError)
        if expected is None:
            raise
        raise expected.exceptions[0] from group
    finally:
        loop.close()


def _moves(before: Places, after: Places) -> list[WorkloadMove]:
    moves = []
    for name in sorted(after):
        was, reason = before.get(name, ("", ""))
        now, new_reason = after[name]
        if (was, reason) != (now, new_reason):
            moves.append(WorkloadMove(name, was, now, new_reason))
    return moves


def _place(entry: WorkloadState) -> tuple[str, str]:
    node_id = entry.assignment.node_id if entry.assignment is not None else ""
    if entry.workload_status is None:
        return node_id, ""
    reason = entry.workload_status.message or entry.workload_status.status
    if entry.assignment is not None and entry.workload_status.status in (
        Status.RUNNING,
        Status.STOPPED,
    ):
        reason = entry.assignment.why
    return node_id, reason


async def _ended(process: Coroutine[None, None, None]) -> None:
    with suppress(asyncio.CancelledError):
        await process
