"""Decides whether a node accepts a new workload: not above its load thresholds, and never beyond its
capacity.

The load is smoothed, so that neither a short burst nor a short idle time changes the result. Updates, stops
and deletes of existing workloads are always accepted.
"""

import math
from datetime import timedelta

from msgspec import Struct

from persys.model.resources import Resources
from persys.model.spec import ComposeSpec, ContainerSpec, Spec, VMSpec, local_gb

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


def too_much(asked: Resources, *, given: Resources, allocatable: Resources) -> str:
    """The resources that would exceed the allocatable amount; "" if none."""
    found = [
        f"{name}: {taken} of {whole} {unit} allocated, and the workload requests {more}"
        for name, unit, taken, whole, more in (
            (
                "cpu",
                "millicores",
                given.cpu_millicores,
                allocatable.cpu_millicores,
                asked.cpu_millicores,
            ),
            ("memory", "MB", given.memory_mb, allocatable.memory_mb, asked.memory_mb),
            ("disk", "GB", given.disk_gb, allocatable.disk_gb, asked.disk_gb),
        )
        if more and taken + more > whole
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
            said, read = spec.reserved, spec.needs
            return Resources(
                said.cpu_millicores or read.cpu_millicores,
                said.memory_mb or read.memory_mb,
                said.disk_gb,
            )
