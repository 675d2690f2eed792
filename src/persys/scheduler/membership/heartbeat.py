"""Decodes heartbeats.

Nearly all workload statuses of a node are repeated unchanged. Equal bytes are detected and not decoded again.
The result is the same in both cases: a repeated status is a new observation with a newer time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from msgspec.structs import replace

from persys.infra.aio.supervisor import InternalError
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import NodeUsage, WorkloadUsage
from persys.model.spec import WorkloadType
from persys.model.status import Observation
from persys.scheduler.metrics.counters import Metrics
from persys.wire.control import messages as control_messages
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.limits import check as limits_check
from persys.wire.times import EPOCH, instant

log = structlog.get_logger()

LOGGED_MAX = 20_000  # nodes
# Fields that differ in nearly every heartbeat.
VOLATILE = (
    "usage",
    "timestamp",
    "workload_usage",
    "internal_errors",
    "journal_problem",
    "runtime_problem",
)


@dataclass(frozen=True, slots=True)
class Report:
    """A decoded heartbeat."""

    usage: NodeUsage
    observations: Sequence[Observation]
    removed: Sequence[WorkloadId]
    workload_usage: Sequence[WorkloadUsage]
    complete: bool
    clock_skew: timedelta
    internal_errors: tuple[InternalError, ...] = ()
    unavailable_types: frozenset[WorkloadType] = frozenset()  # their runtime does not respond
    journal_problem: str = ""  # why the agent accepts no orders
    runtime_problem: str = ""  # why the runtimes of `unavailable_types` do not respond


class ReportLimits:
    """Counts fields of reports that exceed a limit, and logs them once per node and field."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._logged: dict[NodeId, set[str]] = {}

    def note(self, node_id: NodeId, trimmed: limits_check.Trimmed) -> None:
        fields = trimmed.fields()
        if not fields:
            return
        if len(self._logged) >= LOGGED_MAX:
            self._logged.clear()
        logged = self._logged.setdefault(node_id, set())
        for field, count in fields.items():
            self._metrics.limited(field, count)
            if field not in logged:
                logged.add(field)
                log.warning("report.limited", node_id=node_id, field=field, count=count)


class ReportedStatuses:
    """The last workload statuses of one node: the bytes and the decoded observations."""

    __slots__ = ("_bytes", "_read", "is_complete", "removed")

    def __init__(self) -> None:
        self._bytes = b""
        self._read: list[Observation] = []
        self.removed: list[WorkloadId] = []
        self.is_complete = True  # no entry of it was dropped

    def read(
        self,
        heartbeat: control_pb2.HeartbeatRequest,
        sender: NodeId,
        seen_at: datetime,
        limited: ReportLimits,
    ) -> list[Observation]:
        """Consumes the heartbeat: the volatile fields are cleared."""
        for field in VOLATILE:
            heartbeat.ClearField(field)
        serialized = heartbeat.SerializeToString()
        if serialized == self._bytes:
            self._read = [replace(seen, seen_at=seen_at) for seen in self._read]
            return self._read
        self._bytes = b""  # until all of it is decoded
        trimmed = limits_check.trim(heartbeat)
        limited.note(sender, trimmed)
        self._read = [
            control_messages.observation(found, sender, seen_at)
            for found in heartbeat.workload_statuses
        ]
        self.removed = [WorkloadId(gone) for gone in heartbeat.removed_workload_ids]
        self.is_complete = not trimmed.dropped["HeartbeatRequest.workload_statuses"]
        self._bytes = serialized
        return self._read


def read(
    heartbeat: control_pb2.HeartbeatRequest,
    sender: NodeId,
    statuses: ReportedStatuses,
    now: datetime,
    limited: ReportLimits,
) -> Report:
    """Consumes the heartbeat. `statuses` are those of the sender.

    Fields that exceed a limit are cut or dropped. A list with dropped entries is not complete: a workload
    that is missing from it may still exist on the node.
    """
    limited.note(sender, limits_check.trim(heartbeat, VOLATILE))
    usage = control_messages.usage(heartbeat.usage)
    workload_usage = [control_messages.workload_usage(used) for used in heartbeat.workload_usage]
    skew = _skew(heartbeat, now)
    unavailable = frozenset(
        kind for kind in WorkloadType if kind.value in heartbeat.unavailable_types
    )
    errors = tuple(map(_internal_error, heartbeat.internal_errors))
    journal_problem, runtime_problem = heartbeat.journal_problem, heartbeat.runtime_problem
    observations = statuses.read(heartbeat, sender, now, limited)  # last: it clears fields
    return Report(
        usage=usage,
        observations=observations,
        removed=statuses.removed,
        workload_usage=workload_usage,
        complete=heartbeat.complete and statuses.is_complete,
        clock_skew=skew,
        internal_errors=errors,
        unavailable_types=unavailable,
        journal_problem=journal_problem,
        runtime_problem=runtime_problem,
    )


def _internal_error(message: control_pb2.InternalError) -> InternalError:
    return InternalError(
        component=message.component,
        where=message.where,
        key=message.key,
        text=message.text,
        count=message.count,
        last_at=instant(message.last_at) or EPOCH,
    )


def _skew(heartbeat: control_pb2.HeartbeatRequest, now: datetime) -> timedelta:
    """How far the sender's clock is ahead; 0 if it sends no timestamp."""
    sent_at = instant(heartbeat.timestamp) if heartbeat.HasField("timestamp") else None
    return sent_at - now if sent_at is not None else timedelta()
