"""The least that would have to change for one node to take a need.

Each obstacle is taken away in thought and the one judge asked again, until it says yes: so a change that is
told does place the workload. What no change on the node can give is asked of another node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from msgspec.structs import replace as changed

from persys.core.placement.columns import Columns, Hold
from persys.core.placement.constraints import holds, written
from persys.core.placement.filters import Filter, Rejection, described, reject, repels
from persys.core.placement.needs import Needs
from persys.core.placement.row import Row
from persys.model.ids import WorkloadId
from persys.model.resources import Resources

KeyT = TypeVar("KeyT")

# How much is asked of whoever would have to do it. Only the order counts.
COSTS = {
    Filter.TAINT: 0.5,
    Filter.CONSTRAINT: 0.7,
    Filter.HOST_PORT: 1.1,
    Filter.ANTI_AFFINITY: 1.2,
    **dict.fromkeys((Filter.TYPE, Filter.DRIVER, Filter.POOL, Filter.FEATURE), 8.0),
}
FREEING = 1.0  # and the share of the need that must become free
ANOTHER_NODE = COSTS[Filter.TYPE]
_OPENING = {"cordoned": 0.3, "draining": 0.8}
_OPENING_OTHERWISE = 2.0  # a node that gives no sign

UNITS = {Filter.CPU: "m", Filter.MEMORY: " MB", Filter.DISK: " GB"}
_AMOUNTS = {
    Filter.CPU: "cpu_millicores",
    Filter.MEMORY: "memory_mb",
    Filter.DISK: "disk_gb",
}


@dataclass(frozen=True, slots=True)
class Remedy:
    change: str  # "" when it fits as it is
    cost: float


@dataclass(frozen=True, slots=True)
class _Step:
    """One obstacle taken away: what is left to judge, and what it took."""

    row: Row
    needs: Needs
    cost: float
    deed: str = ""
    another_node_with: tuple[str, ...] = ()


def remedy(row: Row, needs: Needs, columns: Columns) -> Remedy:
    deeds: list[str] = []
    wanted: list[str] = []
    cost = 0.0
    while (rejection := reject(row, needs)) is not None:
        step = _without(rejection, row, needs, columns.holders(row.node_id))
        row, needs, cost = step.row, step.needs, cost + step.cost
        deeds += [step.deed] if step.deed else []
        wanted += step.another_node_with
    if wanted:
        return Remedy(f"a node with {' and '.join(wanted)}", cost)
    return Remedy(" and ".join(deeds), cost)


def opening_cost(row: Row) -> float:
    return _OPENING.get(row.closed, _OPENING_OTHERWISE)


def _without(
    rejection: Rejection, row: Row, needs: Needs, holders: Mapping[WorkloadId, Hold]
) -> _Step:
    match rejection.filter:
        case Filter.CLOSED:
            return _opened(row, needs)
        case Filter.TYPE | Filter.DRIVER | Filter.POOL | Filter.FEATURE:
            lacking = needs.traits - row.traits
            able = replace(row, traits=row.traits | lacking)
            names = tuple(described(trait) for trait in sorted(lacking))
            return _Step(able, needs, ANOTHER_NODE, another_node_with=names)
        case Filter.TAINT:
            taint = repels(row.taints, needs.rules)
            clean = replace(row, taints=row.taints - {taint})
            return _Step(clean, needs, COSTS[Filter.TAINT], f"tolerate taint {taint}")
        case Filter.CONSTRAINT:
            return _relaxed(row, needs)
        case Filter.ANTI_AFFINITY:
            return _parted(row, needs, holders)
        case Filter.HOST_PORT:
            return _port_freed(row, needs, holders)
        case Filter.CPU | Filter.MEMORY | Filter.DISK as kind:
            return _freed(row, needs, kind, rejection.missing)


def _opened(row: Row, needs: Needs) -> _Step:
    deed = {
        "cordoned": f"uncordon {row.node_id}",
        "draining": f"end the drain of {row.node_id} with uncordon",
        "not ready": f"bring {row.node_id} back",
    }.get(row.closed, f"open {row.node_id}, which is {row.closed}")
    return _Step(replace(row, closed=""), needs, opening_cost(row), deed)


def _relaxed(row: Row, needs: Needs) -> _Step:
    rules = needs.rules
    broken = next(found for found in rules.constraints if not holds(found, row.labels))
    kept = tuple(found for found in rules.constraints if found != broken)
    lenient = replace(needs, rules=changed(rules, constraints=kept))
    return _Step(row, lenient, COSTS[Filter.CONSTRAINT], f"relax constraint {written(broken)}")


def _parted(row: Row, needs: Needs, holders: Mapping[WorkloadId, Hold]) -> _Step:
    group = needs.rules.group
    who = sorted(found for found, hold in holders.items() if hold.group == group)
    alone = replace(row, members=_less(row.members, group), apart=_less(row.apart, group))
    deed = f"move {' and '.join(who)} of group {group} off {row.node_id}"
    return _Step(alone, needs, COSTS[Filter.ANTI_AFFINITY] * max(1, len(who)), deed)


def _port_freed(row: Row, needs: Needs, holders: Mapping[WorkloadId, Hold]) -> _Step:
    port = min(needs.host_ports & row.ports.keys())
    who = sorted(found for found, hold in holders.items() if port in hold.host_ports)
    deed = f"free host port {port} on {row.node_id}, which workload {' and '.join(who)} has"
    return _Step(replace(row, ports=_less(row.ports, port)), needs, COSTS[Filter.HOST_PORT], deed)


def _less(counts: dict[KeyT, int], gone: KeyT) -> dict[KeyT, int]:
    return {key: count for key, count in counts.items() if key != gone}


def _freed(row: Row, needs: Needs, kind: Filter, missing: int) -> _Step:
    name = _AMOUNTS[kind]
    need, has = getattr(needs.resources, name), getattr(row.allocatable, name)
    enough = replace(row, free=row.free + Resources(**{name: missing}))
    if need > has:
        amount = f"{need}{UNITS[kind]} {kind}"
        return _Step(enough, needs, ANOTHER_NODE, another_node_with=(amount,))
    deed = f"free {missing}{UNITS[kind]} {kind} on {row.node_id}"
    return _Step(enough, needs, FREEING + missing / max(1, need), deed)
