"""A simulated cluster with a node pool: a provider in virtual time, whose machines run real agents.

The provider throttles, loses answers and answers late. A scheduler that crashes or loses its leadership
during a call leaves the call as it is. The spend is checked at every create.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random

import grpc

from persys.errors import ProviderThrottledError, ProviderUnavailableError
from persys.model.nodepool import NodePool
from persys.providers.port import (
    Instance,
    InstanceState,
    MachineRequest,
    Provider,
    WorkloadApi,
)
from persys.scheduler.build import MachineSources
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import Trace, rng
from persys.sim.engine.virtual_loop import later
from persys.sim.scenario.faults import power_off
from persys.sim.scenario.plan import Plan
from persys.sim.world import World
from persys.wire.gen.control.v1 import control_pb2

POOL_ID = "burst"
MACHINES_MAX = 2
HOUR_PRICE = 0.1
CALL_SECONDS = (0.2, 6.0)
BOOT_SECONDS = (5.0, 60.0)
THROTTLED, NO_ANSWER = 0.15, 0.15
START = datetime(2030, 1, 1, tzinfo=UTC)


class SimProvider:
    """Implements Provider. One account for all schedulers of a world."""

    def __init__(self, world: "PoolWorld", random: Random) -> None:
        self._world = world
        self._random = random
        self.instances_by_name: dict[str, Instance] = {}
        self.names: list[str] = []  # of all machines that were ever created
        self.is_faulty = True

    def open(
        self, pool: NodePool, credentials: Mapping[str, str], workloads: WorkloadApi | None
    ) -> Provider:
        return self

    async def check(self) -> None:
        """It is always usable."""

    async def create(self, request: MachineRequest) -> Instance:
        await self._delay()
        roll = self._random.random() if self.is_faulty else 1.0
        if roll < THROTTLED:
            raise ProviderThrottledError("throttled", retry_after=timedelta(seconds=30))
        self.names.append(request.name)
        instance = Instance(
            f"i-{len(self.names)}", request.name, request.tags, InstanceState.RUNNING, self._now()
        )
        self.instances_by_name[request.name] = instance
        self._world.machine_created(request.name, self._random.uniform(*BOOT_SECONDS))
        if roll < THROTTLED + NO_ANSWER:
            raise ProviderUnavailableError("no answer")
        await self._delay()
        return instance

    async def instances(self, tags: Mapping[str, str]) -> list[Instance]:
        await self._delay()
        if self.is_faulty and self._random.random() < NO_ANSWER:
            raise ProviderUnavailableError("no answer")
        found = self.instances_by_name.values()
        return [one for one in found if tags.items() <= one.tags.items()]

    async def destroy(self, provider_id: str) -> None:
        await self._delay()
        for name, instance in list(self.instances_by_name.items()):
            if instance.provider_id == provider_id:
                del self.instances_by_name[name]
                self._world.machine_destroyed(name)

    async def close(self) -> None:
        """There is nothing to release."""

    async def _delay(self) -> None:
        await asyncio.sleep(self._random.uniform(*CALL_SECONDS))

    def _now(self) -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time())


class PoolWorld(World):
    def __init__(self, plan: Plan, *, trace: Trace | None = None) -> None:
        self.provider = SimProvider(self, rng(plan.seed, "provider"))
        super().__init__(plan, trace=trace)

    def _machine_sources(self) -> MachineSources:
        return MachineSources(self.provider.open)

    def open(self, group: asyncio.TaskGroup) -> None:
        super().open(group)
        self.spawn(self._create_pool())

    def end_faults(self) -> None:
        self.provider.is_faulty = False
        super().end_faults()

    def leftovers(self) -> list[str]:
        """Every machine exists once, and all that exist are nodes."""
        names = self.provider.names
        twice = sorted({name for name in names if names.count(name) > 1})
        return [f"machine {name} was created twice" for name in twice]

    def machine_created(self, name: str, boot_seconds: float) -> None:
        if len(self.provider.instances_by_name) > MACHINES_MAX:
            self.invariants.fail("spend", f"machine {name} is above the limit of the pool")
        self.trace.add("provider", f"creates {name}")
        later(boot_seconds, lambda: self._boot(name))

    def machine_destroyed(self, name: str) -> None:
        self.trace.add("provider", f"destroys {name}")
        node = self.nodes.get(name)
        if node is not None and node.powered:
            power_off(self, node)
            node.docker.wipe()
            node.disk.wipe()
            node.journal = None

    def _boot(self, name: str) -> None:
        if name not in self.provider.instances_by_name or name in self.nodes or self.over.is_set():
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

    async def _create_pool(self) -> None:
        """Repeated until the pool is stored: also after the store was lost."""
        size = control_pb2.MachineSize(
            name="small", cpu_millicores=4000, memory_mb=8192, disk_gb=40, hour_price=HOUR_PRICE
        )
        pool = control_pb2.NodePoolSpec(
            pool_id=POOL_ID,
            provider="simulated",
            sizes=[size],
            min=1,
            max=MACHINES_MAX,
            spend_per_hour_max=MACHINES_MAX * HOUR_PRICE,
            idle_after_seconds=7 * 24 * 3600,
            provision_deadline_seconds=300,
        )
        request = control_pb2.CreateNodePoolRequest(pool=pool)
        sender = SimProcess("pools", self.trace, died=lambda _: None)
        while True:
            await asyncio.sleep(2.0)
            for name in self.hosts:
                with suppress(grpc.aio.AioRpcError):
                    [answer] = await self.network.call(
                        sender, name, "CreateNodePool", request, timeout=5.0
                    )
                    if answer.accepted:
                        return
