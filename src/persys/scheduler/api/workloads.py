"""Workloads: apply, delete, retry, redeploy and read them.

Changes refuse with OK and a reason in the response, because existing clients read it there. Only an empty id
is INVALID_ARGUMENT, and a scheduler that has lost leadership is UNAVAILABLE. Reads refuse with status codes.
"""

from persys.scheduler.api.context import Context, need
from persys.scheduler.queries.views import Queries
from persys.scheduler.reconcile.intent import IntentService
from persys.wire.gen.control.v1 import control_pb2


class WorkloadsApi:
    def __init__(self, intents: IntentService, queries: Queries) -> None:
        self._intents = intents
        self._queries = queries

    async def ApplyWorkload(
        self, request: control_pb2.ApplyWorkloadRequest, context: Context
    ) -> control_pb2.ApplyWorkloadResponse:
        need(request.workload_id, "workload_id")
        workload = await self._intents.apply(request)
        return control_pb2.ApplyWorkloadResponse(success=True, revision_id=workload.revision)

    async def DeleteWorkload(
        self, request: control_pb2.DeleteWorkloadRequest, context: Context
    ) -> control_pb2.DeleteWorkloadResponse:
        need(request.workload_id, "workload_id")
        await self._intents.delete(request)
        return control_pb2.DeleteWorkloadResponse(success=True)

    async def RetryWorkload(
        self, request: control_pb2.RetryWorkloadRequest, context: Context
    ) -> control_pb2.RetryWorkloadResponse:
        need(request.workload_id, "workload_id")
        await self._intents.retry(request)
        return control_pb2.RetryWorkloadResponse(accepted=True)

    async def RedeployWorkload(
        self, request: control_pb2.RedeployWorkloadRequest, context: Context
    ) -> control_pb2.RedeployWorkloadResponse:
        need(request.workload_id, "workload_id")
        workload = await self._intents.redeploy(request)
        return control_pb2.RedeployWorkloadResponse(accepted=True, revision_id=workload.revision)

    async def ListWorkloads(
        self, request: control_pb2.ListWorkloadsRequest, context: Context
    ) -> control_pb2.ListWorkloadsResponse:
        return control_pb2.ListWorkloadsResponse(
            workloads=self._queries.list_workloads(node_id=request.node_id, status=request.status)
        )

    async def GetWorkload(
        self, request: control_pb2.GetWorkloadRequest, context: Context
    ) -> control_pb2.GetWorkloadResponse:
        need(request.workload_id, "workload_id")
        return control_pb2.GetWorkloadResponse(
            workload=self._queries.get_workload(request.workload_id)
        )

    async def GetWorkloads(
        self, request: control_pb2.GetWorkloadsRequest, context: Context
    ) -> control_pb2.GetWorkloadsResponse:
        views = self._queries.get_workloads(request.workload_ids)
        return control_pb2.GetWorkloadsResponse(
            found=[control_pb2.GetWorkloadResponse(workload=view) for view in views]
        )

    async def GetClusterSummary(
        self, request: control_pb2.GetClusterSummaryRequest, context: Context
    ) -> control_pb2.GetClusterSummaryResponse:
        return self._queries.summary()
