"""All steps of one node pool now. The same inputs give the same steps, so a plan shows what would happen."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from persys.core.nodepools.growth import Fleet, grow, number_in
from persys.core.nodepools.lifecycle import drained_idle, idle_drain, instance_of, next_step
from persys.core.nodepools.steps import (
    Destroy,
    DropPool,
    Keep,
    PoolInstance,
    PoolNode,
    Rule,
    Step,
    Waiting,
)
from persys.model.ids import NodeId
from persys.model.nodepool import Machine, MachineState, NodePool


def decide(
    pool: NodePool,
    waiting: Sequence[Waiting],
    machines: Sequence[Machine],
    nodes: Mapping[NodeId, PoolNode],
    instances: Sequence[PoolInstance] | None,
    now: datetime,
    *,
    cluster_id: str,
) -> list[Step]:
    """One step for each machine and each untracked instance, then the machines to create.

    `waiting` is in the order of the queue. `instances` is None if the provider did not answer: then nothing
    is created, and no machine is assumed to be absent.
    """
    untracked = untracked_instances(machines, instances or ())
    steps: list[Step] = [
        next_step(machine, pool, nodes.get(machine.node_id), instances, now) for machine in machines
    ]
    adopted = [step for one in untracked if (step := _adopt(one, pool, machines, nodes, now))]
    steps += adopted
    adopted_names = {step.machine.name for step in adopted}
    strangers = [one for one in untracked if one.name not in adopted_names]
    fleet = Fleet([*machines, *(step.machine for step in adopted)], strangers)
    growth = grow(pool, waiting, fleet, nodes, cluster_id, now) if instances is not None else []
    steps = _with_idle_drains(steps, pool, machines, nodes, now)
    steps += _destroyed(strangers, pool, now)
    if pool.deleting and instances is not None and not instances and not machines:
        return [DropPool(pool.pool_id)]
    return [*steps, *growth]


def untracked_instances(
    machines: Sequence[Machine], instances: Sequence[PoolInstance]
) -> list[PoolInstance]:
    """Instances without a record, also a second one with the name of a machine."""
    tracked = {
        found.provider_id for machine in machines if (found := instance_of(machine, instances))
    }
    return [one for one in instances if one.provider_id not in tracked]


def _adopt(
    instance: PoolInstance,
    pool: NodePool,
    machines: Sequence[Machine],
    nodes: Mapping[NodeId, PoolNode],
    now: datetime,
) -> Keep | None:
    """An instance whose node is registered: its record was lost, for example by an old snapshot."""
    is_known = any(machine.name == instance.name for machine in machines)
    if is_known or NodeId(instance.name) not in nodes or not number_in(instance.name):
        return None
    size = pool.size(instance.size) or max(pool.sizes, key=lambda one: one.hour_price)
    machine = Machine(
        pool.pool_id,
        number_in(instance.name),
        instance.name,
        size.name,
        size.hour_price,
        MachineState.READY,
        created_at=instance.seen_at,
        state_since=now,
        provider_id=instance.provider_id,
    )
    return Keep(machine, Rule.ADOPTED, "its node is registered, and it had no record")


def _destroyed(strangers: Sequence[PoolInstance], pool: NodePool, now: datetime) -> list[Destroy]:
    return [
        Destroy(
            None,
            one.provider_id,
            one.name,
            Rule.UNTRACKED,
            f"it has the tags of the pool and no record since {one.seen_at:%Y-%m-%d %H:%M:%S} UTC",
        )
        for one in strangers
        if now - one.seen_at >= pool.provision_deadline
    ]


def _with_idle_drains(
    steps: Sequence[Step],
    pool: NodePool,
    machines: Sequence[Machine],
    nodes: Mapping[NodeId, PoolNode],
    now: datetime,
) -> list[Step]:
    """Drain idle machines above the minimum, the most expensive first."""
    surplus = Fleet(machines).staying_count() - pool.min_machines
    idle = [
        machine
        for machine, step in zip(machines, steps, strict=False)
        if isinstance(step, Keep)
        and step.rule is Rule.IN_USE
        and idle_drain(step.machine, pool, nodes.get(machine.node_id), now)
    ]
    idle.sort(key=lambda machine: (-machine.hour_price, -machine.number))
    leaving = {machine.name for machine in idle[: max(surplus, 0)]}
    return [
        drained_idle(step.machine, pool, now)
        if isinstance(step, Keep) and step.machine.name in leaving
        else step
        for step in steps
    ]
