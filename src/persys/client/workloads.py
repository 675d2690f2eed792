"""Workloads."""

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
        """Create or update a workload. Returns its new revision ("" from older schedulers)."""
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
        """Start or stop an existing workload at its current revision."""
        return self.apply(
            pb.ApplyWorkloadRequest(workload_id=workload_id, desired_state=desired_state)
        )

    def delete(self, workload_id: str) -> None:
        """Returns when the request is stored; get_workload raises NotFoundError after the deletion."""
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
            raise RequestRefusedError(
                response.reason or "refused by the scheduler without a reason"
            )

    def redeploy(self, workload_id: str) -> str:
        """Redeploy with the current commit or image tag. Returns the new revision."""
        request = pb.RedeployWorkloadRequest(workload_id=workload_id)
        response: pb.RedeployWorkloadResponse = call(
            self._stub.RedeployWorkload, request, timeout=self._timeout
        )
        if not response.accepted:
            raise RequestRefusedError(
                response.reason or "refused by the scheduler without a reason"
            )
        return response.revision_id
