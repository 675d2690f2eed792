"""Client of an agent, to inspect one node. Only the scheduler sends work to agents."""

from datetime import timedelta
from types import TracebackType
from typing import Self

from persys.client.grpc.channel import DEFAULT_TIMEOUT, Trust, call, open_channel
from persys.model.role import Role
from persys.wire.gen.agent.v1 import agent_pb2 as pb
from persys.wire.gen.agent.v1.agent_pb2_grpc import AgentServiceStub

# The call returns after all containers were removed.
GARBAGE_TIMEOUT = timedelta(minutes=5)


class AgentClient:
    """Safe for use by several threads."""

    def __init__(
        self, target: str, *, timeout: timedelta = DEFAULT_TIMEOUT, trust: Trust | None = None
    ) -> None:
        """Without `trust` the connection is plain text. Raises SettingsError for unreadable files."""
        self.target = target
        self._timeout = timeout
        self._channel = open_channel(target, Role.AGENT, trust)
        self._stub = AgentServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def check_health(self) -> pb.HealthCheckResponse:
        response: pb.HealthCheckResponse = call(
            self._stub.HealthCheck, pb.HealthCheckRequest(), timeout=self._timeout
        )
        return response

    def list_workloads(self) -> list[pb.WorkloadStatus]:
        response: pb.ListWorkloadsResponse = call(
            self._stub.ListWorkloads, pb.ListWorkloadsRequest(), timeout=self._timeout
        )
        return list(response.workloads)

    def collect_garbage(self, *, dry_run: bool) -> pb.GarbageCollectResponse:
        response: pb.GarbageCollectResponse = call(
            self._stub.GarbageCollect,
            pb.GarbageCollectRequest(dry_run=dry_run),
            timeout=max(self._timeout, GARBAGE_TIMEOUT),
        )
        return response

    def list_actions(
        self, *, workload_id: str = "", status: str = "", limit: int = 0
    ) -> list[pb.AgentAction]:
        """Newest first. `limit` 0: all."""
        request = pb.ListActionsRequest(
            workload_id=workload_id, status=status, limit=limit, newest_first=True
        )
        response: pb.ListActionsResponse = call(
            self._stub.ListActions, request, timeout=self._timeout
        )
        return list(response.actions)
