"""Resource usage of workloads from two samples per container. The usage of a stack is the sum.

CPU usage needs two samples, so a workload has no usage before the second one.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct

from persys.model.ids import WorkloadId
from persys.model.node import WorkloadUsage
from persys.model.spec import WorkloadType

_NANOS = 10**9


class Sample(Struct, frozen=True):
    """One container or VM at one time. All values but memory are counters since its start."""

    workload_id: WorkloadId
    container_id: str
    at: float  # seconds on a monotonic clock
    cpu_nanos: int
    memory_bytes: int = 0
    disk_read_bytes: int = 0
    disk_write_bytes: int = 0
    net_rx_bytes: int = 0
    net_tx_bytes: int = 0


def metered(
    before: Mapping[str, Sample],
    now: Iterable[Sample],
    *,
    types: Mapping[WorkloadId, WorkloadType],
    collected_at: datetime,
    source: str,
) -> dict[WorkloadId, WorkloadUsage]:
    """`before` are the previous samples, by container; `types` are the workloads to include."""
    parts: dict[WorkloadId, list[Sample]] = {}
    for sample in now:
        if sample.workload_id in types:
            parts.setdefault(sample.workload_id, []).append(sample)
    return {
        workload_id: WorkloadUsage(
            workload_id=workload_id,
            type=types[workload_id],
            collected_at=collected_at,
            cpu_percent=sum(_cpu_percent(before.get(one.container_id), one) for one in samples),
            memory_bytes=sum(one.memory_bytes for one in samples),
            disk_read_bytes=sum(one.disk_read_bytes for one in samples),
            disk_write_bytes=sum(one.disk_write_bytes for one in samples),
            net_rx_bytes=sum(one.net_rx_bytes for one in samples),
            net_tx_bytes=sum(one.net_tx_bytes for one in samples),
            source=source,
        )
        for workload_id, samples in parts.items()
        if any(one.container_id in before for one in samples)
    }


def _cpu_percent(before: Sample | None, now: Sample) -> float:
    """Percent of one core. The counter of a restarted container starts at 0."""
    if before is None or now.at <= before.at:
        return 0.0
    used = now.cpu_nanos - before.cpu_nanos
    return 100 * (used if used >= 0 else now.cpu_nanos) / ((now.at - before.at) * _NANOS)
