"""The usage of a workload in both contracts. Only the encoding of the type and of the time differs."""

from datetime import datetime
from typing import TypedDict

from persys.model.ids import WorkloadId
from persys.model.node import WorkloadUsage
from persys.model.spec import WorkloadType
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import EPOCH

AnySnapshot = control_pb2.WorkloadUsageSnapshot | agent_pb2.WorkloadUsageSnapshot


class UsageFields(TypedDict):
    """The fields that both messages have."""

    workload_id: str
    cpu_percent: float
    memory_bytes: int
    disk_read_bytes: int
    disk_write_bytes: int
    net_rx_bytes: int
    net_tx_bytes: int
    source: str


def usage_of(
    message: AnySnapshot, workload_type: WorkloadType | None, collected_at: datetime | None
) -> WorkloadUsage:
    """Third-party agents may leave the type and the time empty; the figures are used anyway."""
    return WorkloadUsage(
        workload_id=WorkloadId(message.workload_id),
        type=workload_type or WorkloadType.CONTAINER,
        collected_at=collected_at or EPOCH,
        cpu_percent=message.cpu_percent,
        memory_bytes=message.memory_bytes,
        disk_read_bytes=message.disk_read_bytes,
        disk_write_bytes=message.disk_write_bytes,
        net_rx_bytes=message.net_rx_bytes,
        net_tx_bytes=message.net_tx_bytes,
        source=message.source,
    )


def usage_fields(used: WorkloadUsage) -> UsageFields:
    return UsageFields(
        workload_id=used.workload_id,
        cpu_percent=used.cpu_percent,
        memory_bytes=used.memory_bytes,
        disk_read_bytes=used.disk_read_bytes,
        disk_write_bytes=used.disk_write_bytes,
        net_rx_bytes=used.net_rx_bytes,
        net_tx_bytes=used.net_tx_bytes,
        source=used.source,
    )
