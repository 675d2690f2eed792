"""Why one node is refused for one workload: the first filter that says no, and by how much."""

from dataclasses import dataclass
from enum import StrEnum

from persys.core.placement.columns import Row
from persys.core.placement.needs import Needs


class Filter(StrEnum):
    CLOSED = "closed"
    TRAIT = "trait"
    HOST_PORT = "host port"
    CPU = "cpu"
    MEMORY = "memory"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Rejection:
    filter: Filter
    detail: (
        str  # the same for all nodes that are refused alike, so that they can be counted together
    )
    missing: int = 0  # how much is lacking, for cpu, memory and disk


def reject(row: Row, needs: Needs) -> Rejection | None:
    """The first reason why this node cannot take it; None when it can."""
    if row.closed:
        return Rejection(Filter.CLOSED, row.closed)
    if not needs.traits <= row.traits:
        return Rejection(Filter.TRAIT, f"without {described(min(needs.traits - row.traits))}")
    if needs.host_ports and (taken := needs.host_ports & row.ports.keys()):
        return Rejection(Filter.HOST_PORT, f"with host port {min(taken)} taken")
    need, free = needs.resources, row.free
    if need.cpu_millicores > free.cpu_millicores:
        return Rejection(Filter.CPU, "short of cpu", need.cpu_millicores - free.cpu_millicores)
    if need.memory_mb > free.memory_mb:
        return Rejection(Filter.MEMORY, "short of memory", need.memory_mb - free.memory_mb)
    if need.disk_gb > free.disk_gb:
        return Rejection(Filter.DISK, "short of disk", need.disk_gb - free.disk_gb)
    return None


def described(trait: str) -> str:
    """A trait as people say it: `driver:nfs` is 'storage driver nfs'."""
    kind, _, name = trait.partition(":")
    return {"type": f"a runtime for {name}", "driver": f"storage driver {name}"}.get(
        kind, f"feature {name}"
    )
