"""Events, internal errors of the control plane for `persysctl doctor`, and unreadable stored records.

Contained exceptions of this scheduler and, as last reported, of agents; stored records that could not be
read; workloads that run although their node's policy would now refuse them.
"""

from collections.abc import AsyncIterator, Iterable

from persys.errors import InvalidError, RefusedError
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.scheduler.api.methods import Context, need
from persys.scheduler.auth.prefix_scope import current_prefix
from persys.scheduler.recovery.record_repair import RecordRepair
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.event_log import Bookmark, EventLog, Filter
from persys.scheduler.state.quarantine import Quarantined
from persys.wire.control.views import event_kinds, event_message
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import instant, timestamp

# Below the maximum message size of clients.
ANSWER_BYTES_MAX = 7 * 1024 * 1024
RECORDS_SHOWN_MAX = 10_000
POLICY_VIOLATION = "policy_violation"  # in the metadata of a workload's status
SHOWN_MAX = 1000


class EventsApi:
    def __init__(self, events: EventLog) -> None:
        self._events = events

    async def ListEvents(
        self, request: control_pb2.ListEventsRequest, context: Context
    ) -> control_pb2.ListEventsResponse:
        if request.limit < 0:
            raise InvalidError(
                "limit", f"{request.limit}: expected 0 for all, or a positive number"
            )
        wanted = Filter(
            request.workload_id,
            request.node_id,
            event_kinds(request.kinds),
            instant(request.since) if request.HasField("since") else None,
            prefix=current_prefix(),
        )
        found = self._events.listed(wanted, after=request.after_sequence, limit=request.limit)
        answer = control_pb2.ListEventsResponse(
            events=[event_message(numbered) for numbered in found],
            last_sequence=self._events.last_sequence,
            first_sequence=self._events.first_sequence,
        )
        if answer.ByteSize() > ANSWER_BYTES_MAX:
            raise RefusedError(
                f"{len(found)} events exceed the size of one response ({ANSWER_BYTES_MAX} bytes); "
                "request fewer with a limit or a filter"
            )
        return answer

    async def WatchEvents(
        self, request: control_pb2.WatchEventsRequest, context: Context
    ) -> AsyncIterator[control_pb2.EventView]:
        wanted = Filter(
            request.workload_id,
            request.node_id,
            event_kinds(request.kinds),
            prefix=current_prefix(),
        )
        after = request.after_sequence if request.HasField("after_sequence") else None
        async for found in self._events.watch(wanted, after=after, bookmarks=request.bookmarks):
            if isinstance(found, Bookmark):
                yield control_pb2.EventView(sequence=found.sequence)
            else:
                yield event_message(found)


class RecordsApi:
    def __init__(self, repair: RecordRepair) -> None:
        self._repair = repair

    async def ListRecords(
        self, request: control_pb2.ListRecordsRequest, context: Context
    ) -> control_pb2.ListRecordsResponse:
        shown = self._repair.all()[:RECORDS_SHOWN_MAX]
        return control_pb2.ListRecordsResponse(records=map(record_view, shown))

    async def GetRecord(
        self, request: control_pb2.GetRecordRequest, context: Context
    ) -> control_pb2.RecordView:
        need(request.key, "key")
        record, stored = await self._repair.get(request.key)
        return control_pb2.RecordView(
            record=record_view(record), value=stored.value, stored_version=stored.version
        )

    async def DeleteRecord(
        self, request: control_pb2.DeleteRecordRequest, context: Context
    ) -> control_pb2.DeleteRecordResponse:
        need(request.key, "key")
        deleted = await self._repair.delete(request.key, version=request.stored_version)
        return control_pb2.DeleteRecordResponse(accepted=True, detail=deleted.next_step)


def record_view(record: Quarantined) -> control_pb2.QuarantinedRecord:
    return control_pb2.QuarantinedRecord(
        key=record.key, reason=record.reason, type=record.kind, replaceable=record.replaceable
    )


class DiagnosticsApi:
    def __init__(self, cluster: ClusterState, supervisor: Supervisor) -> None:
        self._cluster = cluster
        self._supervisor = supervisor

    async def GetDiagnostics(
        self, request: control_pb2.GetDiagnosticsRequest, context: Context
    ) -> control_pb2.DiagnosticsView:
        return control_pb2.DiagnosticsView(
            internal_errors=map(_error, self._supervisor.recent()),
            nodes=list(self._node_errors())[:SHOWN_MAX],
            quarantined=map(record_view, self._cluster.quarantined[:SHOWN_MAX]),
            policy_violations=list(self._violations())[:SHOWN_MAX],
        )

    def _node_errors(self) -> Iterable[control_pb2.NodeErrors]:
        for node_id, member in sorted(self._cluster.nodes.items()):
            if member.internal_errors:
                errors = map(_error, member.internal_errors)
                yield control_pb2.NodeErrors(node_id=node_id, internal_errors=errors)

    def _violations(self) -> Iterable[control_pb2.PolicyViolation]:
        for workload_id, entry in sorted(self._cluster.workloads.items()):
            workload_status, bound = entry.workload_status, entry.assignment
            if workload_status is None or bound is None:
                continue
            if reason := workload_status.metadata.get(POLICY_VIOLATION):
                yield control_pb2.PolicyViolation(
                    workload_id=workload_id, node_id=bound.node_id, reason=reason
                )


def _error(error: InternalError) -> control_pb2.InternalError:
    return control_pb2.InternalError(
        component=error.component,
        where=error.where,
        key=error.key,
        text=error.text,
        count=error.count,
        last_at=timestamp(error.last_at),
    )
