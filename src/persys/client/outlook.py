"""Calls about what would be: why a workload is where it is, where it would go, what would still fit."""

from collections.abc import Iterable

from persys.client.call import call
from persys.client.calls import SchedulerCalls
from persys.wire.gen.control.v1 import control_pb2 as pb


class OutlookCalls(SchedulerCalls):
    def explain(self, workload_id: str, *, limit: int = 0) -> pb.ExplainWorkloadResponse:
        """`limit`: how many nodes are told about one by one; 0: as many as the scheduler likes."""
        request = pb.ExplainWorkloadRequest(workload_id=workload_id, limit=limit)
        response: pb.ExplainWorkloadResponse = call(
            self._stub.ExplainWorkload, request, timeout=self._timeout
        )
        return response

    def plan(self, requests: Iterable[pb.ApplyWorkloadRequest]) -> list[pb.WorkloadPlan]:
        """What applying these one after the other would do. Writes nothing."""
        request = pb.PlanWorkloadsRequest(workloads=requests)
        response: pb.PlanWorkloadsResponse = call(
            self._stub.PlanWorkloads, request, timeout=self._timeout
        )
        return list(response.plans)

    def get_capacity(self, spec: pb.WorkloadSpec) -> pb.GetCapacityResponse:
        """How many more of this would fit, and what the loss of each node would strand."""
        request = pb.GetCapacityRequest(spec=spec)
        response: pb.GetCapacityResponse = call(
            self._stub.GetCapacity, request, timeout=self._timeout
        )
        return response
