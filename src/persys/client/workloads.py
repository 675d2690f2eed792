"""Calls about workloads."""

from persys.client.call import RequestRefusedError, call
from persys.client.calls import SchedulerCalls
from persys.wire.gen.control.v1 import control_pb2 as pb


class WorkloadCalls(SchedulerCalls):
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

    def redeploy(self, workload_id: str) -> str:
        """Make it anew from what its branch or tag names now. Returns the new revision."""
        request = pb.RedeployWorkloadRequest(workload_id=workload_id)
        response: pb.RedeployWorkloadResponse = call(
            self._stub.RedeployWorkload, request, timeout=self._timeout
        )
        if not response.accepted:
            raise RequestRefusedError(response.reason or "the scheduler gives no reason")
        return response.revision_id
