"""A simulated cluster with a node pool: a provider in virtual time, whose machines run real agents.

The provider throttles, loses answers, creates machines late or machines that never boot, and is sometimes not
reachable. A scheduler that crashes or loses its leadership during a call leaves the call as it is.

A machine counts from the call that creates it until the provider has destroyed it. After a loss of the store
the cluster may have a new uid: machines with the tag of the earlier one belong to no pool.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random

import grpc

from persys.core.nodes import closed_because
from persys.errors import ProviderThrottledError, ProviderUnavailableError
from persys.model.ids import NodeId
from persys.model.nodepool import TAG_CLUSTER_UID, Machine, MachineState, NodePool
from persys.providers.port import (
    Instance,
    InstanceState,
    MachineRequest,
    Provider,
    WorkloadApi,
)
from persys.scheduler.build import MachineSources
from persys.sim.checks.store_mirror import StoreMirror
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import Trace, rng
from persys.sim.engine.virtual_loop import later
from persys.sim.scenario.faults import power_off
from persys.sim.scenario.plan import Plan
from persys.sim.world import World
from persys.store import keys
from persys.wire.gen.control.v1 import control_pb2

POOL_ID = "burst"
MACHINES_MIN = 1
HOUR_PRICE = 0.1
IDLE_AFTER_SECONDS = 120
PROVISION_DEADLINE_SECONDS = 180
CALL_SECONDS = (0.2, 6.0)
BOOT_SECONDS = (5.0, 60.0)
LATE_SECONDS = (5.0, 150.0)
OUTAGE_SECONDS = (10.0, 120.0)
# Shares of the calls. A late machine exists some time after the call, which is not answered.
THROTTLED, NO_ANSWER, LATE, NEVER_BOOTS, OUTAGE = 0.15, 0.15, 0.2, 0.1, 0.03
START = datetime(2030, 1, 1, tzinfo=UTC)


class SimProvider:
    """Implements Provider. One account for all schedulers of a world."""

    def __init__(self, world: "PoolWorld", random: Random) -> None:
        self._world = world
        self._random = random
        self.existing: dict[str, Instance] = {}  # by the id of the provider
        self._count = 0
        self._silent_until = 0.0
        self.is_faulty = True

    def open(
        self, pool: NodePool, credentials: Mapping[str, str], workloads: WorkloadApi | None
    ) -> Provider:
        return self

    async def check(self) -> None:
        """It is always usable."""

    async def create(self, request: MachineRequest) -> Instance:
        await self._answer()
        roll = self._random.random() if self.is_faulty else 1.0
        if roll < THROTTLED:
            raise ProviderThrottledError("throttled", retry_after=timedelta(seconds=30))
        self._count += 1
        instance = Instance(
            f"i-{self._count}", request.name, request.tags, InstanceState.RUNNING, self._now()
        )
        if roll < THROTTLED + LATE:
            later(self._random.uniform(*LATE_SECONDS), lambda: self._exists(instance))
            raise ProviderUnavailableError("no answer")
        self._exists(instance)
        if roll < THROTTLED + LATE + NO_ANSWER:
            raise ProviderUnavailableError("no answer")
        await self._delay()
        return instance

    def _exists(self, instance: Instance) -> None:
        self.existing[instance.provider_id] = instance
        boots = not self.is_faulty or self._random.random() >= NEVER_BOOTS
        self._world.machine_created(
            instance, self._random.uniform(*BOOT_SECONDS) if boots else None
        )

    async def instances(self, tags: Mapping[str, str]) -> list[Instance]:
        await self._answer()
        if self.is_faulty and self._random.random() < NO_ANSWER:
            raise ProviderUnavailableError("no answer")
        return [one for one in self.existing.values() if tags.items() <= one.tags.items()]

    async def destroy(self, provider_id: str) -> None:
        await self._answer()
        if self.is_faulty and self._random.random() < NO_ANSWER:
            raise ProviderUnavailableError("no answer")
        instance = self.existing.pop(provider_id, None)
        if instance is not None:
            self._world.machine_destroyed(instance)

    async def close(self) -> None:
        """There is nothing to release."""

    async def _answer(self) -> None:
        """Sometimes no call is answered for a while."""
        await self._delay()
        time = asyncio.get_running_loop().time()
        if self.is_faulty and self._random.random() < OUTAGE:
            self._silent_until = time + self._random.uniform(*OUTAGE_SECONDS)
        if self.is_faulty and time < self._silent_until:
            raise ProviderUnavailableError("no answer")

    async def _delay(self) -> None:
        await asyncio.sleep(self._random.uniform(*CALL_SECONDS))

    def _now(self) -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time())


class PoolWorld(World):
    def __init__(self, plan: Plan, *, trace: Trace | None = None) -> None:
        self.provider = SimProvider(self, rng(plan.seed, "provider"))
        super().__init__(plan, trace=trace)
        self._machines_max = plan.shape.pool_machines
        self._checks = PoolChecks(
            self.invariants.mirror,
            hour_price=HOUR_PRICE,
            spend_per_hour_max=self._machines_max * HOUR_PRICE,
            has_lost_records=lambda: self.invariants.losses.ever,
            fail=self.invariants.fail,
        )

    def _machine_sources(self) -> MachineSources:
        return MachineSources(self.provider.open)

    def open(self, group: asyncio.TaskGroup) -> None:
        super().open(group)
        self.spawn(self._keep_pool())

    def end_faults(self) -> None:
        self.provider.is_faulty = False
        super().end_faults()

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
            )
        ]

    def machine_created(self, instance: Instance, boot_seconds: float | None) -> None:
        """`boot_seconds` None: it never boots."""
        self.trace.add("provider", f"creates {instance.name}")
        self._checks.created(instance, self.provider.existing)
        if boot_seconds is not None:
            later(boot_seconds, lambda: self._boot(instance))

    def machine_destroyed(self, instance: Instance) -> None:
        self.trace.add("provider", f"destroys {instance.name}")
        self._checks.destroyed(instance.name)
        node = self.nodes.get(instance.name)
        if node is not None and node.powered:
            power_off(self, node)
            node.docker.wipe()
            node.disk.wipe()
            node.journal = None

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
            spend_per_hour_max=self._machines_max * HOUR_PRICE,
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


class PoolChecks:
    def __init__(
        self,
        mirror: StoreMirror,
        *,
        hour_price: float,
        spend_per_hour_max: float,
        has_lost_records: Callable[[], bool],
        fail: Callable[[str, str], None],
    ) -> None:
        """`has_lost_records`: the store was lost, so records of machines and assignments may be missing."""
        self._mirror = mirror
        self._hour_price = hour_price
        self._spend_per_hour_max = spend_per_hour_max
        self._has_lost_records = has_lost_records
        self._fail = fail
        self._created: set[tuple[str, str]] = set()

    def created(self, instance: Instance, existing: Mapping[str, Instance]) -> None:
        """`existing`: all instances, also the new one."""
        uid = instance.tags[TAG_CLUSTER_UID]
        if (uid, instance.name) in self._created and not self._has_lost_records():
            self._fail("machines", f"{instance.name} was created twice")
        self._created.add((uid, instance.name))
        count = sum(one.tags[TAG_CLUSTER_UID] == uid for one in existing.values())
        if round(count * self._hour_price - self._spend_per_hour_max, 6) > 0:
            self._fail("spend", f"{count} machines cost more than {self._spend_per_hour_max:g}")

    def destroyed(self, name: str) -> None:
        """By the scheduler."""
        held = sorted(self._mirror.holds(NodeId(name)))
        if held and not self._has_lost_records():
            self._fail("machines", f"{name} was destroyed with {', '.join(held)}")


def unsettled_machines(
    mirror: StoreMirror,
    machines: Mapping[str, Machine],
    instances: Mapping[str, Instance],
    *,
    minimum: int,
    holds_volumes: Callable[[str], bool],
) -> Iterator[str]:
    """Machines that are lost, that are not nodes, or that nothing needs any more."""
    for name in sorted(machines.keys() - instances.keys()):
        yield f"machine {name} has a record and does not exist"
    for name in sorted(instances.keys() - machines.keys()):
        yield f"machine {name} exists without a record"
    for name, machine in sorted(machines.items()):
        node = mirror.nodes.get(keys.node_key(machine.node_id))
        if machine.state is not MachineState.READY:
            yield f"machine {name} is {machine.state}"
        elif node is None:
            yield f"machine {name} is not a node"
        elif why := closed_because(node):
            yield f"machine {name}: {why}"
        elif (
            len(machines) > minimum
            and not mirror.holds(machine.node_id)
            and not holds_volumes(name)
        ):
            yield f"machine {name} is idle"
    if len(machines) < minimum:
        yield f"{len(machines)} machines: the minimum is {minimum}"
