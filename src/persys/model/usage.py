"""Resource usage of nodes and workloads. Held in memory only."""

from datetime import datetime

from msgspec import Struct

from persys.model.ids import WorkloadId
from persys.model.spec import WorkloadType


class NodeUsage(Struct, frozen=True):
    cpu_allocated_millicores: int = 0
    cpu_used_millicores: int = 0
    memory_allocated_mb: int = 0
    memory_used_mb: int = 0
    disk_allocated_gb: int = 0
    disk_used_gb: int = 0


class WorkloadUsage(Struct, frozen=True):
    workload_id: WorkloadId
    type: WorkloadType
    collected_at: datetime
    cpu_percent: float = 0.0
    memory_bytes: int = 0
    disk_read_bytes: int = 0
    disk_write_bytes: int = 0
    net_rx_bytes: int = 0
    net_tx_bytes: int = 0
    source: str = ""
