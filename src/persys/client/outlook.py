"""Explain, plan and capacity."""

from collections.abc import Iterable

from persys.client.call import call
from persys.client.calls import SchedulerCalls
from persys.wire.gen.control.v1 import control_pb2 as pb


class OutlookCalls(SchedulerCalls):
    def explain(self, workload_id: str, *, limit: int = 0) -> pb.ExplainWorkloadResponse:
        """`limit`: the number of nodes in the response; 0: the scheduler's default."""
        request = pb.ExplainWorkloadRequest(workload_id=workload_id, limit=limit)
        response: pb.ExplainWorkloadResponse = call(
            self._stub.ExplainWorkload, request, timeout=self._timeout
        )
        return response

    def plan(self, requests: Iterable[pb.ApplyWorkloadRequest]) -> list[pb.WorkloadPlan]:
        """What applying these requests in order would do. Changes nothing."""
        request = pb.PlanWorkloadsRequest(workloads=requests)
        response: pb.PlanWorkloadsResponse = call(
            self._stub.PlanWorkloads, request, timeout=self._timeout
        )
        return list(response.plans)

    def get_capacity(self, spec: pb.WorkloadSpec) -> pb.GetCapacityResponse:
        """How many more copies of this spec fit, and which workloads the loss of each node would strand."""
        request = pb.GetCapacityRequest(spec=spec)
        response: pb.GetCapacityResponse = call(
            self._stub.GetCapacity, request, timeout=self._timeout
        )
        return response
