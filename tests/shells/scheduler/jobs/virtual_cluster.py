"""A real scheduler in virtual time, with nodes that run each member of a job at most once.

Hours cost milliseconds. The scheduler can be killed at any commit about jobs and their members; the next one
starts on the same store. Nodes count every execution, so a test sees what a user would see.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import grpc

from persys.errors import StoreUnavailableError
from persys.model import feature
from persys.model.ids import NodeId
from persys.scheduler.app import Scheduler
from persys.scheduler.dispatch.agent_client import Close, Stub
from persys.scheduler.settings import SchedulerSettings
from persys.sim.engine.hardware import EPOCH, WallClock
from persys.sim.engine.virtual_loop import VirtualLoop
from persys.sim.fakes.journal_disk import MemoryKey
from persys.store import keys
from persys.store.memory import MemoryStore
from persys.store.port import Outcome, Snapshot, Unit
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb

HEARTBEAT_SECONDS = 10.0
CALL_SECONDS = 0.01
PREFIXES = (keys.JOBS, keys.RUNS, keys.WORKLOADS)
FEATURES = [feature.PUSHES_STATUS, feature.RUN_ONCE]
_STATES = {
    agent_pb2.DESIRED_STATE_RUNNING: "Running",
    agent_pb2.DESIRED_STATE_STOPPED: "Stopped",
}


@dataclass(frozen=True)
class Ending:
    """How an execution ends. `exit_code` None: it runs until it is stopped."""

    seconds: float = 1.0
    exit_code: int | None = 0


Script = Callable[[str, int], Ending]  # of a workload id and its index


@dataclass
class Container:
    request: agent_pb2.ApplyWorkloadRequest
    state: str = "Running"
    exit_code: int | None = None
    timer: asyncio.TimerHandle | None = None


class KilledError(BaseException):
    """Ends the scheduler at once: nothing of it handles this."""


class KillingStore(MemoryStore):
    """Counts commits about jobs and members, and kills the scheduler before or after one of them."""

    def __init__(self, kill_at: int = 0) -> None:
        super().__init__(asyncio.get_running_loop().time)
        self.kill_at = kill_at
        self.steps = 0
        self.down = False  # it does not answer

    async def commit(
        self, units: Sequence[Unit], *, fence: tuple[str, int] | None = None
    ) -> list[Outcome]:
        if self.down:
            raise StoreUnavailableError("no answer in time")
        changed = [key for unit in units for key in (*unit.puts, *unit.deletes)]
        counts = any(key.startswith(PREFIXES) for key in changed)
        if counts:
            self._reach()
        outcomes = await super().commit(units, fence=fence)
        if counts:
            self._reach()
        return outcomes

    async def read(self, prefix: str) -> Snapshot:
        if self.down:
            raise StoreUnavailableError("no answer in time")
        return await super().read(prefix)

    def _reach(self) -> None:
        self.steps += 1
        if self.steps == self.kill_at:
            raise KilledError


class VirtualNode:
    """Implements the calls of an agent, and keeps its state while schedulers come and go."""

    def __init__(self, cluster: "VirtualCluster", node_id: str) -> None:
        self.id = node_id
        self._cluster = cluster
        self.powered = True
        self.containers: dict[str, Container] = {}
        self.executions: list[str] = []
        self.removed: list[str] = []
        self._instance_id = ""

    async def run(self) -> None:
        """Register and send heartbeats, as long as it is powered."""
        while True:
            if self.powered and self._cluster.api is not None:
                await self._contact()
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _contact(self) -> None:
        try:
            answer = await self._cluster.call("Heartbeat", self._heartbeat())
            known = answer is not None and answer.acknowledged
        except AbortedError:
            known = False
        if not known:
            await self.register()

    async def register(self) -> None:
        answer = await self._cluster.call(
            "RegisterNode",
            pb.RegisterNodeRequest(
                node_id=self.id,
                capabilities=pb.NodeCapabilities(
                    cpu_total_millicores=64_000,
                    memory_total_mb=256_000,
                    supported_workload_types=["container"],
                ),
                grpc_endpoint=f"{self.id}:50051",
                features=FEATURES,
                instance_id=self._instance_id,
                workload_count=len(self.containers),
            ),
        )
        if answer is not None:
            self._instance_id = answer.instance_id or self._instance_id
            await self._cluster.call("Heartbeat", self._heartbeat())

    def report_soon(self) -> None:
        """A change is reported at once, if a scheduler is there."""
        if self.powered and self._cluster.api is not None:
            self._cluster.spawn(self._contact())

    def _heartbeat(self) -> pb.HeartbeatRequest:
        return pb.HeartbeatRequest(
            node_id=self.id,
            instance_id=self._instance_id,
            workload_statuses=[self._status(one) for one in self.containers.values()],
            removed_workload_ids=self.removed,
            complete=True,
        )

    def _status(self, one: Container) -> pb.WorkloadStatus:
        message = pb.WorkloadStatus(
            workload_id=one.request.id,
            state=one.state,
            revision_id=one.request.revision_id,
            epoch=one.request.epoch,
            proof=one.request.proof,
            metadata=_metadata(one),
        )
        if one.state == "Failed":
            message.failure_reason = pb.FailureReason.RUNTIME_ERROR
            message.message = f"exited with code {one.exit_code}"
            message.reason.CopyFrom(
                pb.ReasonDetail(code="Exited", message=message.message, retryable=False)
            )
        return message

    async def ApplyWorkload(  # noqa: N802
        self, request: agent_pb2.ApplyWorkloadRequest, **_options: object
    ) -> agent_pb2.ApplyWorkloadResponse:
        await self._reached()
        self.removed = [name for name in self.removed if name != request.id]
        known = self.containers.get(request.id)
        if known is None:
            known = self.containers[request.id] = Container(request, state="Pending")
        known.request = request
        if request.desired_state == agent_pb2.DESIRED_STATE_STOPPED:
            self._stop(known)
        elif known.state == "Pending":
            self._start(known)
        return agent_pb2.ApplyWorkloadResponse(applied=True, status=self._agent_status(known))

    async def ApplyWorkloads(  # noqa: N802
        self, request: agent_pb2.ApplyWorkloadsRequest, **_options: object
    ) -> agent_pb2.ApplyWorkloadsResponse:
        await self._reached()
        results = [
            agent_pb2.ApplyResult(id=order.id, response=await self.ApplyWorkload(order))
            for order in request.orders
        ]
        return agent_pb2.ApplyWorkloadsResponse(results=results)

    async def DeleteWorkload(  # noqa: N802
        self, request: agent_pb2.DeleteWorkloadRequest, **_options: object
    ) -> agent_pb2.DeleteWorkloadResponse:
        await self._reached()
        known = self.containers.pop(request.id, None)
        if known is not None:
            self._stop(known)
        self.removed.append(request.id)
        self.report_soon()
        return agent_pb2.DeleteWorkloadResponse(success=True)

    async def GetWorkloadStatus(  # noqa: N802
        self, request: agent_pb2.GetWorkloadStatusRequest, **_options: object
    ) -> agent_pb2.GetWorkloadStatusResponse:
        await self._reached()
        known = self.containers.get(request.id)
        if known is None:
            raise _error(grpc.StatusCode.NOT_FOUND, "workload not found")
        return agent_pb2.GetWorkloadStatusResponse(status=self._agent_status(known))

    async def ListWorkloads(  # noqa: N802
        self, request: agent_pb2.ListWorkloadsRequest, **_options: object
    ) -> agent_pb2.ListWorkloadsResponse:
        await self._reached()
        return agent_pb2.ListWorkloadsResponse(
            workloads=[self._agent_status(one) for one in self.containers.values()]
        )

    async def ListActions(  # noqa: N802
        self, request: agent_pb2.ListActionsRequest, **_options: object
    ) -> agent_pb2.ListActionsResponse:
        await self._reached()
        return agent_pb2.ListActionsResponse()

    async def HealthCheck(  # noqa: N802
        self, request: agent_pb2.HealthCheckRequest, **_options: object
    ) -> agent_pb2.HealthCheckResponse:
        await self._reached()
        return agent_pb2.HealthCheckResponse(healthy=True)

    async def ListIntents(  # noqa: N802
        self, request: agent_pb2.ListIntentsRequest, **_options: object
    ) -> AsyncIterator[agent_pb2.IntentView]:
        await self._reached()
        for name, one in self.containers.items():
            yield agent_pb2.IntentView(id=name, epoch=one.request.epoch, intent=one.request.intent)

    def _start(self, one: Container) -> None:
        name = one.request.id
        self.executions.append(name)
        one.state = "Running"
        index = int(one.request.spec.container.env["PERSYS_INDEX"])
        ending = self._cluster.script(name, index)
        if ending.exit_code is not None:
            one.timer = asyncio.get_running_loop().call_later(
                ending.seconds, self._exit, one, ending.exit_code
            )

    def _exit(self, one: Container, code: int) -> None:
        if one.state == "Running":
            one.state, one.exit_code = "Stopped" if code == 0 else "Failed", code
            self.report_soon()

    def _stop(self, one: Container) -> None:
        if one.timer is not None:
            one.timer.cancel()
        if one.state in ("Running", "Pending"):
            one.state, one.exit_code = "Stopped", None
            self.report_soon()

    def _agent_status(self, one: Container) -> agent_pb2.WorkloadStatus:
        return agent_pb2.WorkloadStatus(
            id=one.request.id,
            revision_id=one.request.revision_id,
            epoch=one.request.epoch,
            proof=one.request.proof,
            actual_state=f"ACTUAL_STATE_{one.state.upper()}",
            message=f"exited with code {one.exit_code}" if one.state == "Failed" else "",
            metadata=_metadata(one) | _failure_metadata(one),
        )

    async def _reached(self) -> None:
        await asyncio.sleep(CALL_SECONDS)
        if not self.powered:
            raise _error(grpc.StatusCode.UNAVAILABLE, "no route to host")

    def running(self) -> list[str]:
        return sorted(name for name, one in self.containers.items() if one.state == "Running")

    def lose(self) -> None:
        """A power failure: its containers are gone, and it sends nothing."""
        self.powered = False
        for one in self.containers.values():
            if one.timer is not None:
                one.timer.cancel()


def _metadata(one: Container) -> dict[str, str]:
    """As agents report it: the status of an accepted workload always has some."""
    found = {"container.id": one.request.id}
    if one.exit_code is not None:
        found["container.exit_code"] = str(one.exit_code)
    return found


def _failure_metadata(one: Container) -> dict[str, str]:
    if one.state != "Failed":
        return {}
    text = f"exited with code {one.exit_code}"
    return {"failure_reason": "RUNTIME_ERROR", "last_error": text, "retry_terminal": "true"}


def _error(code: grpc.StatusCode, text: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=text)


class AbortedError(Exception):
    """The call was refused with a status."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(f"{code.name}: {text}")
        self.code = code


def _context() -> Any:
    async def abort(code: grpc.StatusCode, text: str) -> None:
        raise AbortedError(code, text)

    return SimpleNamespace(
        invocation_metadata=lambda: (), set_trailing_metadata=lambda _pairs: None, abort=abort
    )


class VirtualCluster:
    def __init__(self, group: asyncio.TaskGroup, store: KillingStore, script: Script) -> None:
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving: asyncio.Task[None] | None = None
        self._count = 0
        self.store = store
        self.script = script
        self.wall = WallClock()
        self.nodes: dict[str, VirtualNode] = {}
        self.app: Scheduler
        self.api: Any = None  # None: no scheduler runs
        self.crashes = 0

    @property
    def now(self) -> datetime:
        return self.wall.now()

    @property
    def executions(self) -> Counter[str]:
        """How often each workload was executed, on all nodes."""
        return Counter(name for node in self.nodes.values() for name in node.executions)

    def running(self) -> list[str]:
        return sorted(name for node in self.nodes.values() for name in node.running())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def start(self) -> None:
        """Start a scheduler, which is started again whenever it is killed."""
        self._serving = self._group.create_task(self._serve())
        await self.until(lambda: self.api is not None)

    async def _serve(self) -> None:
        while True:
            try:
                await self._lead()
            except BaseExceptionGroup as group:
                if group.subgroup(KilledError) is None:
                    raise
            except KilledError:
                pass
            finally:
                self.api = None
            self.crashes += 1
            await asyncio.sleep(1.0)

    async def _lead(self) -> None:
        self._count += 1
        self.app = Scheduler(
            SchedulerSettings(),
            self.store,
            self.wall.as_read(),
            name=f"s{self._count}",
            connect=self._connect,
            secrets_key=MemoryKey(),
        )
        await self.app.take_over()
        async with asyncio.TaskGroup() as group:
            for part in self.app.parts():
                group.create_task(part)
            await asyncio.sleep(0)
            self.api = self.app.api()

    def _connect(self, node_id: NodeId, _endpoint: str) -> tuple[Stub, Close]:
        async def close(_grace: float | None) -> None:
            return None

        return cast("Stub", self.nodes[node_id]), close

    async def kill(self) -> None:
        """Kill the scheduler, and start the next one."""
        ended = self._serving
        self.stop()
        if ended is not None:
            await asyncio.wait([ended])  # it resets `api`, which the next one sets
        self.crashes += 1
        await self.start()

    def stop(self) -> None:
        """Kill the scheduler. No other one is started."""
        assert self._serving is not None
        self._serving.cancel()
        self.api = None

    async def join(self, node_id: str = "n1") -> VirtualNode:
        node = self.nodes[node_id] = VirtualNode(self, node_id)
        await node.register()
        self.spawn(node.run())
        await self.until(lambda: node_id in self.app.cluster.nodes)
        return node

    async def call(self, method: str, request: Any) -> Any:
        """The answer, or None if no scheduler answers. Raises AbortedError if it refuses with a status."""
        if self.api is None:
            return None
        try:
            async with asyncio.timeout(30):
                return await getattr(self.api, method)(request, _context())
        except (KilledError, TimeoutError):
            return None
        except AbortedError as err:
            if err.code is not grpc.StatusCode.UNAVAILABLE:
                raise
            return None
        except BaseExceptionGroup as group:
            if group.subgroup(KilledError) is None:
                raise
            return None

    async def stream(self, method: str, request: Any) -> list[Any]:
        """A call with a stream of answers."""
        answers: list[Any] = []

        async def write(answer: Any) -> None:
            answers.append(answer)

        context = _context()
        context.write = write
        await getattr(self.api, method)(request, context)
        return answers

    async def until(self, holds: Callable[[], bool], *, within: float = 600.0) -> None:
        deadline = asyncio.get_running_loop().time() + within
        while not holds():
            assert asyncio.get_running_loop().time() < deadline, self.described()
            await asyncio.sleep(0.05)

    def described(self) -> str:
        runs = [
            (run.run_id, run.state.value, run.reason, run.members)
            for run in self.app.cluster.runs.all()
        ]
        states = {
            name: (entry.workload.desired.value, entry.workload_status, entry.retry)
            for name, entry in self.app.cluster.workloads.items()
        }
        return f"at {self.now}: runs {runs}, workloads {states}"

    async def sleep_until(self, at: datetime) -> None:
        await asyncio.sleep(max(0.0, (at - self.now).total_seconds()))

    def jump(self, span: timedelta) -> None:
        """The wall clock is set."""
        self.wall.ahead += span

    def close(self) -> None:
        for task in (*self._tasks, *([self._serving] if self._serving else [])):
            task.cancel()


@asynccontextmanager
async def a_virtual_cluster(
    script: Script = lambda _name, _index: Ending(),
    *,
    kill_at: int = 0,
    begins_at: datetime = EPOCH,
) -> AsyncIterator[VirtualCluster]:
    async with asyncio.TaskGroup() as group:
        cluster = VirtualCluster(group, KillingStore(kill_at), script)
        cluster.jump(begins_at - EPOCH)
        try:
            await cluster.start()
            yield cluster
        finally:
            cluster.close()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()
