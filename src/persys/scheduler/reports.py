"""What heartbeats tell, read.

Nearly all that a node says of its workloads it has said before, word for word. Whether it has is seen from
the bytes; only what is new is taken apart. What comes out is the same either way, so nobody behind this needs
to know: a repetition is as good an observation as the first, and newer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from persys.infra.aio.supervisor import InternalError
from persys.model.ids import NodeId, WorkloadId
from persys.model.observation import Observation
from persys.model.usage import NodeUsage, WorkloadUsage
from persys.wire import control
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import EPOCH


@dataclass(frozen=True, slots=True)
class Report:
    """What a heartbeat tells."""

    usage: NodeUsage
    observations: Sequence[Observation]
    removed: Sequence[WorkloadId]
    workload_usage: Sequence[WorkloadUsage]
    complete: bool
    clock_skew: timedelta
    internal_errors: tuple[InternalError, ...] = ()


class Statuses:
    """What one node said last of its workloads: the bytes, and what they mean."""

    __slots__ = ("_bytes", "_read")

    def __init__(self) -> None:
        self._bytes = b""
        self._read: list[Observation] = []

    def read(
        self, heartbeat: control_pb2.HeartbeatRequest, sender: NodeId, seen_at: datetime
    ) -> list[Observation]:
        """Consumes the heartbeat: all that may differ each time is cleared."""
        for field in ("usage", "timestamp", "workload_usage", "internal_errors"):
            heartbeat.ClearField(field)
        told = heartbeat.SerializeToString()
        if told == self._bytes:
            self._read = [replace(seen, seen_at=seen_at) for seen in self._read]
        else:
            self._bytes = told
            self._read = [
                control.observation(found, sender, seen_at) for found in heartbeat.workload_statuses
            ]
        return self._read


def read(
    heartbeat: control_pb2.HeartbeatRequest, sender: NodeId, statuses: Statuses, now: datetime
) -> Report:
    """Consumes the heartbeat. `statuses` are those of the sender."""
    return Report(
        usage=control.usage(heartbeat.usage),
        removed=[WorkloadId(gone) for gone in heartbeat.removed_workload_ids],
        workload_usage=[control.workload_usage(used) for used in heartbeat.workload_usage],
        complete=heartbeat.complete,
        clock_skew=_skew(heartbeat, now),
        internal_errors=tuple(map(_internal_error, heartbeat.internal_errors)),
        observations=statuses.read(heartbeat, sender, now),  # last, for it consumes
    )


def _internal_error(message: control_pb2.InternalError) -> InternalError:
    return InternalError(
        component=message.component,
        where=message.where,
        key=message.key,
        text=message.text,
        count=message.count,
        last_at=control.instant(message.last_at) or EPOCH,
    )


def _skew(heartbeat: control_pb2.HeartbeatRequest, now: datetime) -> timedelta:
    """How far the sender's clock is ahead; nothing if it does not tell the time."""
    told = control.instant(heartbeat.timestamp) if heartbeat.HasField("timestamp") else None
    return told - now if told is not None else timedelta()
