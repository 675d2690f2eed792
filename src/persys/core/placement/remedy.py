"""The smallest change that would let one node run a workload.

Each obstacle is removed from a copy of the node, and the filters run again until they pass. So a suggested
change does place the workload. If no change of the node helps, the suggestion is another node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from msgspec.structs import replace as changed

from persys.core.placement.constraints import holds, written
from persys.core.placement.filters import Filter, Rejection, described, exclusive, reject, repels
from persys.core.placement.node_index import Hold, NodeIndex
from persys.core.placement.node_slot import NodeSlot
from persys.core.placement.requirements import Requirements
from persys.model.ids import WorkloadId
from persys.model.resources import Resources

# The effort of each change for an operator. Only the order matters.
COSTS = {
    Filter.TAINT: 0.5,
    Filter.CONSTRAINT: 0.7,
    Filter.HOST_PORT: 1.1,
    Filter.PROJECT: 1.1,
    Filter.ANTI_AFFINITY: 1.2,
    **dict.fromkeys((Filter.TYPE, Filter.DRIVER, Filter.POOL, Filter.FEATURE), 8.0),
}
FREEING = 1.0  # plus the missing share of the requirement
ANOTHER_NODE = COSTS[Filter.TYPE]
_OPENING = {"cordoned": 0.3, "draining": 0.8}
_OPENING_OTHERWISE = 2.0  # a node that is not ready

UNITS = {Filter.CPU: "m", Filter.MEMORY: " MB", Filter.DISK: " GB"}
_AMOUNTS = {
    Filter.CPU: "cpu_millicores",
    Filter.MEMORY: "memory_mb",
    Filter.DISK: "disk_gb",
}


@dataclass(frozen=True, slots=True)
class Remedy:
    rejection: Rejection | None  # the first; None when it fits as it is
    change: str
    cost: float


class _Step(NamedTuple):
    """One removed obstacle: the change, its cost, and the remaining requirements."""

    needs: Requirements
    cost: float
    deed: str = ""
    another_node_with: tuple[str, ...] = ()


def remedy(slot: NodeSlot, needs: Requirements, node_index: NodeIndex) -> Remedy:
    first = rejection = reject(slot, needs)
    slot = slot.copy()  # hypothetical
    deeds: list[str] = []
    wanted: list[str] = []
    cost = 0.0
    while rejection is not None:
        step = _without(rejection, slot, needs, node_index.holders(slot.node_id))
        needs, cost = step.needs, cost + step.cost
        if step.deed:
            deeds.append(step.deed)
        wanted += step.another_node_with
        rejection = reject(slot, needs)
    if wanted:
        return Remedy(first, f"a node with {' and '.join(wanted)}", cost)
    return Remedy(first, " and ".join(deeds), cost)


def opening_cost(slot: NodeSlot) -> float:
    return _OPENING.get(slot.closed, _OPENING_OTHERWISE)


def _without(
    rejection: Rejection, slot: NodeSlot, needs: Requirements, holders: Mapping[WorkloadId, Hold]
) -> _Step:
    """Remove the obstacle from the row, or from the requirements that it returns."""
    match rejection.filter:
        case Filter.CPU | Filter.MEMORY | Filter.DISK as kind:
            if rejection.pool:
                return _free_pool(slot, needs, rejection)
            return _free(slot, needs, kind, rejection.missing)
        case Filter.CLOSED:
            return _open(slot, needs)
        case Filter.TYPE | Filter.DRIVER | Filter.POOL | Filter.FEATURE:
            lacking = needs.traits - slot.traits
            slot.traits |= lacking
            names = tuple(described(trait) for trait in sorted(lacking))
            return _Step(needs, ANOTHER_NODE, another_node_with=names)
        case Filter.TAINT:
            taint = repels(slot.taints, needs.rules)
            slot.taints -= {taint}
            return _Step(needs, COSTS[Filter.TAINT], f"tolerate taint {taint}")
        case Filter.CONSTRAINT:
            return _relax(slot, needs)
        case Filter.ANTI_AFFINITY:
            return _part(slot, needs, holders)
        case Filter.HOST_PORT | Filter.PROJECT:
            return _free_port(slot, needs, holders)


def _open(slot: NodeSlot, needs: Requirements) -> _Step:
    deed = {
        "cordoned": f"uncordon {slot.node_id}",
        "draining": f"end the drain of {slot.node_id} with uncordon",
        "not ready": f"repair {slot.node_id}",
    }.get(slot.closed, f"open {slot.node_id}, which is {slot.closed}")
    cost = opening_cost(slot)
    slot.closed = ""
    return _Step(needs, cost, deed)


def _relax(slot: NodeSlot, needs: Requirements) -> _Step:
    rules = needs.rules
    broken = next(found for found in rules.constraints if not holds(found, slot.labels))
    kept = tuple(found for found in rules.constraints if found != broken)
    lenient = replace(needs, rules=changed(rules, constraints=kept))
    return _Step(lenient, COSTS[Filter.CONSTRAINT], f"relax constraint {written(broken)}")


def _part(slot: NodeSlot, needs: Requirements, holders: Mapping[WorkloadId, Hold]) -> _Step:
    group = needs.rules.group
    who = sorted(
        found for found, hold in holders.items() if any(name == group for name, _ in hold.groups)
    )
    slot.members.pop(group, None)
    slot.apart.pop(group, None)
    deed = f"move {' and '.join(who)} of group {group} off {slot.node_id}"
    return _Step(needs, COSTS[Filter.ANTI_AFFINITY] * max(1, len(who)), deed)


def _free_port(slot: NodeSlot, needs: Requirements, holders: Mapping[WorkloadId, Hold]) -> _Step:
    port = min(needs.host_ports & slot.ports.keys())
    who = sorted(found for found, hold in holders.items() if port in hold.host_ports)
    del slot.ports[port]
    deed = f"free {port} on {slot.node_id}, used by workload {' and '.join(who)}"
    return _Step(needs, COSTS[exclusive(port)], deed)


def _free(slot: NodeSlot, needs: Requirements, kind: Filter, missing: int) -> _Step:
    name = _AMOUNTS[kind]
    need, has = getattr(needs.resources, name), getattr(slot.allocatable, name)
    slot.free += Resources(**{name: missing})
    if need > has:
        amount = f"{need}{UNITS[kind]} {kind}"
        return _Step(needs, ANOTHER_NODE, another_node_with=(amount,))
    deed = f"free {missing}{UNITS[kind]} {kind} on {slot.node_id}"
    return _Step(needs, FREEING + missing / max(1, need), deed)


def _free_pool(slot: NodeSlot, needs: Requirements, short: Rejection) -> _Step:
    assert slot.pools is not None, "only a node with several is short of one"
    slot.pools.free_gb[short.pool] = slot.pools.free_gb.get(short.pool, 0) + short.missing
    if short.needed > slot.pools.accounts.total_gb.get(short.pool, 0):
        amount = f"{short.needed} GB disk in pool {short.pool}"
        return _Step(needs, ANOTHER_NODE, another_node_with=(amount,))
    deed = f"free {short.missing} GB disk in pool {short.pool} on {slot.node_id}"
    return _Step(needs, FREEING + short.missing / max(1, short.needed), deed)
