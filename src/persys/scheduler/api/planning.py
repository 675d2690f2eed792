"""Explain, plan and capacity. These RPCs are read-only."""

from datetime import timedelta

from persys.core.reconcile.situation import Policy
from persys.infra.aio.offload import TimeSlice
from persys.infra.clock import Clock
from persys.scheduler.api.context import Context, need
from persys.scheduler.queries.explain import Explainer
from persys.scheduler.queries.plan import CompleteSituation, PlanBuilder
from persys.scheduler.state.cluster import ClusterState
from persys.wire.gen.control.v1 import control_pb2


class PlanningApi:
    def __init__(
        self,
        cluster: ClusterState,
        clock: Clock,
        *,
        complete_situation: CompleteSituation,
        policy: Policy,
        lease: timedelta,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._complete_situation = complete_situation
        self._policy = policy
        self._lease = lease
        self._outlook = Explainer(cluster, complete_situation, clock)

    async def ExplainWorkload(
        self, request: control_pb2.ExplainWorkloadRequest, context: Context
    ) -> control_pb2.ExplainWorkloadResponse:
        need(request.workload_id, "workload_id")
        return await self._outlook.explain(request.workload_id, limit=max(0, request.limit))

    async def PlanWorkloads(
        self, request: control_pb2.PlanWorkloadsRequest, context: Context
    ) -> control_pb2.PlanWorkloadsResponse:
        planning = PlanBuilder(
            self._cluster,
            self._complete_situation,
            self._policy,
            now=self._clock.now(),
            lease=self._lease,
        )
        plans = await planning.judge_all(request.workloads, TimeSlice(self._clock))
        return control_pb2.PlanWorkloadsResponse(plans=plans)

    async def GetCapacity(
        self, request: control_pb2.GetCapacityRequest, context: Context
    ) -> control_pb2.GetCapacityResponse:
        return await self._outlook.capacity(request.spec)
