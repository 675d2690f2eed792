"""Which machines a pool creates now: for its minimum, and for workloads that wait for capacity.

Every machine with a record counts towards the limits of machines and spend, from before its create call until
its destroy is confirmed. So does an instance without a record, at the highest price of the pool.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from persys.core.backoff import doubled
from persys.core.nodepools.steps import Create, Hold, PoolInstance, PoolNode, Rule, Waiting
from persys.model.ids import NodeId, WorkloadId
from persys.model.nodepool import (
    Machine,
    MachineSize,
    MachineState,
    NodePool,
    Provisioning,
    machine_name,
)
from persys.model.placement import Resources

UNDER_WAY_MAX = 5  # machines that are being created or boot, per pool
ANSWER_AFTER = timedelta(minutes=2)  # a create call without an answer for longer offers no capacity
RETRY_FIRST = timedelta(seconds=30)
RETRY_MAX = timedelta(minutes=30)
_MICRO = 1_000_000  # prices are compared as integers, so that three times 0.1 is 0.3

_UNDER_WAY = (MachineState.CREATING, MachineState.BOOTING)
_LEAVING = (MachineState.DRAINING, MachineState.DESTROYING)


@dataclass(slots=True)
class Room:
    """Capacity that waiting workloads will get without a new machine."""

    size: str
    free: Resources

    def take(self, waiting: Waiting) -> bool:
        if self.size not in waiting.sizes or not waiting.resources.fits_in(self.free):
            return False
        self.free -= waiting.resources
        return True


@dataclass(frozen=True, slots=True)
class Fleet:
    """What may exist in a pool."""

    machines: Sequence[Machine]
    untracked: Sequence[PoolInstance] = ()

    def count(self) -> int:
        return len(self.machines) + len(self.untracked)

    def under_way_count(self) -> int:
        return sum(machine.state in _UNDER_WAY for machine in self.machines)

    def staying_count(self) -> int:
        return sum(machine.state not in _LEAVING for machine in self.machines)

    def spend_micro(self, pool: NodePool) -> int:
        highest = max((_micro(size.hour_price) for size in pool.sizes), default=0)
        known = sum(_micro(machine.hour_price) for machine in self.machines)
        return known + highest * len(self.untracked)


def grow(
    pool: NodePool,
    waiting: Sequence[Waiting],
    fleet: Fleet,
    nodes: Mapping[NodeId, PoolNode],
    cluster_id: str,
    now: datetime,
) -> list[Create | Hold]:
    """The machines to create now, and why no more are created."""
    if pool.deleting:
        return []
    growth = _Growth(pool, fleet, cluster_id, now)
    while growth.staying < pool.min_machines:
        if not growth.create(cheapest(pool.sizes), Rule.MINIMUM, None):
            return growth.steps()
    rooms = [*rooms_of(pool, fleet.machines, nodes, now), *growth.rooms]
    for one in waiting:
        sizes = [size for size in pool.sizes if size.name in one.sizes]
        if not sizes or one.grows_at > now or any(room.take(one) for room in rooms):
            continue
        if not growth.create(cheapest(sizes), Rule.DEMAND, one.workload_id):
            break
        rooms.append(growth.rooms[-1])
        rooms[-1].take(one)
    return growth.steps()


def blocked(pool: NodePool, fleet: Fleet, size: MachineSize, now: datetime) -> Hold | None:
    """Why the pool cannot create a machine of this size now."""
    retry_at = pool.provisioning.retry_at
    if pool.paused:
        return Hold(Rule.PAUSED, "the pool is paused")
    if retry_at is not None and now < retry_at:
        why = f"{pool.provisioning.message or 'the last create failed'}; retried at {retry_at:%H:%M:%S} UTC"
        return Hold(Rule.BACK_OFF, why)
    if fleet.count() >= pool.max_machines:
        return Hold(Rule.MAXIMUM, f"the pool has {fleet.count()} of {pool.max_machines} machines")
    spend = fleet.spend_micro(pool)
    if spend + _micro(size.hour_price) > _micro(pool.spend_per_hour_max):
        why = (
            f"{spend / _MICRO:g} per hour is spent, and size {size.name} costs {size.hour_price:g}:"
            f" the limit is {pool.spend_per_hour_max:g}"
        )
        return Hold(Rule.SPEND, why)
    if fleet.under_way_count() >= UNDER_WAY_MAX:
        return Hold(Rule.UNDER_WAY, f"{fleet.under_way_count()} machines are under way")
    return None


def rooms_of(
    pool: NodePool, machines: Iterable[Machine], nodes: Mapping[NodeId, PoolNode], now: datetime
) -> list[Room]:
    """What machines under way and ready nodes will take."""
    rooms = []
    for machine in machines:
        size, node = pool.size(machine.size), nodes.get(machine.node_id)
        if machine.state is MachineState.READY and node is not None:
            if node.ready and not node.closed:
                rooms.append(Room(machine.size, node.free))
        elif machine.state in _UNDER_WAY and size is not None and _is_answered(machine, now):
            rooms.append(Room(machine.size, size.resources))
    return rooms


def cheapest(sizes: Sequence[MachineSize]) -> MachineSize:
    def cost(size: MachineSize) -> tuple[float, int, int, str]:
        return size.hour_price, size.resources.cpu_millicores, size.resources.memory_mb, size.name

    return min(sizes, key=cost)


def after_failure(
    provisioning: Provisioning,
    message: str,
    *,
    now: datetime,
    retry_after: timedelta = timedelta(),
) -> Provisioning:
    """No machine is created for a while. `retry_after`: what the provider asked for."""
    delay = max(
        doubled(RETRY_FIRST, provisioning.failure_count, longest=RETRY_MAX),
        min(retry_after, RETRY_MAX),
    )
    return replace(
        provisioning,
        failure_count=provisioning.failure_count + 1,
        retry_at=now + delay,
        message=message,
    )


def after_success(provisioning: Provisioning) -> Provisioning:
    return Provisioning(created_count=provisioning.created_count)


class _Growth:
    def __init__(self, pool: NodePool, fleet: Fleet, cluster_id: str, now: datetime) -> None:
        self._pool = pool
        self._fleet = fleet
        self._cluster_id = cluster_id
        self._now = now
        self._created: list[Create] = []
        self._hold: Hold | None = None
        self.rooms: list[Room] = []

    @property
    def staying(self) -> int:
        return self._fleet.staying_count()

    def create(self, size: MachineSize, rule: Rule, workload_id: WorkloadId | None) -> bool:
        self._hold = blocked(self._pool, self._fleet, size, self._now)
        if self._hold is not None:
            return False
        number = next_number(self._pool, self._fleet)
        machine = Machine(
            self._pool.pool_id,
            number,
            machine_name(self._cluster_id, self._pool.pool_id, number),
            size.name,
            size.hour_price,
            MachineState.CREATING,
            created_at=self._now,
            state_since=self._now,
        )
        why = (
            f"workload {workload_id} waits for capacity"
            if workload_id is not None
            else f"the minimum is {self._pool.min_machines}"
        )
        self._created.append(Create(machine, rule, why, workload_id))
        self._fleet = Fleet([*self._fleet.machines, machine], self._fleet.untracked)
        self.rooms.append(Room(size.name, size.resources))
        return True

    def steps(self) -> list[Create | Hold]:
        return [*self._created, *([self._hold] if self._hold is not None else [])]


def next_number(pool: NodePool, fleet: Fleet) -> int:
    """Above every number in use, also where the record of the pool is older than its machines."""
    numbers = [machine.number for machine in fleet.machines]
    numbers += [number_in(instance.name) for instance in fleet.untracked]
    return max(pool.provisioning.created_count, *numbers, 0) + 1


def number_in(name: str) -> int:
    """0: the name is not one of a machine."""
    last = name.rpartition("-")[2]
    return int(last) if last.isascii() and last.isdecimal() else 0


def _is_answered(machine: Machine, now: datetime) -> bool:
    return machine.state is MachineState.BOOTING or now - machine.state_since < ANSWER_AFTER


def _micro(price: float) -> int:
    return round(price * _MICRO)
