"""A simulated cluster with a node pool: a provider in virtual time, whose machines run real agents."""

import asyncio
from contextlib import suppress

import grpc

from persys.model.nodepool import TAG_CLUSTER_UID
from persys.providers.port import Instance
from persys.scheduler.build import MachineSources
from persys.sim.checks.node_pools import PoolChecks, unsettled_machines, waits_for_machine
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import Trace, rng
from persys.sim.engine.virtual_loop import later
from persys.sim.fakes.machine_provider import PROVISION_DEADLINE_SECONDS, SimProvider
from persys.sim.scenario.plan import Plan
from persys.sim.world import World
from persys.wire.gen.control.v1 import control_pb2

POOL_ID = "burst"
MACHINES_MIN = 1
HOUR_PRICE = 0.1
IDLE_AFTER_SECONDS = 60


class PoolWorld(World):
    def __init__(self, plan: Plan, *, trace: Trace | None = None) -> None:
        self.provider = SimProvider(
            rng(plan.seed, "provider"),
            created=self._machine_created,
            destroyed=self._machine_destroyed,
        )
        super().__init__(plan, trace=trace)
        self._machines_max = plan.shape.pool_machines
        # The limit of the spend may be lower than the limit of machines.
        self._affordable = rng(plan.seed, "spend").randint(
            min(2, self._machines_max), self._machines_max
        )
        self._checks = PoolChecks(
            self.invariants.mirror,
            hour_price=HOUR_PRICE,
            spend_per_hour_max=self._affordable * HOUR_PRICE,
            has_lost_records=lambda: self.invariants.losses.ever,
            fail=self.invariants.fail,
        )

    def _machine_sources(self) -> MachineSources:
        return MachineSources(self.provider.open)

    def open(self, group: asyncio.TaskGroup) -> None:
        super().open(group)
        self.spawn(self._keep_pool())

    def leftovers(self) -> list[str]:
        """After a loss of the store, machines may have the tag of the earlier cluster."""
        scheduler = self.host.scheduler
        if scheduler is None or POOL_ID not in scheduler.cluster.node_pools:
            return ["the node pool does not exist"]
        marker = scheduler.leader_key.marker
        uid = marker.uid if marker is not None else ""
        own = [one for one in self.provider.existing.values() if one.tags[TAG_CLUSTER_UID] == uid]
        return [
            *unsettled_machines(
                self.invariants.mirror,
                scheduler.cluster.machines,
                {one.name: one for one in own},
                minimum=min(MACHINES_MIN, self._machines_max),
                holds_volumes=lambda name: bool(self.nodes[name].docker.volumes),
            ),
            *waits_for_machine(
                self.invariants.mirror,
                len(scheduler.cluster.machines),
                maximum=self._affordable,
            ),
        ]

    def _machine_created(self, instance: Instance, boot_seconds: float | None) -> None:
        """`boot_seconds` None: it never boots."""
        self.trace.add("provider", f"creates {instance.name}")
        self._checks.created(instance, self.provider.existing)
        if boot_seconds is not None:
            later(boot_seconds, lambda: self._boot(instance))

    def _machine_destroyed(self, instance: Instance) -> None:
        self.trace.add("provider", f"destroys {instance.name}")
        self._checks.destroyed(instance.name)
        node = self.nodes.get(instance.name)
        if node is not None and node.powered:
            node.destroy()

    def _boot(self, instance: Instance) -> None:
        name = instance.name
        if instance.provider_id not in self.provider.existing or name in self.nodes:
            return
        if self.over.is_set():
            return
        self.nodes[name] = self.node_type(
            self.plan.seed,
            name,
            self.network,
            self.invariants,
            schedulers=tuple(self.hosts),
            cluster=self.cluster,
        )
        self.start_agent(self.nodes[name])

    async def _keep_pool(self) -> None:
        """A user creates the pool, and again if its record was lost with the store."""
        size = control_pb2.MachineSize(
            name="small", cpu_millicores=4000, memory_mb=8192, disk_gb=40, hour_price=HOUR_PRICE
        )
        pool = control_pb2.NodePoolSpec(
            pool_id=POOL_ID,
            provider="simulated",
            sizes=[size],
            min=min(MACHINES_MIN, self._machines_max),
            max=self._machines_max,
            spend_per_hour_max=self._affordable * HOUR_PRICE,
            idle_after_seconds=IDLE_AFTER_SECONDS,
            provision_deadline_seconds=PROVISION_DEADLINE_SECONDS,
        )
        request = control_pb2.CreateNodePoolRequest(pool=pool)
        sender = SimProcess("pools", self.trace, died=lambda _: None)
        while True:
            await asyncio.sleep(2.0)
            scheduler = self.host.scheduler
            if scheduler is None or POOL_ID in scheduler.cluster.node_pools:
                continue
            for name in self.hosts:
                with suppress(grpc.aio.AioRpcError):
                    await self.network.call(sender, name, "CreateNodePool", request, timeout=5.0)
