"""A third-party scheduler as a program: `python -m third_party.scheduler CONFIG.json`.

It implements only the contract, and behaves like existing schedulers:
- each call to an agent has a new connection and a deadline of 10 s;
- agents are polled while something is in progress, and compared with the record only at the drift interval;
- ListActions and HealthCheck are never called;
- a missing workload is recognised only by the text `not found`;
- a heartbeat of an unknown node is an error, and while the store is frozen nodes get drain_node.
"""

# ruff: noqa: N802  # the contract names the methods

import asyncio
import json
import sys
import time
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc

from third_party import credentials
from third_party.contract import agent, control

CALL_SECONDS = 10
RETRY_SECONDS = 1.0
TERMINAL_REASONS = frozenset(
    {"INVALID_IMAGE", "INVALID_SPECIFICATION", "INVALID_CONFIGURATION", "PORT_BIND_CONFLICT"}
)
DEFAULT_BEHAVIOUR: dict[str, Any] = {
    "poll_seconds": 0.5,  # 5 in existing schedulers
    "drift_seconds": 300.0,
    "heartbeat_seconds": 1,
    "lease_seconds": 5.0,
    "frozen": False,
    "answer_seconds": 0.0,  # a change is accepted this long before its answer
    "losses": 0,  # each increase removes all nodes
}
ACTUAL = {
    agent.ACTUAL_STATE_PENDING: "Pending",
    agent.ACTUAL_STATE_RUNNING: "Running",
    agent.ACTUAL_STATE_STOPPED: "Stopped",
    agent.ACTUAL_STATE_FAILED: "Failed",
}


@dataclass
class Node:
    endpoint: str
    types: list[str]
    heard_at: float
    registrations: int = 1


@dataclass
class Workload:
    spec: str  # the message in base64
    revision: str
    desired: str  # Running, Stopped, Deleted
    node_id: str = ""
    status: str = "Pending"
    message: str = ""
    failure: str = ""
    attempts: int = 0
    next_at: float = 0.0
    sent: str = ""  # revision and desired state of the last accepted order
    metadata: dict[str, str] = field(default_factory=dict)


class Scheduler:
    def __init__(self, config: Path) -> None:
        self._config = config
        self.settings = json.loads(config.read_text())
        self._file = Path(self.settings["folder"]) / "scheduler.json"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        kept = json.loads(self._file.read_text()) if self._file.exists() else {}
        self._nodes = {name: Node(**one) for name, one in kept.get("nodes", {}).items()}
        self._workloads = {name: Workload(**one) for name, one in kept.get("workloads", {}).items()}
        self._log = self._file.with_name("received.jsonl")
        self._losses = 0

    def behaviour(self) -> dict[str, Any]:
        changed: dict[str, Any] = json.loads(self._config.read_text()).get("behaviour", {})
        return DEFAULT_BEHAVIOUR | changed

    # Service for agents.

    async def RegisterNode(self, request: Any, context: Any) -> Any:
        self._note("registration", request)
        before = self._nodes.get(request.node_id)
        self._nodes[request.node_id] = Node(
            request.grpc_endpoint,
            list(request.capabilities.supported_workload_types),
            time.time(),
            before.registrations + 1 if before else 1,
        )
        self._save()
        return control.RegisterNodeResponse(
            accepted=True, heartbeat_interval_seconds=self.behaviour()["heartbeat_seconds"]
        )

    async def Heartbeat(self, request: Any, context: Any) -> Any:
        if self.behaviour()["losses"] > self._losses:
            self._losses = self.behaviour()["losses"]
            self._nodes.clear()
        node = self._nodes.get(request.node_id)
        if node is None:
            await context.abort(grpc.StatusCode.UNKNOWN, f"node {request.node_id} not registered")
            raise AssertionError("abort raises")
        node.heard_at = time.time()
        self._note("heartbeat", request)
        return control.HeartbeatResponse(acknowledged=True, drain_node=self.behaviour()["frozen"])

    # Service for users.

    async def ApplyWorkload(self, request: Any, context: Any) -> Any:
        desired = request.desired_state.capitalize() or "Running"
        found = self._workloads.get(request.workload_id)
        if request.HasField("spec"):
            spec = b64encode(request.spec.SerializeToString()).decode()
            revision = request.revision_id or f"r{time.time_ns()}"
            found = Workload(spec, revision, desired, found.node_id if found else "")
            self._workloads[request.workload_id] = found
        elif found is None:
            return control.ApplyWorkloadResponse(success=False, error_message="workload not found")
        found.desired, found.status, found.next_at = desired, "Pending", 0.0
        await self._accept()
        return control.ApplyWorkloadResponse(success=True)

    async def DeleteWorkload(self, request: Any, context: Any) -> Any:
        found = self._workloads.get(request.workload_id)
        if found is None:
            return control.DeleteWorkloadResponse(success=False, error_message="workload not found")
        found.desired, found.status = "Deleted", "Deleting"
        await self._accept()
        return control.DeleteWorkloadResponse(success=True)

    async def RetryWorkload(self, request: Any, context: Any) -> Any:
        found = self._workloads.get(request.workload_id)
        if found is None:
            return control.RetryWorkloadResponse(accepted=False)
        found.status, found.sent, found.attempts, found.next_at = "Pending", "", 0, 0.0
        await self._accept()
        return control.RetryWorkloadResponse(accepted=True)

    async def GetWorkload(self, request: Any, context: Any) -> Any:
        if request.workload_id not in self._workloads:
            await context.abort(grpc.StatusCode.UNKNOWN, "workload not found")
        return control.GetWorkloadResponse(workload=self._view(request.workload_id))

    async def ListWorkloads(self, request: Any, context: Any) -> Any:
        views = [self._view(name) for name in sorted(self._workloads)]
        return control.ListWorkloadsResponse(
            workloads=[
                view
                for view in views
                if request.node_id in ("", view.assigned_node_id)
                and request.status in ("", view.status)
            ]
        )

    async def ListNodes(self, request: Any, context: Any) -> Any:
        return control.ListNodesResponse(nodes=[self._node(name) for name in sorted(self._nodes)])

    async def GetNode(self, request: Any, context: Any) -> Any:
        if request.node_id not in self._nodes:
            await context.abort(grpc.StatusCode.UNKNOWN, "node not found")
        return control.GetNodeResponse(node=self._node(request.node_id))

    async def GetClusterSummary(self, request: Any, context: Any) -> Any:
        return control.GetClusterSummaryResponse(
            total_nodes=len(self._nodes), total_workloads=len(self._workloads)
        )

    async def _accept(self) -> None:
        self._save()
        await asyncio.sleep(self.behaviour()["answer_seconds"])

    def _view(self, name: str) -> Any:
        found = self._workloads[name]
        return control.WorkloadView(
            workload_id=name,
            type=_spec(found).type,
            desired_state=found.desired,
            status=found.status,
            assigned_node_id=found.node_id,
            revision_id=found.revision,
            retry_attempts=found.attempts,
            failure_reason=found.failure,
            reason=control.ReasonDetail(message=found.message),
        )

    def _node(self, name: str) -> Any:
        node = self._nodes[name]
        return control.NodeView(
            node_id=name,
            status="Ready" if self._is_ready(name) else "NotReady",
            grpc_endpoint=node.endpoint,
            supported_workload_types=node.types,
        )

    # Control loop.

    async def run(self) -> None:
        compared_at = time.time()
        while True:
            drift = time.time() - compared_at > self.behaviour()["drift_seconds"]
            compared_at = time.time() if drift else compared_at
            for name, workload in list(self._workloads.items()):
                try:
                    await self._converge(name, workload, compare=drift)
                except grpc.aio.AioRpcError as err:
                    workload.message = f"{err.code().name}: {err.details()}"
            self._save()
            await asyncio.sleep(self.behaviour()["poll_seconds"])

    async def _converge(self, name: str, workload: Workload, *, compare: bool) -> None:
        if workload.desired == "Deleted":
            await self._delete(name, workload)
            return
        if not self._is_ready(workload.node_id):
            if workload.node_id and _spec(workload).type == "vm":
                workload.status = "Unknown"
                return
            workload.node_id, workload.sent = self._choose(_spec(workload).type), ""
        goal = f"{workload.revision} {workload.desired}"
        if not workload.node_id or workload.next_at > time.time():
            return
        if workload.sent != goal:
            await self._apply(name, workload, goal)
        elif compare or workload.status != workload.desired:
            await self._poll(name, workload)

    async def _delete(self, name: str, workload: Workload) -> None:
        if workload.node_id and workload.node_id in self._nodes:
            if workload.sent != "Deleted":
                request = agent.DeleteWorkloadRequest(id=name)
                await self._call(workload.node_id, "DeleteWorkload", request)
                workload.sent = "Deleted"
            if await self._status(name, workload) is not None:
                return
        self._workloads.pop(name, None)

    async def _apply(self, name: str, workload: Workload, goal: str) -> None:
        stopped = workload.desired == "Stopped"
        request = agent.ApplyWorkloadRequest(
            id=name,
            revision_id=workload.revision,
            desired_state=agent.DESIRED_STATE_STOPPED if stopped else agent.DESIRED_STATE_RUNNING,
        )
        _fill(request, _spec(workload))
        response = await self._call(workload.node_id, "ApplyWorkload", request)
        if response.applied or response.skipped:
            workload.sent = goal
        else:
            self._failed(workload, response.message, response.status.metadata)

    async def _poll(self, name: str, workload: Workload) -> None:
        status = await self._status(name, workload)
        if status is None or status.revision_id != workload.revision:
            workload.sent = ""
            return
        workload.metadata = dict(status.metadata)
        workload.status = ACTUAL.get(status.actual_state, "Unknown")
        workload.message = status.message
        is_absent = workload.status in {"Unknown", "Stopped"} - {workload.desired}
        if workload.status == "Failed" or (is_absent and "last_error" in status.metadata):
            self._failed(workload, status.message, status.metadata)

    def _failed(self, workload: Workload, text: str, metadata: Any) -> None:
        workload.status, workload.message = "Failed", metadata.get("last_error") or text
        workload.failure = metadata.get("failure_reason", "")
        workload.attempts += 1
        terminal = metadata.get("retry_terminal") == "true" or workload.failure in TERMINAL_REASONS
        workload.next_at = float("inf") if terminal else time.time() + RETRY_SECONDS
        workload.sent = ""

    async def _status(self, name: str, workload: Workload) -> Any:
        """None: the agent reported a missing workload."""
        request = agent.GetWorkloadStatusRequest(id=name)
        try:
            return (await self._call(workload.node_id, "GetWorkloadStatus", request)).status
        except grpc.aio.AioRpcError as err:
            if "not found" in (err.details() or ""):
                return None
            raise

    def _is_ready(self, node_id: str) -> bool:
        node = self._nodes.get(node_id)
        return node is not None and time.time() - node.heard_at < self.behaviour()["lease_seconds"]

    def _choose(self, kind: str) -> str:
        ready = (
            name
            for name, node in self._nodes.items()
            if self._is_ready(name) and kind in node.types
        )
        return min(ready, default="")

    async def _call(self, node_id: str, method: str, request: Any) -> Any:
        files, name = self.settings.get("tls", {}), self.settings.get("agent_name", "")
        endpoint = self._nodes[node_id].endpoint
        async with credentials.dial(endpoint, files, name=name) as channel:
            return await getattr(agent.stub(channel), method)(request, timeout=CALL_SECONDS)

    def _note(self, what: str, message: Any) -> None:
        """Record a received message, for tests."""
        with self._log.open("a") as log:
            text = b64encode(message.SerializeToString()).decode()
            log.write(json.dumps({"what": what, "message": text}) + "\n")

    def _save(self) -> None:
        kept = {
            "nodes": {name: asdict(one) for name, one in self._nodes.items()},
            "workloads": {name: asdict(one) for name, one in self._workloads.items()},
        }
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(kept))
        part.rename(self._file)


def _spec(workload: Workload) -> Any:
    return control.WorkloadSpec.FromString(b64decode(workload.spec))


def _fill(request: Any, spec: Any) -> None:
    """Convert the spec of a user into the format of agents."""
    if spec.type == "container":
        request.type, given = agent.WORKLOAD_TYPE_CONTAINER, spec.container
        created = request.spec.container
        created.image = given.image
        created.command.extend(given.command)
        created.env.update(given.env)
        for port in given.ports:
            created.ports.add(
                host_port=port.host_port,
                container_port=port.container_port,
                protocol=port.protocol or "tcp",
            )
        created.resources.memory_bytes = spec.resources.memory_mb << 20
        created.restart_policy.policy = given.restart_policy or "no"
    elif spec.type == "compose":
        request.type = agent.WORKLOAD_TYPE_COMPOSE
        text = spec.compose.inline_yaml.encode()
        request.spec.compose.project_name = request.id
        request.spec.compose.compose_yaml = b64encode(text).decode()
        request.spec.compose.env.update(spec.compose.env)
    else:
        request.type = agent.WORKLOAD_TYPE_VM
        text = b64decode(spec.metadata["persys.vm_spec_b64"]).decode()
        for key, value in json.loads(text).items():
            _set(request.spec.vm, key, value)


def _set(message: Any, key: str, value: Any) -> None:
    if isinstance(value, list):
        for one in value:
            getattr(message, key).add(**one)
    else:
        setattr(message, key, value)


async def main(config: Path) -> None:
    scheduler = Scheduler(config)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    control.serve(server, scheduler)
    credentials.serve(server, scheduler.settings["listen"], scheduler.settings.get("tls", {}))
    await server.start()
    await scheduler.run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
