"""Why one node is rejected for one workload: the first filter that fails, and the missing amount.

`unfit` checks what the node is, `crowded` what it runs. The detail is the same for all nodes that are
rejected for the same reason, so that they can be counted together.
"""

from dataclasses import replace
from enum import StrEnum

from msgspec import Struct

from persys.core.placement.constraints import holds, written
from persys.core.placement.index.node_slot import NodeSlot
from persys.core.placement.requirements import Requirements
from persys.model.placement import HostPort, Resources, Rules

TOLERATES_ALL = "*"


class Filter(StrEnum):
    CLOSED = "closed"
    TYPE = "type"
    DRIVER = "driver"
    POOL = "pool"
    FEATURE = "feature"
    TAINT = "taint"
    CONSTRAINT = "constraint"
    TIER = "tier"
    ANTI_AFFINITY = "anti-affinity"
    HOST_PORT = "host port"
    PROJECT = "project name"
    SIZE = "size"
    CPU = "cpu"
    MEMORY = "memory"
    DISK = "disk"


_TRAITS = (Filter.TYPE, Filter.DRIVER, Filter.POOL, Filter.FEATURE)  # the most specific first


class Rejection(Struct, frozen=True, gc=False):  # there is one per node and refused placement
    filter: Filter
    detail: str
    missing: int = 0  # the missing amount of cpu, memory or disk
    pool: str = ""  # the pool, where a node has several
    needed: int = 0  # in that pool


def reject(slot: NodeSlot, needs: Requirements) -> Rejection | None:
    """The first reason why this node cannot run it; None when it can."""
    return unfit(slot, needs) or crowded(slot, needs)


def reject_resident(slot: NodeSlot, needs: Requirements) -> Rejection | None:
    """Why it cannot stay on its node. Cordons and taints do not evict, so they are not checked.

    Nor is the largest machine: the workload has its place on one already.
    """
    if slot.largest is not None:
        slot = replace(slot, largest=None)
    return (
        _tier(slot, needs) or _lacking(slot, needs) or _unmet(slot, needs) or crowded(slot, needs)
    )


def unfit(slot: NodeSlot, needs: Requirements) -> Rejection | None:
    if slot.closed:
        return Rejection(Filter.CLOSED, slot.closed)
    if slot.tier and (closed_tier := _tier(slot, needs)):
        return closed_tier
    if lacking := _lacking(slot, needs):
        return lacking
    if slot.taints and (repelling := repels(slot.taints, needs.rules)):
        return Rejection(Filter.TAINT, f"with taint {repelling}")
    return _unmet(slot, needs)


def crowded(slot: NodeSlot, needs: Requirements) -> Rejection | None:
    group = needs.rules.group
    if group and group in (slot.members if needs.rules.apart else slot.apart):
        return Rejection(Filter.ANTI_AFFINITY, f"with another of group {group}")
    if needs.host_ports and (taken := needs.host_ports & slot.ports.keys()):
        return Rejection(exclusive(min(taken)), f"with {min(taken)} taken")
    need, free = needs.resources, slot.free
    if slot.largest is not None and (larger := oversized(slot.largest, need)):
        return larger
    if need.cpu_millicores > free.cpu_millicores:
        return Rejection(Filter.CPU, "short of cpu", need.cpu_millicores - free.cpu_millicores)
    if need.memory_mb > free.memory_mb:
        return Rejection(Filter.MEMORY, "short of memory", need.memory_mb - free.memory_mb)
    if need.disk_gb > free.disk_gb:
        return Rejection(Filter.DISK, "short of disk", need.disk_gb - free.disk_gb)
    if slot.pools is not None and (short := slot.pools.short_of(need.disk_gb, needs.pools)):
        detail = f"short of disk in pool {short.pool}"
        return Rejection(Filter.DISK, detail, short.missing_gb, short.pool, short.needed_gb)
    return None


def oversized(largest: Resources, need: Resources) -> Rejection | None:
    """Whether no single machine behind the node is large enough. An amount of 0 is not limited."""
    for wanted, most, unit in (
        (need.cpu_millicores, largest.cpu_millicores, "m cpu"),
        (need.memory_mb, largest.memory_mb, " MB memory"),
        (need.disk_gb, largest.disk_gb, " GB disk"),
    ):
        if most and wanted > most:
            detail = f"whose largest machine has {most}{unit} free"
            return Rejection(Filter.SIZE, f"{detail} (needs {wanted}{unit})")
    return None


def exclusive(taken: HostPort) -> Filter:
    return Filter.PROJECT if taken.project else Filter.HOST_PORT


def repels(taints: frozenset[str], rules: Rules) -> str:
    """The first taint that is not tolerated; empty if none. `key` tolerates every value of it."""
    tolerated = rules.tolerations
    if TOLERATES_ALL in tolerated:
        return ""
    left = [t for t in taints if t not in tolerated and t.partition("=")[0] not in tolerated]
    return min(left, default="")


def described(trait: str) -> str:
    """A trait in words: `driver:nfs` is 'storage driver nfs'."""
    kind, _, name = trait.partition(":")
    return {
        "type": f"a runtime for {name}",
        "driver": f"storage driver {name}",
        "pool": f"storage pool {name}",
        "image": f"image {name}",
    }.get(kind, f"feature {name}")


def _lacking(slot: NodeSlot, needs: Requirements) -> Rejection | None:
    if needs.traits <= slot.traits:
        return None
    lacking = needs.traits - slot.traits
    for kind in _TRAITS:
        if mine := [trait for trait in lacking if trait.startswith(f"{kind}:")]:
            lacks = (
                f"whose {_named(min(mine))} does not respond" if min(mine) in slot.silent else ""
            )
            return Rejection(kind, lacks or f"without {described(min(mine))}")
    return Rejection(Filter.FEATURE, f"without {described(min(lacking))}")


def _tier(slot: NodeSlot, needs: Requirements) -> Rejection | None:
    if not slot.tier or needs.tiers.offload:
        return None
    return Rejection(Filter.TIER, f"in tier {slot.tier} ({needs.tiers.why_not})")


def _named(trait: str) -> str:
    return f"{trait.partition(':')[2]} runtime"


def _unmet(slot: NodeSlot, needs: Requirements) -> Rejection | None:
    for constraint in needs.rules.constraints:
        if not holds(constraint, slot.labels):
            return Rejection(Filter.CONSTRAINT, f"not meeting {written(constraint)!r}")
    return None
