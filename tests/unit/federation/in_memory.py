"""A remote cluster in memory: it places at once, runs what fits and publishes events."""

import asyncio
from collections.abc import AsyncGenerator, Iterator

from persys.errors import NotFoundError, RuntimeUnavailableError
from persys.federation.mapping import UNPLACEABLE
from persys.wire.gen.control.v1 import control_pb2 as pb

FULL = "no node has enough free memory"


class MemoryCluster:
    """Implements federation.ports.Remote."""

    def __init__(self) -> None:
        self.views: dict[str, pb.WorkloadView] = {}
        self.stored: dict[str, bytes] = {}
        self.node_views: list[pb.NodeView] = []
        self.calls: list[str] = []
        self.down = ""  # why it does not respond
        self.full = False  # the plan says so
        self.full_at_apply = False  # only after the plan
        self.status = "Running"  # of what is applied
        self._events: list[pb.EventView] = []
        self._changed = asyncio.Event()

    async def workload(self, workload_id: str) -> pb.WorkloadView | None:
        self._call("workload")
        return self.views.get(workload_id)

    async def workloads(self) -> list[pb.WorkloadView]:
        self._call("workloads")
        return list(self.views.values())

    async def nodes(self) -> list[pb.NodeView]:
        self._call("nodes")
        return self.node_views

    async def mode(self) -> pb.ModeView:
        self._call("mode")
        return pb.ModeView(mode="normal", cluster_id="far")

    async def images(self) -> set[str]:
        self._call("images")
        return {"debian"}

    async def ensure_normal(self) -> None:
        self._call("ensure_normal")

    async def plan(self, request: pb.ApplyWorkloadRequest) -> pb.WorkloadPlan:
        self._call("plan")
        return pb.WorkloadPlan(
            workload_id=request.workload_id,
            action="create",
            reason=FULL if self.full else "",
            would_wait=self.full,
        )

    async def apply(self, request: pb.ApplyWorkloadRequest) -> pb.ApplyWorkloadResponse:
        self._call("apply")
        view = self.views.setdefault(
            request.workload_id, pb.WorkloadView(workload_id=request.workload_id)
        )
        if request.HasField("spec"):
            view.spec.CopyFrom(request.spec)
        view.desired_state = request.desired_state
        self._place(view)
        self.publish(request.workload_id)
        return pb.ApplyWorkloadResponse(success=True)

    async def retry(self, workload_id: str) -> pb.RetryWorkloadResponse:
        self._call("retry")
        self._place(self.views[workload_id])
        self.publish(workload_id)
        return pb.RetryWorkloadResponse(accepted=True)

    async def delete(self, workload_id: str) -> pb.DeleteWorkloadResponse:
        self._call("delete")
        if workload_id not in self.views:
            raise NotFoundError("workload", workload_id)
        del self.views[workload_id]
        self.publish(workload_id)
        return pb.DeleteWorkloadResponse(success=True)

    async def put_secret(self, name: str, value: bytes) -> pb.SecretAnswer:
        self._call("put_secret")
        self.stored[name] = value
        return pb.SecretAnswer(accepted=True)

    async def delete_secret(self, name: str) -> pb.SecretAnswer:
        self._call("delete_secret")
        del self.stored[name]
        return pb.SecretAnswer(accepted=True)

    async def secrets(self) -> list[pb.SecretView]:
        self._call("secrets")
        return [pb.SecretView(name=name) for name in self.stored]

    async def last_event(self) -> int:
        self._call("last_event")
        return len(self._events)

    async def events(self, after: int) -> AsyncGenerator[pb.EventView, None]:
        while True:
            while after < len(self._events):
                yield self._events[after]
                after += 1
            self._call("events")
            self._changed.clear()
            await self._changed.wait()

    async def logs(self, request: pb.LogsRequest) -> AsyncGenerator[pb.LogChunk, None]:
        self._call("logs")
        yield pb.LogChunk(data=request.workload_id.encode())

    async def exec(self, inputs: Iterator[pb.ExecInput]) -> AsyncGenerator[pb.ExecOutput, None]:
        self._call("exec")
        yield pb.ExecOutput(stdout=b"")

    async def forward(
        self, inputs: Iterator[pb.ForwardInput]
    ) -> AsyncGenerator[pb.ForwardOutput, None]:
        self._call("forward")
        yield pb.ForwardOutput()

    async def copy(self, inputs: Iterator[pb.CopyInput]) -> AsyncGenerator[pb.CopyOutput, None]:
        self._call("copy")
        yield pb.CopyOutput(closed=True)

    def publish(self, workload_id: str) -> None:
        self._events.append(pb.EventView(sequence=len(self._events) + 1, workload_id=workload_id))
        self._changed.set()

    def fail(self, why: str) -> None:
        """It stops responding, and its event streams end."""
        self.down = why
        self._changed.set()

    def _call(self, name: str) -> None:
        if self.down:
            raise RuntimeUnavailableError(self.down)
        self.calls.append(name)

    def _place(self, view: pb.WorkloadView) -> None:
        view.reason.Clear()
        view.admitted_on_node = True
        if view.desired_state == "Stopped":
            view.status = "Stopped"
        elif self.full or self.full_at_apply:
            view.status, view.assigned_node_id = "Pending", ""
            view.reason.code, view.reason.message = UNPLACEABLE, FULL
        else:
            view.status, view.assigned_node_id = self.status, "far1"
