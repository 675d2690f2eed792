"""A third-party agent as a program: `python -m third_party.agent CONFIG.json`.

It implements only the contract, and behaves like existing agents:
- an apply is answered with PENDING and a task id, and is stored only when its task has ended; until then
  the status of an existing workload is that of the previous revision;
- a failed apply is UNKNOWN with `last_error`; of a stack it is STOPPED, `no containers`;
- a status request during a removal keeps the workload as STOPPED, `no containers`, for ever;
- tasks are in memory only, with times of year 1 where a time is missing;
- an unknown id is gRPC code UNKNOWN with the text `not found`;
- heartbeats have statuses without revisions, and any heartbeat error leads to a new registration;
- above 80 % CPU new work fails with RESOURCE_QUOTA_EXCEEDED;
- each call to the scheduler uses a new connection.
The config is read at each use, so that tests can change the behaviour of a running agent.
"""

# ruff: noqa: N802  # the contract names the methods

import asyncio
import json
import sys
import time
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from third_party import credentials
from third_party.contract import agent as pb
from third_party.contract import control
from third_party.runtimes import Containers, Files, Runtime, Stacks, State, TaskError, Vms

ZERO_TIME_SECONDS = -62_135_596_800
CPU_PERCENT_MAX = 80
CALL_SECONDS = 10
DEFAULT_BEHAVIOUR: dict[str, Any] = {
    "work_seconds": 0.1,
    "stop_seconds": 0.1,
    "errors": {},  # by workload id: the error text of its next apply
    "cpu_percent": 5.0,
    "heartbeat_seconds": 0,  # 0: the interval of the scheduler
    "keeps_deleted": True,
    "lists_actions": True,
    "workers": 8,
}
TYPES = {
    pb.WORKLOAD_TYPE_CONTAINER: "container",
    pb.WORKLOAD_TYPE_COMPOSE: "compose",
    pb.WORKLOAD_TYPE_VM: "vm",
}
ACTUAL = {State.RUNNING: pb.ACTUAL_STATE_RUNNING, State.STOPPED: pb.ACTUAL_STATE_STOPPED}
WORDS = {
    pb.ACTUAL_STATE_PENDING: "Pending",
    pb.ACTUAL_STATE_RUNNING: "Running",
    pb.ACTUAL_STATE_STOPPED: "Stopped",
    pb.ACTUAL_STATE_UNKNOWN: "Unknown",
}


@dataclass
class Record:
    """The stored state of a workload."""

    order: Any
    last_error: str = ""
    created_at: int = field(default_factory=lambda: int(time.time()))


class Agent:
    def __init__(self, config: Path) -> None:
        self._config = config
        self.settings = json.loads(config.read_text())
        self.node_id: str = self.settings["node_id"]
        folder = Path(self.settings["folder"])
        self._records = folder / "records"
        self._records.mkdir(parents=True, exist_ok=True)
        self._log = folder / "events.jsonl"
        self._runtimes = _runtimes(self.settings, folder)
        self._tasks: list[Any] = []
        self._accepted: dict[str, Record] = {}  # its task has not ended
        self._removing: set[str] = set()
        self._asked: set[str] = set()  # during its removal
        self._locks: dict[str, asyncio.Lock] = {}
        self._workers = asyncio.Semaphore(self.behaviour()["workers"])
        self._running: set[asyncio.Task[None]] = set()

    def behaviour(self) -> dict[str, Any]:
        changed: dict[str, Any] = json.loads(self._config.read_text()).get("behaviour", {})
        return DEFAULT_BEHAVIOUR | changed

    # Service.

    async def ApplyWorkload(self, order: Any, context: Any) -> Any:
        if order.type not in self._runtimes:
            return pb.ApplyWorkloadResponse(applied=False, message="runtime not available")
        known = self._read(order.id)
        if known is not None and await self._has(known, order):
            return pb.ApplyWorkloadResponse(skipped=True, status=await self._status(order.id))
        record = Record(order, created_at=known.created_at if known else int(time.time()))
        self._accepted[order.id] = record
        task = self._begin(order.id, "apply", self._apply(record))
        return pb.ApplyWorkloadResponse(
            applied=True, message="task accepted", status=_pending(order, task)
        )

    async def DeleteWorkload(self, request: Any, context: Any) -> Any:
        self._begin(request.id, "delete", self._delete(request.id))
        return pb.DeleteWorkloadResponse(success=True, message="task accepted")

    async def GetWorkloadStatus(self, request: Any, context: Any) -> Any:
        self._note("status-request", request.id)
        if request.id in self._removing:
            self._asked.add(request.id)
        status = await self._status(request.id)
        if status is None:
            await context.abort(grpc.StatusCode.UNKNOWN, f"workload not found: {request.id}")
        return pb.GetWorkloadStatusResponse(status=status)

    async def ListWorkloads(self, request: Any, context: Any) -> Any:
        self._note("listed", "")
        return pb.ListWorkloadsResponse(workloads=await self._statuses())

    async def HealthCheck(self, request: Any, context: Any) -> Any:
        runtimes = {TYPES[kind]: "healthy" for kind in self._runtimes}
        used = self.behaviour()["cpu_percent"]
        return pb.HealthCheckResponse(healthy=True, runtime_status=runtimes, cpu_utilization=used)

    async def ListActions(self, request: Any, context: Any) -> Any:
        if not self.behaviour()["lists_actions"]:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method ListActions")
        own = [task for task in self._tasks if request.workload_id in ("", task.workload_id)]
        if request.newest_first:
            own.reverse()
        return pb.ListActionsResponse(actions=own[: request.limit or None])

    # Tasks.

    def _begin(self, workload_id: str, kind: str, work: Any) -> Any:
        number = sum(task.workload_id == workload_id for task in self._tasks) + 1
        task = pb.AgentAction(
            task_id=f"{kind}-{workload_id}-{number}",
            workload_id=workload_id,
            action_type=f"{kind}_workload",
            status="pending",
            created_at=int(time.time()),
            started_at=ZERO_TIME_SECONDS,
            ended_at=ZERO_TIME_SECONDS,
        )
        self._tasks.append(task)
        self._note(f"{task.action_type} begun", workload_id)
        running = asyncio.get_running_loop().create_task(self._perform(task, work))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return task

    async def _perform(self, task: Any, work: Any) -> None:
        turn = self._locks.setdefault(task.workload_id, asyncio.Lock())
        async with turn, self._workers:
            task.status, task.started_at = "running", int(time.time())
            try:
                await work
            except TaskError as err:
                task.status, task.error = "failed", str(err)
            else:
                task.status = "completed"
            task.ended_at = int(time.time())
            self._note(f"{task.action_type} {task.status}", task.workload_id)

    async def _apply(self, record: Record) -> None:
        order, behaviour = record.order, self.behaviour()
        try:
            await self._admit(order, behaviour)
            await self._runtimes[order.type].apply(order, behaviour)
        except TaskError as err:
            record.last_error = str(err)
            raise
        finally:
            self._write(record)
            if self._accepted.get(order.id) is record:
                del self._accepted[order.id]

    async def _admit(self, order: Any, behaviour: dict[str, Any]) -> None:
        used = behaviour["cpu_percent"]
        is_new = await self._runtimes[order.type].state(order.id) is State.MISSING
        if is_new and used > CPU_PERCENT_MAX:
            text = f"cpu utilization {used:g}% exceeds {CPU_PERCENT_MAX}%"
            raise TaskError(f"RESOURCE_QUOTA_EXCEEDED: {text}")

    async def _delete(self, workload_id: str) -> None:
        record = self._read(workload_id)
        if record is None:
            raise TaskError("workload not found")
        self._removing.add(workload_id)
        try:
            await self._runtimes[record.order.type].remove(workload_id, self.behaviour())
        finally:
            self._removing.discard(workload_id)
        if workload_id in self._asked and self.behaviour()["keeps_deleted"]:
            self._asked.discard(workload_id)
            path = self._path(workload_id)
            path.rename(path.with_suffix(".deleted"))
            return
        self._path(workload_id).unlink(missing_ok=True)

    # State.

    async def _has(self, record: Record, order: Any) -> bool:
        if record.order.revision_id != order.revision_id or record.last_error:
            return False
        wanted = State.STOPPED if order.desired_state == pb.DESIRED_STATE_STOPPED else State.RUNNING
        return await self._runtimes[order.type].state(order.id) is wanted

    async def _statuses(self) -> list[Any]:
        names = {path.stem for path in self._records.iterdir()} | set(self._accepted)
        found = [await self._status(name) for name in sorted(names)]
        return [status for status in found if status is not None]

    async def _status(self, workload_id: str) -> Any:
        """None: the id is unknown."""
        accepted = self._accepted.get(workload_id)
        if accepted is not None and not self._path(workload_id).exists():
            return _pending(accepted.order, self._last_task(workload_id))
        if self._path(workload_id).with_suffix(".deleted").exists():
            return _no_containers(pb.WorkloadStatus(id=workload_id))
        record = self._read(workload_id)
        if record is None:
            return None
        order = record.order
        status = pb.WorkloadStatus(
            id=workload_id,
            type=order.type,
            revision_id=order.revision_id,
            desired_state=order.desired_state,
            created_at=record.created_at,
            updated_at=int(time.time()),
        )
        if record.last_error:
            status.metadata["last_error"] = record.last_error
        state = await self._runtimes[order.type].state(workload_id)
        if state is not State.MISSING:
            status.actual_state = ACTUAL[state]
        elif order.type == pb.WORKLOAD_TYPE_COMPOSE:
            _no_containers(status)
        else:
            status.actual_state = pb.ACTUAL_STATE_UNKNOWN
            is_vm = order.type == pb.WORKLOAD_TYPE_VM
            status.message = "domain not found" if is_vm else "container not found"
        return status

    def _last_task(self, workload_id: str) -> Any:
        return next(task for task in reversed(self._tasks) if task.workload_id == workload_id)

    def _read(self, workload_id: str) -> Record | None:
        with suppress(FileNotFoundError):
            kept = json.loads(self._path(workload_id).read_text())
            order = pb.ApplyWorkloadRequest.FromString(b64decode(kept["order"]))
            return Record(order, kept["last_error"], kept["created_at"])
        return None

    def _write(self, record: Record) -> None:
        order = b64encode(record.order.SerializeToString()).decode()
        text = json.dumps(
            {"order": order, "last_error": record.last_error, "created_at": record.created_at}
        )
        path = self._path(record.order.id)
        part = path.with_suffix(".part")
        part.write_text(text)
        part.rename(path)
        path.with_suffix(".deleted").unlink(missing_ok=True)

    def _path(self, workload_id: str) -> Path:
        return self._records / f"{workload_id}.json"

    def _note(self, what: str, workload_id: str) -> None:
        """Record an event with its time, for tests."""
        with self._log.open("a") as log:
            line = {"at": time.time(), "what": what, "workload_id": workload_id}
            log.write(json.dumps(line) + "\n")

    # Reports.

    async def report(self) -> None:
        """Register, then send heartbeats; after any error register again."""
        while True:
            try:
                response = await self._call("RegisterNode", self._registration())
                if response.accepted:
                    await self._heartbeats(response.heartbeat_interval_seconds)
                else:
                    print(f"not accepted: {response.reason}", flush=True)
            except grpc.aio.AioRpcError as err:
                print(f"{err.code().name}: {err.details()}", flush=True)
            await asyncio.sleep(0.5)

    async def _heartbeats(self, asked_seconds: int) -> None:
        while True:
            await asyncio.sleep(self.behaviour()["heartbeat_seconds"] or asked_seconds or 10)
            request = control.HeartbeatRequest(node_id=self.node_id)
            for status in await self._statuses():
                state = WORDS[status.actual_state]
                request.workload_statuses.append(
                    control.WorkloadStatus(
                        workload_id=status.id, state=state, message=status.message
                    )
                )
            request.timestamp.GetCurrentTime()
            await self._call("Heartbeat", request)
            self._note("heartbeat", "")

    def _registration(self) -> Any:
        request = control.RegisterNodeRequest(
            node_id=self.node_id, grpc_endpoint=self.settings["listen"]
        )
        has = request.capabilities
        has.cpu_total_millicores, has.memory_total_mb = 8000, 16384
        has.supported_workload_types.extend(TYPES[kind] for kind in self._runtimes)
        has.supported_storage_drivers.append("local")
        has.storage_pools.add(name="local", type="local", total_gb=100)
        request.timestamp.GetCurrentTime()
        return request

    async def _call(self, method: str, request: Any) -> Any:
        files, name = self.settings.get("tls", {}), self.settings.get("scheduler_name", "")
        async with credentials.dial(self.settings["scheduler"], files, name=name) as channel:
            return await getattr(control.stub(channel), method)(request, timeout=CALL_SECONDS)


def _pending(order: Any, task: Any) -> Any:
    return pb.WorkloadStatus(
        id=order.id,
        type=order.type,
        revision_id=order.revision_id,
        desired_state=order.desired_state,
        actual_state=pb.ACTUAL_STATE_PENDING,
        message="task accepted",
        metadata={"task_id": task.task_id, "task_status": task.status},
    )


def _no_containers(status: Any) -> Any:
    status.actual_state, status.message = pb.ACTUAL_STATE_STOPPED, "no containers"
    return status


def _runtimes(settings: dict[str, Any], folder: Path) -> dict[int, Runtime]:
    if settings.get("runtime", "files") == "files":
        files = Files(folder / "runtime")
        return dict.fromkeys(TYPES, files)
    return {
        pb.WORKLOAD_TYPE_CONTAINER: Containers(settings["node_id"], settings["docker_config"]),
        pb.WORKLOAD_TYPE_COMPOSE: Stacks(folder / "stacks", settings["compose"]),
        pb.WORKLOAD_TYPE_VM: Vms(Path(settings["vm_directory"])),
    }


async def main(config: Path) -> None:
    agent = Agent(config)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    pb.serve(server, agent)
    credentials.serve(server, agent.settings["listen"], agent.settings.get("tls", {}))
    await server.start()
    await agent.report()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
