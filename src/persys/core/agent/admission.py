"""Decides whether an agent accepts an order, and resumes one after an unclean exit.

`classify_order` compares the order with the known one: accepted, unchanged, stale or refused because of a
drain. Epoch 0 means that the sender does not use epochs, so the order is neither stale nor newer. A delete
ends its assignment: an apply with the same or a lower epoch is a late repetition, and is refused.

`too_busy` and `too_much` reject a new workload above the load thresholds or beyond the capacity of the node.
The load is smoothed, so that neither a short burst nor a short idle time changes the result. Updates, stops
and deletes of existing workloads are always accepted.

An order that crashed the agent several times while no other order ran is quarantined: it is failed, and tried
again only with a new order.
"""

import math
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from persys.model.ids import WorkloadId
from persys.model.placement import Resources
from persys.model.spec import ComposeSpec, ContainerSpec, Spec, VMSpec, local_gb
from persys.model.status import Failure, FailureReason
from persys.model.workload import Desired, Order


class AcceptedOrder(Struct, frozen=True):
    """Accepted. `order` has the highest known epoch."""

    order: Order


class Unchanged(Struct, frozen=True):
    """Already applied or in progress. `order` differs from the known one at most in its epoch."""

    order: Order


class Stale(Struct, frozen=True):
    known_epoch: int
    deleted: bool = False  # that assignment was deleted here; otherwise a newer one exists


class Draining(Struct, frozen=True):
    pass


OrderClass = AcceptedOrder | Unchanged | Stale | Draining


def classify_order(
    order: Order, known: Order | None, *, failed: bool, deleted_epoch: int, draining: bool
) -> OrderClass:
    """`failed`: the known order has failed.

    `deleted_epoch`: for an unknown id, assignments up to this epoch may have been deleted here.
    """
    if known is None and 0 < order.epoch <= deleted_epoch:
        return Stale(deleted_epoch, deleted=True)
    if known is not None and 0 < order.epoch < known.epoch:
        return Stale(known.epoch)
    if known is not None and _restores_deleted(order, known):
        return Stale(known.epoch, deleted=True)
    if known is None:
        # A scheduler with epochs sends only valid orders. Its newest order may arrive before the heartbeat
        # that ends the drain.
        return Draining() if draining and order.epoch == 0 else AcceptedOrder(order)
    if order.epoch == 0:
        order = replace(order, epoch=known.epoch, proof=known.proof)
    if _is_same_request(order, known) and not failed:
        return Unchanged(replace(known, epoch=order.epoch, proof=order.proof or known.proof))
    return AcceptedOrder(order)


def _restores_deleted(order: Order, known: Order) -> bool:
    return (
        known.desired is Desired.DELETED
        and order.desired is not Desired.DELETED
        and 0 < order.epoch <= known.epoch
    )


def _is_same_request(order: Order, known: Order) -> bool:
    match order.desired:
        case Desired.DELETED:
            return known.desired is Desired.DELETED
        case Desired.RUNNING | Desired.STOPPED:
            return order.revision == known.revision and order.desired is known.desired
        case unreachable:
            assert_never(unreachable)


QUARANTINED = "Quarantined"
CRASHES_MAX = 2


class LastExit(StrEnum):
    CLEAN = "clean"
    KILLED = "killed"  # from outside: kill -9, power, the machine
    CRASHED = "crashed"  # by a fatal signal or an exception of its own


def last_exit(*, clean: bool, trace: str) -> LastExit:
    """`trace` is the crash trace that the last run has written."""
    if clean:
        return LastExit.CLEAN
    return LastExit.CRASHED if trace.strip() else LastExit.KILLED


def crashes_after(
    crashes: Mapping[WorkloadId, int], ended: LastExit, *, alone: WorkloadId | None
) -> dict[WorkloadId, int]:
    """How often each order has crashed the agent. Only a crash while no other order ran counts."""
    if ended is not LastExit.CRASHED or not alone:
        return dict(crashes)
    return {**crashes, alone: crashes.get(alone, 0) + 1}


def quarantine(crashes: int) -> Failure | None:
    """Why an order is not resumed; None if it may be."""
    if crashes < CRASHES_MAX:
        return None
    text = f"quarantined: it crashed the agent {crashes} times; see the log of the agent"
    return Failure(FailureReason.RUNTIME_ERROR, text, code=QUARANTINED)


NODE_FULL = "NodeFull"  # the code of the rejection: another node may have capacity
_MIB = 1 << 20


class Load(Struct, frozen=True):
    """Percent of the machine's capacity."""

    cpu: float = 0.0
    memory: float = 0.0
    disk: float = 0.0


def smoothed(
    before: Load | None, sample: Load, *, elapsed: timedelta, half_life: timedelta
) -> Load:
    """Older samples count half after each half-life, however far apart the samples are."""
    if before is None or half_life <= timedelta():
        return sample
    old = math.pow(0.5, elapsed / half_life)
    return Load(
        old * before.cpu + (1 - old) * sample.cpu,
        old * before.memory + (1 - old) * sample.memory,
        old * before.disk + (1 - old) * sample.disk,
    )


def too_busy(load: Load, most: Load) -> str:
    """The resources above their threshold, with values; "" if none. 100 is never above."""
    found = [
        f"{name} {now:.0f} % used; new workloads are accepted up to {limit:g} %"
        for name, now, limit in (
            ("cpu", load.cpu, most.cpu),
            ("memory", load.memory, most.memory),
            ("disk", load.disk, most.disk),
        )
        if now > limit
    ]
    return "; ".join(found)


def too_much(requested: Resources, *, given: Resources, allocatable: Resources) -> str:
    """The resources that would exceed the allocatable amount; "" if none."""
    found = [
        f"{name}: {taken} of {total} {unit} allocated, and the workload requests {more}"
        for name, unit, taken, total, more in (
            (
                "cpu",
                "millicores",
                given.cpu_millicores,
                allocatable.cpu_millicores,
                requested.cpu_millicores,
            ),
            ("memory", "MB", given.memory_mb, allocatable.memory_mb, requested.memory_mb),
            ("disk", "GB", given.disk_gb, allocatable.disk_gb, requested.disk_gb),
        )
        if more and taken + more > total
    ]
    return "; ".join(found)


def demand_of(spec: Spec) -> Resources:
    """The resources of a spec on a node: its enforced limits; for a stack, its reservation."""
    match spec:
        case ContainerSpec():
            disk_gb = local_gb(spec.managed_volumes)
            return Resources(spec.cpu_millicores, -(-spec.memory_bytes // _MIB), disk_gb)
        case VMSpec():
            disk_gb = sum(disk.size_gb for disk in spec.disks)
            disk_gb += local_gb(spec.managed_volumes)
            return Resources(spec.vcpus * 1000, spec.memory_mb, disk_gb)
        case ComposeSpec():
            requested, read = spec.reserved, spec.needs
            return Resources(
                requested.cpu_millicores or read.cpu_millicores,
                requested.memory_mb or read.memory_mb,
                requested.disk_gb,
            )
