"""The RPCs of node pools, and forecasts: what a pool would do now, and which one grows for a workload.

A plan lists the instances of the provider and shows the steps that the pool would take now; it changes
nothing.
"""

from dataclasses import dataclass
from datetime import datetime

from persys.core.nodepools.growth import blocked, cheapest, rooms_of
from persys.core.nodepools.steps import Create, PoolInstance, Step, Waiting
from persys.errors import DeniedError, NotFoundError, PersysError
from persys.infra.clock import Clock
from persys.infra.rpc.authorizer import CALLER
from persys.model.ids import WorkloadId
from persys.model.nodepool import NodePool, PoolId
from persys.model.role import Permission
from persys.scheduler.api.methods import Context, need
from persys.scheduler.nodepools.controller import PoolController
from persys.scheduler.nodepools.observed import Observed
from persys.scheduler.nodepools.pools import NodePools
from persys.scheduler.nodepools.provision import Provisioner
from persys.scheduler.state.cluster import ClusterState
from persys.wire.control.nodepools import pool_of, pool_view, spend_of, step_message
from persys.wire.gen.control.v1 import control_pb2


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """`steps` are what the pool would do now. `problem`: the provider does not answer."""

    pool: NodePool
    steps: list[Step]
    problem: str = ""

    @property
    def hour_price(self) -> float:
        """Of the machines that it would create."""
        return sum(step.machine.hour_price for step in self.steps if isinstance(step, Create))


class PoolForecast:
    def __init__(
        self,
        cluster: ClusterState,
        observed: Observed,
        controller: PoolController,
        provisioner: Provisioner,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._observed = observed
        self._controller = controller
        self._provisioner = provisioner
        self._clock = clock

    async def plan(self, pool_id: str) -> PoolPlan:
        """Lists the instances of the provider. Changes nothing."""
        pool = self._cluster.node_pools.get(pool_id)
        if pool is None:
            raise NotFoundError("node pool", pool_id)
        instances: list[PoolInstance] | None = None
        problem = ""
        try:
            instances = await self._provisioner.instances(pool, self._clock.now())
        except PersysError as err:
            problem = str(err)
        present = self._cluster.node_pools.get(pool_id, pool)
        steps = self._controller.decided(present, instances, note_idle=False)
        return PoolPlan(present, steps, problem)

    def explain(self, workload_id: WorkloadId) -> str:
        """Which pool grows for a waiting workload, and when. Empty: none."""
        if not self._cluster.node_pools:
            return ""
        now = self._clock.now()
        for pool_id, waiting in self._observed.shared_out(now).items():
            for at, one in enumerate(waiting):
                if one.workload_id == workload_id:
                    return self._explained(pool_id, waiting[: at + 1], now)
        return ""

    def _explained(self, pool_id: PoolId, waiting: list[Waiting], now: datetime) -> str:
        """The last of `waiting` is explained; those before it are served first."""
        pool = self._cluster.node_pools[pool_id]
        view = self._observed.view(pool, self._observed.machines(pool_id), now)
        rooms = rooms_of(pool, view.fleet.machines, view.nodes, now)
        last = waiting[-1]
        taken = [any(room.take(one) for room in rooms) for one in waiting]
        if taken[-1]:
            return f"a machine of node pool {pool_id} that is under way will take it"
        size = cheapest([size for size in pool.sizes if size.name in last.sizes])
        if hold := blocked(pool, view.fleet, size, now):
            return f"node pool {pool_id} does not grow for it: {hold.why}"
        if problem := self._controller.status(pool_id).problem:
            return f"node pool {pool_id} does not grow for it: {problem}"
        when = "now" if last.grows_at <= now else f"at {last.grows_at:%H:%M:%S} UTC"
        return f"node pool {pool_id} grows for it {when}: size {size.name}, {size.hour_price:g} per hour"


class NodePoolsApi:
    def __init__(
        self, pools: NodePools, controller: PoolController, forecast: PoolForecast
    ) -> None:
        self._pools = pools
        self._controller = controller
        self._forecast = forecast

    async def CreateNodePool(
        self, request: control_pb2.CreateNodePoolRequest, context: Context
    ) -> control_pb2.NodePoolAnswer:
        _check_credentials(request.pool.credentials)
        pool = await self._pools.apply(pool_of(request.pool))
        return control_pb2.NodePoolAnswer(accepted=True, pool=self._view(pool))

    async def ListNodePools(
        self, request: control_pb2.ListNodePoolsRequest, context: Context
    ) -> control_pb2.ListNodePoolsResponse:
        return control_pb2.ListNodePoolsResponse(pools=map(self._view, self._pools.all()))

    async def GetNodePool(
        self, request: control_pb2.GetNodePoolRequest, context: Context
    ) -> control_pb2.GetNodePoolResponse:
        need(request.pool_id, "pool_id")
        return control_pb2.GetNodePoolResponse(pool=self._view(self._pools.get(request.pool_id)))

    async def PlanNodePool(
        self, request: control_pb2.PlanNodePoolRequest, context: Context
    ) -> control_pb2.PlanNodePoolResponse:
        need(request.pool_id, "pool_id")
        plan = await self._forecast.plan(request.pool_id)
        return control_pb2.PlanNodePoolResponse(
            steps=map(step_message, plan.steps),
            hour_price=round(plan.hour_price, 6),
            spend_per_hour=spend_of(self._pools.machines(plan.pool)),
            problem=plan.problem,
        )

    async def PauseNodePool(
        self, request: control_pb2.PauseNodePoolRequest, context: Context
    ) -> control_pb2.NodePoolAnswer:
        need(request.pool_id, "pool_id")
        pool = await self._pools.set_paused(request.pool_id, paused=request.paused)
        return control_pb2.NodePoolAnswer(accepted=True, pool=self._view(pool))

    async def DeleteNodePool(
        self, request: control_pb2.DeleteNodePoolRequest, context: Context
    ) -> control_pb2.NodePoolAnswer:
        need(request.pool_id, "pool_id")
        pool = await self._pools.delete(request.pool_id)
        return control_pb2.NodePoolAnswer(accepted=True, pool=self._view(pool))

    def _view(self, pool: NodePool) -> control_pb2.NodePoolView:
        problem = self._controller.status(pool.pool_id).problem
        return pool_view(pool, self._pools.machines(pool), problem=problem)


def _check_credentials(name: str) -> None:
    """The provider receives the value of the secret: naming it needs the permission for secrets too."""
    caller = CALLER.get()
    if name and caller is not None and Permission.SECRETS not in caller.deeds:
        raise DeniedError(
            f"{caller.identity} may not use secret '{name}' as credentials:"
            f" expected the permission {Permission.SECRETS}",
            reason="role",
        )
