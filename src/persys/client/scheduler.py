"""A scheduler as a Python object. Answers are the messages of the contract."""

from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Self

from persys.client.call import DEFAULT_TIMEOUT, RequestRefusedError, call, open_channel
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub


class SchedulerClient:
    """Safe for use by several threads. UnavailableError means that nothing is known, not even a refusal."""

    def __init__(self, target: str, *, timeout: timedelta = DEFAULT_TIMEOUT) -> None:
        self.target = target
        self._timeout = timeout
        self._channel = open_channel(target)
        self._stub = AgentControlStub(self._channel)

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

    def list_nodes(self, *, status: str = "") -> list[pb.NodeView]:
        request = pb.ListNodesRequest(status=status)
        response: pb.ListNodesResponse = call(self._stub.ListNodes, request, timeout=self._timeout)
        return list(response.nodes)

    def get_node(self, node_id: str) -> pb.NodeView:
        request = pb.GetNodeRequest(node_id=node_id)
        response: pb.GetNodeResponse = call(self._stub.GetNode, request, timeout=self._timeout)
        return response.node

    def list_workloads(self, *, node_id: str = "", status: str = "") -> list[pb.WorkloadView]:
        request = pb.ListWorkloadsRequest(node_id=node_id, status=status)
        response: pb.ListWorkloadsResponse = call(
            self._stub.ListWorkloads, request, timeout=self._timeout
        )
        return list(response.workloads)

    def get_workload(self, workload_id: str) -> pb.WorkloadView:
        request = pb.GetWorkloadRequest(workload_id=workload_id)
        response: pb.GetWorkloadResponse = call(
            self._stub.GetWorkload, request, timeout=self._timeout
        )
        return response.workload

    def get_summary(self) -> pb.GetClusterSummaryResponse:
        response: pb.GetClusterSummaryResponse = call(
            self._stub.GetClusterSummary, pb.GetClusterSummaryRequest(), timeout=self._timeout
        )
        return response

    def apply(self, request: pb.ApplyWorkloadRequest) -> str:
        """Make this revision so. Returns the revision that is now intended ("" from older schedulers)."""
        response: pb.ApplyWorkloadResponse = call(
            self._stub.ApplyWorkload, request, timeout=self._timeout
        )
        if not response.success:
            reason = (
                pb.FailureReason.Name(response.failure_reason) if response.failure_reason else ""
            )
            raise RequestRefusedError(response.error_message or reason, reason=reason)
        return response.revision_id

    def set_desired_state(self, workload_id: str, desired_state: str) -> str:
        """Start or stop what is there, at the revision it has."""
        return self.apply(
            pb.ApplyWorkloadRequest(workload_id=workload_id, desired_state=desired_state)
        )

    def delete(self, workload_id: str) -> None:
        """Returns when the wish is recorded; get_workload raises NotFoundError once it is gone."""
        request = pb.DeleteWorkloadRequest(workload_id=workload_id)
        response: pb.DeleteWorkloadResponse = call(
            self._stub.DeleteWorkload, request, timeout=self._timeout
        )
        if not response.success:
            raise RequestRefusedError(response.error_message)

    def retry(self, workload_id: str) -> None:
        request = pb.RetryWorkloadRequest(workload_id=workload_id)
        response: pb.RetryWorkloadResponse = call(
            self._stub.RetryWorkload, request, timeout=self._timeout
        )
        if not response.accepted:
            raise RequestRefusedError(response.reason or "the scheduler gives no reason")

    def cordon(self, node_id: str) -> pb.NodeView:
        return self._change_node(self._stub.CordonNode, pb.NodeRequest(node_id=node_id))

    def uncordon(self, node_id: str) -> pb.NodeView:
        return self._change_node(self._stub.UncordonNode, pb.NodeRequest(node_id=node_id))

    def drain(self, node_id: str, *, deadline: timedelta | None = None) -> pb.NodeView:
        """Returns when the wish is recorded; `drain.state` of the node tells how it goes."""
        seconds = round(deadline.total_seconds()) if deadline is not None else 0
        request = pb.DrainNodeRequest(node_id=node_id, deadline_seconds=seconds)
        return self._change_node(self._stub.DrainNode, request)

    def confirm_dead(self, node_id: str) -> pb.NodeView:
        return self._change_node(self._stub.ConfirmNodeDead, pb.NodeRequest(node_id=node_id))

    def remove_node(self, node_id: str) -> None:
        self._change_node(self._stub.RemoveNode, pb.NodeRequest(node_id=node_id))

    def _change_node(
        self,
        method: Callable[..., pb.NodeAnswer],
        request: pb.NodeRequest | pb.DrainNodeRequest,
    ) -> pb.NodeView:
        response = call(method, request, timeout=self._timeout)
        if not response.accepted:
            raise RequestRefusedError(response.reason)
        return response.node
