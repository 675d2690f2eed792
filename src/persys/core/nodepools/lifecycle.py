"""The next step of one machine, from its record, its node and the instances that the provider lists.

A provider that does not answer says nothing about a machine, and an instance that is missing from one list
may still exist: only two lists in a row without it mean that it does not exist. A create call is made once
per machine. If it was not answered, the machine either appears in a list, or is dropped when two lists after
the deadline do not have it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from msgspec.structs import replace

from persys.core.nodepools.steps import (
    Destroy,
    Drain,
    Keep,
    MachineStep,
    PoolInstance,
    PoolNode,
    Remove,
    Rule,
)
from persys.model.nodepool import Machine, MachineState, NodePool

ABSENT_LISTS = 2


def next_step(
    machine: Machine,
    pool: NodePool,
    node: PoolNode | None,
    instances: Sequence[PoolInstance] | None,
    now: datetime,
) -> MachineStep:
    """`instances`: those of the pool; None: the provider did not answer. An idle node is kept here."""
    if instances is None:
        return _without_answer(machine, node, now)
    instance = instance_of(machine, instances)
    if instance is None:
        return _absent(machine, pool, now)
    seen = replace(machine, absent_count=0, provider_id=instance.provider_id)
    match machine.state:
        case MachineState.CREATING:
            return _created(seen, pool, now)
        case MachineState.BOOTING:
            return _booting(seen, pool, node, instance, now)
        case MachineState.READY:
            return _ready(seen, pool, node, instance, now)
        case MachineState.DRAINING:
            return _draining(seen, node, now)
        case MachineState.DESTROYING:
            return _destroy(seen, now, Rule.DESTROYING, machine.reason)
        case unreachable:
            assert_never(unreachable)


def instance_of(machine: Machine, instances: Sequence[PoolInstance]) -> PoolInstance | None:
    """By the id that the provider returned; before that, by name."""
    for one in instances:
        if one.provider_id == machine.provider_id if machine.provider_id else _is(one, machine):
            return one
    return None


def in_state(machine: Machine, state: MachineState, now: datetime, reason: str = "") -> Machine:
    if machine.state is state:
        return machine
    return replace(machine, state=state, state_since=now, reason=reason)


def _is(instance: PoolInstance, machine: Machine) -> bool:
    return instance.name == machine.name


def _without_answer(machine: Machine, node: PoolNode | None, now: datetime) -> MachineStep:
    if machine.state is MachineState.BOOTING and node is not None and node.ready:
        return Keep(in_state(machine, MachineState.READY, now), Rule.READY, "its node is ready")
    return Keep(machine, Rule.NO_ANSWER, "the provider does not answer: nothing is known")


def _absent(machine: Machine, pool: NodePool, now: datetime) -> MachineStep:
    if _may_be_created_yet(machine, pool, now):
        return Keep(machine, Rule.CREATE_UNANSWERED, "the create call was not answered")
    missing = replace(machine, absent_count=machine.absent_count + 1)
    if missing.absent_count < ABSENT_LISTS:
        return Keep(missing, Rule.ABSENT_ONCE, "the provider did not list it once")
    match machine.state:
        case MachineState.CREATING:
            return Remove(missing, Rule.ABSENT, "it was not created in time", failed=True)
        case MachineState.BOOTING:
            return Remove(missing, Rule.ABSENT, "it does not exist any more", failed=True)
        case MachineState.READY | MachineState.DRAINING:
            return Remove(missing, Rule.ABSENT, "it does not exist any more")
        case MachineState.DESTROYING:
            return Remove(missing, Rule.ABSENT, machine.reason or "it is destroyed")
        case unreachable:
            assert_never(unreachable)


def _may_be_created_yet(machine: Machine, pool: NodePool, now: datetime) -> bool:
    is_creating = machine.state is MachineState.CREATING
    return is_creating and now - machine.state_since < pool.provision_deadline


def _created(machine: Machine, pool: NodePool, now: datetime) -> MachineStep:
    if pool.deleting:
        return _destroy(machine, now, Rule.DELETED, "its pool is being deleted")
    booting = in_state(machine, MachineState.BOOTING, now)
    return Keep(booting, Rule.CREATED, "the provider has created it")


def _booting(
    machine: Machine, pool: NodePool, node: PoolNode | None, instance: PoolInstance, now: datetime
) -> MachineStep:
    if node is not None and node.ready:
        return Keep(in_state(machine, MachineState.READY, now), Rule.READY, "its node is ready")
    if pool.deleting and node is None:
        return _destroy(machine, now, Rule.DELETED, "its pool is being deleted")
    if node is not None and node.workload_count:
        return Keep(machine, Rule.HAS_WORKLOADS, "its node is not ready and has workloads")
    if instance.stopped:
        return _destroy(machine, now, Rule.STOPPED, "it stopped before it was ready", failed=True)
    if now - machine.created_at >= pool.provision_deadline:
        seconds = pool.provision_deadline_seconds
        why = f"it was not a ready node within {seconds} s"
        return _destroy(machine, now, Rule.DEADLINE, why, failed=True)
    return Keep(machine, Rule.BOOTING, "its node is not ready yet")


def _ready(
    machine: Machine, pool: NodePool, node: PoolNode | None, instance: PoolInstance, now: datetime
) -> MachineStep:
    if node is None:
        return _destroy(machine, now, Rule.NODE_REMOVED, "its node was removed")
    if pool.deleting and not _is_lost(node, instance):
        return _drain(machine, now, Rule.DELETED, "its pool is being deleted")
    if node.workload_count == 0:
        if instance.stopped:
            return _destroy(machine, now, Rule.STOPPED, "it stopped and has no workloads")
        if not node.ready and now - node.since >= pool.provision_deadline:
            return _destroy(machine, now, Rule.LOST, "its node is lost and has no workloads")
        if not node.ready and pool.deleting:
            return _destroy(machine, now, Rule.DELETED, "its pool is being deleted")
    if not node.ready:
        return Keep(machine, Rule.NOT_READY, "its node is not ready")
    return Keep(machine, Rule.IN_USE, f"its node has {_counted(node.workload_count)}")


def _is_lost(node: PoolNode, instance: PoolInstance) -> bool:
    return instance.stopped or not node.ready


def _draining(machine: Machine, node: PoolNode | None, now: datetime) -> MachineStep:
    if node is None:
        return _destroy(machine, now, Rule.NODE_REMOVED, "its node was removed")
    if node.data_count:
        why = f"its node has {_counted(node.data_count)} with data: move or delete them"
        return Keep(machine, Rule.HAS_DATA, why)
    if node.workload_count:
        why = f"its node still has {_counted(node.workload_count)}"
        return Keep(machine, Rule.HAS_WORKLOADS, why)
    return _destroy(machine, now, Rule.DRAINED, machine.reason or "it is drained")


def idle_drain(machine: Machine, pool: NodePool, node: PoolNode | None, now: datetime) -> bool:
    """Whether the machine has had no workloads for long enough."""
    return (
        machine.state is MachineState.READY
        and node is not None
        and node.ready
        and node.workload_count == 0
        and node.idle_since is not None
        and now - max(node.idle_since, machine.state_since) >= pool.idle_after
    )


def drained_idle(machine: Machine, pool: NodePool, now: datetime) -> Drain:
    return _drain(machine, now, Rule.IDLE, f"it had no workloads for {pool.idle_after_seconds} s")


def _drain(machine: Machine, now: datetime, rule: Rule, why: str) -> Drain:
    return Drain(in_state(machine, MachineState.DRAINING, now, why), rule, why)


def _destroy(
    machine: Machine, now: datetime, rule: Rule, why: str, *, failed: bool = False
) -> Destroy:
    destroying = in_state(machine, MachineState.DESTROYING, now, why)
    return Destroy(destroying, machine.provider_id, machine.name, rule, why, failed)


def _counted(count: int) -> str:
    return f"{count} workload{'' if count == 1 else 's'}"
